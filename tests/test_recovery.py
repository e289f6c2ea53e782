"""Faults of a run on the command line: what is killed or frozen comes back, learning goes on."""

import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.command_line import QUICK, result_of, started, states, status_of
from tests.support import wait_for

LAYOUT = """
[{group}]
restart = {{ count = 100, window_seconds = 60, backoff_seconds = 0.1 }}
"""
GROUPS = ("counter", "variables", "replay", "learner", "actor", "evaluator", "coordinator")
WITHOUT_LAYOUT = {"actor"}  # Actors come back by default.


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

    def tells(self, line: str) -> bool:
        """Reads what it prints until there is such a line."""
        assert self.launcher.stdout is not None
        return any(told == f"{line}\n" for told in iter(self.launcher.stdout.readline, ""))

    def learns_on(self) -> bool:
        """Waits for twenty learner steps from now."""
        steps = self.counts().get("learner_steps", 0)
        return bool(wait_for(lambda: self.counts().get("learner_steps", 0) > steps + 20, 30))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A run all of whose nodes are running, and that has saved checkpoints."""
    directory = tmp_path_factory.mktemp("watched")
    layout = directory / "layout.toml"
    groups = [group for group in GROUPS if group not in WITHOUT_LAYOUT]
    layout.write_text("".join(LAYOUT.format(group=group) for group in groups))
    flags = ("--run_dir=r", "--nostop_when_solved", "--checkpoint_seconds=1", "--stall_timeout=3")
    options = {"stdout": subprocess.PIPE, "start_new_session": True}
    with started(directory, *flags, "--layout=layout.toml", *QUICK, **options) as launcher:
        run = Watched(directory / "r", launcher)
        wait_for(lambda: states(run.directory) == {"running"}, 60)
        wait_for(lambda: status_of(run.directory)["replay/0"]["saved_at"], 20)
        wait_for(lambda: status_of(run.directory)["learner/0"]["saved_at"], 20)
        yield run


def test_whatever_is_killed_comes_back_and_learning_goes_on(watched: Watched) -> None:
    expected = watched.restarts()
    watched.learns_on()
    for group in GROUPS:
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
    assert watched.tells(f"{group}/0 was started again: It has shown no life for 3 s")


def test_a_hangup_ends_it_within_three_seconds_and_the_result_has_all_restarts(
    watched: Watched,
) -> None:
    expected = watched.restarts()
    watched.process("actor/1").kill()
    expected["actor/1"] += 1
    wait_for(lambda: watched.restarts() == expected, what="the actor is started again")
    wait_for(lambda: states(watched.directory) == {"running"}, 30)
    assert watched.tells("actor/1 was started again: Its process was ended by SIGKILL")
    family = watched.launcher.children(recursive=True)
    began = time.monotonic()
    os.killpg(watched.launcher.pid, signal.SIGHUP)  # As a terminal does, to the whole group.
    assert watched.launcher.wait(20) == 129
    wait_for(lambda: not any(process.is_running() for process in family))
    assert time.monotonic() - began < 3.0
    result = result_of(watched.directory)
    assert result["outcome"] == "stopped"
    for group, restarts in result["restarts"].items():
        of_replicas = [n for name, n in expected.items() if name.startswith(f"{group}/")]
        assert restarts == sum(of_replicas), group
    assert result["restarts"]["actor"] > 0
