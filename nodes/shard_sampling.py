"""Takes samples from one shard of a replay, ahead of their use."""

import collections
import threading
import time
from typing import Optional

from agents.agent import TableSpec
from nodes import shares
from nodes.replay_info import ShardInfo
from nodes.sample_feeds import Feed, ShardAway
from nodes.samples import Samples

_AWAY_SECONDS = 0.2
_STUCK_SECONDS = 10.0
_STALE_BATCHES = 32


class ShardSampler:
    """Takes a shard's samples in a thread of its own, and keeps them until they are wanted.

    A wait for a sample cannot be interrupted, and one that times out loses the samples that are on
    their way, which the rate limiter has counted: so the thread waits long, and the learner does
    not.
    """

    def __init__(
        self,
        name: str,
        feed: Feed,
        spec: TableSpec,
        wanted: int,
        arrived: threading.Condition,
    ) -> None:
        """Begins to take samples.

        Args:
            name: What the shard is called in messages.
            feed: Where they come from.
            spec: The shard's table.
            wanted: Samples that are kept at least, where there are some.
            arrived: Held while samples are put down or taken, and notified of both.
        """
        self.name = name
        self._feed = feed
        self._exponent = spec.priority_exponent
        self._wanted = wanted
        self._arrived = arrived
        self._kept: collections.deque[Samples] = collections.deque()
        self._closed = threading.Event()
        self._failure: Optional[Exception] = None
        self._sampled = -1
        self._batches = 0
        self._served_at = time.monotonic()
        self.mass: Optional[float] = None
        self.size = 0
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    @property
    def available(self) -> int:
        """Samples that can be taken.

        Raises:
            Exception: The shard failed to give samples.
        """
        if self._failure is not None:
            raise self._failure
        return sum(len(samples.key) for samples in self._kept)

    def take(self, number: int) -> list[Samples]:
        """Returns `number` samples, or fewer if there are no more, in the order of their coming."""
        taken: list[Samples] = []
        with self._arrived:
            while number and self._kept:
                first = self._kept.popleft()
                size = len(first.key)
                if size > number:
                    self._kept.appendleft(first.part(number, size))
                    first, size = first.part(0, number), number
                taken.append(first)
                number -= size
            self._arrived.notify_all()
        return taken

    def wait_for_part(self, seconds: float) -> Optional[Samples]:
        """Returns the samples that came first, as they came, or None if there were none in time.

        Raises:
            Exception: The shard failed to give samples.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: self.available, seconds):
                return None
            part = self._kept.popleft()
            self._arrived.notify_all()
        return part

    def count_batch(self) -> None:
        """Takes in that a batch was made, and lets go of samples that lie for very many.

        From a shard with a small share samples are taken seldom, and only new ones tell that its
        share has grown.
        """
        with self._arrived:
            self._batches += 1
            if self._kept and self._batches > _STALE_BATCHES:
                self._kept.popleft()
                self._batches = 0
                self._arrived.notify_all()

    def is_served(self, info: ShardInfo) -> bool:
        """Returns False if for long the shard could have given samples and gave nobody any."""
        now = time.monotonic()
        with self._arrived:
            is_full = self._is_full()
        if info.sampled != self._sampled or info.blocks_samples or is_full:
            self._sampled, self._served_at = info.sampled, now
        return now - self._served_at < _STUCK_SECONDS

    def close(self) -> None:
        """Ends the thread as soon as it has its next sample, or none came for long."""
        with self._arrived:
            self._closed.set()
            self._arrived.notify_all()

    def _is_full(self) -> bool:
        return sum(len(samples.key) for samples in self._kept) >= self._wanted

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                try:
                    for samples in self._feed.samples(self._closed):
                        if not self._keep(samples):
                            return
                except ShardAway as error:
                    print(f"Sampling from {self.name} begins anew: {error}")
                self._closed.wait(_AWAY_SECONDS)  # Where it fails at once, it would at once again.
        except Exception as error:
            with self._arrived:
                self._failure = error
                self._arrived.notify_all()

    def _keep(self, samples: Samples) -> bool:
        """Waits until there is room for samples and keeps them; returns False once closed."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._closed.is_set() or not self._is_full())
            self._kept.append(samples)
            self._batches = 0
            self.mass = shares.mass(samples.priority[-1], samples.probability[-1], self._exponent)
            self.size = int(samples.table_size[-1])
            self._arrived.notify_all()
        return not self._closed.is_set()
