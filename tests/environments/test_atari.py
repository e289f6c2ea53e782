"""Atari games."""

import itertools

import numpy as np
import pytest
from dm_env import StepType

from environments import registry
from environments.atari import AtariBatch


def breakout(life_loss_ends, max_episode_steps=27_000, num_envs=2):
    return AtariBatch("atari:Breakout", num_envs, 5, life_loss_ends, max_episode_steps)


def pairs(timesteps):
    """Yields (step before, step) of every member."""
    for before, after in itertools.pairwise(timesteps):
        for index in range(len(after.step_type)):
            yield [type(t)(*(field[index] for field in t)) for t in (before, after)]


@pytest.mark.parametrize("game", ["Breakout", "Pong", "Seaquest"])
@pytest.mark.parametrize("life_loss_ends", [False, True])
def test_the_stack_moves_by_one_frame_and_starts_with_one(game, life_loss_ends, play):
    environment = registry.load(f"atari:{game}")
    # Seaquest's lives, unlike Breakout's, outlast the frames of a stack.
    batch = AtariBatch(f"atari:{game}", 2, 5, life_loss_ends, max_episode_steps=250)
    timesteps = play(batch, environment.actions, 400)
    assert sum(int((t.step_type == StepType.FIRST).sum()) for t in timesteps) > 2
    for timestep in timesteps:
        for index in np.flatnonzero(timestep.step_type == StepType.FIRST):
            stack = timestep.observation[index]
            assert (stack == stack[0]).all()
    moved = False
    for before, after in pairs(timesteps):
        if after.step_type != StepType.FIRST:
            np.testing.assert_array_equal(after.observation[:-1], before.observation[1:])
            moved |= bool((after.observation[-1] != before.observation[-1]).any())
    assert moved


def test_a_reset_in_the_midst_of_a_game_starts_a_stack_of_one_frame(play):
    environment = registry.load("atari:Pong")
    batch = environment.make(2, seed=1)
    play(batch, environment.actions, 30)
    timestep = batch.reset()
    assert timestep.step_type.tolist() == [0, 0]
    assert (timestep.observation == timestep.observation[:, :1]).all()


def test_a_lost_life_is_terminal_in_training_and_the_game_goes_on(play):
    batch = breakout(life_loss_ends=True)
    actions = registry.load("atari:Breakout").actions
    timesteps = play(batch, actions, 300)
    ends = [after for _, after in pairs(timesteps) if after.step_type == StepType.LAST]
    # Five lives a game: a player at random loses them all within 300 steps.
    assert len(ends) >= 10
    assert all(after.discount == 0 for after in ends)


def test_a_lost_life_ends_an_episode_only_where_it_should(play):
    actions = registry.load("atari:Breakout").actions
    training = play(breakout(life_loss_ends=True), actions, 300)
    evaluation = play(breakout(life_loss_ends=False), actions, 300)
    lives = sum(int((t.step_type == StepType.LAST).sum()) for t in training)
    games = sum(int((t.step_type == StepType.LAST).sum()) for t in evaluation)
    assert 0 < games <= lives // 4


@pytest.mark.parametrize("life_loss_ends", [False, True])
def test_a_time_limit_bootstraps(life_loss_ends):
    batch = breakout(life_loss_ends, max_episode_steps=10)
    batch.reset()
    for _ in range(9):
        assert (batch.step(np.zeros(2, np.int32)).step_type == StepType.MID).all()
    timestep = batch.step(np.zeros(2, np.int32))
    assert timestep.step_type.tolist() == [2, 2]
    assert timestep.discount.tolist() == [1.0, 1.0]


def test_a_finished_game_is_terminal(play):
    actions = registry.load("atari:Breakout").actions
    timesteps = play(breakout(life_loss_ends=False), actions, 400)
    ends = [after for _, after in pairs(timesteps) if after.step_type == StepType.LAST]
    assert ends
    assert all(after.discount == 0 for after in ends)


def test_rewards_are_not_clipped(play):
    batch = registry.load("atari:Seaquest").make(4, seed=0)
    actions = registry.load("atari:Seaquest").actions
    assert max(t.reward.max() for t in play(batch, actions, 150)) == 20.0
