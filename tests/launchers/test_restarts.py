"""What becomes of replicas whose policy is to start again."""

import dataclasses
import os
import pathlib
import signal
import time

import launchpad as lp
import pytest

from launchers.layout import GroupLayout, Layout
from launchers.run import RunFailed, launch
from nodes import contract
from nodes.contract import RestartBudget
from nodes.service import node
from programs.program import Program
from tests.support import wait_for

AGAIN = Layout({"node": GroupLayout(on_failure="restart", restart=RestartBudget(3, 60.0, 0.05))})


class FailsAtFirst:
    """Fails in its first lives, and works until it is stopped in the next."""

    def __init__(self, file: str, failures: int) -> None:
        self._runtime = contract.runtime()
        self._file = file
        self._failures = failures
        with open(file, "a") as made:
            made.write("made\n")

    def lives(self) -> int:
        return pathlib.Path(self._file).read_text().count("life")

    def run(self) -> None:
        with open(self._file, "a") as file:
            file.write("life\n")
        if self.lives() <= self._failures:
            raise RuntimeError(f"the dog ate it in life {self.lives()}")
        self._runtime.wait_for_stop()


class Server:
    """Serves, and tells its process."""

    def process(self) -> int:
        return os.getpid()


def failing(directory: pathlib.Path, failures: int) -> Program:
    program = Program("again")
    program.add_node(node(FailsAtFirst, str(directory / "lives"), failures), label="node")
    return program


@pytest.mark.parametrize("mode", ["test_mt", "local_mp"])
def test_a_replica_that_fails_comes_back_as_often_as_its_budget_allows(
    mode: str, tmp_path: pathlib.Path
) -> None:
    program = failing(tmp_path, failures=3)
    handle = program.groups["node"][0].create_handle()
    with launch(program, mode, AGAIN, str(tmp_path / "run")) as run:
        wait_for(lambda: run.status["node/0"].restarts == 3, 60)
        wait_for(lambda: run.status["node/0"].state == "running")
        assert handle.dereference().lives() == 4
        assert (tmp_path / "lives").read_text().count("made") == 4  # each life has its own
        assert "the dog ate it in life 3" in (run.status["node/0"].error or "")
    result = run.wait(0)
    assert result is not None and result.outcome == "stopped"
    assert result.restarts == {"node/0": 3} and not result.failures
    changes = [line.split(" ", 2)[2] for line in (tmp_path / "run/logs/states.log").open()]
    failed = [f"restarting: RuntimeError: the dog ate it in life {n}\n" for n in (1, 2, 3)]
    assert [change for change in changes if change.startswith("restarting")] == failed
    assert changes[-1] == "stopped\n"


@pytest.mark.parametrize("mode", ["test_mt", "local_mp"])
def test_one_failure_too_many_ends_the_program(mode: str, tmp_path: pathlib.Path) -> None:
    run = launch(failing(tmp_path, failures=9), mode, AGAIN, str(tmp_path / "run"))
    result = run.wait(90)
    assert result is not None and result.outcome == "failed"
    assert result.reason == "node/0 failed again, after 3 restarts"
    assert "the dog ate it in life 4" in result.failures["node/0"]


def test_restarts_long_ago_do_not_count(tmp_path: pathlib.Path) -> None:
    budget = RestartBudget(count=1, window_seconds=0.3, backoff_seconds=0.4)
    layout = Layout({"node": GroupLayout(on_failure="restart", restart=budget)})
    with launch(failing(tmp_path, failures=3), "test_mt", layout) as run:
        wait_for(lambda: run.status["node/0"].state == "running" and run.status["node/0"].restarts)
        wait_for(lambda: run.status["node/0"].restarts == 3)


def test_the_default_is_to_end_the_program(tmp_path: pathlib.Path) -> None:
    with (
        pytest.raises(RunFailed, match="the dog ate it in life 1"),
        launch(failing(tmp_path, failures=1), "test_mt") as run,
    ):
        run.wait(20)


def test_a_program_can_be_stopped_while_a_replica_waits_to_start_again(
    tmp_path: pathlib.Path,
) -> None:
    budget = RestartBudget(backoff_seconds=60.0)
    layout = Layout({"node": GroupLayout(on_failure="restart", restart=budget)})
    with launch(failing(tmp_path, failures=1), "test_mt", layout) as run:
        wait_for(lambda: run.status["node/0"].state == "restarting")
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert run.status["node/0"].state == "stopped"


def test_a_killed_process_comes_back_where_its_clients_know_it(tmp_path: pathlib.Path) -> None:
    program = Program("again")
    handle = program.add_node(node(Server), label="node")
    with launch(program, "local_mp", AGAIN, str(tmp_path / "run")) as run:
        run.wait_until_running(60)
        client = handle.dereference()
        first = client.process()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: run.status["node/0"].restarts == 1)
        wait_for(lambda: run.status["node/0"].state == "running")
        assert handle.dereference().process() not in (first, os.getpid())
        assert run.status["node/0"].error == "Its process was ended by SIGKILL"


def test_a_budget_can_be_read_in_the_plan(tmp_path: pathlib.Path) -> None:
    with launch(failing(tmp_path, 0), "test_mt", AGAIN) as run:
        replica = run.plan.describe()["replicas"]["node/0"]
    assert replica["on_failure"] == "restart"
    assert replica["restart"] == dataclasses.asdict(RestartBudget(3, 60.0, 0.05))


def test_a_node_of_somebody_else_can_be_started_again(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "lives"

    def work() -> None:
        with open(file, "a") as lives:
            lives.write("life\n")
        if file.read_text().count("life") < 2:
            raise RuntimeError("not yet")

    program = lp.Program("foreign")
    program.add_node(lp.PyNode(work), label="node")
    result = launch(program, "local_mt", AGAIN).wait(20)
    assert result is not None and result.outcome == "finished"
    assert result.restarts == {"node/0": 1}
