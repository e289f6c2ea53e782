"""The environments of bsuite."""

import numpy as np
import pytest

from environments import registry


def test_catch_returns_one_for_a_caught_ball_and_minus_one_for_a_missed_one():
    batch = registry.load("catch").make(8, seed=0)
    timestep = batch.reset()
    for _ in range(9):
        assert (timestep.step_type != 2).all()
        board = timestep.observation
        ball = board[:, :-1].max(axis=1).argmax(axis=1)
        paddle = board[:, -1].argmax(axis=1)
        towards = np.sign(ball - paddle)
        # The first four go after the ball, the others go away from it.
        away = np.where(ball >= 2, -1, 1)
        timestep = batch.step(1 + np.where(np.arange(8) < 4, towards, away))
    assert timestep.reward.tolist() == [1.0] * 4 + [-1.0] * 4
    assert timestep.discount.tolist() == [0.0] * 8


@pytest.mark.parametrize("length", [1, 7])
def test_memory_asks_for_the_first_sign_after_its_length(length):
    batch = registry.load(f"memory:{length}").make(6, seed=0)
    shown = batch.reset().observation[:, 0, 2]
    right = (shown > 0).astype(int)
    for _ in range(length):
        assert (batch.step(right).step_type == 1).all()
    timestep = batch.step(right)
    assert (timestep.step_type == 2).all()
    assert (timestep.reward == 1).all()
    assert set(shown) == {-1.0, 1.0}


def test_cartpole_lets_the_pole_fall_when_nobody_pushes():
    batch = registry.load("cartpole").make(2, seed=0)
    batch.reset()
    total = np.zeros(2)
    for _ in range(500):
        timestep = batch.step(np.ones(2, int))
        total += timestep.reward
        if (timestep.step_type == 2).any():
            break
    assert (timestep.step_type == 2).any()
    assert 0 < total.max() < 500
