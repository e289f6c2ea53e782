"""Takes samples from one shard of a replay, ahead of their use."""

import collections
import dataclasses
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from agents.agent import TableSpec
from nodes import shares
from nodes.replay_info import ShardInfo

_LONG_WAIT_MILLISECONDS = 5000
_AWAY_SECONDS = 0.2
_STUCK_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Prefetch:
    """How far samples are fetched ahead; measured by `benchmarks/replay_tuning.py`.

    A part is a batch's size divided by the number of shards.

    Attributes:
        workers: Streams of samples to each server.
        in_flight: Parts that are on their way to each worker.
        prefetched: Parts that have been put together and wait.
        ready: Parts that were handed over and wait for their use.
    """

    workers: int = 2
    in_flight: int = 2
    prefetched: int = 2
    ready: int = 1


DEFAULT_PREFETCH = Prefetch()


class Samples(NamedTuple):
    """Samples of n items of one shard.

    Attributes:
        key: uint64 [n].
        probability: float64 [n], with which the shard drew each.
        priority: float64 [n], before the exponent.
        table_size: int64 [n], the shard's items when each was drawn.
        data: The item's columns, [n, ...].
    """

    key: NDArray[np.uint64]
    probability: NDArray[np.float64]
    priority: NDArray[np.float64]
    table_size: NDArray[np.int64]
    data: Mapping[str, NDArray[Any]]

    def part(self, begin: int, end: int) -> "Samples":
        """Returns some of the samples, without copying them."""
        return Samples(
            self.key[begin:end],
            self.probability[begin:end],
            self.priority[begin:end],
            self.table_size[begin:end],
            {name: column[begin:end] for name, column in self.data.items()},
        )


class ShardSampler:
    """Takes a shard's samples in a thread of its own, and keeps them until they are wanted.

    A wait for a sample cannot be interrupted, and one that times out loses the samples that are on
    their way, which the rate limiter has counted: so the thread waits long, and the learner does
    not.
    """

    def __init__(
        self,
        address: str,
        spec: TableSpec,
        size: int,
        prefetch: Prefetch,
        arrived: threading.Condition,
    ) -> None:
        """Begins to take samples.

        Args:
            address: `host:port` of the server.
            spec: Its table.
            size: Items of a part.
            prefetch: How far to go ahead.
            arrived: Held while samples are put down or taken, and notified of new ones.
        """
        import reverb
        import tensorflow as tf

        self.address = address
        self._dataset = (
            reverb.TrajectoryDataset(
                server_address=address,
                table=spec.name,
                dtypes={name: tf.as_dtype(array.dtype) for name, array in spec.item.items()},
                shapes={name: tf.TensorShape(array.shape) for name, array in spec.item.items()},
                max_in_flight_samples_per_worker=max(1, prefetch.in_flight * size),
                num_workers_per_iterator=prefetch.workers,
                rate_limiter_timeout_ms=_LONG_WAIT_MILLISECONDS,
            )
            .batch(size)
            .prefetch(prefetch.prefetched)
        )
        self._exponent = spec.priority_exponent
        self._wanted = prefetch.ready * size
        self._arrived = arrived
        self._kept: collections.deque[Samples] = collections.deque()
        self._closed = threading.Event()
        self._failure: Optional[Exception] = None
        self._sampled = -1
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

    def is_served(self, info: ShardInfo) -> bool:
        """Returns False if for long the shard could have given samples and gave nobody any."""
        now = time.monotonic()
        if info.sampled != self._sampled or info.blocks_samples or self._is_full():
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
        import tensorflow as tf

        try:
            while not self._closed.is_set():
                try:
                    for sample in self._dataset:
                        if not self._keep(sample):
                            return
                except (tf.errors.UnavailableError, tf.errors.CancelledError) as error:
                    print(f"Sampling from {self.address} begins anew: {error}")
                self._closed.wait(_AWAY_SECONDS)  # Where it fails at once, it would at once again.
        except Exception as error:
            with self._arrived:
                self._failure = error
                self._arrived.notify_all()

    def _keep(self, sample: Any) -> bool:
        """Waits until there is room for samples and keeps them; returns False once closed."""
        info = sample.info
        samples = Samples(
            np.asarray(info.key),
            np.asarray(info.probability),
            np.asarray(info.priority),
            np.asarray(info.table_size),
            {name: np.asarray(column) for name, column in sample.data.items()},
        )
        with self._arrived:
            self._arrived.wait_for(lambda: self._closed.is_set() or not self._is_full())
            self._kept.append(samples)
            self.mass = shares.mass(samples.priority[-1], samples.probability[-1], self._exponent)
            self.size = int(samples.table_size[-1])
            self._arrived.notify_all()
        return not self._closed.is_set()
