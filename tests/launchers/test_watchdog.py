"""The watchdog: who lives but does nothing is told of, and treated by its policy."""

import contextlib
import os
import pathlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from launchers.events import Alive
from launchers.layout import GroupLayout, Layout
from launchers.run import Run, launch
from launchers.watchdog import Watchdog
from nodes import contract
from nodes.contract import OnFailure
from nodes.service import node
from programs.program import Program
from tests.support import wait_for

TIMEOUT = 3.0


def test_a_launcher_that_slept_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]  # All of this process sees it: no run may be there yet.
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watchdog = Watchdog(30.0)
    watchdog.watch("worker/0")
    watchdog.heard(Alive("worker/0", 1, None))
    now[0] += 1000.0
    assert watchdog.stalls() == {}
    for _ in range(29):
        now[0] += 1.0
        assert watchdog.stalls() == {}
    now[0] += 2.0
    assert list(watchdog.stalls()) == ["worker/0"]


class Worker:
    """Works until it is told to do nothing, and says what it waits for if it is told that."""

    def __init__(self) -> None:
        self._runtime = contract.runtime()
        self._waits_for = ""
        self._works = True

    def process(self) -> int:
        return os.getpid()

    def do_nothing(self, waits_for: str) -> None:
        self._waits_for = waits_for
        self._works = False

    def work(self) -> None:
        self._works = True

    def run(self) -> None:
        self._runtime.report_running()
        while not self._runtime.stopping:
            if self._works:
                self._runtime.report_progress()
            elif self._waits_for:
                self._runtime.report_waiting(self._waits_for)
            threading.Event().wait(0.01)


def worker() -> tuple[Program, Worker]:
    program = Program("watched")
    handle = program.add_node(node(Worker), label="worker")
    return program, handle


def layout(policy: OnFailure) -> Layout:
    return Layout({"worker": GroupLayout(on_failure=policy)})


def hasten(run: Run) -> None:
    """Lets the watchdog believe that the worker's last progress was long ago."""
    watched = run._supervisor._watchdog._watched["worker/0"]
    heard_at = watched.heard_at
    wait_for(lambda: watched.heard_at > heard_at)  # It tells of progress that is still on its way.
    watched.progress_at -= 60.0


class Sleeper:
    """Works once and then waits to be stopped, or never tells of its work."""

    def __init__(self, tells: bool) -> None:
        self._runtime = contract.runtime()
        self._tells = tells

    def run(self) -> None:
        if self._tells:
            self._runtime.report_progress()
            self._runtime.wait_for_stop()
        while not self._runtime.stopping:
            threading.Event().wait(0.01)


class Stuck:
    """Works, and then sleeps in C, where a thread cannot be interrupted."""

    def __init__(self) -> None:
        self._runtime = contract.runtime()

    def run(self) -> None:
        self._runtime.report_progress()
        time.sleep(20.0)


class Watched(NamedTuple):
    """A run of one worker, which does nothing any more, with its client and its process."""

    run: Run
    client: Worker
    process: int


class Watchers:
    """Runs whose watchdogs take their time, which is the same for all."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self.began = time.monotonic()
        sleepers, stuck = Program("sleepers"), Program("stuck")
        sleepers.add_node(node(Sleeper, True), label="rests")
        sleepers.add_node(node(Sleeper, False), label="never_tells")
        stuck.add_node(node(Stuck), label="worker")
        policy = Layout({"worker": GroupLayout(on_failure="restart", stop_seconds=1.0)})
        self.sleepers = launch(sleepers, "test_mt", stall_timeout=TIMEOUT)
        stack.callback(end, self.sleepers)
        self.stuck = launch(stuck, "test_mt", policy, stall_timeout=TIMEOUT)
        self.waits = self._worker("restart")
        self.silent = self._worker("stop")
        self.restarted = self._worker("restart")
        self.ignored = self._worker("ignore")
        self.ended = self._worker("ignore")
        self.waits.client.do_nothing("Godot")
        self.silent.client.do_nothing("")
        for frozen in (self.restarted, self.ignored, self.ended):
            os.kill(frozen.process, signal.SIGSTOP)

    def _worker(self, policy: OnFailure) -> Watched:
        program, handle = worker()
        run = launch(program, "local_mp", layout(policy), stall_timeout=TIMEOUT)
        self._stack.callback(end, run)
        run.wait_until_running(60)
        client = handle.dereference()
        return Watched(run, client, client.process())


def end(run: Run) -> None:
    run.stop()
    run.wait(60)


@pytest.fixture(scope="module")
def watchers() -> Iterator[Watchers]:
    with contextlib.ExitStack() as stack:
        yield Watchers(stack)


def leave_alone(run: Run, client: Worker) -> None:
    """Checks what comes of a worker that waits, and lets it work again."""
    wait_for(lambda: run.status["worker/0"].stalled)
    assert run.status["worker/0"].stalled == "has waited for 3 s for Godot"
    client.work()
    wait_for(lambda: not run.status["worker/0"].stalled)
    assert run.status["worker/0"].waiting_for is None
    assert run.status["worker/0"].restarts == 0


@pytest.mark.usefixtures("watchers")  # Their time passes meanwhile.
def test_a_thread_that_waits_for_somebody_is_told_of_and_left_alone() -> None:
    program, handle = worker()
    with launch(program, "test_mt", layout("restart"), stall_timeout=TIMEOUT) as run:
        run.wait_until_running(60)
        client = handle.dereference()
        client.do_nothing("Godot")
        wait_for(lambda: run.status["worker/0"].waiting_for == "Godot")
        hasten(run)
        leave_alone(run, client)


def has_failed(run: Run) -> None:
    """Checks what comes of a worker that does nothing and is not left alone."""
    result = run.wait(30)
    assert result is not None and result.outcome == "failed"
    said = "It has made no progress for 3 s, and does not say why"
    assert result.failures == {"worker/0": said}


def test_a_thread_that_does_nothing_and_does_not_say_why_has_failed() -> None:
    program, handle = worker()
    run = launch(program, "test_mt", layout("stop"), stall_timeout=TIMEOUT)
    run.wait_until_running(60)
    handle.dereference().do_nothing("")
    hasten(run)
    has_failed(run)


class Beggar:
    """Waits from the start."""

    def __init__(self) -> None:
        self._runtime = contract.runtime()

    def run(self) -> None:
        while not self._runtime.stopping:
            self._runtime.report_waiting("alms")
            threading.Event().wait(0.01)


def test_one_that_waits_from_the_start_is_told_of() -> None:
    program = Program("watched")
    program.add_node(node(Beggar), label="worker")
    with launch(program, "test_mt", layout("restart"), stall_timeout=TIMEOUT) as run:
        wait_for(lambda: run.status["worker/0"].waiting_for == "alms")
        hasten(run)
        wait_for(lambda: run.status["worker/0"].stalled == "has waited for 3 s for alms")


def test_stalls_and_waits_are_in_the_status_file(tmp_path: pathlib.Path) -> None:
    program, handle = worker()
    directory = str(tmp_path / "run")
    with launch(program, "test_mt", layout("ignore"), directory, stall_timeout=TIMEOUT) as run:
        run.wait_until_running(60)
        handle.dereference().do_nothing("Godot")
        hasten(run)
        wait_for(lambda: "has waited for 3 s" in (tmp_path / "run/status.json").read_text())


def test_one_that_waits_for_somebody_is_told_of_and_left_alone(watchers: Watchers) -> None:
    run, client, _ = watchers.waits
    leave_alone(run, client)


def test_one_that_does_nothing_and_does_not_say_why_has_failed(watchers: Watchers) -> None:
    has_failed(watchers.silent.run)


def test_a_frozen_process_is_started_again_where_that_is_its_policy(watchers: Watchers) -> None:
    run, client, first = watchers.restarted
    wait_for(lambda: run.status["worker/0"].restarts == 1)
    assert run.status["worker/0"].error == "It has shown no life for 3 s"
    wait_for(lambda: run.status["worker/0"].state == "running")
    assert client.process() != first


def test_a_frozen_process_is_only_told_of_where_failures_are_ignored(watchers: Watchers) -> None:
    run, client, process = watchers.ignored
    wait_for(lambda: run.status["worker/0"].stalled == "has shown no life for 3 s")
    os.kill(process, signal.SIGCONT)
    wait_for(lambda: not run.status["worker/0"].stalled)
    assert client.process() == process


def test_a_frozen_process_does_not_hold_up_the_end(watchers: Watchers) -> None:
    run = watchers.ended.run
    began = time.monotonic()
    run.stop(seconds=60.0)
    result = run.wait(30)
    assert result is not None and time.monotonic() - began < 8
    assert result.forced == {"worker/0": "did not stop in time and was ended"}


def test_who_rests_or_never_tells_is_not_stalled(watchers: Watchers) -> None:
    run = watchers.sleepers
    assert run.wait(max(0.0, watchers.began + 6 - time.monotonic())) is None
    stalled = {name: status.stalled for name, status in run.status.items()}
    assert stalled == {"rests/0": None, "never_tells/0": None}


def test_a_thread_that_is_stuck_and_cannot_be_ended_ends_the_program(watchers: Watchers) -> None:
    result = watchers.stuck.wait(12)  # It is stuck for longer.
    assert result is not None and result.outcome == "failed"
    assert "has made no progress for 3 s" in result.failures["worker/0"]
