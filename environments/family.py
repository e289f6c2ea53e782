"""What every family of environments offers to the registry."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dm_env import specs

from environments.batched import BatchedEnvironment

FORMS = ("catch", "cartpole", "memory:LENGTH", "atari:GAME", "gym:ID", "package.module:function")
"""The names that `registry.load` understands, as a person is told of them."""


class Description(NamedTuple):
    """What can be said of an environment without keeping one alive.

    Attributes:
        observations: Spec of one environment's observation.
        actions: Spec of one environment's action; a `DiscreteArray` or a `BoundedArray`.
        solved_at: Mean return of an evaluator at which it counts as solved, or None.
        frame_stack: Whether the observation is a stack of frames that moves by one frame a step.
    """

    observations: specs.Array
    actions: specs.Array
    solved_at: float | None = None
    frame_stack: bool = False


class Family(Protocol):
    """A module that knows the environments of one library.

    Both functions take the environment's whole name, as the user typed it.
    """

    def describe(self, name: str) -> Description:
        """Describes the environment; raises `usage.UsageError` where the name means nothing."""

    def make(
        self, name: str, seeds: Sequence[int], evaluation: bool, life_loss_ends: bool
    ) -> BatchedEnvironment:
        """Makes one environment a seed, each seed in [0, 2^31).

        Args:
            name: The name.
            seeds: The seeds.
            evaluation: Whether they are for an evaluator.
            life_loss_ends: Whether a lost life ends an episode, where a game has lives.
        """
