"""A program and a layout, checked: what will run, before anything does."""

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import launchpad as lp

import usage
from launchers.graph import (
    addresses_used,
    check_addresses,
    group_of,
    held_first,
    holders_of,
    nodes_of,
    origin_of,
    owners_of,
    stand_ins_of,
)
from launchers.hosts import Host, this_machine
from launchers.layout import GroupLayout, Layout
from launchers.pickling import check_pickles
from launchers.placement import Need, Seat, Seating, Wish
from nodes import contract
from usage import UsageError

MODES = ("test_mt", "local_mt", "local_mp", "ray")
THREAD_MODES = ("test_mt", "local_mt")


@dataclasses.dataclass(frozen=True)
class Replica:
    """One node of the program, with all that a back end must know to run it.

    Attributes:
        group: Label of its group.
        index: Its place in the group.
        node: The node.
        traits: What the node says of itself, with the layout's word over it.
        layout: What the layout says of its group.
        seat: On which host it runs, at first, what it reserves there, and its GPUs.
        holders: Replicas that hold a handle of this one, or of one that stands in for it; they
            stop first.
        uses: The addresses that its handles lead to.
    """

    group: str
    index: int
    node: lp.PyNode
    traits: contract.Traits
    layout: GroupLayout
    seat: Seat
    holders: frozenset[str]
    uses: tuple[lp.Address, ...]

    @property
    def name(self) -> str:
        """`group/index`."""
        return f"{self.group}/{self.index}"


class Server(NamedTuple):
    """A replica, and which of its node's addresses is meant."""

    replica: str
    number: int


class Nearness(enum.IntEnum):
    """How well a server suits one who asks for an address."""

    LOST = 0
    THERE = 1
    NEAR = 2


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a launch would run.

    Attributes:
        program: Name of the program.
        mode: How it is launched.
        addresses: The addresses of all nodes, also of those that have no replica.
        stands_in_for: The address that leads to the same service where there is no replica at
            hand, for some of `addresses` by their identity.
    """

    program: str
    mode: str
    replicas: Mapping[str, Replica]
    addresses: Sequence[lp.Address]
    stands_in_for: Mapping[int, lp.Address]

    @functools.cached_property
    def servers(self) -> Mapping[int, Sequence[Server]]:
        """Who listens on an address, by the address's identity."""
        servers: dict[int, list[Server]] = {}
        for name, replica in self.replicas.items():
            for index, address in enumerate(replica.node.addresses):
                servers.setdefault(id(address), []).append(Server(name, index))
        return servers

    def server_of(
        self, address: lp.Address, nearness: Callable[[str], Nearness]
    ) -> Optional[Server]:
        """Returns who listens on `address` for one who asks, or None where nobody does.

        That is a replica on the same host; else who serves the same at its origin; else another
        replica, one that is there before one that is lost.

        Args:
            address: An address of a node.
            nearness: How near a replica, by its name, is to who asks.
        """
        servers = self.servers.get(id(address), ())
        best = max(servers, key=lambda server: nearness(server.replica), default=None)
        if best is None or nearness(best.replica) != Nearness.NEAR:
            origin = self.stands_in_for.get(id(address))
            if origin is not None:
                return self.server_of(origin, nearness)
        return best

    def describe(self) -> dict[str, Any]:
        """Returns the plan as plain data, for people and for `plan.json`."""
        return {
            "program": self.program,
            "mode": self.mode,
            "replicas": {
                replica.name: {
                    "node": type(replica.node).__name__,
                    "on_failure": replica.traits.on_failure,
                    "restart": dataclasses.asdict(replica.traits.restart),
                    "stop_seconds": replica.traits.stop_seconds,
                    "host": replica.seat.host.address,
                    "reserves": dataclasses.asdict(replica.seat.need),
                    "gpus": list(replica.seat.gpus),
                    "stops_after": sorted(replica.holders),
                }
                for replica in self.replicas.values()
            },
        }


def check_mode(mode: str) -> None:
    """Raises `UsageError` for a mode that does not exist."""
    if mode not in MODES:
        raise usage.unknown("mode", mode, MODES)


def make_plan(
    program: lp.Program,
    mode: str,
    layout: Optional[Layout] = None,
    hosts: Optional[Sequence[Host]] = None,
) -> Plan:
    """Checks a program against a layout and returns what would run.

    Args:
        program: The program.
        mode: How it is launched.
        layout: What each group gets.
        hosts: Where it can run, the launcher's own host first; this machine unless told.

    Raises:
        UsageError: The mode or a group of the layout does not exist, the program is empty, a
            handle's node is in no program, a node cannot be pickled, two nodes listen on one
            address, or the hosts do not have what the layout asks for.
    """
    check_mode(mode)
    layout = layout or Layout()
    _check_layout(layout, program, mode)
    nodes = nodes_of(program)
    check_addresses(nodes)
    if mode != "local_mt":
        for name, node in nodes.items():
            check_pickles(name, node)
    if hosts is None:
        hosts = [this_machine() if mode == "local_mp" else Host("localhost")]
    layouts = {group: layout.groups.get(group, GroupLayout()) for group in program.groups}
    if not hosts:
        raise UsageError("The cluster has no host that takes work: start one with CPUs.")
    seats = _seat(nodes, layouts, hosts, on_cluster=mode == "ray")
    stand_ins = stand_ins_of(nodes)
    addresses = [address for node in nodes.values() for address in node.addresses]
    uses = addresses_used(nodes)
    nodes = {name: nodes.get(name, nodes[f"{group_of(name)}/0"]) for name in seats}
    holders = holders_of(nodes, stand_ins)
    replicas = {
        name: Replica(
            group=group_of(name),
            index=int(name.rpartition("/")[2]),
            node=node,
            traits=_with_layout(contract.traits_of(node), layouts[group_of(name)]),
            layout=layouts[group_of(name)],
            seat=seats[name],
            holders=frozenset(holders[name]),
            uses=uses[id(node)],
        )
        for name, node in nodes.items()
    }
    return Plan(
        program.name,
        mode,
        {name: replicas[name] for name in held_first(holders)},
        addresses,
        {
            id(address): origin
            for node, _ in stand_ins
            for address in node.addresses
            if (origin := contract.traits_of(node).stands_in_for) is not None
        },
    )


def _seat(
    nodes: Mapping[str, lp.PyNode],
    layouts: Mapping[str, GroupLayout],
    hosts: Sequence[Host],
    on_cluster: bool,
) -> dict[str, Seat]:
    """Returns where each replica runs; of nodes that are per host, there is one a host."""
    traits = {name: contract.traits_of(node) for name, node in nodes.items()}
    wishes = {
        group_of(name): _wish(layouts[group_of(name)], traits[name], on_cluster) for name in nodes
    }
    members: dict[str, list[str]] = {}
    for name in nodes:
        if not traits[name].per_host:
            members.setdefault(group_of(name), []).append(name)
        elif not name.endswith("/0"):
            raise UsageError(
                f"Group {group_of(name)} gets a replica on each host that needs one: it must have "
                "one node, not more."
            )
    seating = Seating(hosts)
    seats = seating.place(members, wishes)
    holders = holders_of(nodes, stand_ins_of(nodes))
    hosts_of = {name: {seat.host} for name, seat in seats.items()}
    for name in reversed([name for name in nodes if traits[name].per_host]):  # holders come later
        group = group_of(name)
        needed = set().union(*(hosts_of.get(holder, ()) for holder in holders[name]))
        for owner in owners_of(nodes, origin_of(nodes, traits[name])):
            needed -= hosts_of[owner]
        hosts_of[name] = needed
        for index, host in enumerate(host for host in hosts if host in needed):
            there = wishes[group]._replace(host=host.address)
            seats |= seating.place({group: [f"{group}/{index}"]}, {group: there})
    return seats


def _wish(layout: GroupLayout, traits: contract.Traits, on_cluster: bool) -> Wish:
    gpu_if_any = traits.wants_gpu and layout.gpus is None
    if not on_cluster:
        return Wish(Need(gpus=layout.need.gpus), "pack", gpu_if_any=gpu_if_any)
    return Wish(layout.need, layout.place or traits.place, layout.host, gpu_if_any)


def _check_layout(layout: Layout, program: lp.Program, mode: str) -> None:
    for label, group in layout.groups.items():
        if label not in program.groups:
            raise UsageError(
                f"The layout names the group {label!r}, but the program has only "
                f"{', '.join(program.groups)}."
            )
        node = program.groups[label][0]
        if contract.traits_of(node).per_host and (group.host or group.place):
            raise UsageError(
                f"The layout says where {label} runs, but it runs on each host that needs it: "
                "leave out host and place."
            )
        if group.env and mode in THREAD_MODES:
            raise UsageError(
                f"The layout gives {label} environment variables of its own, but in mode {mode} "
                "all nodes share one process's: take processes, or leave them out."
            )


def _with_layout(traits: contract.Traits, layout: GroupLayout) -> contract.Traits:
    said = {name: getattr(layout, name) for name in ("on_failure", "restart", "stop_seconds")}
    changes = {name: value for name, value in said.items() if value is not None}
    return dataclasses.replace(traits, **changes)
