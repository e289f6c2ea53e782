"""What a run's directory says of its progress."""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from nodes.counter import COUNTS_FILE

EMPTY: Mapping[str, Any] = {
    "time": None,
    "counts": {},
    "gauges": {},
    "evaluator_episodes": 0,
    "evaluator_return_mean": None,
    "evaluator_return_mean_100": None,
    "evaluated_version": 0,
    "learning_since": None,
}


def read(directory: Optional[str]) -> Mapping[str, Any]:
    """Returns the counter's newest snapshot, or `EMPTY` before there is one."""
    if directory is None:
        return EMPTY
    try:
        with open(os.path.join(directory, COUNTS_FILE)) as file:
            snapshot: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return EMPTY
    return snapshot


class Rates(NamedTuple):
    """What happens a second, between two snapshots."""

    environment_steps: float
    learner_steps: float


def rates(before: Mapping[str, Any], now: Mapping[str, Any]) -> Optional[Rates]:
    """Returns the rates between two snapshots, or None where there was no time between them."""
    if before["time"] is None or now["time"] is None or now["time"] <= before["time"]:
        return None
    seconds = now["time"] - before["time"]
    return Rates(
        *(
            (now["counts"].get(name, 0) - before["counts"].get(name, 0)) / seconds
            for name in ("environment_steps", "learner_steps")
        )
    )
