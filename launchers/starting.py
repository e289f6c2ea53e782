"""Starts replicas one after another, and forgets those that are no longer wanted."""

import collections
import threading
from collections.abc import Callable
from typing import Optional

from launchers import events as ev


class StartQueue:
    """Begins one replica after another, in a thread of its own."""

    def __init__(self, tell: Callable[[ev.Event], None]) -> None:
        """Starts the thread.

        Args:
            tell: Takes the end of those that were never begun, or could not be.
        """
        self._tell = tell
        self._waiting: collections.OrderedDict[str, Callable[[], None]] = collections.OrderedDict()
        self._beginning: Optional[str] = None
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._run, name="starter", daemon=True).start()

    def put(self, name: str, begin: Callable[[], None]) -> None:
        """Has replica `name` begun once those before it were; also one that has ended, again.

        Args:
            name: Its name.
            begin: Prepares its start, and then calls `commit`; the next waits for its return.
        """
        with self._changed:
            self._waiting[name] = begin
            self._changed.notify()

    def commit(self, name: str, start: Callable[[], bool]) -> Optional[bool]:
        """Starts the replica that is being begun; after that it cannot be cancelled.

        Returns:
            None if it was cancelled, else what `start` has returned: whether it has started.
        """
        with self._changed:
            if self._beginning != name:
                return None
            started = start()
            if started:
                self._beginning = None
            return started

    def cancel(self, name: str) -> bool:
        """Returns whether replica `name` had not started; it then never does."""
        with self._changed:
            if name == self._beginning:
                self._beginning = None
            elif self._waiting.pop(name, None) is None:
                return False
        self._tell(ev.Ended(name, None))
        return True

    def close(self) -> None:
        """Ends the thread, once it has gone through the queue."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                name, begin = self._waiting.popitem(last=False)
                self._beginning = name
            try:
                begin()
            except Exception as error:
                if self.commit(name, lambda: True):
                    self._tell(ev.Ended(name, f"It could not be started: {error!r}"))
