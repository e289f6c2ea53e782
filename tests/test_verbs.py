"""`launch.py status` and `launch.py stop`, on real runs."""

import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.support import wait_for
from tests.test_launch import states

LAUNCH = pathlib.Path(__file__).parent.parent / "launch.py"
QUICK = ("--num_actors=1", "--config.min_replay_size=64", "--config.batch_size=32")


def verb(directory: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, LAUNCH, *arguments],
        cwd=directory,
        timeout=100,
        capture_output=True,
        text=True,
    )


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
    command = [sys.executable, LAUNCH, "--run_dir=r", "--nostop_when_solved", *QUICK]
    with psutil.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: states(tmp_path / "r") == {"running"}, 60)
        counts = tmp_path / "r/counts.json"
        wait_for(lambda: counts.exists() and "environment_steps" in counts.read_text(), 60)
        yield process
        if process.poll() is None:
            process.terminate()


def test_a_run_that_only_begins_can_be_stopped(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, LAUNCH, "--run_dir=r", *QUICK]
    with psutil.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: (tmp_path / "r/lock").exists(), 60)
        assert not (tmp_path / "r/plan.json").exists()
        stop = verb(tmp_path, "stop", "r")
        assert stop.returncode == 0, stop.stdout
        assert process.wait(20) == 0
    assert json.loads((tmp_path / "r/result.json").read_text())["outcome"] == "stopped"


def test_a_run_is_shown_and_ended_from_another_terminal(
    launcher: psutil.Popen, tmp_path: pathlib.Path
) -> None:
    counts = tmp_path / "r/counts.json"
    wait_for(lambda: "weight_age_versions_p50" in counts.read_text(), 60)
    shown = verb(tmp_path, "status", "r")
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
    stopped = verb(tmp_path, "stop", "r")
    assert stopped.returncode == 0
    assert stopped.stdout == "r: stopped: launch.py stop asked for it\n"
    assert launcher.wait(20) == 0
    result = json.loads((tmp_path / "r/result.json").read_text())
    assert result["outcome"] == "stopped"
    again = verb(tmp_path, "stop", "r")
    assert (again.returncode, again.stdout) == (0, stopped.stdout)
    assert "stopped: launch.py stop" in verb(tmp_path, "status", "r").stdout


def test_a_run_whose_launcher_was_killed_is_known_to_be_gone(tmp_path: pathlib.Path) -> None:
    (tmp_path / "idle.py").write_text(IDLE)
    command = [sys.executable, LAUNCH, "--run_dir=r", "--program=idle:draw"]
    with psutil.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as launcher:
        status = tmp_path / "r/status.json"
        wait_for(lambda: status.exists() and '"running"' in status.read_text(), 60)
        launcher.kill()
    assert "its launcher is gone" in verb(tmp_path, "status", "r").stdout
    stopped = verb(tmp_path, "stop", "r")
    assert stopped.returncode == 1
    assert "its launcher is gone" in stopped.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("status", "nowhere"), "There is no run in nowhere"),
        (("stop", "nowhere"), "There is no run in nowhere"),
        (("stop",), "launch.py stop wants one run directory"),
        (("status", "a", "b"), "launch.py status wants one run directory"),
        (("status", "--verbose"), "launch.py status wants one run directory"),
    ],
)
def test_what_is_no_run_is_told_in_one_sentence(
    arguments: tuple[str, ...], message: str, tmp_path: pathlib.Path
) -> None:
    run = verb(tmp_path, *arguments)
    assert run.returncode == 2
    assert message in run.stderr and run.stderr.count("\n") == 1
