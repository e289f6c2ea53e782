"""The table of noise, and which parts of it an iteration's directions are."""

import math

import numpy as np
from numpy.typing import NDArray

_TABLE, _OFFSETS, _ENVIRONMENTS = range(3)
"""What random numbers are for: each use of a seed has a stream of its own."""


def fill(table: NDArray[np.float32], seed: int) -> None:
    """Fills a table with standard normal numbers, always the same for a seed and a size."""
    np.random.default_rng([seed, _TABLE]).standard_normal(out=table, dtype=np.float32)


def offsets(
    seed: int, iteration: int, num_directions: int, table_size: int, num_parameters: int
) -> NDArray[np.int64]:
    """Returns where in the table an iteration's directions begin, int64 [N]."""
    random = np.random.default_rng([seed, _OFFSETS, iteration])
    return random.integers(0, table_size - num_parameters + 1, num_directions)


def direction(
    table: NDArray[np.float32], offset: int, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Returns a direction, float32 [P, O]: a part of the table, in its memory."""
    return table[offset : offset + math.prod(shape)].reshape(shape)


def environment_seed(seed: int, iteration: int, task: int) -> int:
    """Returns the seed of a task's environments, below 2^31."""
    sequence = np.random.SeedSequence([seed, _ENVIRONMENTS, iteration, task])
    return int(sequence.generate_state(1)[0] >> 1)
