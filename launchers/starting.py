"""Starts replicas one after another, and forgets those that are no longer wanted."""

import queue
import threading
from collections.abc import Callable
from typing import Optional

from launchers import events as ev
from launchers.plan import Replica


class StartQueue:
    """Calls a back end's `begin` for each replica in turn, in a thread of its own."""

    def __init__(
        self, begin: Callable[[Replica], None], events: "queue.SimpleQueue[ev.Event]"
    ) -> None:
        """Starts the thread.

        Args:
            begin: Starts a replica; the next has to wait for its return.
            events: Takes the end of those that were never begun.
        """
        self._begin = begin
        self._events = events
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Optional[Replica]] = queue.SimpleQueue()
        self._begun: set[str] = set()
        self._cancelled: set[str] = set()
        threading.Thread(target=self._run, name="starter", daemon=True).start()

    def put(self, replica: Replica) -> None:
        """Has `replica` begun once those before it were; also one that has ended, once more."""
        with self._lock:
            self._begun.discard(replica.name)
        self._waiting.put(replica)

    def cancel(self, name: str) -> bool:
        """Returns whether replica `name` was not begun; it then never is."""
        with self._lock:
            if name in self._begun:
                return False
            self._cancelled.add(name)
        self._events.put(ev.Ended(name, None))
        return True

    def close(self) -> None:
        """Ends the thread, once it has gone through the queue."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (replica := self._waiting.get()) is not None:
            with self._lock:
                if replica.name in self._cancelled:
                    continue
                self._begun.add(replica.name)
            try:
                self._begin(replica)
            except Exception as error:
                self._events.put(ev.Ended(replica.name, f"It could not be started: {error!r}"))
