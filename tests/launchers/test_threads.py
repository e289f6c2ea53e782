"""Programs in threads of this process."""

import os
import pathlib
import threading
import time
from collections.abc import Iterator

import launchpad as lp
import pytest

from launchers.layout import GroupLayout, Layout
from launchers.run import RunFailed, launch
from tests.support import wait_for


class Echo:
    def say(self, word: str) -> str:
        return word


class Failing:
    def run(self) -> None:
        raise RuntimeError("the dog ate it")


def program_of(*nodes: lp.PyNode) -> lp.Program:
    program = lp.Program("threads")
    for index, node in enumerate(nodes):
        program.add_node(node, label=f"node{index}")
    return program


def node_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("node")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_for(lambda: not [t for t in set(threading.enumerate()) - before if _is_ours(t)])


def _is_ours(thread: threading.Thread) -> bool:
    return thread.name.startswith(("node", "probe", "stop handler", "supervisor"))


def test_a_program_runs_until_it_is_stopped_and_leaves_no_thread() -> None:
    node = lp.CourierNode(Echo)
    handle = node.create_handle()
    with launch(program_of(node), "test_mt") as run:
        run.wait_until_running(20)
        assert handle.dereference().say("hello") == "hello"
        assert node_threads() == ["node0/0"]
    result = run.wait(0)
    assert result is not None and result.outcome == "stopped"
    assert node_threads() == []


def test_a_program_ends_when_every_node_has_finished() -> None:
    run = launch(program_of(lp.PyNode(lambda: None), lp.PyNode(lambda: None)), "local_mt")
    result = run.wait(20)
    assert result is not None
    assert (result.outcome, result.reason) == ("finished", "every node has finished")


def test_lp_stop_ends_the_program() -> None:
    run = launch(program_of(lp.PyNode(lp.stop), lp.CourierNode(Echo)), "test_mt")
    result = run.wait(20)
    assert result is not None
    assert (result.outcome, result.reason) == ("stopped", "node0/0 called stop")


def test_a_failure_ends_the_program_and_is_raised_where_it_was_launched() -> None:
    with (
        pytest.raises(RunFailed, match="(?s)Node node0/0: .*RuntimeError: the dog ate it"),
        launch(program_of(lp.CourierNode(Failing), lp.CourierNode(Echo)), "test_mt") as run,
    ):
        run.wait(20)
    assert run.status["node1/0"].state == "stopped"


def test_a_failure_that_the_layout_ignores_leaves_the_rest_running() -> None:
    program = program_of(lp.CourierNode(Failing), lp.CourierNode(Echo))
    layout = Layout({"node0": GroupLayout(on_failure="ignore")})
    with launch(program, "test_mt", layout) as run:
        wait_for(lambda: run.status["node0/0"].state == "failed")
        wait_for(lambda: run.status["node1/0"].state == "running")
        assert run.wait(0.1) is None
    result = run.wait(0)
    assert result is not None and result.outcome == "stopped"


def test_waiting_for_a_program_that_ended_early_says_so() -> None:
    run = launch(program_of(lp.CourierNode(Failing), lp.CourierNode(Echo)), "test_mt")
    run.wait(20)
    with pytest.raises(RunFailed, match="ended before"):
        run.wait_until_running(20)


class Client:
    def __init__(self, server: Echo) -> None:
        self._server = server

    def run(self) -> None:
        lp.wait_for_stop()
        self._server.say("still there?")


def test_holders_stop_before_those_whose_handles_they_hold() -> None:
    program = lp.Program("order")
    server = program.add_node(lp.CourierNode(Echo), label="server")
    server.set_client_kwargs(call_timeout=2, wait_for_ready=False)
    program.add_node(lp.CourierNode(Client, server), label="client")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
    result = run.wait(0)
    assert result is not None and result.failures == {}
    assert run.status["client/0"].since <= run.status["server/0"].since


def test_a_failure_while_it_stops_is_told() -> None:
    def node() -> None:
        lp.wait_for_stop()
        raise RuntimeError("the dog ate the checkpoint")

    with launch(program_of(lp.PyNode(node)), "local_mt") as run:
        run.wait_until_running(20)
    result = run.wait(0)
    assert result is not None and result.outcome == "stopped"
    assert "the dog ate the checkpoint" in result.failures["node0/0"]


def test_a_finished_node_counts_as_one_that_was_running() -> None:
    with launch(program_of(lp.PyNode(print), lp.CourierNode(Echo)), "local_mt") as run:
        wait_for(lambda: run.status["node0/0"].state == "finished")
        run.wait_until_running(20)


def test_a_node_whose_constructor_fails_leaves_nothing_behind() -> None:
    def failing() -> None:
        raise RuntimeError("never made")

    result = launch(program_of(lp.CourierNode(failing)), "local_mt").wait(20)
    assert result is not None and result.outcome == "failed"


def test_a_stop_handler_that_blocks_does_not_keep_others_from_stopping() -> None:
    release = threading.Event()

    def node() -> None:
        lp.register_stop_handler(release.wait)
        lp.wait_for_stop()

    with launch(program_of(lp.PyNode(node), lp.CourierNode(Echo)), "local_mt") as run:
        run.wait_until_running(20)
    result = run.wait(0)
    assert result is not None and result.forced == {}
    release.set()


def test_a_node_that_never_looks_is_interrupted_and_named() -> None:
    def spin() -> None:
        while True:
            time.sleep(0.01)

    layout = Layout({"node0": GroupLayout(stop_seconds=0.2)})
    with launch(program_of(lp.PyNode(spin)), "local_mt", layout) as run:
        run.wait_until_running(20)
    result = run.wait(0)
    assert result is not None
    assert result.forced == {"node0/0": "did not stop in time and was ended"}
    assert node_threads() == []


def test_a_node_that_cannot_be_interrupted_is_left_behind_and_named() -> None:
    release = threading.Event()
    layout = Layout({"node0": GroupLayout(stop_seconds=0.1)})
    with launch(program_of(lp.PyNode(release.wait)), "local_mt", layout) as run:
        run.wait_until_running(20)
    result = run.wait(0)
    assert result is not None
    assert "left behind" in result.forced["node0/0"]
    release.set()
    wait_for(lambda: not node_threads())


def test_stop_handlers_of_launchpad_are_called() -> None:
    called = threading.Event()

    def node() -> None:
        lp.register_stop_handler(called.set)
        called.wait()

    with launch(program_of(lp.PyNode(node)), "local_mt") as run:
        run.wait_until_running(20)
    result = run.wait(0)
    assert called.is_set()
    assert result is not None and result.forced == {}


def test_two_programs_at_once_have_stop_handlers_of_their_own() -> None:
    events = [threading.Event(), threading.Event()]

    def program(event: threading.Event) -> lp.Program:
        def node() -> None:
            lp.register_stop_handler(event.set)
            event.wait()

        return program_of(lp.PyNode(node))

    with launch(program(events[0]), "local_mt") as outer:
        outer.wait_until_running(20)
        with launch(program(events[1]), "local_mt") as inner:
            inner.wait_until_running(20)
        assert events[1].is_set() and not events[0].is_set()


def test_a_colocation_runs_and_stops_with_its_parts() -> None:
    echo = lp.CourierNode(Echo)
    handle = echo.create_handle()
    with launch(program_of(lp.MultiThreadingColocation([echo])), "local_mt") as run:
        run.wait_until_running(20)
        assert handle.dereference().say("hi") == "hi"


def test_a_launch_works_from_a_thread_that_is_not_the_main_one() -> None:
    outcomes = []

    def launch_here() -> None:
        result = launch(program_of(lp.PyNode(lp.stop), lp.CourierNode(Echo)), "local_mt").wait(20)
        outcomes.append(result.outcome if result else None)

    thread = threading.Thread(target=launch_here)
    thread.start()
    thread.join(30)
    assert outcomes == ["stopped"]


def test_what_nodes_print_goes_to_their_logs(tmp_path: pathlib.Path) -> None:
    program = program_of(lp.PyNode(lambda: print("from a node")))
    launch(program, "local_mt", run_directory=os.fspath(tmp_path / "run")).wait(20)
    assert (tmp_path / "run/logs/node0-0.log").read_text() == "from a node\n"


def test_a_stop_handler_that_got_lost_is_called_once_more() -> None:
    calls = []
    ended = threading.Event()

    def handler() -> None:
        calls.append(time.monotonic())
        if len(calls) == 2:
            ended.set()

    def work() -> None:
        lp.register_stop_handler(handler)
        ended.wait(20)

    with launch(program_of(lp.PyNode(work)), "local_mt") as run:
        run.wait_until_running(20)
    result = run.wait(0)
    assert result is not None and result.forced == {}
    assert len(calls) == 2 and calls[1] - calls[0] > 1
