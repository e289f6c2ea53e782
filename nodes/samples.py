"""Samples of one shard, and how far ahead they are taken."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class Prefetch:
    """How far samples are fetched ahead; measured by `benchmarks/replay_tuning.py`.

    A part is a batch's size divided by the number of shards.

    Attributes:
        workers: Streams of samples from each server.
        in_flight: Parts that are on their way in each of them.
        prefetched: Parts that have been put together and wait.
        ready: Parts that were handed over and wait for their use.
    """

    workers: int = 2
    in_flight: int = 2
    prefetched: int = 2
    ready: int = 1


DEFAULT_PREFETCH = Prefetch()


class Samples(NamedTuple):
    """Samples of n items of one shard.

    Attributes:
        key: uint64 [n].
        probability: float64 [n], with which the shard drew each.
        priority: float64 [n], before the exponent.
        table_size: int64 [n], the shard's items when each was drawn.
        data: The item's columns, [n, ...].
    """

    key: NDArray[np.uint64]
    probability: NDArray[np.float64]
    priority: NDArray[np.float64]
    table_size: NDArray[np.int64]
    data: Mapping[str, NDArray[Any]]

    def part(self, begin: int, end: int) -> "Samples":
        """Returns some of the samples, without copying them."""
        return Samples(
            self.key[begin:end],
            self.probability[begin:end],
            self.priority[begin:end],
            self.table_size[begin:end],
            {name: column[begin:end] for name, column in self.data.items()},
        )
