"""A batch of environments, and the check that stands between it and an actor."""

from collections.abc import Callable
from typing import Any, Protocol

import dm_env
import numpy as np
from dm_env import specs
from numpy.typing import NDArray


class BatchedEnvironment(Protocol):
    """E environments that are stepped together.

    Timesteps are batched `dm_env.TimeStep`s of NumPy arrays: `step_type` int32 [E], `reward`
    float32 [E], `discount` float32 [E], `observation` [E, ...] of the spec's dtype and shape. An
    environment whose last step was LAST ignores its next action and starts a new episode: FIRST,
    reward 0, discount 1. LAST with discount 0 is a terminal state, LAST with discount 1 an episode
    that a time limit cut short. A returned array is never modified afterwards.
    """

    @property
    def num_envs(self) -> int:
        """E, the number of environments."""

    def reset(self) -> dm_env.TimeStep:
        """Starts a new episode in every environment."""

    def step(self, actions: NDArray[Any]) -> dm_env.TimeStep:
        """Takes one step in every environment; `actions` is [E, ...]."""

    def close(self) -> None:
        """Frees what the environments hold."""


class EnvironmentFault(RuntimeError):
    """An environment raised, or gave what its spec does not allow."""


class MemberFault(Exception):
    """A fault of one known environment in a batch, on its way to `Checked`.

    Attributes:
        index: Which environment of the batch.
        reason: What it did, as the end of the sentence 'environment 3: ...'.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason


def raised(error: Exception) -> str:
    """Says on one line that `error` was raised."""
    return f"raised {type(error).__name__}: {' '.join(str(error).split())}"


class Checked:
    """Passes timesteps on, and raises `EnvironmentFault` on those that an agent must not see.

    A fault is: the environment raises; an observation has the wrong shape or dtype; an
    observation of floats or a reward is NaN or infinite. The message names the environment, its
    index in the batch where that is known, the number of `step` calls so far and the cause.
    """

    def __init__(
        self, environment: BatchedEnvironment, name: str, observations: specs.Array
    ) -> None:
        """Wraps a batch.

        Args:
            environment: The batch of E environments.
            name: What the user calls the environment.
            observations: Spec of one environment's observation.
        """
        self._environment = environment
        self._name = name
        self._steps = 0
        self._shape = (environment.num_envs, *observations.shape)
        self._dtype = observations.dtype
        self._has_floats = self._dtype.kind == "f"

    @property
    def num_envs(self) -> int:
        """E, the number of environments."""
        return self._environment.num_envs

    def reset(self) -> dm_env.TimeStep:
        """Starts a new episode in every environment.

        Raises:
            EnvironmentFault: See the class.
        """
        return self._checked(self._environment.reset)

    def step(self, actions: NDArray[Any]) -> dm_env.TimeStep:
        """Takes one step in every environment; `actions` is [E, ...].

        Raises:
            EnvironmentFault: See the class.
        """
        self._steps += 1
        return self._checked(self._environment.step, actions)

    def close(self) -> None:
        """Frees what the environments hold."""
        self._environment.close()

    def _checked(self, call: Callable[..., dm_env.TimeStep], *arguments: Any) -> dm_env.TimeStep:
        try:
            timestep = call(*arguments)
        except MemberFault as fault:
            raise self._fault(fault.reason, fault.index) from fault.__cause__
        except Exception as error:
            raise self._fault(raised(error)) from error
        observation, reward = timestep.observation, timestep.reward
        if observation.shape != self._shape or observation.dtype != self._dtype:
            raise self._fault(
                f"observations are {observation.dtype} {list(observation.shape)}, "
                f"the spec says {self._dtype} {list(self._shape)}"
            )
        if not np.isfinite(reward).all():
            raise self._not_finite("reward", reward)
        if self._has_floats and not np.isfinite(observation).all():
            raise self._not_finite("observation", observation)
        return timestep

    def _not_finite(self, what: str, values: NDArray[Any]) -> EnvironmentFault:
        place = np.argwhere(~np.isfinite(values))[0].tolist()
        index, within = place[0], place[1:]
        where = f" at {within}" if within else ""
        return self._fault(f"{what} is {values[tuple(place)]}{where}", index)

    def _fault(self, reason: str, index: int | None = None) -> EnvironmentFault:
        member = "" if index is None else f" [{index}]"
        return EnvironmentFault(f"environment {self._name!r}{member}, step {self._steps}: {reason}")
