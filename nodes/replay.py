"""Prioritized replay: one or more servers behind one handle, and its client."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import launchpad as lp
from launchpad.nodes import base
from numpy.typing import NDArray

from agents.agent import Sample, TableSpec
from nodes import contract, priorities
from usage import UsageError

_MAX_UNCONFIRMED_ITEMS = 50
"""Items that a writer sends ahead of the server before it waits for it (Horgan et al. 2018,
appendix D: actors send batches of 50)."""
_FLUSH_PERIOD_ITEMS = 25
_WAIT_MILLISECONDS = 200
_SAMPLER_WORKERS = 2
_INFO_TIMEOUT_SECONDS = 5


class ReplayInfo(NamedTuple):
    """What is in replay now, over all shards.

    Attributes:
        size: Items.
        max_size: Items that fit.
        inserted: Items inserted since the servers started.
        sampled: Samples given out since the servers started.
    """

    size: int
    max_size: int
    inserted: int
    sampled: int


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

    def writer(self, stream: int, max_steps: int) -> "ReplayWriter":
        """Returns a writer for one stream of steps; streams take turns over the shards.

        Args:
            stream: The stream's number, of all streams of the program.
            max_steps: Newest steps that the writer's history keeps.
        """
        client = self._clients[stream % len(self._clients)]
        return ReplayWriter(client.trajectory_writer(max_steps), self.spec.name)

    def sampler(self, batch_size: int) -> "Sampler":
        """Returns an endless source of batches."""
        return Sampler(self._addresses, self.spec, batch_size)

    def priority_updater(self) -> priorities.PriorityUpdater:
        """Returns what takes new priorities back, in the background."""
        return priorities.PriorityUpdater(self._clients, self.spec.name)

    def info(self) -> ReplayInfo:
        """Asks every shard what it holds.

        Raises:
            reverb.errors.DeadlineExceededError: A shard did not answer in time.
        """
        tables = [
            client.server_info(timeout=_INFO_TIMEOUT_SECONDS)[self.spec.name]
            for client in self._clients
        ]
        return ReplayInfo(
            size=sum(table.current_size for table in tables),
            max_size=sum(table.max_size for table in tables),
            inserted=sum(table.rate_limiter_info.insert_stats.completed for table in tables),
            sampled=sum(table.rate_limiter_info.sample_stats.completed for table in tables),
        )


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


def replay_shards(spec: TableSpec, num_shards: int) -> tuple[list[base.Node], ReplayHandle]:
    """Returns the nodes of a replay in `num_shards` servers, and the one handle to them all.

    Every shard holds its part of the items, and of the items that must be there before the first
    sample.

    Raises:
        UsageError: There are more shards than items.
    """
    from nodes import replay_server

    if not 1 <= num_shards <= spec.min_size:
        raise UsageError(
            f"The number of replay shards must be between 1 and the {spec.min_size} items that "
            f"replay needs before it is sampled, got {num_shards}."
        )
    shard = dataclasses.replace(
        spec,
        max_size=-(-spec.max_size // num_shards),
        min_size=-(-spec.min_size // num_shards),
    )
    nodes = [replay_server.ReplayServerNode(shard) for _ in range(num_shards)]
    handle = ReplayHandle([node._address for node in nodes], shard)
    for node in nodes:
        node._track_handle(handle)
        contract.set_traits(node, contract.Traits(preload=("nodes.replay_server",)))
    return list(nodes), handle


class ReplayWriter:
    """A `reverb.TrajectoryWriter` that waits for a full replay only as long as its node runs."""

    def __init__(self, writer: Any, table: str) -> None:
        self._writer = writer
        self._table = table
        self._runtime = contract.runtime()
        self._created = 0

    def append(self, step: Mapping[str, NDArray[Any]]) -> None:
        """Adds one step; each column may be left out of a step."""
        self._writer.append(step)

    @property
    def history(self) -> Mapping[str, Any]:
        """Kept steps by column; slicing gives what `create_item` takes."""
        return self._writer.history  # type: ignore[no-any-return]

    def create_item(self, priority: float, trajectory: Mapping[str, Any]) -> None:
        """Inserts the item `trajectory` (slices of `history`) with `priority`."""
        self._writer.create_item(self._table, priority, trajectory)
        self._created += 1
        if self._created % _FLUSH_PERIOD_ITEMS == 0:
            self._wait_for_server()

    def end_episode(self) -> None:
        """Forgets `history`: no item spans what came before and what comes after."""
        self._writer.end_episode(clear_buffers=True, timeout_ms=_WAIT_MILLISECONDS)

    def close(self) -> None:
        """Ends the stream; items that the server has not confirmed may be lost."""
        self._writer.close()

    def _wait_for_server(self) -> None:
        from reverb import errors

        while not self._runtime.stopping:
            try:
                self._writer.flush(_MAX_UNCONFIRMED_ITEMS, timeout_ms=_WAIT_MILLISECONDS)
                return
            except errors.DeadlineExceededError:
                continue


class Sampler:
    """Prefetches batches; each shard gives an equal part of every batch.

    Where replay gives samples so slowly that waiting for them times out, they come in parts, which
    are kept until they are a batch.
    """

    def __init__(self, addresses: Sequence[str], spec: TableSpec, batch_size: int) -> None:
        if batch_size % len(addresses):
            raise UsageError(
                f"The batch size must be a multiple of the {len(addresses)} replay shards, "
                f"got {batch_size}."
            )
        self._batch_size = batch_size
        self._num_shards = len(addresses)
        self._dataset = self._make_dataset(addresses, spec)
        self._iterator: Any = None
        self._parts: list[Batch] = []

    def next(self) -> Optional[Batch]:
        """Returns the next batch, or None if replay gave no whole one in the time of a wait."""
        if self._iterator is None:
            self._iterator = iter(self._dataset)
        try:
            batch = Batch(*next(self._iterator))
        except StopIteration:
            self._iterator = None
            return None
        if len(batch.keys) == self._batch_size:
            return batch
        self._parts.append(batch)
        return self._join_parts()

    def _join_parts(self) -> Optional[Batch]:
        import tensorflow as tf

        if sum(len(part.keys) for part in self._parts) < self._batch_size:
            return None
        joined = tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *self._parts)
        size = self._batch_size
        self._parts = [tf.nest.map_structure(lambda column: column[size:], joined)]
        return tf.nest.map_structure(lambda column: column[:size], joined)  # type: ignore[no-any-return]

    def _make_dataset(self, addresses: Sequence[str], spec: TableSpec) -> Any:
        import reverb
        import tensorflow as tf

        per_shard = self._batch_size // self._num_shards
        shards = [
            reverb.TrajectoryDataset(
                server_address=address,
                table=spec.name,
                dtypes={name: tf.as_dtype(array.dtype) for name, array in spec.item.items()},
                shapes={name: tf.TensorShape(array.shape) for name, array in spec.item.items()},
                max_in_flight_samples_per_worker=2 * per_shard,
                num_workers_per_iterator=_SAMPLER_WORKERS,
                rate_limiter_timeout_ms=_WAIT_MILLISECONDS,
            ).batch(per_shard)
            for address in addresses
        ]
        return tf.data.Dataset.zip(tuple(shards)).map(self._combine).prefetch(2)

    def _combine(self, *shards: Any) -> Any:
        """Returns one batch out of a part of each shard; it runs inside the dataset."""
        import tensorflow as tf

        info, data = tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *shards)
        origin = [tf.fill(tf.shape(shard.info.key), index) for index, shard in enumerate(shards)]
        sample = Sample(
            probability=info.probability / self._num_shards,
            table_size=info.table_size * self._num_shards,
            data=data,
        )
        return sample, info.key, tf.concat(origin, 0)
