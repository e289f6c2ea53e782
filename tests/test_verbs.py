"""`launch.py status` and `launch.py stop`, on real runs."""

import json
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.command_line import launch, launched, started, states
from tests.support import wait_for

QUICK = ("--num_actors=1", "--config.min_replay_size=64", "--config.batch_size=32")


IDLE = """
import launchpad as lp

def draw():
    program = lp.Program("idle")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="node")
    return program
"""


@pytest.fixture
def launcher(tmp_path: pathlib.Path) -> Iterator[psutil.Popen]:
    """A run in the directory `r`, all of whose nodes are running."""
    with started(tmp_path, "--run_dir=r", "--nostop_when_solved", *QUICK) as process:
        wait_for(lambda: states(tmp_path / "r") == {"running"}, 60)
        counts = tmp_path / "r/counts.json"
        wait_for(lambda: counts.exists() and "environment_steps" in counts.read_text(), 60)
        yield process


def test_a_run_that_only_begins_can_be_stopped(tmp_path: pathlib.Path) -> None:
    with started(tmp_path, "--run_dir=r", *QUICK) as process:
        wait_for(lambda: (tmp_path / "r/lock").exists(), 60)
        assert not (tmp_path / "r/plan.json").exists()
        stop = launch(tmp_path, "stop", "r")
        assert stop.returncode == 0, stop.stdout
        assert process.wait(20) == 0
    assert json.loads((tmp_path / "r/result.json").read_text())["outcome"] == "stopped"


def test_a_run_is_shown_and_ended_from_another_terminal(
    launcher: psutil.Popen, tmp_path: pathlib.Path
) -> None:
    counts = tmp_path / "r/counts.json"
    wait_for(lambda: "weight_age_versions_p50" in counts.read_text(), 60)
    shown = launch(tmp_path, "status", "r")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("r: apex-catch, running\n")
    assert "learner/0" in shown.stdout and "environment steps" in shown.stdout
    lines = " ".join(shown.stdout.split())
    for pattern in (
        r"replay: [\d,]+ of 100,000 items \(\d+%\), about [\d,]+ MiB; [\d,]+ inserts/s, "
        r"[\d,]+ samples/s, \d\.\d\d samples/insert",
        r"priorities: [\d.]+ at most; \d+% from [\d.]+",
        r"new priorities: [\d,]+ applied, [\d,]+ late \(the item was gone\), [\d,]+ dropped",
        r"weights behind what is learned from: [\d.]+, [\d.]+, [\d.]+ s old, "
        r"\d+, \d+, \d+ versions",
    ):
        assert re.search(pattern, lines), lines
    stopped = launch(tmp_path, "stop", "r")
    assert stopped.returncode == 0
    assert stopped.stdout == "r: stopped: launch.py stop asked for it\n"
    assert launcher.wait(20) == 0
    result = json.loads((tmp_path / "r/result.json").read_text())
    assert result["outcome"] == "stopped"
    again = launch(tmp_path, "stop", "r")
    assert (again.returncode, again.stdout) == (0, stopped.stdout)
    assert "stopped: launch.py stop" in launch(tmp_path, "status", "r").stdout


def test_a_run_whose_launcher_was_killed_is_known_to_be_gone(tmp_path: pathlib.Path) -> None:
    (tmp_path / "idle.py").write_text(IDLE)
    with started(tmp_path, "--run_dir=r", "--program=idle:draw") as launcher:
        status = tmp_path / "r/status.json"
        wait_for(lambda: status.exists() and '"running"' in status.read_text(), 60)
        launcher.kill()
    assert "its launcher is gone" in launch(tmp_path, "status", "r").stdout
    stopped = launch(tmp_path, "stop", "r")
    assert stopped.returncode == 1
    assert "its launcher is gone" in stopped.stdout


NO_RUN = {
    ("status", "nowhere"): "There is no run in nowhere",
    ("stop", "nowhere"): "There is no run in nowhere",
    ("stop",): "launch.py stop wants one run directory",
    ("status", "a", "b"): "launch.py status wants one run directory",
    ("status", "--verbose"): "launch.py status wants one run directory",
}


@pytest.fixture(scope="module")
def run_verb(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[tuple[str, ...]], Any]]:
    """Returns what came of each verb that names no run."""
    directory = tmp_path_factory.mktemp("empty")
    with launched({arguments: (directory, arguments) for arguments in NO_RUN}) as end:
        yield end


@pytest.mark.parametrize("arguments", NO_RUN, ids=" ".join)
def test_what_is_no_run_is_told_in_one_sentence(
    arguments: tuple[str, ...], run_verb: Callable[[tuple[str, ...]], Any]
) -> None:
    _, run = run_verb(arguments)
    assert run.returncode == 2
    assert NO_RUN[arguments] in run.stderr and run.stderr.count("\n") == 1
