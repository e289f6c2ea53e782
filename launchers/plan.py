"""A program and a layout, checked: what will run, before anything does."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

import cloudpickle
import launchpad as lp
from launchpad.launch import serialization
from launchpad.nodes import base

import usage
from launchers.layout import GroupLayout, Layout, visible_gpus
from nodes import contract
from usage import UsageError

MODES = ("test_mt", "local_mt", "local_mp")
THREAD_MODES = ("test_mt", "local_mt")


@dataclasses.dataclass(frozen=True)
class Replica:
    """One node of the program, with all that a back end must know to run it.

    Attributes:
        group: Label of its group.
        index: Its place in the group.
        node: The node.
        traits: What the node says of itself, with the layout's word over it.
        gpus: GPUs of its own, by name.
        holders: Replicas that hold a handle of this one; they stop first.
    """

    group: str
    index: int
    node: lp.PyNode
    traits: contract.Traits
    gpus: tuple[str, ...]
    holders: frozenset[str]

    @property
    def name(self) -> str:
        """`group/index`."""
        return f"{self.group}/{self.index}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a launch would run.

    Attributes:
        program: Name of the program.
        mode: How it is launched.
        replicas: The replicas by name; those whose handles are held come before the holders.
    """

    program: str
    mode: str
    replicas: Mapping[str, Replica]

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
                    "gpus": list(replica.gpus),
                    "stops_after": sorted(replica.holders),
                }
                for replica in self.replicas.values()
            },
        }


def check_mode(mode: str) -> None:
    """Raises `UsageError` for a mode that does not exist."""
    if mode not in MODES:
        raise usage.unknown("mode", mode, MODES)


def make_plan(program: lp.Program, mode: str, layout: Optional[Layout] = None) -> Plan:
    """Checks a program against a layout and returns what would run.

    Raises:
        UsageError: The mode or a group of the layout does not exist, the program is empty, a
            handle's node is in no program, a node cannot be pickled, two nodes listen on one
            address, or there are fewer GPUs than the layout asks for.
    """
    check_mode(mode)
    layout = layout or Layout()
    for label in layout.groups:
        if label not in program.groups:
            raise UsageError(
                f"The layout names the group {label!r}, but the program has only "
                f"{', '.join(program.groups)}."
            )
    nodes = _nodes_of(program)
    holders = _holders(nodes)
    _check_addresses(nodes)
    if mode != "local_mt":
        for name, node in nodes.items():
            _check_pickles(name, node)
    hand_out_gpus = _gpu_dealer(visible_gpus() if mode == "local_mp" else ())
    replicas = {}
    for name, node in nodes.items():
        group, index = name.rsplit("/", 1)
        group_layout = layout.groups.get(group, GroupLayout())
        traits = _with_layout(contract.traits_of(node), group_layout)
        gpus = hand_out_gpus(name, traits, group_layout)
        replicas[name] = Replica(group, int(index), node, traits, gpus, frozenset(holders[name]))
    return Plan(program.name, mode, {name: replicas[name] for name in _held_first(holders)})


def stop_wave(alive: Mapping[str, Iterable[str]]) -> set[str]:
    """Returns those of `alive` that can stop now: the ones whose handles nobody alive holds.

    Args:
        alive: Holders by name of held; names that are not alive are ignored.

    Where the handles go round in a circle, all that are left stop together.
    """
    free = {name for name, holders in alive.items() if not (set(holders) - {name}) & alive.keys()}
    return free or set(alive)


def _nodes_of(program: lp.Program) -> dict[str, lp.PyNode]:
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


def _held_first(holders: Mapping[str, set[str]]) -> list[str]:
    left = dict(holders)
    waves: list[list[str]] = []
    while left:
        wave = stop_wave(left)
        waves.append([name for name in left if name in wave])
        left = {name: held for name, held in left.items() if name not in wave}
    return [name for wave in reversed(waves) for name in wave]


def _parts(node: base.Node) -> list[base.Node]:
    """Returns `node` and the nodes that it runs inside itself."""
    return [node, *getattr(node, "nodes", [])]


def _holders(nodes: Mapping[str, base.Node]) -> dict[str, set[str]]:
    """Returns, for each node, who holds a handle of it."""
    makers: dict[int, set[str]] = {}
    for name, node in nodes.items():
        for part in _parts(node):
            for handle in part._created_handles:
                makers.setdefault(id(handle), set()).add(name)
    holders: dict[str, set[str]] = {name: set() for name in nodes}
    for name, node in nodes.items():
        for part in _parts(node):
            for handle in part.input_handles:
                if id(handle) not in makers:
                    raise UsageError(
                        f"Node {name} holds a {handle!r}, whose node was never added to the "
                        "program: pass it to `program.add_node`."
                    )
                for maker in makers[id(handle)] - {name}:
                    holders[maker].add(name)
    return holders


def _check_addresses(nodes: Mapping[str, base.Node]) -> None:
    owners: dict[int, str] = {}
    for name, node in nodes.items():
        for address in node.addresses:
            owner = owners.setdefault(id(address), name)
            if owner != name:
                raise UsageError(f"Nodes {owner} and {name} listen on the same address.")


def _check_pickles(name: str, node: lp.PyNode) -> None:
    serialization.enable_lru_cache_pickling_once()
    try:
        cloudpickle.dumps(node.function)
        return
    except Exception as error:
        cause = error
    path: str = f"node {name}"
    culprit: Any = node
    for argument, value in _arguments(node).items():
        found = _find_unpicklable(value, f"{path}, argument {argument!r}")
        if found is not None:
            path, culprit = found
            break
    raise UsageError(
        f"N{path[1:]} is a {type(culprit).__name__}, which cannot be pickled ({cause}): build it "
        "inside the node, from arguments that can be."
    ) from cause


def _arguments(node: base.Node) -> dict[str, Any]:
    """Returns the arguments that `node` runs with, by name or place."""
    positional = getattr(node, "_args", ()) or getattr(node, "_func_args", ())
    named = getattr(node, "_kwargs", {}) or getattr(node, "_func_kwargs", {})
    function = getattr(node, "_constructor", None) or getattr(node, "_function", None)
    return {"function": function, **{str(i): v for i, v in enumerate(positional)}, **named}


def _find_unpicklable(value: Any, path: str) -> Optional[tuple[str, Any]]:
    """Returns the path to, and the innermost thing inside `value` that does not pickle."""
    try:
        cloudpickle.dumps(value)
        return None
    except Exception:
        for step, inner in _inside(value):
            found = _find_unpicklable(inner, path + step)
            if found is not None:
                return found
        return path, value


def _inside(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", inner) for key, inner in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{index}]", inner) for index, inner in enumerate(value)]
    return [(f".{name}", inner) for name, inner in getattr(value, "__dict__", {}).items()]


def _with_layout(traits: contract.Traits, layout: GroupLayout) -> contract.Traits:
    said = {name: getattr(layout, name) for name in ("on_failure", "restart", "stop_seconds")}
    changes = {name: value for name, value in said.items() if value is not None}
    return dataclasses.replace(traits, **changes)


def _gpu_dealer(
    gpus: Sequence[str],
) -> Callable[[str, contract.Traits, GroupLayout], tuple[str, ...]]:
    left = list(gpus)

    def hand_out(name: str, traits: contract.Traits, layout: GroupLayout) -> tuple[str, ...]:
        wanted = layout.gpus
        if wanted is None:
            wanted = 1 if traits.wants_gpu and left else 0
        if wanted > len(left):
            raise UsageError(
                f"The layout wants {wanted} GPUs for {name}, but of {len(gpus)} on this machine "
                f"only {len(left)} are left."
            )
        dealt = tuple(left[:wanted])
        del left[:wanted]
        return dealt

    return hand_out
