"""The Ape-X agent: what a replay program asks of it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Optional

import numpy as np
from acme import specs
from numpy.typing import NDArray

from agents import exploration
from agents.agent import Actor, EnvironmentSpec, Learner, TableSpec, WriterFactory
from agents.apex import items
from agents.apex.config import ApexConfig
from usage import UsageError

if TYPE_CHECKING:
    from agents.apex import acting

_SMALLEST_FRAME = 36
"""Pixels a side of the smallest frame of which the convolutions leave anything."""


@dataclasses.dataclass(frozen=True)
class ApeX:
    """Ape-X DQN (Horgan et al. 2018); implements `agents.agent.Agent`.

    TensorFlow is imported where an actor or a learner is made, so that the process that only
    describes a program never loads it.

    Attributes:
        config: Its configuration.
        spec: What it must know of the environment.
    """

    config: ApexConfig
    spec: EnvironmentSpec

    def __post_init__(self) -> None:
        """Checks that the environment is one for Q-learning.

        Raises:
            UsageError: Actions are not discrete, or frames are not as the convolutions want them.
        """
        if not isinstance(self.spec.actions, specs.DiscreteArray):
            raise UsageError(
                f"Ape-X needs discrete actions, this environment has {self.spec.actions!r}: "
                "choose another agent or environment."
            )
        observations = self.spec.observations
        if 0 in observations.shape:
            raise UsageError(
                f"Ape-X needs something to observe, this environment has {observations!r}."
            )
        if not self.spec.frame_stack:
            return
        shape = observations.shape
        if observations.dtype != np.uint8 or len(shape) != 3 or min(shape[1:]) < _SMALLEST_FRAME:
            raise UsageError(
                "Ape-X needs a stack of frames to be uint8 [stack, height, width] with sides of at "
                f"least {_SMALLEST_FRAME}, this environment has {observations!r}: choose another "
                "environment."
            )

    @classmethod
    def presets(cls) -> Mapping[str, ApexConfig]:
        """Returns the configurations by name."""
        return {"small": ApexConfig.small(), "paper": ApexConfig.paper()}

    @property
    def preload(self) -> Sequence[str]:
        """Modules that its actors and learner import when they are made."""
        return ("agents.apex.acting", "agents.apex.learning", "agents.apex.networks")

    @property
    def table(self) -> TableSpec:
        """The replay table of n-step windows, one for every step of every actor."""
        return TableSpec(
            name="windows",
            item=items.item_spec(self.spec, self.config.n_step),
            max_size=self.config.replay_size,
            min_size=self.config.min_replay_size,
            priority_exponent=self.config.priority_exponent,
            samples_per_insert=self.config.samples_per_insert,
            error_buffer=self.config.error_buffer,
            bytes_per_item=items.bytes_per_item(self.spec),
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

    def make_actor(
        self, make_writer: WriterFactory, first: int, num_envs: int, total: int, seed: int
    ) -> Actor:
        """Returns an exploring actor whose environments stand at `first`, ... on the ladder."""
        from agents.apex import acting

        ladder = exploration.epsilon_ladder(
            total, self.config.epsilon_base, self.config.epsilon_alpha
        )
        windows = acting.NStepWindows(
            num_envs,
            self.config.n_step,
            self.config.discount,
            self.config.reward_clip,
            self.config.priority_epsilon,
        )
        recorder: acting.Recorder
        if self.spec.frame_stack:
            stack = self.spec.observations.shape[0]
            recorder = acting.FrameRecorder(windows, make_writer, num_envs, stack)
        else:
            size = items.observation_size(self.spec)
            recorder = acting.VectorRecorder(windows, make_writer, num_envs, size)
        return self._make_actor(ladder[first : first + num_envs], recorder, seed)

    def make_evaluator(self, num_envs: int, seed: int) -> Actor:
        """Returns an actor that explores with `evaluator_epsilon` only and writes nothing."""
        return self._make_actor(np.full(num_envs, self.config.evaluator_epsilon), None, seed)

    def make_learner(self, seed: int) -> Learner:
        """Returns a learner with freshly initialised variables."""
        from agents.apex import learning

        return learning.ApexLearner(self.config, self.spec, seed)

    def _make_actor(
        self, epsilons: NDArray[np.float64], recorder: "Optional[acting.Recorder]", seed: int
    ) -> Actor:
        from agents.apex import acting, networks

        network: acting.QNetwork
        if self.spec.frame_stack:
            network = networks.ConvolutionalPolicy(
                self.spec, self.config.hidden_sizes, len(epsilons)
            )
        else:
            network = networks.DensePolicy(len(epsilons))
        actions = self.spec.actions
        return acting.ApexActor(
            network, actions.num_values, epsilons, recorder, actions.dtype, seed
        )
