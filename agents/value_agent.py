"""What agents with Q-values and prioritized replay say of themselves in the same way."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Optional

import numpy as np
from acme import specs
from numpy.typing import NDArray

from agents import acting, exploration
from agents.agent import Actor, EnvironmentSpec, TableSpec
from agents.config import ReplayConfig
from usage import UsageError

_SMALLEST_FRAME = 36
"""Pixels a side of the smallest frame of which the convolutions leave anything."""


@dataclasses.dataclass(frozen=True)
class ValueAgent:
    """The part of `agents.agent.Agent` that such agents share.

    TensorFlow is imported where an actor or a learner is made, so that the process that only
    describes a program never loads it.

    Attributes:
        config: Its configuration.
        spec: What it must know of the environment.
    """

    config: ReplayConfig
    spec: EnvironmentSpec

    name: ClassVar[str]
    """What messages call the agent."""

    def __post_init__(self) -> None:
        """Checks that the environment is one for Q-learning.

        Raises:
            UsageError: Actions are not discrete, or frames are not as the convolutions want them.
        """
        if not isinstance(self.spec.actions, specs.DiscreteArray):
            raise UsageError(
                f"{self.name} needs discrete actions, this environment has {self.spec.actions!r}: "
                "choose another agent or environment."
            )
        observations = self.spec.observations
        if 0 in observations.shape:
            raise UsageError(
                f"{self.name} needs something to observe, this environment has {observations!r}."
            )
        if not self.spec.frame_stack:
            return
        shape = observations.shape
        if observations.dtype != np.uint8 or len(shape) != 3 or min(shape[1:]) < _SMALLEST_FRAME:
            raise UsageError(
                f"{self.name} needs a stack of frames to be uint8 [stack, height, width] with "
                f"sides of at least {_SMALLEST_FRAME}, this environment has {observations!r}: "
                "choose another environment."
            )

    @property
    def batch_size(self) -> int:
        """Items that the learner takes at once."""
        return self.config.batch_size

    @property
    def variable_update_period(self) -> int:
        """Steps of each of its environments between an actor's looks for newer variables."""
        return self.config.variable_update_period

    @property
    def publish_period(self) -> int:
        """Learner steps between two published versions of the variables."""
        return self.config.publish_period

    def make_table(
        self, name: str, item: Mapping[str, specs.Array], bytes_per_item: int
    ) -> TableSpec:
        """Returns the replay table that the configuration describes, for items of this form."""
        return TableSpec(
            name=name,
            item=item,
            max_size=self.config.replay_size,
            min_size=self.config.min_replay_size,
            priority_exponent=self.config.priority_exponent,
            samples_per_insert=self.config.samples_per_insert,
            error_buffer=self.config.error_buffer,
            bytes_per_item=bytes_per_item,
        )

    def exploring(
        self, policy: acting.Policy, recorder: acting.Recorder, first: int, total: int, seed: int
    ) -> Actor:
        """Returns an actor whose environments stand at `first`, ... on a ladder of `total`."""
        ladder = exploration.epsilon_ladder(
            total, self.config.epsilon_base, self.config.epsilon_alpha
        )
        return self._actor(policy, ladder[first : first + policy.num_envs], recorder, seed)

    def evaluating(self, policy: acting.Policy, seed: int) -> Actor:
        """Returns an actor that explores with `evaluator_epsilon` only and writes nothing."""
        epsilons = np.full(policy.num_envs, self.config.evaluator_epsilon)
        return self._actor(policy, epsilons, None, seed)

    def _actor(
        self,
        policy: acting.Policy,
        epsilons: NDArray[np.float64],
        recorder: Optional[acting.Recorder],
        seed: int,
    ) -> Actor:
        actions = self.spec.actions
        return acting.EpsilonGreedyActor(
            policy, actions.num_values, epsilons, recorder, actions.dtype, seed
        )
