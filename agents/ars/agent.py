"""The ARS agent: what a search program asks of it."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from agents.agent import Actor, EnvironmentSpec, Variables
from agents.ars import noise as noise_
from agents.ars import policy, rollouts, search
from agents.ars.config import ArsConfig
from agents.search_agent import Rollouts, Search
from usage import UsageError


@dataclasses.dataclass(frozen=True)
class Ars:
    """Augmented random search (Mania et al. 2018); implements `agents.search_agent.SearchAgent`.

    Attributes:
        config: Its configuration.
        spec: What it must know of the environment.

    Raises:
        UsageError: There is nothing to observe, or the table of noise is too small.
    """

    config: ArsConfig
    spec: EnvironmentSpec

    def __post_init__(self) -> None:
        if 0 in self.spec.observations.shape:
            raise UsageError(
                f"ARS needs something to observe, this environment has {self.spec.observations!r}."
            )
        parameters = math.prod(policy.shape_of(self.spec))
        if self.config.noise_table_size < parameters:
            raise UsageError(
                f"noise_table_size must be at least {parameters:,}, the weights of a policy for "
                f"this environment, got {self.config.noise_table_size:,}."
            )

    @classmethod
    def presets(cls) -> Mapping[str, ArsConfig]:
        """Returns the configurations by name."""
        return {"small": ArsConfig.small(), "paper": ArsConfig.paper()}

    @property
    def preload(self) -> Sequence[str]:
        """Modules that its nodes have loaded when they are made."""
        return ("agents.ars.agent",)

    @property
    def life_loss_ends_episode(self) -> bool:
        """A rollout is a whole game: what is compared is what its policy brings in the end."""
        return False

    @property
    def noise_size(self) -> int:
        """Numbers in the table of noise."""
        return self.config.noise_table_size

    @property
    def num_tasks(self) -> int:
        """Tasks of an iteration."""
        return self.config.num_tasks

    def rollouts_in(self, task: int) -> int:
        """Returns how many rollouts a task has."""
        return len(self.config.rollouts_of(task))

    def fill_noise(self, table: NDArray[np.float32], seed: int) -> None:
        """Fills the table of noise, always in the same way for a seed."""
        noise_.fill(table, seed)

    def make_search(self, noise: NDArray[np.float32], seed: int) -> Search:
        """Returns a search that has found nothing yet."""
        return search.LinearSearch(self.config, self.spec, noise, seed)

    def make_rollouts(
        self, noise: NDArray[np.float32], variables: Variables, task: int, seed: int
    ) -> Rollouts:
        """Returns the rollouts of a task of the iteration that begins with `variables`."""
        return rollouts.LinearRollouts(self.config, self.spec, noise, variables, task, seed)

    def make_evaluator(self, num_envs: int, seed: int) -> Actor:
        """Returns an actor that follows the policy that has been found, without noise."""
        return policy.Evaluated(self.spec, num_envs)
