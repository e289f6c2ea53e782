"""The interface between a graph and an algorithm that searches by whole rollouts.

A search program asks a `SearchAgent` for `Rollouts`, which its workers make, and for a `Search`,
which makes better policies of their results. As in `agents.agent`, all is plain data and protocols.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Protocol

import dm_env
import numpy as np
from numpy.typing import NDArray

from agents.agent import AnyAgent, Saved, Variables


class RolloutResults(NamedTuple):
    """What became of a task's E rollouts.

    Attributes:
        returns: float64 [E], undiscounted sums of rewards.
        steps: int64 [E], environment steps.
        counts: int64 [E], observations whose statistics follow; 0 where none are taken.
        means: float64 [E, O], means of each rollout's observations.
        m2s: float64 [E, O], sums of the squares of what they differ from them.
    """

    returns: NDArray[np.float64]
    steps: NDArray[np.int64]
    counts: NDArray[np.int64]
    means: NDArray[np.float64]
    m2s: NDArray[np.float64]


class Rollouts(Protocol):
    """Acts in a task's environments, one a rollout, until the first episode of each is over.

    Attributes:
        num_envs: E, the rollouts of the task.
        environment_seed: Seed of the environments.
    """

    num_envs: int
    environment_seed: int

    def step(self, timestep: dm_env.TimeStep) -> Optional[NDArray[Any]]:
        """Takes the newest timestep [E]; returns actions [E, ...], or None once all are over."""

    def results(self) -> RolloutResults:
        """Returns what became of the rollouts; they are over."""


class Search(Saved, Protocol):
    """Turns the results of whole iterations into better policies. Not thread-safe."""

    @property
    def iteration(self) -> int:
        """Updates that were made."""

    @property
    def environment_steps(self) -> int:
        """Steps of all rollouts that the updates used."""

    @property
    def rollouts(self) -> int:
        """Rollouts that the updates used."""

    def update(self, results: Sequence[RolloutResults]) -> Mapping[str, float]:
        """Makes an update from the results of all tasks, in their order.

        Returns:
            Scalars of the iteration by name.
        """

    def variables(self) -> Variables:
        """Returns all that the next iteration depends on, as arrays that are only read."""

    def take_up(self, variables: Variables) -> None:
        """Goes on with what `variables` returned, perhaps in another process.

        Raises:
            ValueError: They are those of another kind of search.
        """


class SearchAgent(AnyAgent, Protocol):
    """An algorithm that compares policies by whole rollouts.

    An iteration has a fixed number of tasks. What a task's rollouts are, and what environments
    they are made in, follows from the seed, the iteration's variables and the task's number, not
    from who makes them.
    """

    @property
    def noise_size(self) -> int:
        """Numbers in the table of noise that a host's processes share."""

    @property
    def num_tasks(self) -> int:
        """Tasks of an iteration."""

    def rollouts_in(self, task: int) -> int:
        """Returns how many rollouts a task has."""

    def fill_noise(self, table: NDArray[np.float32], seed: int) -> None:
        """Fills the table of noise, float32 [noise_size], always in the same way for a seed."""

    def make_search(self, noise: NDArray[np.float32], seed: int) -> Search:
        """Returns a search that has made no update yet."""

    def make_rollouts(
        self, noise: NDArray[np.float32], variables: Variables, task: int, seed: int
    ) -> Rollouts:
        """Returns the rollouts of a task.

        Args:
            noise: The table of noise.
            variables: What `Search.variables` returned at the iteration's begin.
            task: Number of the task in the iteration.
            seed: The seed that the search was made with.
        """
