"""The rollouts of one task: policies beside the found one, and what becomes of them."""

from typing import Any, Optional

import dm_env
import numpy as np
from numpy.typing import NDArray

from agents.agent import EnvironmentSpec, Variables
from agents.ars import noise as noise_
from agents.ars import variables as variables_
from agents.ars.config import ArsConfig
from agents.ars.filter import Moments, merge, normalizer
from agents.ars.policy import LinearPolicies, shape_of
from agents.search_agent import RolloutResults

_CHUNK = 128
"""Observations of each rollout that are kept until their statistics are taken."""


class LinearRollouts:
    """Makes a task's rollouts, each in an environment of its own.

    It implements `agents.search_agent.Rollouts`.
    """

    def __init__(
        self,
        config: ArsConfig,
        spec: EnvironmentSpec,
        noise: NDArray[np.float32],
        variables: Variables,
        task: int,
        seed: int,
    ) -> None:
        """Begins the rollouts.

        Args:
            config: The configuration.
            spec: What there is to observe and to do.
            noise: The table of noise.
            variables: What the iteration begins with.
            task: Which of the iteration's tasks it is.
            seed: The search's seed.

        Raises:
            FloatingPointError: The weights to try are not finite.
        """
        found = variables_.unpack(variables)
        numbers = config.rollouts_of(task)
        shape = shape_of(spec)
        offsets = noise_.offsets(
            seed, found.iteration, config.num_directions, len(noise), found.weights.size
        )
        weights = np.stack(
            [
                found.weights
                + (-1.0 if number % 2 else 1.0)
                * config.noise_std
                * noise_.direction(noise, offsets[number // 2], shape).astype(np.float64)
                for number in numbers
            ]
        )
        if not np.isfinite(weights).all():
            raise FloatingPointError(
                f"the weights that iteration {found.iteration} tries are not finite: make "
                f"noise_std ({config.noise_std:g}) or step_size ({config.step_size:g}) smaller"
            )
        self.num_envs = len(numbers)
        self.environment_seed = noise_.environment_seed(seed, found.iteration, task)
        self._policies = LinearPolicies(spec, weights, *normalizer(found.moments))
        self._limit = config.episode_limit
        self._began = False
        self._over = np.zeros(self.num_envs, bool)
        self._returns = np.zeros(self.num_envs)
        self._steps = np.zeros(self.num_envs, np.int64)
        self._observed = _Observed(self.num_envs, shape[1], config.normalize_observations)

    def step(self, timestep: dm_env.TimeStep) -> Optional[NDArray[Any]]:
        """Takes the newest timestep; returns actions [E, ...], or None once all are over."""
        if self._began:
            self._returns += np.where(self._over, 0.0, timestep.reward)
            self._steps += ~self._over
            self._over |= timestep.step_type == dm_env.StepType.LAST
            if self._limit is not None:
                self._over |= self._steps >= self._limit
        self._began = True
        if self._over.all():
            return None
        self._observed.add(timestep.observation, ~self._over)
        return self._policies.actions(timestep.observation)

    def results(self) -> RolloutResults:
        """Returns what became of the rollouts; they are over."""
        return RolloutResults(self._returns, self._steps, *self._observed.moments())


class _Observed:
    """Takes the statistics of what E rollouts observe, some observations at a time."""

    def __init__(self, num_envs: int, size: int, is_wanted: bool) -> None:
        self._moments = Moments.nothing(num_envs, size)
        self._lengths = np.zeros(num_envs, np.int64)
        self._chunk = np.empty((_CHUNK, num_envs, size)) if is_wanted else None
        self._filled = 0

    def add(self, observations: NDArray[Any], counts: NDArray[np.bool_]) -> None:
        """Adds an observation [E, ...] of each rollout that is not over."""
        if self._chunk is None:
            return
        self._chunk[self._filled] = observations.reshape(len(observations), -1)
        self._lengths += counts
        self._filled += 1
        if self._filled == _CHUNK:
            self._take()

    def moments(self) -> Moments:
        """Returns the statistics of each rollout's observations."""
        if self._filled:
            self._take()
        return self._moments

    def _take(self) -> None:
        assert self._chunk is not None
        new = Moments.of(self._chunk[: self._filled], self._lengths)
        self._moments = merge(self._moments, new)
        self._lengths = np.zeros_like(self._lengths)
        self._filled = 0
