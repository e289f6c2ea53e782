"""Where a program's groups run and what they get there."""

import dataclasses
import glob
import itertools
import os
from collections.abc import Mapping
from typing import Optional

from nodes.contract import OnFailure, RestartBudget


@dataclasses.dataclass(frozen=True)
class GroupLayout:
    """What each replica of a group gets.

    Attributes:
        gpus: GPUs of its own, or None for one where the node wants one and the machine has one.
        on_failure: What a failure of it means, or None for what the node says.
        restart: How often it is started again where a failure means that, or None likewise.
        stop_seconds: How long it may take to stop, or None for what the node says.
    """

    gpus: Optional[int] = None
    on_failure: Optional[OnFailure] = None
    restart: Optional[RestartBudget] = None
    stop_seconds: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Layout:
    """What each group gets, by the group's name; a group that is not named gets the defaults."""

    groups: Mapping[str, GroupLayout] = dataclasses.field(default_factory=dict)


def visible_gpus() -> tuple[str, ...]:
    """Returns the GPUs that this process may hand out, as `CUDA_VISIBLE_DEVICES` names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = [name.strip() for name in named.split(",") if name.strip()]
        return tuple(itertools.takewhile(lambda name: name != "-1", names))  # as CUDA reads it
    return tuple(str(index) for index in range(len(glob.glob("/dev/nvidia[0-9]*"))))
