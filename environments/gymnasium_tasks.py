"""Gymnasium's environments: `gym:ID`."""

from collections.abc import Sequence
from typing import Any

import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

import usage
from environments import single
from environments.batched import BatchedEnvironment
from environments.family import Description

_PREFIX = "gym:"

_UNFAITHFUL = "gymnasium.envs.phys2d."
"""Vector environments that are not E copies of the single one: whenever one of the batch starts an
episode, the others stay where they are for that step and are rewarded all the same."""


def describe(name: str) -> Description:
    """Describes `gym:ID`.

    Raises:
        usage.UsageError: No such environment is registered, a package that it needs is missing,
            or its spaces cannot be said in a spec.
    """
    if name.count(":") > 2:  # gym:ID, or gym:module_that_registers:ID
        raise _unknown(name)
    try:
        vector = _make_vector(name, 1)
    except gymnasium.error.UnregisteredEnv as error:
        raise _unknown(name) from error
    except (gymnasium.error.Error, ImportError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise usage.UsageError(f"Environment {name!r} cannot be made: {reason}.") from error
    threshold = vector.spec.reward_threshold
    description = Description(
        observations=_observation_spec(name, vector.single_observation_space),
        actions=_action_spec(name, vector.single_action_space),
        solved_at=None if threshold is None else float(threshold),
    )
    vector.close()
    return description


def make(
    name: str, seeds: Sequence[int], evaluation: bool, life_loss_ends: bool
) -> BatchedEnvironment:
    """Makes one environment a seed; there are no lives, and evaluation makes no difference."""
    return _GymnasiumBatch(name, seeds)


class _GymnasiumBatch:
    """E environments of Gymnasium; see `BatchedEnvironment` for the timesteps."""

    def __init__(self, name: str, seeds: Sequence[int]) -> None:
        self._vector = _make_vector(name, len(seeds))
        self.num_envs = len(seeds)
        # A vector environment of its own kind draws for all its members from one generator.
        own_kind = not isinstance(self._vector, SyncVectorEnv)
        self._seed: Any = seeds[0] if own_kind else list(seeds)
        self._observed = self._vector.single_observation_space
        self._dtype = _observation_spec(name, self._observed).dtype
        actions = self._vector.single_action_space
        self._action_dtype = actions.dtype
        self._first_action = actions.start if isinstance(actions, spaces.Discrete) else None
        self._over = np.ones(self.num_envs, bool)

    def reset(self) -> dm_env.TimeStep:
        """Starts a new episode in every environment."""
        observations, _ = self._vector.reset(seed=self._seed)
        self._seed = None  # Seeded again, every reset would give the same episodes.
        self._over = np.zeros(self.num_envs, bool)
        return dm_env.TimeStep(
            np.full(self.num_envs, dm_env.StepType.FIRST, np.int32),
            np.zeros(self.num_envs, np.float32),
            np.ones(self.num_envs, np.float32),
            self._observations(observations),
        )

    def step(self, actions: NDArray[Any]) -> dm_env.TimeStep:
        """Takes one step in every environment; `actions` is [E, ...]."""
        actions = np.asarray(actions, self._action_dtype)
        if self._first_action is not None:
            actions = actions + self._first_action
        observations, rewards, terminated, truncated, _ = self._vector.step(actions)
        first, last = self._over, np.logical_or(terminated, truncated)
        step_types = np.full(self.num_envs, dm_env.StepType.MID, np.int32)
        step_types[last] = dm_env.StepType.LAST
        step_types[first] = dm_env.StepType.FIRST
        rewards = np.array(rewards, np.float32)
        rewards[first] = 0.0
        discounts = 1.0 - np.asarray(terminated, np.float32)
        self._over = last
        return dm_env.TimeStep(step_types, rewards, discounts, self._observations(observations))

    def close(self) -> None:
        """Frees what the environments hold."""
        self._vector.close()

    def _observations(self, observations: Any) -> NDArray[Any]:
        if isinstance(self._observed, spaces.Discrete):
            choices = np.arange(self._observed.start, self._observed.start + self._observed.n)
            observations = np.asarray(observations)[:, np.newaxis] == choices
        return np.array(observations, self._dtype)


def _unknown(name: str) -> usage.UsageError:
    return usage.unknown("environment", name, [_PREFIX + known for known in gymnasium.registry])


def _make_vector(name: str, num_envs: int) -> Any:
    """Makes a vector environment that resets a member in the step after its last."""
    identifier = name.removeprefix(_PREFIX)
    # The environment checker warns about style, and costs more than many an environment's step.
    single_environment: Any = gymnasium.make(identifier, disable_env_checker=True)
    entry_point = single_environment.spec.vector_entry_point
    if entry_point is not None and not str(entry_point).startswith(_UNFAITHFUL):
        vector = gymnasium.make_vec(identifier, num_envs)
        if (
            vector.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP
            and vector.single_observation_space == single_environment.observation_space
            and vector.single_action_space == single_environment.action_space
        ):
            single_environment.close()
            return vector
        vector.close()
    single_environment.close()
    return gymnasium.make_vec(
        identifier,
        num_envs,
        vectorization_mode="sync",
        vector_kwargs={"copy": False, "autoreset_mode": AutoresetMode.NEXT_STEP},
        disable_env_checker=True,
    )


def _observation_spec(name: str, space: spaces.Space[Any]) -> specs.Array:
    if isinstance(space, spaces.Discrete):
        return specs.BoundedArray((int(space.n),), np.float32, 0.0, 1.0, name="observation")
    if not isinstance(space, spaces.Box):
        raise usage.UsageError(
            f"Environment {name!r} observes {space}, but only Box and Discrete are understood: "
            "wrap it so that it observes one array."
        )
    dtype = single.single_precision(space.dtype)
    with np.errstate(over="ignore"):
        low, high = space.low.astype(dtype), space.high.astype(dtype)
    if np.isfinite(low).all() and np.isfinite(high).all():
        return specs.BoundedArray(space.shape, dtype, low, high, name="observation")
    return specs.Array(space.shape, dtype, name="observation")


def _action_spec(name: str, space: spaces.Space[Any]) -> specs.Array:
    if isinstance(space, spaces.Discrete):
        return specs.DiscreteArray(int(space.n), np.int32, name="action")
    if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind != "f":
        raise usage.UsageError(
            f"Environment {name!r} takes actions from {space}, but only Discrete and Box of floats "
            "are understood: wrap it so that it takes one of these."
        )
    if not space.is_bounded():
        raise usage.UsageError(
            f"Environment {name!r} takes actions from {space}, which has no finite bounds: wrap it "
            "in gymnasium.wrappers.RescaleAction or ClipAction with finite bounds."
        )
    return specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name="action")
