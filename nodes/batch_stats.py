"""What batches tell: how old the weights behind their items were, and how priorities are spread."""

import collections
import threading
import time

import numpy as np
from numpy.typing import NDArray

from nodes.publisher import Publisher
from nodes.sampling import Batch

_MAX_BATCHES = 16
_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}


class BatchStats:
    """Looks at the newest batches when it is asked; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: collections.deque[tuple[float, Batch]] = collections.deque(
            maxlen=_MAX_BATCHES
        )

    def add(self, batch: Batch) -> None:
        """Takes in a batch that is learned from now."""
        with self._lock:
            self._batches.append((time.time(), batch))

    def gauges(self, publisher: Publisher) -> dict[str, float]:
        """Returns figures of the batches since the last call, by name; none if there was none.

        Ages are from the making of the version of the weights that an item was made with to its
        being learned from, in seconds, and in versions where the same learner has made them.
        Priorities are those of all items in replay: of each sample there are as many as one over
        the probability with which it was drawn.

        Args:
            publisher: The learner's.
        """
        with self._lock:
            batches = list(self._batches)
            self._batches.clear()
        if not batches:
            return {}
        seconds = np.concatenate([now - batch.origins.published_ns / 1e9 for now, batch in batches])
        incarnation = np.concatenate([batch.origins.incarnation for _, batch in batches])
        number = np.concatenate([batch.origins.number for _, batch in batches])
        ours = incarnation == publisher.incarnation
        priorities = np.concatenate([batch.priorities for _, batch in batches])
        probability = np.concatenate([np.asarray(batch.sample.probability) for _, batch in batches])
        return {
            **_spread("weight_age_seconds", seconds[incarnation != 0]),
            **_spread("weight_age_versions", publisher.number - number[ours]),
            **_quantiles("priority", priorities, 1 / probability),
            **_histogram(priorities, 1 / probability),
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
