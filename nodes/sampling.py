"""Takes samples from the shards of a replay, and makes batches of them."""

import itertools
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from agents.agent import Sample, TableSpec
from nodes.replay_info import ReplayInfo, ShardInfo

_WAIT_SECONDS = 0.2
_AWAY_SECONDS = 0.2
_LONG_WAIT_MILLISECONDS = 5000
_STUCK_SECONDS = 10.0
_SAMPLER_WORKERS = 2


class Batch(NamedTuple):
    """A batch of B items, with what is needed to give them new priorities.

    Attributes:
        sample: The items.
        keys: uint64 [B], the items' keys, each known to its own shard.
        shards: int32 [B], which shard each item is in.
    """

    sample: Sample
    keys: Any
    shards: Any


class Sampler:
    """Prefetches batches, an equal part of each from every shard.

    A shard that has given samples and now gives none in time is left out, and the others give more
    in its place, until it gives some again.
    """

    def __init__(self, addresses: Sequence[str], spec: TableSpec, batch_size: int) -> None:
        """Initializes the sampler.

        Args:
            addresses: `host:port` of each shard.
            spec: The table of each shard.
            batch_size: B, a multiple of the number of shards.
        """
        self._spec = spec
        self._addresses = addresses
        self._size = batch_size // len(addresses)
        self._shards = [_ShardSampler(address, spec, self._size) for address in addresses]
        self._parts: list[tuple[int, Any]] = []
        self._has_given: set[int] = set()
        self._late: set[int] = set()

    def next(self) -> Optional[Batch]:
        """Returns the next batch, or None if there were not enough samples in a short time."""
        everyone = set(range(len(self._shards)))
        if self._late == everyone:
            self._late.clear()  # There is nobody else to take from.
        for number in everyone - self._given():
            self._take(number, 0.0 if number in self._late else _WAIT_SECONDS)
        if everyone - self._given() <= self._late:
            self._fill_in(everyone - self._late)
        if len(self._parts) < len(self._shards):
            return None
        parts, self._parts = self._parts, []
        return _join(parts)

    def _given(self) -> set[int]:
        return {number for number, _ in self._parts}

    def _fill_in(self, on_time: set[int]) -> None:
        """Takes the parts of shards that are late from those that are not."""
        for number in itertools.cycle(on_time):
            if len(self._parts) == len(self._shards) or not self._take(number, _WAIT_SECONDS):
                return

    def _take(self, number: int, seconds: float) -> bool:
        """Takes a part from a shard if it gives one, and returns whether it did."""
        part = self._shards[number].next(seconds)
        if part is None:
            if number in self._has_given:
                self._late.add(number)
            return False
        self._has_given.add(number)
        self._late.discard(number)
        self._parts.append((number, part))
        return True

    def renew(self, info: ReplayInfo) -> None:
        """Begins anew with shards that give nothing though they say that they could.

        So it is where a server in this process was started again: Reverb's sampler goes on with the
        tables of the one before.

        Args:
            info: What the shards say.
        """
        for number, shard in enumerate(info.shards):
            if shard is None or self._shards[number].is_served(shard):
                continue
            address = self._addresses[number]
            print(f"Sampling from {address} begins anew.")
            self._shards[number].close()
            self._shards[number] = _ShardSampler(address, self._spec, self._size)

    def close(self) -> None:
        """Asks for no more samples; what waits for one ends by itself, within seconds."""
        for shard in self._shards:
            shard.close()


def _join(numbered: Sequence[tuple[int, Any]]) -> Batch:
    """Returns one batch out of K parts of equal size, by the numbers of their shards.

    A draw takes a shard with the probability of its share of the parts and then an item of it, and
    all these shards together hold N items, so that importance weights can undo both.
    """
    numbers = [number for number, _ in numbered]
    parts = [part for _, part in numbered]
    if len(parts) == 1:
        ((info, data),) = parts
        sample = Sample(info.probability, info.table_size, data)
        return Batch(sample, info.key, np.zeros(len(info.key), np.int32))
    import tensorflow as tf

    info, data = tf.nest.map_structure(lambda *columns: tf.concat(columns, 0), *parts)
    size = sum({number: int(part.info.table_size[-1]) for number, part in numbered}.values())
    per_part = len(info.key) // len(parts)
    share = np.repeat([numbers.count(number) / len(parts) for number in numbers], per_part)
    sample = Sample(
        probability=info.probability * share,
        table_size=tf.fill(tf.shape(info.key), tf.constant(size, tf.int64)),
        data=data,
    )
    return Batch(sample, info.key, np.repeat(numbers, per_part))


class _ShardSampler:
    """Takes a shard's samples in parts of equal size, in a thread of its own.

    A wait for a sample cannot be interrupted, and one that times out loses the samples that are on
    their way, which the rate limiter has counted: so the thread waits long, and the learner does
    not. A wait that times out gives a part in pieces, which are kept.
    """

    def __init__(self, address: str, spec: TableSpec, size: int) -> None:
        import reverb
        import tensorflow as tf

        self._size = size
        self._pieces: list[Any] = []
        self._dataset = (
            reverb.TrajectoryDataset(
                server_address=address,
                table=spec.name,
                dtypes={name: tf.as_dtype(array.dtype) for name, array in spec.item.items()},
                shapes={name: tf.TensorShape(array.shape) for name, array in spec.item.items()},
                max_in_flight_samples_per_worker=2 * size,
                num_workers_per_iterator=_SAMPLER_WORKERS,
                rate_limiter_timeout_ms=_LONG_WAIT_MILLISECONDS,
            )
            .batch(size)
            .prefetch(2)
        )
        self._parts: queue.Queue[Any] = queue.Queue(maxsize=1)
        self._closed = threading.Event()
        self._failure: Optional[Exception] = None
        self._sampled = -1
        self._served_at = time.monotonic()
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def next(self, seconds: float) -> Any:
        """Returns samples of `size` items, or None if there were none in that time.

        Raises:
            Exception: The shard failed to give samples.
        """
        try:
            return self._parts.get(timeout=seconds) if seconds else self._parts.get_nowait()
        except queue.Empty:
            if self._failure is not None:
                raise self._failure from None
            return None

    def is_served(self, info: ShardInfo) -> bool:
        """Returns False if for long the shard could have given samples and gave nobody any."""
        now = time.monotonic()
        if info.sampled != self._sampled or info.blocks_samples or self._parts.full():
            self._sampled, self._served_at = info.sampled, now
        return now - self._served_at < _STUCK_SECONDS

    def close(self) -> None:
        """Ends the thread as soon as it has its next sample, or none came for long."""
        self._closed.set()

    def _run(self) -> None:
        import tensorflow as tf

        try:
            while not self._closed.is_set():
                try:
                    self._sample()
                except (tf.errors.UnavailableError, tf.errors.CancelledError) as error:
                    print(f"Sampling begins anew: {error}")
                self._closed.wait(_AWAY_SECONDS)  # Where it fails at once, it would at once again.
        except Exception as error:
            self._failure = error

    def _sample(self) -> None:
        """Hands over parts until there were no samples for long."""
        for samples in self._dataset:
            part = self._complete(samples)
            if part is not None:
                self._hand_over(part)
            if self._closed.is_set():
                return

    def _hand_over(self, part: Any) -> None:
        while not self._closed.is_set():
            try:
                return self._parts.put(part, timeout=_WAIT_SECONDS)
            except queue.Full:
                pass

    def _complete(self, samples: Any) -> Any:
        """Returns a part out of the pieces so far and `samples`, or None if it is not enough."""
        import tensorflow as tf

        size = self._size
        if len(samples.info.key) == size:
            return samples
        self._pieces.append(samples)
        if sum(len(piece.info.key) for piece in self._pieces) < size:
            return None
        joined = tf.nest.map_structure(lambda *columns: tf.concat(columns, 0), *self._pieces)
        self._pieces = [tf.nest.map_structure(lambda column: column[size:], joined)]
        return tf.nest.map_structure(lambda column: column[:size], joined)
