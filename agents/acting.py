"""Acting by Q-values, epsilon-greedily, with one exploration rate for each environment."""

from typing import Any, Optional, Protocol

import dm_env
import numpy as np
from numpy.typing import NDArray

from agents import exploration
from agents.agent import Variables

_LAST = int(dm_env.StepType.LAST)


class Policy(Protocol):
    """A Q-network as an actor in E environments sees it; it may remember what it saw before.

    Attributes:
        num_envs: E.
    """

    num_envs: int

    def __call__(
        self, timestep: dm_env.TimeStep, previous_actions: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Computes Q-values.

        Args:
            timestep: The newest timestep of every environment.
            previous_actions: int64 [E], the actions that led to it; those of an environment whose
                step is FIRST mean nothing.

        Returns:
            float32 [E, A]; those of a terminal state mean nothing.
        """

    def set_variables(self, variables: Variables) -> None:
        """Replaces the network's variables."""


class Recorder(Protocol):
    """Turns the timesteps of E environments into items."""

    def record(
        self,
        timestep: dm_env.TimeStep,
        q_values: NDArray[np.float32],
        actions: NDArray[np.int64],
        version: int,
    ) -> None:
        """Takes the newest timestep of every environment and what the actor made of it.

        Args:
            timestep: The timestep.
            q_values: float32 [E, A], its values.
            actions: int64 [E], the actions chosen for it.
            version: Learner steps that the variables behind the values have seen.
        """


class EpsilonGreedyActor:
    """An epsilon-greedy actor in E environments; implements `agents.agent.Actor`.

    It has no variables of its own: `set_variables` comes before the first `step`.
    """

    def __init__(
        self,
        policy: Policy,
        num_actions: int,
        epsilons: NDArray[np.float64],
        recorder: Optional[Recorder],
        action_dtype: np.dtype[Any],
        seed: int,
    ):
        """Makes an actor.

        Args:
            policy: Computes the Q-values.
            num_actions: A.
            epsilons: float [E], the exploration rate of each environment.
            recorder: Where timesteps go, or None for an actor that only acts.
            action_dtype: What the environments take as an action.
            seed: Seeds exploration.
        """
        self._policy = policy
        self._epsilons = epsilons
        self._recorder = recorder
        self._dtype = action_dtype
        self._rng = np.random.default_rng(seed)
        self._no_values = np.zeros((len(epsilons), num_actions), np.float32)
        self._actions = np.zeros(len(epsilons), np.int64)
        self._version = 0

    def step(self, timestep: dm_env.TimeStep) -> NDArray[Any]:
        """Takes the newest timestep of every environment and returns actions, [E].

        A terminal state needs no action and has no value, so the network is left out where all
        environments are in one.
        """
        q_values = self._no_values
        if ((timestep.step_type != _LAST) | (timestep.discount != 0)).any():
            q_values = self._policy(timestep, self._actions)
        actions = exploration.epsilon_greedy(self._rng, q_values, self._epsilons)
        if self._recorder is not None:
            self._recorder.record(timestep, q_values, actions, self._version)
        self._actions = actions
        return actions.astype(self._dtype)

    def set_variables(self, variables: Variables, version: int) -> None:
        """Replaces the network's variables, which come in the learner's order."""
        self._policy.set_variables(variables)
        self._version = version
