"""Machines that a program can run on, and what they offer."""

import dataclasses
import glob
import itertools
import math
import os
from collections.abc import Mapping
from typing import Optional

GIB = float(2**30)


@dataclasses.dataclass(frozen=True)
class Host:
    """One machine.

    Attributes:
        address: Where other hosts reach it.
        cpus: Cores that may be reserved.
        memory: GiB that may be reserved.
        gpus: GPUs that may be handed out, by name.
        tags: What a layout may call the host by besides its address: labels as `key=value`, and
            custom resources.
        key: What the cluster knows it by; one that comes back after it was lost has another.
    """

    address: str
    cpus: float = math.inf
    memory: float = math.inf
    gpus: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    key: str = ""

    def is_called(self, name: Optional[str]) -> bool:
        """Returns whether `name` is the host's address or one of its tags; None is any host."""
        return name is None or name == self.address or name in self.tags

    def describe(self) -> str:
        """Says in words what the host offers."""
        offers = [f"{self.cpus:g} CPUs", f"{len(self.gpus)} GPUs", f"{self.memory:.3g} GiB"]
        tags = f" ({', '.join(sorted(self.tags))})" if self.tags else ""
        return f"{self.address}{tags} with {', '.join(offers)}"


def this_machine(environment: Optional[Mapping[str, str]] = None) -> Host:
    """Returns the machine that this process runs on; its cores and memory are not counted."""
    return Host("localhost", gpus=_visible_gpus(os.environ if environment is None else environment))


def _visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the GPUs that this process may hand out, as `CUDA_VISIBLE_DEVICES` names them."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = [name.strip() for name in named.split(",") if name.strip()]
        return tuple(itertools.takewhile(lambda name: name != "-1", names))  # as CUDA reads it
    return tuple(str(index) for index in range(len(glob.glob("/dev/nvidia[0-9]*"))))
