"""Publishes a learner's variables without making the learner wait."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from nodes.variables import VariableClient
from nodes.version import Version

_LOOK_SECONDS = 1.0
_CLOSE_SECONDS = 2.0


class Publisher:
    """Copies the variables, and publishes the copy from a thread of its own.

    Only the newest version waits there. A source that has lost what was published, because it was
    started again, gets it once more.

    Attributes:
        incarnation: This learner's life.
        number: Versions made so far.
    """

    def __init__(self, client: VariableClient) -> None:
        self.incarnation = time.time_ns()
        self.number = 0
        self._client = client
        self._wake = threading.Condition()
        self._waiting: Optional[Version] = None
        self._published: Optional[Version] = None
        self._spare: Optional[Sequence[NDArray[Any]]] = None
        self._closed = False
        self._offered_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    @property
    def idle_seconds(self) -> float:
        """How long ago variables were offered last."""
        return time.monotonic() - self._offered_at

    def offer(self, step: int, variables: Callable[[], Sequence[Any]]) -> None:
        """Copies the variables; a copy that was not yet published is replaced.

        Args:
            step: Learner steps taken.
            variables: Returns the variables, as arrays that are only read before this returns.
        """
        with self._wake:  # What waits is taken back: the thread has at most one copy, we the other.
            copy = self._spare if self._waiting is None else self._waiting.values
            self._waiting = self._spare = None
        copy = _copy(variables(), copy)
        self.number += 1
        self._offered_at = time.monotonic()
        with self._wake:
            self._waiting = Version(self.incarnation, step, self.number, time.time(), copy)
            self._wake.notify()

    def close(self) -> None:
        """Publishes what was offered last, unless the source is away, and ends the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(_CLOSE_SECONDS)
        with self._wake:
            self._waiting = None  # If the source is away, it must not come after another's.

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._closed, _LOOK_SECONDS)
                version, self._waiting, closed = self._waiting, None, self._closed
            try:
                if version is not None:
                    self._client.publish(version)
                elif not closed and self._published and not self._client.has(self._published):
                    self._client.publish(self._published)
            except Exception as error:  # The next one may succeed.
                lost = version or self._published
                assert lost is not None
                print(f"Version {lost.step} of the variables was not published: {error}")
            with self._wake:
                if version is not None:
                    self._spare = self._published and self._published.values
                    self._published = version
            if closed:
                return


def _copy(arrays: Sequence[Any], old: Optional[Sequence[NDArray[Any]]]) -> Sequence[NDArray[Any]]:
    """Copies arrays, into `old` ones where there are some, as new memory takes far longer."""
    arrays = [np.asarray(array) for array in arrays]
    if old is None:
        old = [np.empty_like(array) for array in arrays]
    for target, array in zip(old, arrays, strict=True):
        np.copyto(target, array)
    return old
