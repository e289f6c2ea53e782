"""Takes new priorities back to replay without the learner waiting for it."""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from nodes.eviction import Eviction
from nodes.replay_info import ReplayInfo
from nodes.sampling import Batch

_MAX_WAITING_UPDATES = 64
"""Learner steps whose priorities may wait; the oldest is dropped for one more."""
_KEYS_PER_CALL = 2048
"""A call with 2,048 keys costs 0.35 us a key, one with 256 keys 1.7 us."""
_LINGER_SECONDS = 0.05
_CLOSE_SECONDS = 1.0


class Counts(NamedTuple):
    """Priorities, by what became of them.

    Attributes:
        applied: Sent to a shard that had the item.
        late: Sent to a shard that had the item no more; see `nodes.eviction`.
        dropped: Not sent, as too many waited or the shard was away.
    """

    applied: int = 0
    late: int = 0
    dropped: int = 0


class PriorityUpdater:
    """Sends priorities to their shards, in the background; none that is away holds up another."""

    def __init__(self, clients: Sequence[Any], table: str) -> None:
        self._shards = [_ShardUpdater(client, table) for client in clients]

    @property
    def counts(self) -> Counts:
        """What became of the priorities so far."""
        counts = [shard.counts for shard in self._shards]
        return Counts(*map(sum, zip(*counts, strict=True)))

    def update(self, batch: Batch, priorities: Any) -> None:
        """Hands over the new priorities of one batch and returns at once.

        Args:
            batch: The batch.
            priorities: float32 [B].

        Raises:
            FloatingPointError: A priority handed over earlier was not a finite number.
        """
        for number, shard in enumerate(self._shards):
            here: Any = slice(None)
            if len(self._shards) > 1:
                here = batch.shards == number
                if not here.any():
                    continue
            shard.update(
                _Update(batch.keys[here], priorities, batch.origins.written_ns[here], here)
            )

    def note(self, info: ReplayInfo) -> None:
        """Takes in what the shards say of themselves, to tell which items they have no more."""
        for shard, facts in zip(self._shards, info.shards, strict=True):
            if facts is not None:
                shard.eviction.note(info.asked_ns, facts)

    def close(self) -> None:
        """Sends what waits and ends the threads; a shard that is away is not waited for long."""
        for shard in self._shards:
            shard.begin_close()
        for shard in self._shards:
            shard.wait()


class _Update(NamedTuple):
    """New priorities of the n items of a batch that are one shard's.

    Attributes:
        keys: uint64 [n].
        priorities: float32 [B], of the whole batch; a tensor may not be known yet.
        written_ns: int64 [n], when the items were made.
        here: Which of the batch's items they are.
    """

    keys: NDArray[np.uint64]
    priorities: Any
    written_ns: NDArray[np.int64]
    here: Any

    def columns(self) -> tuple[NDArray[Any], ...]:
        """Returns keys, priorities and times of the items."""
        return self.keys, np.asarray(self.priorities)[self.here], self.written_ns


class _ShardUpdater:
    """Sends priorities to one shard from a thread of its own."""

    def __init__(self, client: Any, table: str) -> None:
        self.eviction = Eviction()
        self.counts = Counts()
        self._client = client
        self._table = table
        self._waiting: list[_Update] = []
        self._wake = threading.Condition()
        self._closed = False
        self._sending = 0
        self._failure: Optional[Exception] = None
        self._thread = threading.Thread(target=self._run, name="priorities", daemon=True)
        self._thread.start()

    def update(self, update: _Update) -> None:
        if self._failure is not None:
            raise self._failure
        with self._wake:
            if len(self._waiting) == _MAX_WAITING_UPDATES:
                oldest = len(self._waiting.pop(0).keys)
                self.counts = self.counts._replace(dropped=self.counts.dropped + oldest)
            self._waiting.append(update)
            self._wake.notify()

    def begin_close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()

    def wait(self) -> None:
        self._thread.join(_CLOSE_SECONDS)
        self._settle(False)  # A shard that is gone may never say that it is.

    def _run(self) -> None:
        try:
            while self._take_and_send():
                pass
        except Exception as error:
            self._failure = error

    def _take_and_send(self) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closed)
            self._wake.wait_for(self._enough, timeout=_LINGER_SECONDS)
            waiting, self._waiting = self._waiting, []
        if not waiting:
            return False
        columns = zip(*(update.columns() for update in waiting), strict=True)
        keys, priorities, written_ns = map(np.concatenate, columns)
        if not np.isfinite(priorities).all():
            raise FloatingPointError(
                "The learner's priorities are not finite: its loss has diverged; a smaller "
                "learning rate or a smaller gradient norm helps."
            )
        updates = dict(zip(keys.tolist(), priorities.tolist(), strict=True))
        self._sending = len(keys)
        late = int(np.count_nonzero(self.eviction.is_gone(written_ns)))
        try:
            self._client.mutate_priorities(self._table, updates=updates)
        except RuntimeError as error:  # The shard has gone away, and with it perhaps the items.
            print(f"{len(keys)} priorities were not sent: {error}")
            self._settle(False)
        else:
            self._settle(True, late)
        return True

    def _settle(self, sent: bool, late: int = 0) -> None:
        """Counts what was being sent, unless that has been done."""
        with self._wake:
            number, self._sending = self._sending, 0
            late = min(late, number)
            applied, _, dropped = self.counts
            if sent:
                counts = Counts(applied + number - late, self.counts.late + late, dropped)
            else:
                counts = self.counts._replace(dropped=dropped + number)
            self.counts = counts

    def _enough(self) -> bool:
        return self._closed or sum(len(update.keys) for update in self._waiting) >= _KEYS_PER_CALL
