"""Which of its items a shard has evicted.

Reverb ignores a new priority for an item that is gone, and does not say so. But a shard evicts its
oldest item for each one that it takes beyond its size: so of an item that was made before the
last `max_size` inserts began it can be known that it is gone.
"""

import collections
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nodes.replay_info import ShardInfo

_MAX_RESTARTS = 8


class Eviction:
    """Knows, to within the time between two notes, before when a shard's items are gone.

    The clocks of who makes items and of who asks must agree.
    """

    def __init__(self) -> None:
        self._gone_before_ns = 0
        self._inserted: collections.deque[tuple[int, int]] = collections.deque()
        self._lost: collections.deque[tuple[int, int]] = collections.deque(maxlen=_MAX_RESTARTS)

    def note(self, asked_ns: int, info: ShardInfo) -> None:
        """Takes in what the shard says of itself.

        Args:
            asked_ns: When it was asked, in nanoseconds since the epoch.
            info: What it says.
        """
        if self._inserted and info.inserted < self._inserted[-1][1]:
            self._note_restart(asked_ns, info)
        if self._inserted and self._inserted[-1][1] == info.inserted:
            self._inserted.pop()
        self._inserted.append((asked_ns, info.inserted))
        while self._inserted and self._inserted[0][1] <= info.inserted - info.max_size:
            self._gone_before_ns = self._inserted.popleft()[0]

    def is_gone(self, written_ns: NDArray[np.int64]) -> NDArray[Any]:
        """Returns bool [B], which of the items made at these times are gone."""
        gone: NDArray[Any] = written_ns < self._gone_before_ns
        for begin, end in self._lost:
            gone |= (written_ns >= begin) & (written_ns < end)
        return gone

    def _note_restart(self, asked_ns: int, info: ShardInfo) -> None:
        """Takes in that the shard began anew, empty or with what it had at an earlier time."""
        while self._inserted and self._inserted[-1][1] > info.inserted:
            self._inserted.pop()
        begin = self._inserted[-1][0] if self._inserted else 0
        self._lost.append((begin, asked_ns))
