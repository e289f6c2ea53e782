"""Runs replicas in threads of this process."""

import contextlib
import ctypes
import os
import queue
import sys
import threading
from typing import Optional, TextIO

from launchpad import context

from launchers import events as ev
from launchers.launchpad_state import launchpad_host
from launchers.plan import Plan, Replica
from launchers.ports import LocalPorts
from launchers.runtime import NodeRuntime
from launchers.starting import StartQueue
from launchers.supervisor import KILLED_SECONDS

_SETTLE_SECONDS = 3.0
"""How long a replica's construction may hold up the next one's."""


class ThreadBackend:
    """Runs each replica in a thread of its own.

    Replicas are constructed one after another: TensorFlow 2.8 crashes now and then when several
    threads make their first operations at once.
    """

    def __init__(
        self,
        plan: Plan,
        events: "queue.SimpleQueue[ev.Event]",
        run_directory: Optional[str],
        life: int,
    ) -> None:
        """Initializes the back end.

        Args:
            plan: What will run.
            events: Where to tell the supervisor.
            run_directory: Where the run's files go; without it, nodes print where others do.
            life: 1, and 1 more for each time that the run was resumed.
        """
        self.kill_seconds = KILLED_SECONDS
        self._launch_type = (
            context.LaunchType.TEST_MULTI_THREADING
            if plan.mode == "test_mt"
            else context.LaunchType.LOCAL_MULTI_THREADING
        )
        self._events = events
        self._run_directory = run_directory
        self._life = life
        self._threads: dict[str, threading.Thread] = {}
        self._runtimes: dict[str, NodeRuntime] = {}
        self._queue = StartQueue(events.put)
        self._exit = contextlib.ExitStack()
        self._ports = self._exit.enter_context(LocalPorts(plan, self._launch_type))
        self._exit.enter_context(launchpad_host())
        self._output = _ThreadOutput(run_directory) if run_directory else None
        if self._output is not None:
            self._exit.enter_context(self._output)

    def start(self, replica: Replica) -> None:
        """Has the replica started once those before it run."""
        name = replica.name
        post = ev.Post(name, self._events.put)
        self._runtimes[name] = NodeRuntime(name, self._run_directory, post, self._life)
        self._queue.put(name, lambda: self._begin(replica))

    def stop(self, name: str) -> None:
        """Asks the replica to stop; one that has no thread yet never gets one."""
        if not self._queue.cancel(name):
            self._runtimes[name].stop()

    def kill(self, name: str) -> None:
        """Raises SystemExit in the replica's thread, which ends it the next time it runs Python."""
        ident = self._threads[name].ident
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(ident or 0), ctypes.py_object(SystemExit)
        )

    def close(self) -> None:
        """Gives back what the process lent."""
        self._queue.close()
        self._exit.close()

    def _begin(self, replica: Replica) -> None:
        name = replica.name
        runtime = self._runtimes[name]

        def start() -> bool:
            self._threads[name] = threading.Thread(
                target=self._run, args=(replica, runtime), name=name, daemon=True
            )
            self._events.put(ev.Starting(name))
            self._threads[name].start()
            return True

        if self._queue.commit(name, start):
            runtime.wait_until_settled(_SETTLE_SECONDS)

    def _run(self, replica: Replica, runtime: NodeRuntime) -> None:
        ports = None
        if not replica.traits.reports_running:
            ports = self._ports.of(replica.name)
        try:
            if self._output is not None:
                self._output.begin(replica.name)
            error = runtime.execute(replica.node.function, self._launch_type, ports)
            if error:
                print(error, file=sys.stderr)
        except BaseException as failure:  # Its log cannot be written, or it is being ended.
            error = repr(failure)
        self._events.put(ev.Ended(replica.name, error))


class _ThreadOutput:
    """Sends what the nodes' threads print to a log file each."""

    def __init__(self, run_directory: str) -> None:
        self._directory = os.path.join(run_directory, "logs")
        self._local = threading.local()
        self._files: dict[str, TextIO] = {}

    def __enter__(self) -> "_ThreadOutput":
        self._before = sys.stdout, sys.stderr
        sys.stdout = _Routed(sys.stdout, self._local)
        sys.stderr = _Routed(sys.stderr, self._local)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.stdout, sys.stderr = self._before
        for file in self._files.values():
            file.close()

    def begin(self, name: str) -> None:
        """Gives the calling thread the log of replica `name`."""
        if name not in self._files:
            path = os.path.join(self._directory, f"{name.replace('/', '-')}.log")
            self._files[name] = open(path, "a", buffering=1)  # noqa: SIM115 - closed in __exit__
        self._local.file = self._files[name]


class _Routed:
    """A stream that writes to the calling thread's log where it has one."""

    def __init__(self, stream: TextIO, local: threading.local) -> None:
        self._stream = stream
        self._local = local

    def write(self, text: str) -> int:
        return self._target().write(text)

    def flush(self) -> None:
        self._target().flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def _target(self) -> TextIO:
        file: TextIO = getattr(self._local, "file", self._stream)
        return self._stream if file.closed else file
