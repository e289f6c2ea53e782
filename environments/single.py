"""Single `dm_env.Environment`s, batched."""

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from numpy.typing import NDArray

import usage
from environments.batched import MemberFault, raised


def single_precision(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns float32 for float64, and any other dtype as it is."""
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def observation_spec(name: str, environment: dm_env.Environment) -> specs.Array:
    """Returns the spec of an environment's observations, float64 as float32.

    Args:
        name: What the user calls the environment.
        environment: The environment.

    Raises:
        usage.UsageError: Observations are not one array of numbers.
    """
    spec = environment.observation_spec()
    if not isinstance(spec, specs.Array) or spec.dtype.kind not in "biuf":
        raise usage.UsageError(
            f"Environment {name!r} must observe one array of numbers, but its observation spec is "
            f"{spec!r}: flatten it into one array."
        )
    dtype = single_precision(spec.dtype)
    if dtype == spec.dtype:
        return spec
    if isinstance(spec, specs.BoundedArray):
        # Bounds beyond float32, like float64's own limits, become infinite.
        with np.errstate(over="ignore"):
            minimum, maximum = spec.minimum.astype(dtype), spec.maximum.astype(dtype)
        return spec.replace(dtype=dtype, minimum=minimum, maximum=maximum)
    return spec.replace(dtype=dtype)


def action_spec(name: str, environment: dm_env.Environment) -> specs.Array:
    """Returns the spec of an environment's actions.

    Args:
        name: What the user calls the environment.
        environment: The environment.

    Raises:
        usage.UsageError: Actions are neither discrete nor floats between finite bounds.
    """
    spec = environment.action_spec()
    if isinstance(spec, specs.DiscreteArray):
        return spec
    if (
        isinstance(spec, specs.BoundedArray)
        and spec.dtype.kind == "f"
        and np.isfinite(spec.minimum).all()
        and np.isfinite(spec.maximum).all()
    ):
        return spec
    raise usage.UsageError(
        f"Environment {name!r} must take a DiscreteArray or a BoundedArray of floats with finite "
        f"bounds as its action, but its action spec is {spec!r}: change its action_spec()."
    )


class Batch:
    """E environments stepped in a loop; see `BatchedEnvironment` for the timesteps.

    An observation must have the dtype and shape of its environment's own spec; float64
    observations and all rewards are then cast to float32. What goes wrong raises `MemberFault`.
    """

    def __init__(self, environments: Sequence[dm_env.Environment]) -> None:
        """Batches `environments`, E >= 1 of one kind."""
        spec = environments[0].observation_spec()
        self._environments = tuple(environments)
        self._dtype = spec.dtype
        self._shape = spec.shape
        self._batch_shape = (len(environments), *spec.shape)
        self._batch_dtype = single_precision(spec.dtype)
        self._action_dtype = environments[0].action_spec().dtype
        self._over = [True] * len(environments)

    @property
    def num_envs(self) -> int:
        """E, the number of environments."""
        return len(self._environments)

    def reset(self) -> dm_env.TimeStep:
        """Starts a new episode in every environment."""
        self._over = [True] * self.num_envs
        return self._advance(None)

    def step(self, actions: NDArray[Any]) -> dm_env.TimeStep:
        """Takes one step in every environment; `actions` is [E, ...]."""
        return self._advance(np.asarray(actions, self._action_dtype))

    def close(self) -> None:
        """Closes every environment."""
        for environment in self._environments:
            environment.close()

    def _advance(self, actions: Any) -> dm_env.TimeStep:
        size = len(self._environments)
        step_types = np.empty(size, np.int32)
        rewards = np.zeros(size, np.float32)
        discounts = np.ones(size, np.float32)
        observations = np.empty(self._batch_shape, self._batch_dtype)
        for index, environment in enumerate(self._environments):
            starts = self._over[index]
            try:
                timestep = environment.reset() if starts else environment.step(actions[index])
                step_type, reward, discount, observation = timestep
                if not starts:
                    rewards[index] = reward
                    discounts[index] = discount
                observation = np.asarray(observation)
            except Exception as error:
                raise MemberFault(index, raised(error)) from error
            if observation.shape != self._shape or observation.dtype != self._dtype:
                raise MemberFault(
                    index,
                    f"observation is {observation.dtype} {list(observation.shape)}, "
                    f"its spec says {self._dtype} {list(self._shape)}",
                )
            if (step_type == dm_env.StepType.FIRST) != starts:
                raise MemberFault(
                    index,
                    "reset() did not give a FIRST step" if starts else "FIRST came without a LAST",
                )
            if not 0.0 <= discounts[index] <= 1.0:
                raise MemberFault(index, f"discount is {discount}, not between 0 and 1")
            observations[index] = observation
            step_types[index] = step_type
            self._over[index] = step_type == dm_env.StepType.LAST
        return dm_env.TimeStep(step_types, rewards, discounts, observations)
