"""Scripted episodes of one environment or several."""

from collections.abc import Sequence
from typing import NamedTuple

import dm_env
import numpy as np

FIRST, MID, LAST = 0, 1, 2
NUM_ACTIONS = 3


class Step(NamedTuple):
    """One environment's timestep."""

    step_type: int
    reward: float
    discount: float
    observation: np.ndarray


def batch(steps: Sequence[Step]) -> dm_env.TimeStep:
    """Returns the timestep of a batch of environments."""
    return dm_env.TimeStep(
        np.array([step.step_type for step in steps], np.int32),
        np.array([step.reward for step in steps], np.float32),
        np.array([step.discount for step in steps], np.float32),
        np.stack([step.observation for step in steps]),
    )


def episode(
    observations: Sequence[np.ndarray], rewards: Sequence[float], terminal: bool
) -> list[Step]:
    """Returns the steps of an episode of T rewards and T + 1 observations.

    What means nothing, on the first step, is not a number.
    """
    nothing = float("nan")
    steps = [Step(FIRST, nothing, nothing, observations[0])]
    for reward, observation in zip(rewards, observations[1:], strict=True):
        steps.append(Step(MID, reward, 1.0, observation))
    steps[-1] = steps[-1]._replace(step_type=LAST, discount=0.0 if terminal else 1.0)
    return steps


def numbers(*values: float) -> list[np.ndarray]:
    """Returns an observation of one number for each of `values`."""
    return [np.array([value], np.float32) for value in values]


def observed_value(observation: np.ndarray) -> np.ndarray:
    """Values action 0 at the observation's first number, the others below it."""
    value = observation.reshape(len(observation), -1)[:, :1].astype(np.float32)
    return value - np.arange(NUM_ACTIONS, dtype=np.float32)
