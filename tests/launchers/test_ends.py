"""Programs end wherever `lp.stop` is called, and can be launched from any thread."""

import pathlib
import threading
from concurrent import futures

import launchpad as lp
import pytest

from launchers.run import launch
from launchers.status import Result
from nodes.service import node
from programs.program import Program
from tests.support import wait_for

MODES = ["test_mt", "local_mp"]


class Stopper:
    """Ends the program when it is asked to, in a thread that is not the node's."""

    def stop_in_call(self) -> None:
        lp.stop()

    def stop_in_thread(self) -> None:
        threading.Thread(target=lp.stop).start()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["stop_in_call", "stop_in_thread"])
def test_a_program_can_be_ended_from_every_thread_of_a_node(mode: str, method: str) -> None:
    program = Program("stopper")
    handle = program.add_node(node(Stopper), label="stopper")
    run = launch(program, mode)
    run.wait_until_running(60)
    getattr(handle.dereference(), method)()
    result = run.wait(20)
    assert result is not None
    assert (result.outcome, result.reason) == ("stopped", "stopper/0 called stop")


def test_no_thread_of_this_process_can_end_a_program_that_is_over() -> None:
    program = Program("stopper")
    program.add_node(node(Stopper), label="stopper")
    with launch(program, "test_mt") as run:
        run.wait_until_running(60)
    with pytest.raises(AssertionError, match="context was not instantiated"):
        lp.stop()


@pytest.mark.parametrize("mode", MODES)
def test_a_program_can_be_launched_from_any_thread(mode: str, tmp_path: pathlib.Path) -> None:
    def launch_and_stop(number: int) -> Result | None:
        program = Program("stopper")
        handle = program.add_node(node(Stopper), label="stopper")
        run = launch(program, mode, run_directory=str(tmp_path / str(number)))
        run.wait_until_running(60)
        handle.dereference().stop_in_call()
        return run.wait(20)

    for number in range(3):
        with futures.ThreadPoolExecutor(1) as thread:
            result = thread.submit(launch_and_stop, number).result(90)
        assert result is not None and result.outcome == "stopped"
    wait_for(lambda: not any(t.name.startswith("stopper/") for t in threading.enumerate()))
