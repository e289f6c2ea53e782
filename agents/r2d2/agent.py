"""The R2D2 agent: what a replay program asks of it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Union

from agents.agent import Actor, Learner, TableSpec, WriterFactory
from agents.r2d2 import items
from agents.r2d2.config import R2D2Config
from agents.value_agent import ValueAgent

if TYPE_CHECKING:
    from agents.r2d2.networks import ConvolutionalPolicy, VectorPolicy


@dataclasses.dataclass(frozen=True)
class R2D2(ValueAgent):
    """R2D2 (Kapturowski et al. 2019); implements `agents.agent.Agent`.

    Attributes:
        config: Its configuration.
        spec: What it must know of the environment.
    """

    config: R2D2Config

    name: ClassVar[str] = "R2D2"

    @classmethod
    def presets(cls) -> Mapping[str, R2D2Config]:
        """Returns the configurations by name."""
        return {"small": R2D2Config.small(), "paper": R2D2Config.paper()}

    @property
    def preload(self) -> Sequence[str]:
        """Modules that its actors and learner import when they are made."""
        return ("agents.r2d2.acting", "agents.r2d2.learning", "agents.r2d2.networks")

    @property
    def life_loss_ends_episode(self) -> bool:
        """An episode is a whole game (Kapturowski et al. 2019, section 2.3)."""
        return False

    @property
    def table(self) -> TableSpec:
        """The replay table of sequences."""
        config = self.config
        item = items.item_spec(self.spec, config.trace_length, config.state_size)
        return self.make_table("sequences", item, items.bytes_per_item(item, config.period))

    def make_actor(
        self, make_writer: WriterFactory, first: int, num_envs: int, total: int, seed: int
    ) -> Actor:
        """Returns an exploring actor whose environments stand at `first`, ... on the ladder."""
        from agents.r2d2 import acting

        policy = self._make_policy(num_envs)
        recorder = acting.SequenceRecorder(self.config, self.spec, policy.memory, make_writer)
        return self.exploring(policy, recorder, first, total, seed)

    def make_evaluator(self, num_envs: int, seed: int) -> Actor:
        """Returns an actor that explores with `evaluator_epsilon` only and writes nothing."""
        return self.evaluating(self._make_policy(num_envs), seed)

    def make_learner(self, seed: int) -> Learner:
        """Returns a learner with freshly initialised variables."""
        from agents.r2d2 import learning

        return learning.R2D2Learner(self.config, self.spec, seed)

    def _make_policy(self, num_envs: int) -> "Union[ConvolutionalPolicy, VectorPolicy]":
        from agents.r2d2 import networks

        config = self.config
        memory = networks.Memory(num_envs, config.lstm_size)
        if not self.spec.frame_stack:
            return networks.VectorPolicy(self.spec.actions.num_values, memory)
        network = networks.RecurrentNetwork(
            self.spec, config.hidden_sizes, config.lstm_size, config.head_size, seed=0
        )
        return networks.ConvolutionalPolicy(network, self.spec, memory)
