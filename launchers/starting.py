"""Starts replicas one after another, and forgets those that are no longer wanted."""

import collections
import threading
from collections.abc import Callable

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
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._run, name="starter", daemon=True).start()

    def put(self, name: str, begin: Callable[[], None]) -> None:
        """Has replica `name` begun once those before it were; also one that has ended, again.

        Args:
            name: Its name.
            begin: Starts it; the next has to wait for its return.
        """
        with self._changed:
            self._waiting[name] = begin
            self._changed.notify()

    def cancel(self, name: str) -> bool:
        """Returns whether replica `name` still waited to be begun; it then is not."""
        with self._changed:
            if self._waiting.pop(name, None) is None:
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
            try:
                begin()
            except Exception as error:
                self._tell(ev.Ended(name, f"It could not be started: {error!r}"))
