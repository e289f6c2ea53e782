"""Decides which replica runs on which host: pure, from what groups want and hosts offer."""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from launchers.hosts import Host
from nodes.contract import Place
from usage import UsageError


@dataclasses.dataclass(frozen=True)
class Need:
    """What one replica reserves.

    Attributes:
        cpus: Cores.
        gpus: GPUs: a whole number of its own, or a part of one that it shares.
        memory: GiB.
    """

    cpus: float = 0.0
    gpus: float = 0.0
    memory: float = 0.0

    def describe(self) -> str:
        """Says in words what is reserved."""
        parts = [f"{self.cpus:g} CPUs", f"{self.gpus:g} GPUs", f"{self.memory:g} GiB"]
        return ", ".join(part for part in parts if not part.startswith("0 ")) or "a place"


class Wish(NamedTuple):
    """Where a group's replicas want to be.

    Attributes:
        need: What each reserves.
        place: How they are spread.
        host: Address or tag of the hosts that will do, or None for any.
        gpu_if_any: Whether a replica takes a GPU where one is left, though it needs none.
    """

    need: Need
    place: Place
    host: Optional[str] = None
    gpu_if_any: bool = False


class Seat(NamedTuple):
    """Where a replica runs, and with which GPUs."""

    host: Host
    need: Need
    gpus: tuple[str, ...]


class _Room:
    """What is left on a host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.cpus = host.cpus
        self.memory = host.memory
        self.gpus = dict.fromkeys(host.gpus, 1.0)
        self.taken: Counter[str] = Counter()

    def gpus_for(self, wanted: float) -> Optional[tuple[str, ...]]:
        """Returns GPUs with room for `wanted`, or None where there are none."""
        whole = max(1, int(wanted))
        part = min(wanted, 1.0)
        able = [name for name, left in self.gpus.items() if left >= part - 1e-9]
        able.sort(key=lambda name: self.gpus[name])  # what is shared already is filled first
        return tuple(able[:whole]) if len(able) >= whole else None

    def fits(self, need: Need) -> bool:
        """Returns whether `need` can be met."""
        gpus = not need.gpus or self.gpus_for(need.gpus) is not None
        return need.cpus <= self.cpus + 1e-9 and need.memory <= self.memory and gpus

    def take(self, group: str, need: Need) -> tuple[str, ...]:
        """Meets `need`, and returns the GPUs."""
        self.cpus -= need.cpus
        self.memory -= need.memory
        self.taken[group] += 1
        gpus = (self.gpus_for(need.gpus) or ()) if need.gpus else ()
        for name in gpus:
            self.gpus[name] -= min(need.gpus, 1.0)
        return gpus

    def fullness(self, group: str) -> tuple[float, float]:
        """Returns how many replicas of `group` there are a core, and how many of all groups."""
        size = max(self.host.cpus, 1.0) if math.isfinite(self.host.cpus) else 1.0
        return self.taken[group] / size, self.taken.total() / size

    def describe(self) -> str:
        """Says in words what is left."""
        gpus = sum(left >= 1.0 for left in self.gpus.values())
        left = f"{self.cpus:g} CPUs, {gpus} whole GPUs and {self.memory:.3g} GiB"
        return f"{self.host.describe()}, of which {left} are left"


class Seating:
    """Gives seats on hosts, as long as there is room."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        """Initializes the seating; of `hosts` the launcher's own comes first."""
        self._hosts = hosts
        self._rooms = [_Room(host) for host in hosts]

    def place(
        self, groups: Mapping[str, Sequence[str]], wishes: Mapping[str, Wish]
    ) -> dict[str, Seat]:
        """Returns each replica's seat, by its name.

        Groups that can go to few hosts are seated first: those that name theirs, then one a host,
        then those that pack, then those that spread.

        Args:
            groups: The replicas' names by group.
            wishes: What each group wants.

        Raises:
            UsageError: No host is called what a group wants, or there is no room.
        """
        for group in groups:
            _check_host(group, wishes[group].host, self._hosts)
        urgency = {"one_per_host": 0, "pack": 1, "spread": 2}
        order = sorted(groups, key=lambda g: (wishes[g].host is None, urgency[wishes[g].place]))
        return {
            name: self._seat(group, name, wishes[group])
            for group in order
            for name in groups[group]
        }

    def _seat(self, group: str, name: str, wish: Wish) -> Seat:
        able = [room for room in self._rooms if room.host.is_called(wish.host)]
        if wish.place == "one_per_host":
            able = [room for room in able if not room.taken[group]]
        needs = [wish.need]
        if wish.gpu_if_any:
            needs.insert(0, dataclasses.replace(wish.need, gpus=1.0))
        for need in needs:
            fitting = [room for room in able if room.fits(need)]
            if fitting and wish.place != "pack":
                fitting.sort(key=lambda room: room.fullness(group))
            if fitting:
                return Seat(fitting[0].host, need, fitting[0].take(group, need))
        raise UsageError(
            f"The layout wants {wish.need.describe()} for {name}"
            f"{f' on {wish.host!r}' if wish.host is not None else ''}"
            f"{', on a host of its own' if wish.place == 'one_per_host' else ''}: there is no room "
            f"on {'; '.join(room.describe() for room in self._rooms)}."
        )


def _check_host(group: str, called: Optional[str], hosts: Sequence[Host]) -> None:
    if called is not None and not any(host.is_called(called) for host in hosts):
        there = "; ".join(host.describe() for host in hosts)
        raise UsageError(f"The layout wants {group} on {called!r}, but there is only {there}.")
