"""What a program's graph says: which nodes there are, who holds whose handle, who listens where."""

from collections.abc import Iterable, Mapping
from typing import Optional

import launchpad as lp
from launchpad.nodes import base

from nodes import contract
from usage import UsageError


def nodes_of(program: lp.Program) -> dict[str, lp.PyNode]:
    """Returns the program's nodes by `group/index`."""
    nodes: dict[str, lp.PyNode] = {}
    for label, members in program.groups.items():
        for index, node in enumerate(members):
            if not isinstance(node, lp.PyNode):
                raise UsageError(
                    f"Node {label}/{index} is a {type(node).__name__}: only nodes that run Python "
                    "can be launched."
                )
            nodes[f"{label}/{index}"] = node
    if not nodes:
        raise UsageError(f"The program {program.name!r} has no nodes.")
    return nodes


def stop_wave(alive: Mapping[str, Iterable[str]]) -> set[str]:
    """Returns those of `alive` that can stop now: the ones whose handles nobody alive holds.

    Args:
        alive: Holders by name of held; names that are not alive are ignored.

    Where the handles go round in a circle, all that are left stop together.
    """
    free = {name for name, holders in alive.items() if not (set(holders) - {name}) & alive.keys()}
    return free or set(alive)


def held_first(holders: Mapping[str, set[str]]) -> list[str]:
    left = dict(holders)
    waves: list[list[str]] = []
    while left:
        wave = stop_wave(left)
        waves.append([name for name in left if name in wave])
        left = {name: held for name, held in left.items() if name not in wave}
    return [name for wave in reversed(waves) for name in wave]


def group_of(name: str) -> str:
    return name.rpartition("/")[0]


def holders_of(
    nodes: Mapping[str, base.Node], stand_ins: Iterable[tuple[base.Node, lp.Address]]
) -> dict[str, set[str]]:
    """Returns, for each node, who holds a handle of it.

    Who holds a handle of one of `stand_ins` may be connected to the one that it stands in for.
    """
    makers: dict[int, set[str]] = {}
    for name, node in nodes.items():
        for part in _parts(node):
            for handle in part._created_handles:
                makers.setdefault(id(handle), set()).add(name)
    for node, origin in stand_ins:
        owners = owners_of(nodes, origin)
        for handle in node._created_handles:
            makers.setdefault(id(handle), set()).update(owners)
    holders: dict[str, set[str]] = {name: set() for name in nodes}
    for name, node in nodes.items():
        for part in _parts(node):
            for handle in part.input_handles:
                if not makers.get(id(handle)) and not contract.leads_outside(handle):
                    raise UsageError(
                        f"Node {name} holds a {handle!r}, whose node was never added to the "
                        "program: pass it to `program.add_node`."
                    )
                for maker in makers.get(id(handle), set()) - {name}:
                    holders[maker].add(name)
    return holders


def addresses_used(nodes: Mapping[str, base.Node]) -> dict[int, tuple[lp.Address, ...]]:
    """Returns the addresses that each node's handles lead to, by the node's identity."""
    makers: dict[int, list[base.Node]] = {}
    for node in nodes.values():
        for part in _parts(node):
            for handle in part._created_handles:
                makers.setdefault(id(handle), []).append(node)
    return {
        id(node): tuple(
            address
            for part in _parts(node)
            for handle in part.input_handles
            for maker in makers.get(id(handle), ())
            for address in maker.addresses
        )
        for node in nodes.values()
    }


def stand_ins_of(nodes: Mapping[str, base.Node]) -> list[tuple[base.Node, lp.Address]]:
    """Returns the nodes that stand in for another one, with the address of that."""
    found = [(node, origin_of(nodes, contract.traits_of(node))) for node in nodes.values()]
    return [(node, origin) for node, origin in found if origin is not None]


def owners_of(nodes: Mapping[str, base.Node], address: Optional[lp.Address]) -> set[str]:
    """Returns who listens on `address`."""
    return {name for name, node in nodes.items() if address in node.addresses}


def check_addresses(nodes: Mapping[str, base.Node]) -> None:
    owners: dict[int, str] = {}
    for name, node in nodes.items():
        for address in node.addresses:
            owner = owners.setdefault(id(address), name)
            if owner != name:
                raise UsageError(f"Nodes {owner} and {name} listen on the same address.")


def origin_of(nodes: Mapping[str, base.Node], traits: contract.Traits) -> Optional[lp.Address]:
    """Returns the address of what a node stands in for, itself or through others that do."""
    address = traits.stands_in_for
    for owner in owners_of(nodes, address):
        return origin_of(nodes, contract.traits_of(nodes[owner])) or address
    return address


def _parts(node: base.Node) -> list[base.Node]:
    """Returns `node` and the nodes that it runs inside itself."""
    return [node, *getattr(node, "nodes", [])]
