"""What a running node sees of its launcher: our contract, and Launchpad's worker manager.

Launchpad's own manager serves one program a process and installs signal handlers; this one serves
one node.
"""

import collections
import contextlib
import os
import socket
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Optional

from launchpad import context
from launchpad.launch import worker_manager

from launchers import launchpad_state
from launchers.directory import CHECKPOINTS
from launchers.events import Post

_BEAT_SECONDS = 1.0
_PROBE_PERIOD_SECONDS = 0.02
_CALL_AGAIN_SECONDS = 2.0


class NodeRuntime(worker_manager.WorkerManager):
    """The runtime of one node, in the process or thread where it runs."""

    def __init__(self, name: str, run_directory: Optional[str], post: Post, life: int = 1) -> None:
        self.name = name
        self.run_directory = run_directory
        self.life = life
        self._post = post
        self._progress = 0
        self._waiting_for: Optional[str] = None
        self._idle = 0
        self._running = threading.Event()
        self._ended = threading.Event()
        self._settled = threading.Event()
        self._listening = False
        self._says_when_running = False
        self._handlers_lock = threading.Lock()
        self._stop_handlers: list[Callable[[], None]] = []
        # What Launchpad's manager has; its constructor would claim the process's signals.
        self._mutex = threading.Lock()
        self._termination_notice_secs = -1
        self._active_workers: dict[str, list[Any]] = collections.defaultdict(list)
        self._workers_count: dict[str, int] = collections.defaultdict(int)
        self._first_failure = None
        self._stop_counter = 0
        self._stop_event = threading.Event()

    def __del__(self) -> None:
        """Leaves the process's signals alone, which Launchpad's manager would not."""

    @property
    def checkpoint_directory(self) -> Optional[str]:
        """The directory of the node's own checkpoints, or None where there is none."""
        if self.run_directory is None:
            return None
        return os.path.join(self.run_directory, CHECKPOINTS, self.name.replace("/", "-"))

    @property
    def stopping(self) -> bool:
        """Whether the node has been asked to stop."""
        return self._stop_event.is_set()

    @property
    def listening(self) -> bool:
        """Whether the node is at work, or has looked whether it should stop."""
        return self._listening or self._running.is_set()

    def wait_for_stop(self, timeout_secs: Optional[float] = None) -> bool:
        """Waits until the node is asked to stop; returns whether it was, within the timeout."""
        self._listen()
        if timeout_secs is not None and timeout_secs <= 0:
            return self._stop_event.is_set()
        self._idle += 1
        try:
            return self._stop_event.wait(timeout_secs)
        finally:
            self._idle -= 1

    def stop_event(self) -> threading.Event:
        """Returns the event that is set when the node is asked to stop."""
        self._listen()
        return self._stop_event

    def wait_until_settled(self, seconds: float) -> None:
        """Waits until the node is running or has ended, `seconds` at most."""
        self._settled.wait(seconds)

    def report_running(self) -> None:
        """Says that the node is constructed, serving and at work."""
        if not self._running.is_set():
            self._running.set()
            self._settled.set()
            self._post.running()

    def report_progress(self) -> None:
        """Says that the node has done a piece of its work, and so waits for nothing."""
        self._progress += 1
        self._waiting_for = None

    def report_waiting(self, what: Optional[str]) -> None:
        """Says what the node waits for, or that it waits no longer."""
        self._waiting_for = what

    def report_save(self, taken_at: float, pause_seconds: float) -> None:
        """Says that a checkpoint was saved."""
        self._post.saved(taken_at, pause_seconds)

    def report_warning(self, text: str) -> None:
        """Tells the person who started the run of something that does not end it."""
        print(f"WARNING: {text}")
        self._post.warned(text)

    def request_stop(self, outcome: str, reason: str) -> None:
        """Asks for the end of the program."""
        self._post.stop_program(outcome, reason)

    def stop(self) -> None:
        """Asks the node to stop; called by the launcher."""
        with self._handlers_lock:
            self._stop_counter += 1
            self._stop_event.set()
            handlers = list(self._stop_handlers)
        for handler in handlers:
            _call_in_thread(handler)
        if handlers:
            _call_in_thread(self._call_again)

    def _call_again(self) -> None:
        """Calls the stop handlers that are still there once more, if the node goes on.

        Acme's raises SystemExit in the node's thread, where it is lost if it comes while a callback
        of Python's garbage collector runs.
        """
        if not self._ended.wait(_CALL_AGAIN_SECONDS):
            for handler in list(self._stop_handlers):
                _call_in_thread(handler)

    def add_stop_handler(self, handler: Callable[[], None]) -> None:
        """Calls `handler` when the node is asked to stop, at once if it was already."""
        with self._handlers_lock:
            stopping = self._stop_event.is_set()
            self._stop_handlers.append(handler)
        if stopping:
            _call_in_thread(handler)
            _call_in_thread(self._call_again)
        self._listen()

    def remove_stop_handler(self, handler: Callable[[], None]) -> None:
        """Forgets `handler`."""
        with contextlib.suppress(ValueError):
            self._stop_handlers.remove(handler)

    def _listen(self) -> None:
        """Notes that the node will notice a stop; one that serves nobody is running by that."""
        self._listening = True
        if not self._says_when_running:
            self.report_running()

    def _stop(self) -> None:  # Launchpad: a colocated part failed.
        self.stop()

    def _disable_alarm(self) -> None:  # Launchpad: all colocated parts have ended.
        pass

    def execute(
        self,
        function: Callable[[], Any],
        launch_type: context.LaunchType,
        ports: Optional[Sequence[int]],
    ) -> Optional[str]:
        """Runs a node's function in this thread, until it ends.

        Args:
            function: The node's `function`, bound to its node.
            launch_type: What the node sees as its launch type.
            ports: Where it listens; it is running once they accept connections. None where the
                node itself says when it is running.

        Returns:
            None if it ended well, else the traceback or what stands for it.
        """
        worker_manager._WORKER_MANAGERS.manager = self
        self._says_when_running = ports is None
        node = getattr(function, "__self__", None)
        if node is not None:
            node._instance = None  # Launchpad would keep what an earlier life has constructed.
            node._launch_context.initialize(launch_type, self, self._stop_program)
        helpers = context.LaunchContext()
        helpers.initialize(launch_type, None, self._stop_program)
        probe = threading.Thread(target=self._probe, args=(ports or (),), name="probe", daemon=True)
        if not self._says_when_running:
            probe.start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        launchpad_state.contexts.of_helpers.append(helpers)
        try:
            function()
        except SystemExit as exit_:
            if exit_.code and not self.stopping:
                return f"SystemExit: the node exited with status {exit_.code}"
        except BaseException:
            return traceback.format_exc()
        finally:
            launchpad_state.contexts.of_helpers.remove(helpers)
            self._ended.set()
            self._settled.set()
            if not self._says_when_running:
                probe.join()
        return None

    def _stop_program(self) -> None:
        self.request_stop("stopped", f"{self.name} called stop")

    def _beat(self) -> None:
        """Tells now and then that the node lives, and how it is doing."""
        while not self._ended.wait(_BEAT_SECONDS):
            if self._idle and self._waiting_for is None and self._progress:
                self._progress += 1  # It does nothing because it wants to.
            self._post.alive(self._progress, self._waiting_for)

    def _probe(self, ports: Sequence[int]) -> None:
        for port in ports:
            while not self._ended.wait(_PROBE_PERIOD_SECONDS):
                with contextlib.suppress(OSError):
                    socket.create_connection(("localhost", port), timeout=1.0).close()
                    break
        if not self._ended.is_set():
            self.report_running()


def _call_in_thread(handler: Callable[[], None]) -> None:
    """Calls a node's stop handler, which may take as long as the node itself."""
    threading.Thread(target=handler, name="stop handler", daemon=True).start()
