"""Launches a program, and lets whoever launched it wait for it, stop it and look at it."""

import contextlib
import datetime
import os
import queue
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Optional, Union

import launchpad as lp

from launchers import events as ev
from launchers import isolation, ray_hosts
from launchers.cluster import ClusterBackend
from launchers.directory import (
    CHECKPOINTS,
    PLAN_FILE,
    STATES_LOG,
    STATUS_FILE,
    RunDirectory,
)
from launchers.layout import Layout
from launchers.link import LAUNCHER_PATIENCE_SECONDS
from launchers.plan import THREAD_MODES, Plan, check_mode, make_plan
from launchers.processes import ProcessBackend
from launchers.status import ReplicaStatus, Result
from launchers.supervisor import Backend, Supervisor
from launchers.threads import ThreadBackend
from launchers.watchdog import check_timeout
from usage import UsageError

STOP_SECONDS = 10.0
"""How long a program that is asked to stop may take, unless told; Launchpad's own notice."""
SHORTEST_ON_CLUSTER = LAUNCHER_PATIENCE_SECONDS + 15.0
STALL_SECONDS = 120.0
"""How long a replica may do nothing before the watchdog barks, unless told."""


class RunFailed(RuntimeError):
    """A node failed and its policy ended the program."""


class Run:
    """A launched program."""

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        events: "queue.SimpleQueue[ev.Event]",
        directory: Optional[RunDirectory],
        stall_timeout: Optional[float],
        on_end: Callable[[], None],
    ) -> None:
        """Starts the program; use `launch`."""
        self.plan = plan
        self._directory = directory
        self._events = events
        self._supervisor = Supervisor(plan, backend, events, self._note_change, stall_timeout)
        self._result: Optional[Result] = None
        self._error: Optional[BaseException] = None
        self._on_end = on_end
        self._ended = threading.Event()
        threading.Thread(target=self._supervise, name="supervisor", daemon=True).start()

    @property
    def directory(self) -> Optional[str]:
        """The directory of the run's files, or None where there is none."""
        return self._directory.path if self._directory else None

    @property
    def status(self) -> dict[str, ReplicaStatus]:
        """Every replica's status, by name."""
        return dict(self._supervisor.status)

    def wait_until_running(self, timeout: Optional[float] = None) -> None:
        """Waits until every replica is running.

        Raises:
            TimeoutError: They were not, within `timeout` seconds.
            RunFailed: The program ended before.
        """
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while not self._supervisor.all_running.wait(0.05):
            if self._ended.is_set():
                raise RunFailed("The program ended before all of its nodes were running.")
            if time.monotonic() > deadline:
                waiting = [n for n, s in self.status.items() if s.state in ("pending", "starting")]
                raise TimeoutError(f"Not running after {timeout} s: {', '.join(waiting)}.")

    def wait(self, timeout: Optional[float] = None) -> Optional[Result]:
        """Waits for the program's end and returns how it ended, or None after `timeout` seconds."""
        if not self._ended.wait(timeout):
            return None
        if self._error is not None:
            raise self._error
        return self._result

    def stop(
        self,
        outcome: str = "stopped",
        reason: str = "the launcher was asked to stop",
        seconds: float = STOP_SECONDS,
    ) -> None:
        """Asks the program to end and returns at once; `wait` has the result.

        Args:
            outcome: What the result will say, unless the program is ending already.
            reason: Likewise.
            seconds: How long all nodes together may take; what still runs then is ended.
        """
        self._events.put(ev.StopProgram(outcome, reason, seconds))

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """Stops the program.

        Raises:
            RunFailed: A node failed, and nothing else is being raised.
        """
        self.stop()
        result = self.wait()
        if error is None and result is not None and result.outcome == "failed":
            raise RunFailed(
                "\n".join(f"Node {name}: {why}" for name, why in result.failures.items())
            )

    def _supervise(self) -> None:
        try:
            self._result = self._supervisor.run()
        except BaseException as error:
            self._error = error
        finally:
            self._on_end()
            self._ended.set()

    def _note_change(self, name: Optional[str]) -> None:
        if self._directory is None:
            return
        with contextlib.suppress(OSError):  # A full disk does not end a run.
            if name is not None:
                self._directory.append(STATES_LOG, self._describe_state(name))
            status = {name: vars(status) for name, status in self.status.items()}
            self._directory.write(STATUS_FILE, status)

    def _describe_state(self, name: str) -> str:
        status = self._supervisor.status[name]
        when = datetime.datetime.fromtimestamp(status.since).isoformat(timespec="milliseconds")
        error = (status.error or "").strip().splitlines()[-1:]
        failed = status.state in ("failed", "restarting")
        return f"{when} {name} {status.state}{f': {error[0]}' if failed and error else ''}"


def launch(
    program: lp.Program,
    mode: str,
    layout: Optional[Layout] = None,
    run_directory: Union[str, RunDirectory, None] = None,
    stall_timeout: Optional[float] = STALL_SECONDS,
    address: Optional[str] = None,
) -> Run:
    """Launches a program and returns at once.

    Args:
        program: Any Launchpad program.
        mode: `test_mt` and `local_mt` run the nodes in threads of this process, `local_mp` in
            processes of this machine, `ray` in processes of a Ray cluster's hosts. In `test_mt`
            every node must pickle, too.
        layout: What each group gets.
        run_directory: Where the run's files go: a path for a new run, or a `RunDirectory`, which
            stays locked until it is released. Processes get one below the system's temporary
            directory unless told; threads without one print where others do, and save no
            checkpoints.
        stall_timeout: Seconds without progress after which a replica counts as stalled, or None.
        address: `host:port` of the Ray cluster to join, or None for one of this machine's own,
            which ends with the run.

    Raises:
        UsageError: The program, the layout and the mode do not fit, or the directory cannot be
            used. Nothing was started.
    """
    check_mode(mode)
    check_timeout(stall_timeout)
    if mode == "ray" and stall_timeout is not None and stall_timeout < SHORTEST_ON_CLUSTER:
        raise UsageError(
            f"A link between hosts may be silent for {LAUNCHER_PATIENCE_SECONDS:g} s before they "
            f"count as lost: in mode ray the stall timeout must be at least "
            f"{SHORTEST_ON_CLUSTER:g} s, got {stall_timeout:g}."
        )
    with contextlib.ExitStack() as release:
        joined = release.enter_context(ray_hosts.joined(address)) if mode == "ray" else None
        plan = make_plan(program, mode, layout, None if joined is None else joined.hosts)
        if not isolation.has_loopback_only():
            warnings.warn(f"{isolation.OPEN_DOOR}.", stacklevel=2)
        if run_directory is None and mode not in THREAD_MODES:
            run_directory = tempfile.mkdtemp(prefix=f"launchgraph-{program.name}-")
            checkpoints = os.path.join(run_directory, CHECKPOINTS)  # Nobody will resume from there.
            release.callback(shutil.rmtree, checkpoints, ignore_errors=True)
        if isinstance(run_directory, str):
            run_directory = RunDirectory(run_directory)
            release.callback(run_directory.release)
        events: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
        backend = _backend(plan, events, run_directory, joined)
        release.callback(backend.close)
        if run_directory is not None:
            run_directory.begin()
            run_directory.write(PLAN_FILE, plan.describe())
        return Run(plan, backend, events, run_directory, stall_timeout, release.pop_all().close)


def _backend(
    plan: Plan,
    events: "queue.SimpleQueue[ev.Event]",
    directory: Optional[RunDirectory],
    joined: Optional[ray_hosts.Cluster],
) -> Backend:
    life = directory.life if directory else 1
    if plan.mode in THREAD_MODES:
        return ThreadBackend(plan, events, directory.path if directory else None, life)
    assert directory is not None
    if joined is None:
        return ProcessBackend(plan, events, directory.path, life)
    return ClusterBackend(plan, joined, events, directory.path, life)
