"""Launchpad's process-wide state, lent to our nodes.

This and `runtime` are the places that reach into Launchpad 0.5.0. Its own state serves one program
a process; this serves many nodes, and leaves everything as it was after the last.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Optional

from absl import flags
from launchpad import context
from launchpad.launch import worker_manager


class _StopHandlers:
    """Stands where Launchpad keeps its process-wide stop handlers: gives each node its own."""

    def add(self, handler: Callable[[], None]) -> None:
        worker_manager.get_worker_manager().add_stop_handler(handler)

    def remove(self, handler: Callable[[], None]) -> None:
        worker_manager.get_worker_manager().remove_stop_handler(handler)


class Contexts:
    """Stands where Launchpad keeps the context of each thread: `lp.stop` then works in all threads.

    A thread that runs no node itself, such as one that serves calls, gets the context of a node
    that runs in this process; all of them stop the same program.
    """

    def __init__(self) -> None:
        self.of_helpers: list[context.LaunchContext] = []
        self._local = threading.local()

    @property
    def lp_context(self) -> Optional[context.LaunchContext]:
        own: Optional[context.LaunchContext] = getattr(self._local, "context", None)
        return own or next(reversed(self.of_helpers), None)

    @lp_context.setter
    def lp_context(self, value: context.LaunchContext) -> None:
        self._local.context = value


contexts = Contexts()


class _Host:
    """Counts who hosts nodes in this process; Launchpad's own state comes back after the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: Any = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Makes this process fit to run nodes: Launchpad finds its flags and stop handlers."""
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = worker_manager._SIGNAL_HANDLERS, context._LAUNCH_CONTEXT
                context._LAUNCH_CONTEXT = contexts
                worker_manager._SIGNAL_HANDLERS = {
                    signal.SIGTERM: set(),
                    signal.SIGQUIT: set(),
                    signal.SIGINT: set(),
                    signal.SIGALRM: set(),
                    signal.SIGUSR1: _StopHandlers(),
                }
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    worker_manager._SIGNAL_HANDLERS, context._LAUNCH_CONTEXT = self._before


launchpad_host = _Host()
