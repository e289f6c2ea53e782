import numpy as np
import pytest

from agents import exploration


def test_the_ladder_of_four_environments_has_the_papers_numbers():
    np.testing.assert_allclose(
        exploration.epsilon_ladder(4), [0.4, 0.0471556, 0.0055591, 0.00065536], rtol=1e-5
    )


def test_a_single_environment_gets_the_base_of_the_ladder():
    np.testing.assert_array_equal(exploration.epsilon_ladder(1), [0.4])


def test_base_and_alpha_move_the_ends_of_the_ladder():
    np.testing.assert_allclose(exploration.epsilon_ladder(3, base=0.5, alpha=2), [0.5, 0.25, 0.125])


def test_a_ladder_without_environments_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        exploration.epsilon_ladder(0)


def test_without_exploration_the_first_of_the_best_actions_is_chosen():
    q_values = np.array([[0.0, 2.0, 2.0], [1.0, -1.0, 0.0]], np.float32)
    actions = exploration.epsilon_greedy(np.random.default_rng(0), q_values, np.zeros(2))
    np.testing.assert_array_equal(actions, [1, 0])


def test_each_environment_explores_at_its_own_rate_and_uniformly():
    rng = np.random.default_rng(0)
    q_values = np.tile(np.array([0.0, 1.0, 0.0], np.float32), (3000, 1))
    epsilons = np.repeat([0.0, 0.3, 1.0], 1000)
    actions = exploration.epsilon_greedy(rng, q_values, epsilons).reshape(3, 1000)
    shares = np.array([[np.mean(row == action) for action in range(3)] for row in actions])
    expected = [[0, 1, 0], [0.1, 0.8, 0.1], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(shares, expected, atol=0.05)


def test_the_same_seed_explores_the_same():
    q_values = np.zeros((50, 4), np.float32)
    first, second = (
        exploration.epsilon_greedy(np.random.default_rng(3), q_values, np.ones(50))
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
