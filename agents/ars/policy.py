"""Linear policies."""

import math
from typing import Any

import dm_env
import numpy as np
from acme import specs
from numpy.typing import NDArray

from agents.agent import EnvironmentSpec, Variables
from agents.ars import variables as variables_
from agents.ars.filter import normalizer


def shape_of(spec: EnvironmentSpec) -> tuple[int, int]:
    """Returns the shape [P, O] of a policy's weights.

    P is the number of choices where actions are discrete, else the numbers in an action; O is the
    numbers in an observation, which is flattened. There is no bias, as in the paper.
    """
    outputs = (
        spec.actions.num_values
        if isinstance(spec.actions, specs.DiscreteArray)
        else math.prod(spec.actions.shape)
    )
    return outputs, math.prod(spec.observations.shape)


class LinearPolicies:
    """A policy of its own for each of E environments: a = M (x - mean) / std."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        weights: NDArray[np.float64],
        mean: NDArray[np.float64],
        std: NDArray[np.float64],
    ) -> None:
        """Initializes the policies.

        Args:
            spec: What there is to observe and to do.
            weights: M, float64 [E, P, O].
            mean: Taken from each observation, float64 [O].
            std: What that is divided by, float64 [O].
        """
        self._actions = spec.actions
        self._weights = weights
        self._mean = mean
        self._scale = 1.0 / std

    def actions(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Returns the actions [E, ...] that follow on observations [E, ...].

        Of discrete actions it is the one whose output is the largest, the first of those that are
        equal; others are clipped to their bounds.
        """
        seen = (observations.reshape(len(observations), -1) - self._mean) * self._scale
        # Each environment's sum by itself: so it does not depend on which others there are.
        outputs = np.einsum("epo,eo->ep", self._weights, seen)
        if isinstance(self._actions, specs.DiscreteArray):
            return np.asarray(np.argmax(outputs, axis=1), self._actions.dtype)
        shaped = outputs.reshape(-1, *self._actions.shape)
        clipped = np.clip(shaped, self._actions.minimum, self._actions.maximum)
        return np.asarray(clipped, self._actions.dtype)


class Evaluated:
    """Follows the policy that has been found, without noise; an `agents.agent.Actor`."""

    def __init__(self, spec: EnvironmentSpec, num_envs: int) -> None:
        """Initializes the actor for `num_envs` environments; it has no policy yet."""
        self._spec = spec
        self._num_envs = num_envs

    def set_variables(self, variables: Variables, version: int) -> None:
        """Takes up what `agents.ars.search.LinearSearch.variables` returned."""
        found = variables_.unpack(variables)
        weights = np.broadcast_to(found.weights, (self._num_envs, *found.weights.shape))
        self._policies = LinearPolicies(self._spec, weights, *normalizer(found.moments))

    def step(self, timestep: dm_env.TimeStep) -> NDArray[Any]:
        """Returns actions [E, ...]."""
        return self._policies.actions(timestep.observation)
