"""What the tests of environments share."""

from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
import pytest

Play = Callable[..., list[dm_env.TimeStep]]


def _play(environment: Any, actions: Any, steps: int, seed: int = 0) -> list[dm_env.TimeStep]:
    """Resets a batch and takes random actions of the spec `actions`, seeded by `seed`."""
    rng = np.random.default_rng(seed)
    shape = (environment.num_envs, *actions.shape)
    timesteps = [environment.reset()]
    for _ in range(steps):
        if actions.dtype.kind == "f":
            chosen = rng.uniform(actions.minimum, actions.maximum, shape).astype(actions.dtype)
        else:
            chosen = rng.integers(actions.num_values, size=shape)
        timesteps.append(environment.step(chosen))
    return timesteps


@pytest.fixture
def play() -> Play:
    """Plays a batch of environments at random and returns its timesteps, the first included."""
    return _play
