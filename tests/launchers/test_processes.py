"""Programs in processes of this machine."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver

import launchpad as lp
import psutil
import pytest

from launchers.layout import GroupLayout, Layout
from launchers.run import Run, RunFailed, launch
from tests.support import wait_for


class Echo:
    def say(self, word: str) -> str:
        return word

    def where(self) -> tuple[int, str, str]:
        return os.getpid(), " ".join(psutil.Process().cmdline()), os.environ["CUDA_VISIBLE_DEVICES"]


class Failing:
    def run(self) -> None:
        raise RuntimeError("the dog ate it")


class Exiting:
    def run(self) -> None:
        sys.exit(3)


class Spinning:
    def run(self) -> None:
        while True:
            time.sleep(0.01)


def program_of(*nodes: lp.PyNode) -> lp.Program:
    program = lp.Program("processes")
    for index, node in enumerate(nodes):
        program.add_node(node, label=f"node{index}")
    return program


def children() -> list[psutil.Process]:
    """Returns the processes of replicas, all over the machine, that this process launched."""
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if process.cmdline() and process.cmdline()[0].startswith("launchgraph processes")
    ]


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "run"


def test_nodes_run_in_processes_that_say_what_they_are(directory: pathlib.Path) -> None:
    node = lp.CourierNode(Echo)
    handle = node.create_handle()
    with launch(program_of(node), "local_mp", run_directory=str(directory)) as run:
        run.wait_until_running(60)
        pid, title, gpus = handle.dereference().where()
        assert pid != os.getpid()
        assert title.strip() == "launchgraph processes node0/0"
        assert gpus == ""
    assert not psutil.pid_exists(pid)
    assert (directory / "logs/node0-0.log").exists()


def test_a_failure_is_told_with_its_traceback_and_stops_the_others(
    directory: pathlib.Path,
) -> None:
    program = program_of(lp.CourierNode(Failing), lp.CourierNode(Echo))
    run = launch(program, "local_mp", run_directory=str(directory))
    result = run.wait(60)
    assert result is not None
    assert (result.outcome, result.reason) == ("failed", "node0/0 failed")
    assert result.failures["node0/0"].strip().endswith("RuntimeError: the dog ate it")
    assert "the dog ate it" in (directory / "logs/node0-0.log").read_text()
    assert children() == []


def test_an_exit_status_is_not_lost(directory: pathlib.Path) -> None:
    run = launch(program_of(lp.CourierNode(Exiting)), "local_mp", run_directory=str(directory))
    result = run.wait(60)
    assert result is not None
    assert result.failures == {"node0/0": "SystemExit: the node exited with status 3"}


def test_a_killed_process_is_a_failure_that_names_the_signal(directory: pathlib.Path) -> None:
    node = lp.CourierNode(Echo)
    handle = node.create_handle()
    with (
        pytest.raises(RunFailed, match="Its process was ended by SIGKILL"),
        launch(program_of(node), "local_mp", run_directory=str(directory)) as run,
    ):
        run.wait_until_running(60)
        os.kill(handle.dereference().where()[0], signal.SIGKILL)
        assert run.wait(20)


def test_a_node_that_never_looks_is_ended_and_named(directory: pathlib.Path) -> None:
    layout = Layout({"node0": GroupLayout(stop_seconds=0.2)})
    program = program_of(lp.CourierNode(Spinning))
    with launch(program, "local_mp", layout, str(directory)) as run:
        run.wait_until_running(60)
    result = run.wait(0)
    assert result is not None
    assert (result.outcome, result.forced) == (
        "stopped",
        {"node0/0": "did not stop in time and was ended"},
    )
    assert children() == []


def test_a_run_can_be_stopped_while_it_starts(directory: pathlib.Path) -> None:
    run = launch(
        program_of(*(lp.CourierNode(Echo) for _ in range(6))),
        "local_mp",
        run_directory=str(directory),
    )
    run.stop()
    result = run.wait(20)
    assert result is not None and result.outcome == "stopped"
    wait_for(lambda: children() == [])


class Forking:
    def run(self) -> None:
        subprocess.Popen(["sleep", "97"])
        if os.fork() == 0:
            time.sleep(97)
        os._exit(0)


def test_what_a_node_starts_ends_with_it(directory: pathlib.Path) -> None:
    run = launch(program_of(lp.CourierNode(Forking)), "local_mp", run_directory=str(directory))
    result = run.wait(60)
    assert result is not None
    assert "exited with status 0" in result.failures["node0/0"]
    assert children() == []
    started = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "97"]]
    wait_for(lambda: not any(process.is_running() for process in started), 5)  # it was killed


def test_a_terminated_process_is_a_failure(directory: pathlib.Path) -> None:
    node = lp.CourierNode(Echo)
    handle = node.create_handle()
    run = launch(program_of(node), "local_mp", run_directory=str(directory))
    run.wait_until_running(60)
    os.kill(handle.dereference().where()[0], signal.SIGTERM)
    result = run.wait(20)
    assert result is not None
    assert result.failures == {"node0/0": "Its process was ended by SIGTERM"}


LAUNCHER = """
import launchpad as lp, os, sys, time
from launchers.run import launch
class Echo: pass
if __name__ == "__main__":
    program = lp.Program("orphans")
    for _ in range(3):
        program.add_node(lp.CourierNode(Echo), label="echo")
    run = launch(program, "local_mp", run_directory=sys.argv[1])
    run.wait_until_running(60)
    print("running", flush=True)
    run.wait()
"""


def test_no_process_outlives_a_launcher_that_is_killed(directory: pathlib.Path) -> None:
    script = directory.parent / "launcher.py"
    script.write_text(LAUNCHER)
    with subprocess.Popen(
        [sys.executable, script, directory],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"running\n"
        family = psutil.Process(launcher.pid).children(recursive=True)
        assert len(family) >= 4  # three nodes and the fork server
        launcher.kill()
    wait_for(lambda: not any(map(_alive, family)), 5, "all processes gone")


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_runs_follow_one_another_in_one_process(tmp_path: pathlib.Path) -> None:
    for index in range(3):
        run: Run = launch(
            program_of(lp.PyNode(lp.stop), lp.CourierNode(Echo)),
            "local_mp",
            run_directory=str(tmp_path / str(index)),
        )
        result = run.wait(60)
        assert result is not None and result.outcome == "stopped"


def test_a_fork_server_whose_launcher_is_gone_already_ends_at_once() -> None:
    """Nobody is its own parent: so the process looks like one whose launcher has died."""
    code = (
        "import os; from launchers import leash\n"
        "os.environ[leash.LAUNCHER_PID] = str(os.getpid())\n"
        "import importlib; importlib.reload(leash); print('lives')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (1, "")


def test_a_killed_fork_server_is_replaced_by_one_that_is_tied_to_the_launcher(
    directory: pathlib.Path,
) -> None:
    layout = Layout({"node0": GroupLayout(on_failure="restart")})
    with launch(program_of(lp.CourierNode(Echo)), "local_mp", layout, str(directory)) as run:
        run.wait_until_running(60)
        server = fork_server_pid()
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: run.status["node0/0"].restarts)
        wait_for(lambda: run.status["node0/0"].state == "running", 60)
        other = fork_server_pid()
        assert other != server
        wait_for(lambda: os.getsid(other) == other)  # The leash gives it a session of its own.


def fork_server_pid() -> int:
    pid: int = forkserver._forkserver._forkserver_pid
    return pid
