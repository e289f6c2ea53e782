"""What batches tell: how old the weights behind their items were, and how priorities are spread."""

import collections
import threading
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nodes.sampling import Batch

_MAX_BATCHES = 16
_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}


class _Facts(NamedTuple):
    """What is looked at of a batch of B items; its data are let go of.

    Attributes:
        age: float64 [B], seconds since the versions were made that the items were made with.
        incarnation: int64 [B], the lives of the learner that made them.
        number: int64 [B], how many versions they had made by then.
        priority: float64 [B], the items' priorities when they were drawn.
        probability: float64 [B], with which they were.
    """

    age: NDArray[np.float64]
    incarnation: NDArray[np.int64]
    number: NDArray[np.int64]
    priority: NDArray[np.float64]
    probability: NDArray[np.float64]


class BatchStats:
    """Looks at the newest batches when it is asked; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: collections.deque[_Facts] = collections.deque(maxlen=_MAX_BATCHES)

    def add(self, batch: Batch) -> None:
        """Takes in a batch that is learned from now."""
        origins = batch.origins
        facts = _Facts(
            time.time() - origins.published_ns / 1e9,
            origins.incarnation,
            origins.number,
            batch.priorities,
            np.asarray(batch.sample.probability),
        )
        with self._lock:
            self._batches.append(facts)

    def gauges(self, incarnation: int, number: int) -> dict[str, float]:
        """Returns figures of the batches since the last call, by name; none if there was none.

        Ages are from the making of the version of the weights that an item was made with to its
        being learned from, in seconds, and in versions where the same learner has made them.
        Priorities are those of all items in replay: of each sample there are as many as one over
        the probability with which it was drawn.

        Args:
            incarnation: The learner's life.
            number: Versions that it has made in it.
        """
        with self._lock:
            batches = list(self._batches)
            self._batches.clear()
        if not batches:
            return {}
        age, makers, numbers, priority, probability = map(
            np.concatenate, zip(*batches, strict=True)
        )
        return {
            **_spread("weight_age_seconds", age[makers != 0]),
            **_spread("weight_age_versions", number - numbers[makers == incarnation]),
            **_quantiles("priority", priority, 1 / probability),
            **_histogram(priority, 1 / probability),
        }


def _spread(name: str, values: NDArray[np.generic]) -> dict[str, float]:
    return _quantiles(name, values, np.ones(len(values)))


def _quantiles(
    name: str, values: NDArray[np.generic], weights: NDArray[np.float64]
) -> dict[str, float]:
    """Returns quantiles and the maximum, by name, of values that count with their weights."""
    if not len(values):
        return {}
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    found = {
        f"{name}_{quantile}": float(values[order[np.searchsorted(below, share * below[-1])]])
        for quantile, share in _QUANTILES.items()
    }
    return {**found, f"{name}_max": float(values[order[-1]])}


def _histogram(priorities: NDArray[np.float64], weights: NDArray[np.float64]) -> dict[str, float]:
    """Returns which share of the items has a priority in each decade, by the decade's begin."""
    with np.errstate(divide="ignore"):
        decades = np.floor(np.log10(priorities))
    return {
        f"priority_share_from_{10.0**decade:g}": float(
            weights[decades == decade].sum() / weights.sum()
        )
        for decade in np.unique(decades)
    }
