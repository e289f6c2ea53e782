"""Atari games from EnvPool: `atari:GAME`.

Preprocessed as in Mnih et al. 2015 (Methods): grey, 84 x 84, each action repeated for 4 emulator
frames of which the last two are maximised, 4 such frames stacked, rewards as the game gives them.
A game starts with 1 to 30 emulator frames of no-ops, the last of which presses the fire button
where the game has one.
"""

from collections.abc import Sequence
from typing import Any

import dm_env
import envpool
import numpy as np
from dm_env import specs
from envpool.atari.registration import atari_game_list
from numpy.typing import NDArray

import usage
from environments.batched import BatchedEnvironment
from environments.family import Description

_PREFIX = "atari:"
_STACK = 4

MAX_EPISODE_STEPS = 27_000
"""Steps after which a game is cut short: 30 minutes of play, 108,000 emulator frames
(Hessel et al. 2018, section 'Experimental methods')."""


def describe(name: str) -> Description:
    """Describes `atari:GAME`.

    Raises:
        usage.UsageError: There is no such game.
    """
    task = _task(name)
    if task not in envpool.list_all_envs():
        games = ("".join(map(str.capitalize, game.split("_"))) for game in atari_game_list)
        raise usage.unknown("environment", name, [_PREFIX + game for game in games])
    spec = envpool.make_spec(task, stack_num=_STACK)
    frames, actions = spec.observation_spec().obs, spec.action_spec()
    return Description(
        observations=specs.BoundedArray(
            frames.shape, frames.dtype, frames.minimum, frames.maximum, name="observation"
        ),
        actions=specs.DiscreteArray(int(actions.num_values), np.int32, name="action"),
        frame_stack=True,
    )


def make(
    name: str, seeds: Sequence[int], evaluation: bool, life_loss_ends: bool
) -> BatchedEnvironment:
    """Makes E games, one a seed; see `AtariBatch`."""
    # EnvPool takes one seed, and gives member e this seed plus e.
    seed = min(seeds[0], 2**31 - len(seeds))
    return AtariBatch(name, len(seeds), seed, life_loss_ends)


def _task(name: str) -> str:
    return f"{name.removeprefix(_PREFIX)}-v5"


class AtariBatch:
    """E games of Atari; see `BatchedEnvironment` for the timesteps.

    Observations are stacks of frames, uint8 [4, 84, 84], oldest first. At an episode's start all
    four frames are the first one, and each step moves the stack by one.

    Where losing a life ends an episode, it is LAST with discount 0. The game goes on in the next
    one, after as many no-ops as at a game's start, whose rewards nobody sees. `reset` then ends
    lives, not games. Otherwise an episode is a game.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        seed: int,
        life_loss_ends: bool,
        max_episode_steps: int = MAX_EPISODE_STEPS,
    ) -> None:
        """Starts the emulators.

        Args:
            name: The environment's name, `atari:GAME`.
            num_envs: E, the number of games.
            seed: Seed of the first game; the others count on from it. Below 2^31 - E.
            life_loss_ends: Whether a lost life ends an episode.
            max_episode_steps: Steps, not emulator frames, after which a game is cut short.
        """
        self.num_envs = num_envs
        # An actor is one of many on its machine: one thread, not one for each processor.
        self._pool = envpool.make_dm(
            _task(name),
            num_envs=num_envs,
            num_threads=1,
            seed=seed,
            stack_num=_STACK,
            episodic_life=life_loss_ends,
            max_episode_steps=max_episode_steps,
        )
        self._ends_with_life = life_loss_ends
        self._lives = np.zeros(num_envs, np.int32)
        self._age = np.zeros(num_envs, np.int32)

    def reset(self) -> dm_env.TimeStep:
        """Starts a new episode in every environment."""
        return self._convert(self._pool.reset())

    def step(self, actions: NDArray[Any]) -> dm_env.TimeStep:
        """Takes one step in every environment; `actions` is [E]."""
        return self._convert(self._pool.step(np.asarray(actions, np.int32)))

    def close(self) -> None:
        """Stops the emulators."""
        del self._pool

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        state = timestep.observation
        first = timestep.step_type == dm_env.StepType.FIRST
        last = timestep.step_type == dm_env.StepType.LAST
        terminal = state.terminated.astype(bool)
        if self._ends_with_life:
            terminal |= (state.lives > 0) & (state.lives < self._lives)
        self._lives = state.lives
        self._age = np.where(first, 0, self._age + 1)
        # After a lost life the pool's stack still holds frames of the life before.
        for index in np.flatnonzero(self._age < _STACK - 1):
            before = _STACK - 1 - self._age[index]
            state.obs[index, :before] = state.obs[index, before]
        return dm_env.TimeStep(
            timestep.step_type,
            timestep.reward,
            np.where(last & terminal, np.float32(0.0), np.float32(1.0)),
            state.obs,
        )
