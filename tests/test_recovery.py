"""Faults of a run on the command line: what is killed or frozen comes back, learning goes on."""

import json
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from tests.support import wait_for
from tests.test_launch import QUICK, command, states, status_of

LAYOUT = """
[{group}]
restart = {{ count = 100, window_seconds = 60, backoff_seconds = 0.1 }}
"""
GROUPS = ("counter", "variables", "replay", "learner", "actor", "evaluator", "coordinator")


class Watched:
    """A run on the command line."""

    def __init__(self, directory: pathlib.Path, launcher: psutil.Popen) -> None:
        self.directory = directory
        self.launcher = launcher
        self._highest: dict[str, int] = {}

    def counts(self) -> dict[str, int]:
        """Returns the counts, none of which may have fallen."""
        path = self.directory / "counts.json"
        counts: dict[str, int] = json.loads(path.read_text())["counts"] if path.exists() else {}
        fallen = [name for name, count in self._highest.items() if counts.get(name, 0) < count]
        assert not fallen, (fallen, self._highest, counts)
        self._highest = counts
        return counts

    def process(self, replica: str) -> psutil.Process:
        """Returns the process of a replica."""

        def find() -> psutil.Process | None:
            for process in self.launcher.children(recursive=True):
                if process.cmdline() and process.cmdline()[0].endswith(replica):
                    return process
            return None

        found: psutil.Process = wait_for(find)
        return found

    def restarts(self) -> dict[str, int]:
        """Returns how often each replica was started again."""
        return {name: is_["restarts"] for name, is_ in status_of(self.directory).items()}

    def learns_on(self) -> bool:
        """Waits for twenty learner steps from now."""
        steps = self.counts().get("learner_steps", 0)
        return bool(wait_for(lambda: self.counts().get("learner_steps", 0) > steps + 20, 30))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A run all of whose nodes are running, and that has saved checkpoints."""
    directory = tmp_path_factory.mktemp("watched")
    layout = directory / "layout.toml"
    layout.write_text("".join(LAYOUT.format(group=group) for group in GROUPS))
    flags = ("--run_dir=r", "--nostop_when_solved", "--checkpoint_seconds=1", "--stall_timeout=4")
    with psutil.Popen(
        command(*flags, "--layout=layout.toml", *QUICK),
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        run = Watched(directory / "r", launcher)
        wait_for(lambda: states(run.directory) == {"running"}, 60)
        wait_for(lambda: status_of(run.directory)["replay/0"]["saved_at"], 20)
        wait_for(lambda: status_of(run.directory)["learner/0"]["saved_at"], 20)
        yield run
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(20) == 130


def test_whatever_is_killed_comes_back_and_learning_goes_on(watched: Watched) -> None:
    expected = watched.restarts()
    for group in GROUPS:
        watched.learns_on()
        watched.process(f"{group}/0").kill()
        expected[f"{group}/0"] += 1
        wait_for(lambda: watched.restarts() == expected, what=f"{group} is started again")
        wait_for(lambda: states(watched.directory) == {"running"}, 30)
        watched.learns_on()
        assert watched.restarts() == expected
    for group in ("learner", "replay"):
        log = (watched.directory / f"logs/{group}-0.log").read_text()
        assert "was restored." in log


@pytest.mark.parametrize("group", ["learner", "replay"])
def test_what_is_frozen_is_told_and_started_again(group: str, watched: Watched) -> None:
    expected = watched.restarts()
    expected[f"{group}/0"] += 1
    frozen = watched.process(f"{group}/0")
    frozen.send_signal(signal.SIGSTOP)
    wait_for(lambda: watched.restarts() == expected, what=f"{group} is started again")
    watched.learns_on()
    assert not frozen.is_running()
    assert watched.restarts() == expected
    told = f"{group}/0 was started again: It has shown no life for 4 s\n"
    assert watched.launcher.stdout is not None
    assert any(line == told for line in iter(watched.launcher.stdout.readline, ""))
