"""Makes batches out of the samples of all shards of a replay."""

import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import NDArray

from agents.agent import Sample, TableSpec
from nodes import shares
from nodes.origins import ORIGIN, Origins
from nodes.replay_info import ReplayInfo
from nodes.sample_feeds import Feed, ShardAddress
from nodes.samples import DEFAULT_PREFETCH, Prefetch, Samples
from nodes.shard_sampling import ShardSampler
from nodes.version import empty_block

_WAIT_SECONDS = 0.2
_UNEVEN_BATCHES = 100
"""Batches, after a shard was late, whose shards count as they gave samples."""


class Batch(NamedTuple):
    """A batch of B items, with what is needed to give them new priorities.

    Attributes:
        sample: The items.
        keys: uint64 [B], the items' keys, each known to its own shard.
        priorities: float64 [B], the items' priorities when they were drawn.
        shards: int32 [B], which shard each item is in.
        origins: Where the items come from.
    """

    sample: Sample
    keys: NDArray[np.uint64]
    priorities: NDArray[np.float64]
    shards: NDArray[np.int32]
    origins: Origins


class _Plan:
    """A batch that is being made.

    Attributes:
        masses: The masses of the shards that it is drawn from.
        missing: Samples still to be taken from each of them.
        taken: Samples taken, with the numbers of their shards.
        late: Shards that did not give their samples in time.
    """

    def __init__(self, masses: dict[int, float], missing: dict[int, int]) -> None:
        self.masses = masses
        self.missing = missing
        self.taken: list[tuple[int, Samples]] = []
        self.late: set[int] = set()

    @property
    def on_time(self) -> set[int]:
        """The shards that have given all that was asked of them."""
        return {shard for shard in self.masses if shard not in self.late | self.missing.keys()}

    def take(self, shard: int, samples: Sequence[Samples]) -> None:
        """Puts samples into the batch."""
        self.taken += [(shard, some) for some in samples]
        self.missing[shard] -= sum(len(some.key) for some in samples)
        if not self.missing[shard]:
            del self.missing[shard]

    def counts(self) -> dict[int, int]:
        """Returns how many samples each shard has given."""
        counts = dict.fromkeys(self.masses, 0)
        for shard, samples in self.taken:
            counts[shard] += len(samples.key)
        return counts


class Sampler:
    """Makes batches of which each draw takes a shard with the probability of its mass.

    All shards are sampled ahead, at once. One that has given samples and now gives too few in time
    is left out, and the others are drawn from in its place, until it has samples again.
    """

    def __init__(
        self,
        addresses: Sequence[ShardAddress],
        spec: TableSpec,
        batch_size: int,
        prefetch: Prefetch = DEFAULT_PREFETCH,
        seed: Optional[int] = None,
    ) -> None:
        """Initializes the sampler.

        Args:
            addresses: Where each shard is.
            spec: The table of each shard.
            batch_size: B.
            prefetch: How far it goes ahead.
            seed: Seeds the choice of shards.
        """
        self._spec = spec
        self._batch_size = batch_size
        self._prefetch = prefetch
        self._part_size = -(-batch_size // len(addresses))
        self._arrived = threading.Condition()
        self._addresses = addresses
        self._shards = [self._sample(address) for address in addresses]
        self._absent: set[int] = set()
        self._late: set[int] = set()
        self._plan: Optional[_Plan] = None
        self._uneven_batches = 0
        self._rng = np.random.default_rng(seed)
        self._closed = threading.Event()
        self._ahead: Optional[queue.Queue[Union[Batch, Exception]]] = None
        if len(addresses) > 1:  # The samples of one shard need no joining.
            self._ahead = queue.Queue(maxsize=1)
            threading.Thread(
                target=self._make_ahead, args=(self._ahead,), name="batches", daemon=True
            ).start()

    def next(self) -> Optional[Batch]:
        """Returns the next batch, or None if there were not enough samples in a short time.

        Raises:
            Exception: A shard failed to give samples.
        """
        if self._ahead is None:
            return self._make()
        try:
            batch = self._ahead.get(timeout=_WAIT_SECONDS)
        except queue.Empty:
            return None
        if isinstance(batch, Exception):
            raise batch
        return batch

    def _make_ahead(self, batches: "queue.Queue[Union[Batch, Exception]]") -> None:
        """Joins one batch ahead of its use, in a thread of its own."""
        while not self._closed.is_set():
            made: Union[Batch, Exception, None]
            try:
                made = self._make()
            except Exception as error:
                made = error
            while made is not None and not self._closed.is_set():
                with contextlib.suppress(queue.Full):
                    batches.put(made, timeout=_WAIT_SECONDS)
                    break

    def _make(self) -> Optional[Batch]:
        deadline = time.monotonic() + _WAIT_SECONDS
        if self._plan is None:
            self._plan = self._make_plan(deadline)
        plan = self._plan
        if plan is None or not (self._take(plan, deadline) or self._replace(plan)):
            return None
        self._plan = None
        for shard in self._shards:
            shard.count_batch()
        return self._join(plan)

    def renew(self, info: ReplayInfo) -> None:
        """Takes in which shards have samples to give, and begins anew with those that give none.

        So it is where a server in this process was started again: Reverb's sampler goes on with the
        tables of the one before.

        Args:
            info: What the shards say.
        """
        if self._closed.is_set():
            return
        self._absent = info.absent()
        for number, shard in enumerate(info.shards):
            before = self._shards[number]
            if shard is None or before.is_served(shard):
                continue
            print(f"Sampling from {before.name} begins anew.")
            before.close()
            self._shards[number] = self._sample(self._addresses[number])
            self._shards[number].mass, self._shards[number].size = before.mass, before.size

    def close(self) -> None:
        """Asks for no more samples; what waits for one ends by itself, within seconds."""
        self._closed.set()
        for shard in self._shards:
            shard.close()

    def _sample(self, address: ShardAddress) -> ShardSampler:
        size = self._part_size
        feed = Feed(address, self._spec, size, self._prefetch)
        wanted = self._prefetch.ready * size
        return ShardSampler(address.replay, feed, self._spec, wanted, self._arrived)

    def _make_plan(self, deadline: float) -> Optional[_Plan]:
        """Draws how many samples each shard gives, once all that answer have given some."""
        with self._arrived:
            ready = self._arrived.wait_for(self._knows_all_masses, deadline - time.monotonic())
            known = {
                number: shard.mass
                for number, shard in enumerate(self._shards)
                if shard.mass is not None
            }
            if not ready or not known:
                return None
            self._late -= {number for number in self._late if self._shards[number].available}
            masses = {number: mass for number, mass in known.items() if number not in self._late}
        masses = masses or known  # Else there is nobody to take from.
        return _Plan(masses, shares.draw(self._rng, self._batch_size, masses))

    def _knows_all_masses(self) -> bool:
        return all(
            shard.available or shard.mass is not None or number in self._absent
            for number, shard in enumerate(self._shards)
        )

    def _take(self, plan: _Plan, deadline: float) -> bool:
        """Takes what is missing until `deadline`, and returns whether it has all."""

        def take() -> bool:
            for number in list(plan.missing):
                if self._shards[number].available:
                    plan.take(number, self._shards[number].take(plan.missing[number]))
            return not plan.missing

        with self._arrived:
            return self._arrived.wait_for(take, max(0.0, deadline - time.monotonic()))

    def _replace(self, plan: _Plan) -> bool:
        """Draws anew, from the others, what late shards did not give; returns whether it has all.

        Where all are late there is nothing to draw from, and the plan stays.
        """
        if not plan.on_time:
            others = [s for number, s in enumerate(self._shards) if number not in plan.missing]
            if any(shard.available for shard in others):  # They were late before.
                self._late |= plan.missing.keys()
                self._plan = None
            return False
        number = sum(plan.missing.values())
        plan.late |= plan.missing.keys()
        self._late |= plan.late
        self._uneven_batches = _UNEVEN_BATCHES
        masses = {shard: plan.masses[shard] for shard in plan.masses if shard not in plan.late}
        plan.missing = shares.draw(self._rng, number, masses)
        return self._take(plan, 0.0)

    def _shares(self, plan: _Plan) -> dict[int, float]:
        """Returns with which probability a draw took each shard.

        Whether a shard is late depends on how much it was asked for. So while some are, what they
        gave counts instead: which items of a shard are drawn does not depend on how many are.
        """
        self._uneven_batches -= 1
        if self._uneven_batches < 0:
            return shares.shares(plan.masses)
        return {shard: count / self._batch_size for shard, count in plan.counts().items()}

    def _join(self, plan: _Plan) -> Batch:
        """Returns one batch out of samples of several shards.

        The shards that were drawn from hold N items together, and an item is drawn with the
        probability of its shard times that within it, so that importance weights can undo both.
        """
        import tensorflow as tf

        share = self._shares(plan)
        members = plan.masses.keys() - {n for n in plan.late if not share[n]}
        size = sum(self._shards[number].size for number in members)
        lengths = [len(samples.key) for _, samples in plan.taken]
        shards = np.repeat([number for number, _ in plan.taken], lengths)
        share_of_each = np.repeat([share[number] for number, _ in plan.taken], lengths)
        parts = [samples for _, samples in plan.taken]
        probability = _concatenate([samples.probability for samples in parts])
        data = {
            name: _concatenate([samples.data[name] for samples in parts])
            for name in self._spec.item
        }
        origins = Origins.of(data.pop(ORIGIN))
        sample = Sample(
            probability=tf.convert_to_tensor(probability * share_of_each),
            table_size=tf.fill([self._batch_size], tf.constant(size, tf.int64)),
            data={name: tf.convert_to_tensor(column) for name, column in data.items()},
        )
        return Batch(
            sample,
            _concatenate([samples.key for samples in parts]),
            _concatenate([samples.priority for samples in parts]),
            shards.astype(np.int32),
            origins,
        )


def _concatenate(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Joins columns where TensorFlow can take them from without one more copy."""
    if len(columns) == 1:
        return columns[0]
    shape = sum(map(len, columns)), *columns[0].shape[1:]
    dtype = columns[0].dtype
    block = empty_block(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    return np.concatenate(columns, out=block.view(dtype).reshape(shape))
