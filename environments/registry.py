"""Environments by the name that a user types.

Importing this module loads no environment's library, and no TensorFlow.
"""

import dataclasses
import importlib
from typing import cast

import numpy as np
from dm_env import specs

import usage
from environments.batched import BatchedEnvironment, Checked
from environments.family import FORMS, Family

_FAMILIES = {
    "catch": "environments.bsuite_tasks",
    "cartpole": "environments.bsuite_tasks",
    "memory": "environments.bsuite_tasks",
    "atari": "environments.atari",
    "gym": "environments.gymnasium_tasks",
}
_WITHOUT_ARGUMENT = ("catch", "cartpole")


@dataclasses.dataclass(frozen=True)
class Environment:
    """A description of an environment, which pickles and holds no live one.

    Attributes:
        name: The name as the user typed it.
        observations: Spec of one environment's observation.
        actions: Spec of one environment's action; a `DiscreteArray` or a `BoundedArray`.
        solved_at: Mean return of the evaluator's last 100 episodes at which it counts as solved,
            or None.
        frame_stack: Whether the observation is a stack of frames, uint8 [stack, height, width],
            oldest first, that moves by one frame a step, and whose frames are all the first one
            at an episode's start.
        life_loss_ends_episode: Whether in training a lost life ends an episode, where a game has
            lives.
    """

    name: str
    observations: specs.Array
    actions: specs.Array
    solved_at: float | None
    frame_stack: bool
    life_loss_ends_episode: bool = True

    def make(self, num_envs: int, seed: int, evaluation: bool = False) -> BatchedEnvironment:
        """Makes a batch of environments that raises `EnvironmentFault` where it goes wrong.

        The same arguments make environments that go through the same episodes.

        Args:
            num_envs: E, the number of environments.
            seed: Not negative. Environment e's own seed comes from `seed` and e.
            evaluation: Whether they are for an evaluator, whose episodes are whole games.
        """
        life_loss_ends = self.life_loss_ends_episode and not evaluation
        batch = _family(self.name).make(
            self.name, member_seeds(seed, num_envs), evaluation, life_loss_ends
        )
        return Checked(batch, self.name, self.observations)


def member_seeds(seed: int, num_envs: int) -> list[int]:
    """Returns a seed in [0, 2^31) for each of `num_envs` environments, derived from `seed`."""
    return [
        int(np.random.SeedSequence((seed, index)).generate_state(1)[0]) >> 1
        for index in range(num_envs)
    ]


def load(name: str) -> Environment:
    """Describes the environment that `name` stands for.

    Args:
        name: One of `environments.family.FORMS`.

    Raises:
        usage.UsageError: The name stands for nothing, or for an environment that cannot be used.
    """
    description = _family(name).describe(name)
    return Environment(name, **description._asdict())


def module_of(name: str) -> str:
    """Returns the module that knows the environment `name`; importing it loads its library.

    Raises:
        usage.UsageError: The name has none of the known forms.
    """
    family, colon, rest = name.partition(":")
    if family in _FAMILIES and (colon or family in _WITHOUT_ARGUMENT):
        return _FAMILIES[family]
    if not (rest.isidentifier() and all(part.isidentifier() for part in family.split("."))):
        raise usage.unknown("environment", name, FORMS)
    return "environments.custom"


def _family(name: str) -> Family:
    return cast(Family, importlib.import_module(module_of(name)))
