"""Prioritized replay: one or more servers behind one handle, and its client."""

import dataclasses
import queue
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import launchpad as lp
import numpy as np
from launchpad.nodes import base

from agents.agent import Sample, TableSpec
from nodes import checkpoints, contract, priorities
from nodes.checkpoints import Schedule
from nodes.replay_info import ReplayInfo, ask
from nodes.writing import ReplayWriter
from usage import UsageError

MAX_SAVED_BYTES = 2 << 30
"""The largest shard that checkpoints hold, in bytes."""
_WAIT_SECONDS = 0.2
_AWAY_SECONDS = 0.5
_LONG_WAIT_MILLISECONDS = 5000
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


class ReplayClient:
    """Inserts into, samples from and updates K shards of one replay table."""

    def __init__(self, addresses: Sequence[str], spec: TableSpec) -> None:
        import reverb

        self.spec = spec
        self._addresses = list(addresses)
        self._clients = [reverb.Client(address) for address in addresses]

    def writer(self, shard: int, max_steps: int) -> "ReplayWriter":
        """Returns a writer for one stream of steps, to one shard.

        Args:
            shard: The shard's number, counted round and round.
            max_steps: Newest steps that the writer's history keeps.
        """
        client = self._clients[shard % len(self._clients)]
        return ReplayWriter(client, self.spec, max_steps)

    def sampler(self, batch_size: int) -> "Sampler":
        """Returns an endless source of batches; B must be a multiple of the number of shards."""
        return Sampler(self._addresses, self.spec, batch_size)

    def priority_updater(self) -> priorities.PriorityUpdater:
        """Returns what takes new priorities back, in the background."""
        return priorities.PriorityUpdater(self._clients, self.spec.name)

    def info(self) -> ReplayInfo:
        """Asks every shard what it holds, and waits a second for each that does not answer."""
        shards = [ask(client, self.spec.name) for client in self._clients]
        return ReplayInfo(shards, self._addresses)


class ReplayHandle(base.Handle[ReplayClient]):
    """Handle of all shards of a replay together.

    Attributes:
        client_type: What the handle dereferences to.
        spec: The table of each shard.
    """

    client_type = ReplayClient

    def __init__(self, addresses: Sequence[lp.Address], spec: TableSpec) -> None:
        self._addresses = list(addresses)
        self.spec = spec

    def dereference(self) -> ReplayClient:
        """Returns a client of all shards."""
        return ReplayClient([address.resolve() for address in self._addresses], self.spec)

    def __repr__(self) -> str:
        return f"handle of replay table {self.spec.name!r} in {len(self._addresses)} shards"


def replay_shards(
    spec: TableSpec,
    num_shards: int,
    batch_size: int,
    num_writers: int,
    schedule: Schedule = checkpoints.DEFAULT,
) -> tuple[list[base.Node], ReplayHandle]:
    """Returns the nodes of a replay in `num_shards` servers, and the one handle to them all.

    Every shard holds its part of the items, and of the items that must be there before the first
    sample.

    Args:
        spec: The table that all shards together are.
        num_shards: K.
        batch_size: Items that are sampled at once.
        num_writers: Actors that write; each shard needs one.
        schedule: When checkpoints are saved.

    Raises:
        UsageError: There are more shards than actors to fill them or than items that must be
            there, or they cannot share a batch.
    """
    from nodes import replay_server

    if num_shards > min(spec.min_size, num_writers):
        raise UsageError(
            f"Of {num_shards} replay shards each needs an actor that fills it and one of the first "
            f"{spec.min_size} items, but there are {num_writers} actors: take fewer shards."
        )
    if batch_size % num_shards:
        raise UsageError(
            f"The batch size must be a multiple of the {num_shards} replay shards, got "
            f"{batch_size}."
        )
    shard = shard_of(spec, num_shards)
    nodes = [
        replay_server.ReplayServerNode(shard, schedule, (number + 1) / num_shards)
        for number in range(num_shards)
    ]
    handle = ReplayHandle([node._address for node in nodes], shard)
    for node in nodes:
        node._track_handle(handle)
        contract.set_traits(
            node,
            contract.Traits(on_failure="restart", endless=True, preload=("nodes.replay_server",)),
        )
    return list(nodes), handle


def shard_of(spec: TableSpec, num_shards: int) -> TableSpec:
    """Returns the table of each of K shards that together are `spec`."""
    return dataclasses.replace(
        spec,
        max_size=-(-spec.max_size // num_shards),
        min_size=-(-spec.min_size // num_shards),
        error_buffer=_share_of_buffer(spec, num_shards),
    )


def is_saved(shard: TableSpec) -> bool:
    """Returns whether checkpoints hold the items of a shard, or a new server begins empty.

    A shard answers nobody while it is saved, about a second for each GiB.
    """
    return shard.max_size * shard.bytes_per_item <= MAX_SAVED_BYTES


def _share_of_buffer(spec: TableSpec, num_shards: int) -> Optional[float]:
    if spec.samples_per_insert is None or spec.error_buffer is None:
        return None
    return max(spec.error_buffer / num_shards, 2.0 * max(1.0, spec.samples_per_insert))


class Sampler:
    """Prefetches batches; each shard gives an equal part of every batch."""

    def __init__(self, addresses: Sequence[str], spec: TableSpec, batch_size: int) -> None:
        """Initializes the sampler.

        Args:
            addresses: `host:port` of each shard.
            spec: The table of each shard.
            batch_size: B, a multiple of the number of shards.
        """
        per_shard = batch_size // len(addresses)
        self._shards = [_ShardSampler(address, spec, per_shard) for address in addresses]
        self._parts: list[Any] = [None] * len(addresses)

    def next(self) -> Optional[Batch]:
        """Returns the next batch, or None if a shard did not give its part in time."""
        for index, shard in enumerate(self._shards):
            if self._parts[index] is None:
                self._parts[index] = shard.next()
        if any(part is None for part in self._parts):
            return None
        parts, self._parts = self._parts, [None] * len(self._shards)
        return _join(parts)

    def close(self) -> None:
        """Asks for no more samples; what waits for one ends by itself, within seconds."""
        for shard in self._shards:
            shard.close()


def _join(parts: Sequence[Any]) -> Batch:
    """Returns one batch out of the equal parts of all shards.

    A draw takes each of K shards with probability 1 / K and then an item of it, and all shards
    together hold N items, so that importance weights can undo both.
    """
    if len(parts) == 1:
        ((info, data),) = parts
        sample = Sample(info.probability, info.table_size, data)
        return Batch(sample, info.key, np.zeros(len(info.key), np.int32))
    import tensorflow as tf

    info, data = tf.nest.map_structure(lambda *columns: tf.concat(columns, 0), *parts)
    size = sum(int(part.info.table_size[-1]) for part in parts)
    sample = Sample(
        probability=info.probability / len(parts),
        table_size=tf.fill(tf.shape(info.key), tf.constant(size, tf.int64)),
        data=data,
    )
    return Batch(sample, info.key, np.repeat(np.arange(len(parts)), len(info.key) // len(parts)))


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
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def next(self) -> Any:
        """Returns samples of `size` items, or None if there were none in a short time.

        Raises:
            Exception: The shard failed to give samples.
        """
        try:
            return self._parts.get(timeout=_WAIT_SECONDS)
        except queue.Empty:
            if self._failure is not None:
                raise self._failure from None
            return None

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
                    self._closed.wait(_AWAY_SECONDS)
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
