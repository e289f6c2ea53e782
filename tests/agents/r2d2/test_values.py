"""Rescaling, n-step targets and priorities against numbers worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow.experimental.numpy as tnp

from agents.r2d2 import values

RANGE = np.concatenate([[0.0], np.logspace(-8, 6, 400)])
RANGE = np.concatenate([-RANGE[::-1], RANGE]).astype(np.float32)


@pytest.mark.parametrize("convert", [np.asarray, tf.constant], ids=["numpy", "tensorflow"])
def test_rescaling_is_inverted_to_float_precision_over_a_million(convert):
    x = convert(RANGE)
    there_and_back = np.asarray(values.unscale(values.rescale(x)))
    assert there_and_back.dtype == np.float32
    assert (np.abs(there_and_back - RANGE) <= 1e-6 * np.maximum(1, np.abs(RANGE))).all()


@pytest.mark.parametrize("convert", [np.asarray, tf.constant], ids=["numpy", "tensorflow"])
def test_rescaling_is_that_of_the_paper(convert):
    x = RANGE.astype(np.float64)
    expected = np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * x
    scaled = np.asarray(values.rescale(convert(RANGE)))
    assert (np.abs(scaled - expected) <= 1e-6 * np.maximum(1, np.abs(expected))).all()
    root = (np.sqrt(1 + 4e-3 * (np.abs(expected) + 1 + 1e-3)) - 1) / 2e-3
    inverse = np.sign(expected) * (root**2 - 1)
    unscaled = np.asarray(values.unscale(convert(expected.astype(np.float32))))
    assert (np.abs(unscaled - inverse) <= 1e-6 * np.maximum(1, np.abs(inverse))).all()


def test_rescaling_by_hand():
    np.testing.assert_allclose(values.rescale(np.float32([3, -8, 0])), [1.003, -2.008, 0])


def column(*numbers):
    return np.array(numbers, np.float32)[:, None]


def targets(reward, discount, value, real, n_step):
    arguments = [column(*numbers) for numbers in (reward, discount, value, real)]
    by_numpy = values.n_step_targets(np, *arguments, n_step)
    by_tensorflow = values.n_step_targets(tnp, *map(tf.constant, arguments), n_step)
    np.testing.assert_array_equal(by_numpy, by_tensorflow.numpy())
    return by_numpy[:, 0].tolist()


def test_targets_within_an_episode_take_n_steps_and_fewer_at_the_sequences_end():
    # gamma 0.5; 1 + 2/2 + 100/4, 2 + 4/2 + 200/4, and 4 + 200/2 at the end.
    assert targets([1, 2, 4], [0.5] * 3, [7, 70, 100, 200], [1] * 3, 2) == [27, 54, 104]


def test_a_terminal_state_ends_the_target_without_a_value():
    # The third step ends in a terminal state, the fourth was never taken.
    assert targets([1, 2, 4, 0], [0.5, 0.5, 0, 0], [7, 70, 100, 1000, 0], [1, 1, 1, 0], 3)[:3] == [
        1 + 2 / 2 + 4 / 4,
        2 + 4 / 2,
        4,
    ]


def test_a_truncated_episode_bootstraps_from_its_last_state():
    # The third step ends in a state of value 1000, behind which nothing is real.
    assert targets(
        [1, 2, 4, 99, 99], [0.5, 0.5, 0.5, 1, 1], [7, 70, 100, 1000, 5, 5], [1, 1, 1, 0, 0], 5
    )[:3] == [1 + 1 + 1 + 125, 2 + 2 + 250, 4 + 500]


def test_a_value_that_does_not_count_leaves_no_trace():
    # The values behind the terminal state are beyond all bounds, or so large that 0.1 is lost in
    # them; the episodes beside it go on, and are cut short.
    for huge in (3.8e5, np.inf):
        reward = np.float32([[0.1, 1, 1], [0, 2, 2], [9, 4, 4]])
        discount = np.float32([[0.5, 0.5, 0.5], [0, 0.5, 0.5], [1, 0.5, 1]])
        value = np.float32([[1, 1, 1], [huge, 1, 1], [2, 1, 10], [huge, 100, 1]])
        real = np.float32([[1, 1, 1], [1, 1, 1], [0, 1, 0]])
        expected = [[0.1, 1 + 2 / 2 + 4 / 4 + 100 / 8, 1 + 2 / 2 + 10 / 4], [0, 2 + 54 / 2, 7]]
        with np.errstate(invalid="ignore"):
            by_numpy = values.n_step_targets(np, reward, discount, value, real, 3)[:2]
        np.testing.assert_allclose(by_numpy[0], np.float32(expected[0]), rtol=1e-6)
        np.testing.assert_allclose(by_numpy[1, 1:], expected[1][1:], rtol=1e-6)


def test_one_step_targets_are_reward_and_next_value():
    assert targets([1, 2], [0.5, 0.5], [0, 10, 20], [1, 1], 1) == [6, 12]


def test_priorities_mix_the_largest_and_the_mean_error_of_real_steps():
    error = np.array([[1, -4], [-3, 2], [100, -3]], np.float32)
    real = np.array([[1, 1], [1, 1], [0, 1]], np.float32)
    expected = [0.9 * 3 + 0.1 * 2, 0.9 * 4 + 0.1 * 3]
    np.testing.assert_allclose(values.sequence_priority(np, error, real, 0.9), expected, rtol=1e-6)
    for weight, by_hand in ((0.0, [2, 3]), (1.0, [3, 4])):
        mixed = values.sequence_priority(np, error, real, weight)
        np.testing.assert_allclose(mixed, by_hand, rtol=1e-6)
    by_tensorflow = values.sequence_priority(tnp, tf.constant(error), tf.constant(real), 0.9)
    np.testing.assert_allclose(by_tensorflow, expected, rtol=1e-6)
