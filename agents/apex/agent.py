"""The Ape-X agent: what a replay program asks of it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from agents.agent import Actor, Learner, TableSpec, WriterFactory
from agents.apex import items
from agents.apex.config import ApexConfig
from agents.value_agent import ValueAgent

if TYPE_CHECKING:
    from agents import acting as acting_


@dataclasses.dataclass(frozen=True)
class ApeX(ValueAgent):
    """Ape-X DQN (Horgan et al. 2018); implements `agents.agent.Agent`.

    Attributes:
        config: Its configuration.
        spec: What it must know of the environment.
    """

    config: ApexConfig

    name: ClassVar[str] = "Ape-X"

    @classmethod
    def presets(cls) -> Mapping[str, ApexConfig]:
        """Returns the configurations by name."""
        return {"small": ApexConfig.small(), "paper": ApexConfig.paper()}

    @property
    def preload(self) -> Sequence[str]:
        """Modules that its actors and learner import when they are made."""
        return ("agents.apex.acting", "agents.apex.learning", "agents.apex.networks")

    @property
    def life_loss_ends_episode(self) -> bool:
        """A lost life ends an episode (Horgan et al. 2018, appendix C)."""
        return True

    @property
    def table(self) -> TableSpec:
        """The replay table of n-step windows, one for every step of every actor."""
        item = items.item_spec(self.spec, self.config.n_step)
        return self.make_table("windows", item, items.bytes_per_item(self.spec))

    def make_actor(
        self, make_writer: WriterFactory, first: int, num_envs: int, total: int, seed: int
    ) -> Actor:
        """Returns an exploring actor whose environments stand at `first`, ... on the ladder."""
        from agents.apex import acting

        windows = acting.NStepWindows(
            num_envs,
            self.config.n_step,
            self.config.discount,
            self.config.reward_clip,
            self.config.priority_epsilon,
        )
        recorder: acting_.Recorder
        if self.spec.frame_stack:
            stack = self.spec.observations.shape[0]
            recorder = acting.FrameRecorder(windows, make_writer, num_envs, stack)
        else:
            size = items.observation_size(self.spec)
            recorder = acting.VectorRecorder(windows, make_writer, num_envs, size)
        return self.exploring(self._make_policy(num_envs), recorder, first, total, seed)

    def make_evaluator(self, num_envs: int, seed: int) -> Actor:
        """Returns an actor that explores with `evaluator_epsilon` only and writes nothing."""
        return self.evaluating(self._make_policy(num_envs), seed)

    def make_learner(self, seed: int) -> Learner:
        """Returns a learner with freshly initialised variables."""
        from agents.apex import learning

        return learning.ApexLearner(self.config, self.spec, seed)

    def _make_policy(self, num_envs: int) -> "acting_.Policy":
        from agents.apex import networks

        if self.spec.frame_stack:
            return networks.ConvolutionalPolicy(self.spec, self.config.hidden_sizes, num_envs)
        return networks.DensePolicy(num_envs)
