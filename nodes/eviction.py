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


class Eviction:
    """Knows, to within the time between two notes, before when a shard's items are gone.

    The clocks of who makes items and of who asks must agree.
    """

    def __init__(self) -> None:
        self._gone_before_ns = 0
        self._inserted: collections.deque[tuple[int, int]] = collections.deque()
        self._size = 0

    def note(self, asked_ns: int, info: ShardInfo) -> None:
        """Takes in what the shard says of itself.

        Args:
            asked_ns: When it was asked, in nanoseconds since the epoch.
            info: What it says.
        """
        if self._inserted and info.inserted < self._inserted[-1][1]:  # It was started again.
            self._inserted.clear()
            if info.size < self._size:
                self._gone_before_ns = asked_ns
        self._size = info.size
        if self._inserted and self._inserted[-1][1] == info.inserted:
            self._inserted.pop()
        self._inserted.append((asked_ns, info.inserted))
        while self._inserted and self._inserted[0][1] <= info.inserted - info.max_size:
            self._gone_before_ns = self._inserted.popleft()[0]

    def is_gone(self, written_ns: NDArray[np.int64]) -> NDArray[Any]:
        """Returns bool [B], which of the items made at these times are gone."""
        return written_ns < self._gone_before_ns
