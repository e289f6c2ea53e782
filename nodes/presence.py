"""Which shards of a replay answer, known without waiting for those that do not."""

import threading
from collections.abc import Sequence
from typing import Any

from nodes.replay_info import ask


class Presence:
    """Shared by all who write from one process; asks in the background, one shard at a time each.

    A question to a shard that is away takes a second.
    """

    def __init__(self, clients: Sequence[Any], table: str) -> None:
        self._clients = clients
        self._table = table
        self._there = [False] * len(clients)
        self._asked: set[int] = set()
        self._lock = threading.Lock()

    def is_there(self, shard: int) -> bool:
        """Returns whether a shard has answered; one that has not is asked once more."""
        with self._lock:
            if self._there[shard] or shard in self._asked:
                return self._there[shard]
            self._asked.add(shard)
        threading.Thread(target=self._ask, args=(shard,), name="presence", daemon=True).start()
        return False

    def forget(self, shard: int) -> None:
        """Takes in that a shard has failed to answer."""
        self._there[shard] = False

    def _ask(self, shard: int) -> None:
        answers = ask(self._clients[shard], self._table) is not None
        with self._lock:
            self._there[shard] = answers
            self._asked.discard(shard)
