"""Prioritized replay: one or more servers behind one handle, and its client."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Optional, Union

import launchpad as lp
from launchpad.nodes import base

from agents.agent import TableSpec
from nodes import checkpoints, contract, priorities
from nodes.checkpoints import Schedule
from nodes.origins import with_origin
from nodes.presence import Presence
from nodes.replay_info import ReplayInfo, ask
from nodes.replay_node import ReplayServerNode
from nodes.sample_feeds import ShardAddress
from nodes.samples import DEFAULT_PREFETCH, Prefetch
from nodes.sampling import Sampler
from nodes.writing import ReplayWriter
from usage import UsageError

MAX_SAVED_BYTES = 2 << 30
"""The largest shard that checkpoints hold, in bytes."""
_SLOW_DISK = 200e6
"""Bytes a second that a disk is thought to take at least, where all shards save at the end."""


class ReplayClient:
    """Inserts into, samples from and updates K shards of one replay table."""

    def __init__(
        self, addresses: Sequence[str], spec: TableSpec, parts: Sequence[str] = ()
    ) -> None:
        """Initializes the client.

        Args:
            addresses: `host:port` of each shard.
            spec: The table of each.
            parts: `host:port` of each shard's `nodes.part_server`, where they have any.
        """
        import reverb

        self.spec = spec
        self._addresses = list(addresses)
        self._parts: list[Optional[str]] = list(parts) or [None] * len(self._addresses)
        self._clients = [reverb.Client(address) for address in addresses]
        self._presence = Presence(self._clients, spec.name)

    def writer(self, first_shard: int, max_steps: int) -> ReplayWriter:
        """Returns a writer for one stream of trajectories, each of which goes to the next shard.

        Args:
            first_shard: The shard that gets the first, counted round and round.
            max_steps: Newest steps that the writer's history keeps.
        """
        return ReplayWriter(self._clients, self._presence, self.spec, first_shard, max_steps)

    def sampler(
        self, batch_size: int, prefetch: Prefetch = DEFAULT_PREFETCH, seed: Optional[int] = None
    ) -> Sampler:
        """Returns an endless source of batches of B items; `seed` is of the choice of shards."""
        addresses = list(map(ShardAddress, self._addresses, self._parts))
        return Sampler(addresses, self.spec, batch_size, prefetch, seed)

    def priority_updater(self) -> priorities.PriorityUpdater:
        """Returns what takes new priorities back, in the background, if sampling depends on any."""
        matter = self.spec.priority_exponent > 0
        clients = self._clients if matter else [_Nowhere() for _ in self._clients]
        return priorities.PriorityUpdater(clients, self.spec.name)

    def info(self) -> ReplayInfo:
        """Asks every shard what it holds, and waits a second for each that does not answer."""
        asked_ns = time.time_ns()
        shards = [ask(client, self.spec.name) for client in self._clients]
        return ReplayInfo(shards, self._addresses, self.spec.bytes_per_item, asked_ns)


class _Nowhere:
    """Takes priorities that make no difference, since all items are sampled alike."""

    def mutate_priorities(self, table: str, updates: Mapping[int, float]) -> None:
        """Forgets them."""


class ReplayHandle(base.Handle[ReplayClient]):
    """Handle of all shards of a replay together.

    Attributes:
        client_type: What the handle dereferences to.
        spec: The table of each shard.
    """

    client_type = ReplayClient

    def __init__(
        self,
        addresses: Sequence[Union[lp.Address, str]],
        spec: TableSpec,
        parts: Sequence[lp.Address] = (),
    ) -> None:
        """Initializes the handle.

        Args:
            addresses: Where each shard will be, or is, as `host:port`.
            spec: The table of each.
            parts: Where each shard's `nodes.part_server` will be, where they have any.
        """
        self._addresses = list(addresses)
        self._parts = list(parts)
        self.spec = spec

    @property
    def leads_outside(self) -> bool:
        """Whether it leads to servers that stand already; see `nodes.contract`."""
        return all(isinstance(address, str) for address in self._addresses)

    def dereference(self) -> ReplayClient:
        """Returns a client of all shards."""
        addresses = [
            address if isinstance(address, str) else address.resolve()
            for address in self._addresses
        ]
        return ReplayClient(addresses, self.spec, [part.resolve() for part in self._parts])

    def __repr__(self) -> str:
        return f"handle of replay table {self.spec.name!r} in {len(self._addresses)} shards"


def replay_shards(
    spec: TableSpec,
    num_shards: int,
    schedule: Schedule = checkpoints.DEFAULT,
) -> tuple[list[base.Node], ReplayHandle]:
    """Returns the nodes of a replay in `num_shards` servers, and the one handle to them all.

    Every shard holds its part of the items, and of the items that must be there before the first
    sample.

    Args:
        spec: The table that all shards together are.
        num_shards: K.
        schedule: When checkpoints are saved.

    Raises:
        UsageError: There are more shards than items that must be there.
    """
    if num_shards > spec.min_size:
        raise UsageError(
            f"Of {num_shards} replay shards each needs one of the first {spec.min_size} items: "
            "take fewer shards."
        )
    shard = shard_of(spec, num_shards)
    nodes = [
        ReplayServerNode(shard, schedule, (number + 1) / num_shards) for number in range(num_shards)
    ]
    handle = ReplayHandle(
        [node.reverb_address for node in nodes], shard, [node.parts_address for node in nodes]
    )
    stop_seconds = contract.Traits.stop_seconds
    if is_saved(shard):
        stop_seconds += num_shards * shard.max_size * shard.bytes_per_item / _SLOW_DISK
    for node in nodes:
        node._track_handle(handle)
        contract.set_traits(
            node,
            contract.Traits(
                on_failure="restart",
                endless=True,
                stop_seconds=stop_seconds,
                preload=("nodes.replay_server",),
                place="pack",
            ),
        )
    return list(nodes), handle


def replay_at(addresses: Sequence[str], spec: TableSpec) -> ReplayHandle:
    """Returns the handle of a replay in servers that stand already.

    Args:
        addresses: `host:port` of each server, a shard.
        spec: The table that each has.
    """
    return ReplayHandle(addresses, spec)


def shard_of(spec: TableSpec, num_shards: int) -> TableSpec:
    """Returns the table of each of K shards that together are what an agent describes.

    Its items have one more column, of `nodes.origins`.
    """
    return dataclasses.replace(
        spec,
        item=with_origin(spec.item),
        max_size=-(-spec.max_size // num_shards),
        min_size=-(-spec.min_size // num_shards),
        error_buffer=_share_of_buffer(spec, num_shards),
    )


def is_saved(shard: TableSpec) -> bool:
    """Returns whether checkpoints hold the items of a shard, or a new server begins empty.

    Saving takes about a second for each GiB, in which a shard is slower.
    """
    return shard.max_size * shard.bytes_per_item <= MAX_SAVED_BYTES


def _share_of_buffer(spec: TableSpec, num_shards: int) -> Optional[float]:
    if spec.samples_per_insert is None or spec.error_buffer is None:
        return None
    return max(spec.error_buffer / num_shards, 2.0 * max(1.0, spec.samples_per_insert))
