"""What a search has found, as it is published and saved."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.agent import Variables
from agents.ars.filter import Moments


class Found(NamedTuple):
    """All that an iteration depends on, and what was done for it.

    Attributes:
        weights: M, float64 [P, O].
        moments: Statistics of all observations before this iteration.
        iteration: Updates that were made.
        environment_steps: Steps of all rollouts that they used.
    """

    weights: NDArray[np.float64]
    moments: Moments
    iteration: int
    environment_steps: int


def pack(found: Found) -> Variables:
    """Returns it as arrays."""
    progress = np.array([found.iteration, found.environment_steps], np.int64)
    return [found.weights, *found.moments, progress]


def unpack(variables: Variables) -> Found:
    """Returns what `pack` made arrays of; they keep their memory."""
    weights, count, mean, m2, progress = variables
    iteration, environment_steps = progress.tolist()
    return Found(weights, Moments(count, mean, m2), iteration, environment_steps)
