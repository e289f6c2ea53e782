"""The interface between an algorithm and a graph.

A replay program asks an `Agent` for three things: the table its items live in, an `Actor` that
turns timesteps into actions and items, and a `Learner` that turns sampled items into better
variables. Everything here is plain data and protocols: no TensorFlow, no RPC, no node.
`agents.search_agent` is the same for agents that search without replay.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Protocol, Union

import dm_env
import numpy as np
from acme import specs
from numpy.typing import NDArray

Variables = Sequence[NDArray[Any]]
"""A network's variables in the order in which the network lists them."""


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
    """What an agent must know of an environment.

    Attributes:
        observations: Spec of one environment's observation.
        actions: Spec of one environment's action; a `DiscreteArray` or a `BoundedArray`.
        frame_stack: Whether the observation is a stack of frames, uint8 [stack, height, width],
            oldest first, that moves by one frame a step: all but the newest were in the stack
            before, and at an episode's start every frame is the first one.
    """

    observations: specs.Array
    actions: specs.Array
    frame_stack: bool = False


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """A prioritized replay table, described without the replay server's library.

    Attributes:
        name: Name of the table.
        item: Array specs of one item's columns, by name, without a batch dimension.
        max_size: Items that the table holds; the oldest is evicted when one more is inserted.
        min_size: Items that must be there before the first sample is given out.
        priority_exponent: alpha in P(i) = p_i^alpha / sum_j p_j^alpha (Schaul et al. 2016, eq. 1).
        samples_per_insert: Times that an item is sampled on average, or None for no such limit.
        error_buffer: Samples that the table may be ahead of or behind `samples_per_insert`.
        bytes_per_item: Memory that one more item costs, in bytes, before compression.
    """

    name: str
    item: Mapping[str, specs.Array]
    max_size: int
    min_size: int
    priority_exponent: float
    samples_per_insert: Optional[float]
    error_buffer: Optional[float]
    bytes_per_item: int


class Sample(NamedTuple):
    """A batch of B items out of replay.

    Attributes:
        probability: float64 [B], the probability with which each item was drawn.
        table_size: int64 [B], the items in the replay when each was drawn.
        data: One tensor a column of `TableSpec.item`, [B, ...].
    """

    probability: Any
    table_size: Any
    data: Mapping[str, Any]


class StepResult(NamedTuple):
    """What one learner step gives back.

    Attributes:
        priorities: float32 [B], the items' new priorities, before the priority exponent; None
            leaves them as they are.
        metrics: Scalars of this step by name ('loss', 'gradient_norm', ...), as tensors or floats.
        trained_timesteps: Environment steps that the loss was taken over.
    """

    priorities: Any
    metrics: Mapping[str, Any]
    trained_timesteps: int


class SparseGradient(NamedTuple):
    """The gradient of a variable of which only some rows have one.

    Attributes:
        rows: int64 [n], which rows; one that is named twice has the sum.
        values: [n, ...], their gradients.
    """

    rows: NDArray[np.int64]
    values: NDArray[Any]


Gradient = Union[NDArray[Any], SparseGradient]


class Gradients(NamedTuple):
    """What one batch says of how a model should change.

    Attributes:
        values: One gradient a variable of `SharedModel.gradient_specs`, of the mean loss over the
            batch.
        state: What the batch made of `SharedModel.state_specs`, such as moving averages.
        weight: What the mean was taken over: items, or steps that a mask lets count.
        normaliser: What the loss was divided by besides, such as the largest importance weight.
    """

    values: Sequence[Gradient]
    state: Sequence[NDArray[Any]] = ()
    weight: float = 1.0
    normaliser: float = 1.0


class Writer(Protocol):
    """Writes items to replay, in the background; a full replay makes the calls wait.

    One writer serves one stream of consecutive steps. `append` adds a step's columns; `history`
    then holds the steps that are still kept, by column, and `create_item` inserts an item whose
    columns are slices of `history`.
    """

    def append(self, step: Mapping[str, NDArray[Any]]) -> None:
        """Adds one step; each column may be left out of a step."""

    @property
    def history(self) -> Mapping[str, Any]:
        """Kept steps by column; slicing gives what `create_item` takes."""

    def create_item(self, priority: float, trajectory: Mapping[str, Any]) -> None:
        """Inserts the item `trajectory` (slices of `history`) with `priority`."""

    def end_episode(self) -> None:
        """Forgets `history`: no item spans what came before and what comes after."""


class WriterFactory(Protocol):
    """Makes the writers of an actor."""

    def __call__(self, max_steps: int) -> Writer:
        """Returns a writer whose `history` keeps the newest `max_steps` steps."""


class Actor(Protocol):
    """Acts in a batch of E environments.

    Timesteps are batched `dm_env.TimeStep`s: `step_type` int32 [E], `reward` float32 [E],
    `discount` float32 [E], `observation` [E, ...]. An environment whose step is LAST ignores its
    next action and starts a new episode (FIRST). LAST with discount 0 is a terminal state, LAST
    with discount 1 a truncated episode, whose last state still has a value. On FIRST, reward and
    discount mean nothing.
    """

    def step(self, timestep: dm_env.TimeStep) -> NDArray[Any]:
        """Takes the newest timestep of every environment and returns actions, [E, ...]."""

    def set_variables(self, variables: Variables, version: int) -> None:
        """Replaces the network's variables; comes before the first step.

        Args:
            variables: What `Learner.variables` returned, now the actor's own: nobody else changes
                or sees it.
            version: Learner steps taken before that.
        """


class Saved(Protocol):
    """What checkpoints are saved of."""

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Copies all that later steps depend on, by name."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Takes up what `state` returned, perhaps in another process.

        Raises:
            ValueError: It is the state of another kind of learner.
        """


class Learner(Saved, Protocol):
    """Turns samples into updates. Not thread-safe."""

    def step(self, sample: Sample) -> StepResult:
        """Takes one optimizer step."""

    def variables(self) -> Variables:
        """Returns the online network's variables, as arrays that are only read.

        They may be the network's own memory, and are let go of before the next step.
        """


class SharedModel(Saved, Protocol):
    """A model that several learn with together, and the optimizer that changes it."""

    @property
    def gradient_specs(self) -> Mapping[str, specs.Array]:
        """The variables that get gradients, by name, in the order of `Gradients.values`."""

    @property
    def state_specs(self) -> Mapping[str, specs.Array]:
        """The variables that change otherwise, in the order of `Gradients.state`.

        They become the mean of what the batches made of them.
        """

    def apply_gradients(
        self, gradients: Sequence[Gradient], state: Sequence[NDArray[Any]]
    ) -> Mapping[str, Any]:
        """Takes one optimizer step; returns scalars of it by name ('gradient_norm', ...).

        Raises:
            FloatingPointError: The gradients are too large together; nothing has changed.
        """

    def model(self) -> Variables:
        """Returns all that gradients depend on, as arrays that are only read.

        They may be the model's own memory, and are let go of before the next step.
        """

    def set_model(self, values: Variables) -> None:
        """Takes up what `model` returned, perhaps in another process."""

    def variables(self) -> Variables:
        """See `Learner.variables`."""


class ParallelLearner(Learner, SharedModel, Protocol):
    """A learner that can also be one of several, whose gradients are reduced to one."""

    def gradients(self, sample: Sample) -> tuple[Gradients, StepResult]:
        """Computes what `step` would change by, and changes nothing."""


class AnyAgent(Protocol):
    """What every agent says of itself, of whatever kind; it pickles.

    A class of agents is constructed with a configuration, a frozen dataclass, and an
    `EnvironmentSpec`. It raises `usage.UsageError` where the two do not fit.
    """

    @classmethod
    def presets(cls) -> Mapping[str, Any]:
        """Configurations by name; 'small' is one of them."""

    @property
    def preload(self) -> Sequence[str]:
        """Modules that its nodes import when they are made."""

    @property
    def life_loss_ends_episode(self) -> bool:
        """Whether an episode that is learned from ends with a lost life, where a game has lives."""

    def make_evaluator(self, num_envs: int, seed: int) -> Actor:
        """Returns an actor that follows the best known policy and writes nothing."""


class Agent(AnyAgent, Protocol):
    """An algorithm that learns from replay, with its configuration, for one kind of environment."""

    @property
    def table(self) -> TableSpec:
        """The replay table that the actors fill."""

    @property
    def batch_size(self) -> int:
        """Items that the learner takes at once."""

    @property
    def variable_update_period(self) -> int:
        """Steps of each of its environments between an actor's looks for newer variables."""

    @property
    def publish_period(self) -> int:
        """Learner steps between two published versions of the variables."""

    def make_actor(
        self, make_writer: WriterFactory, first: int, num_envs: int, total: int, seed: int
    ) -> Actor:
        """Returns an exploring actor that fills replay.

        Args:
            make_writer: Makes writers to `table`.
            first: Index of its first environment among all actors' environments.
            num_envs: E, its environments.
            total: Environments of all actors together.
            seed: Seeds its exploration.
        """

    def make_learner(self, seed: int) -> Learner:
        """Returns a learner with freshly initialised variables."""
