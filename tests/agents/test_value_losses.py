import numpy as np
import tensorflow as tf

from agents import value_losses


def test_double_q_values_the_selectors_action_by_the_target_network():
    delta = value_losses.double_q_td_error(
        q_tm1=tf.constant([[1.0, 2.0], [3.0, 4.0]]),
        action_tm1=tf.constant([0, 1]),
        return_t=tf.constant([0.5, -1.0]),
        bootstrap_t=tf.constant([0.5, 0.0]),
        q_t=tf.constant([[10.0, 20.0], [30.0, 40.0]]),
        q_t_selector=tf.constant([[7.0, 6.0], [0.0, 1.0]]),
    )
    # 0.5 + 0.5 * 10 - 1, although the target network itself prefers 20; and -1 - 4.
    np.testing.assert_allclose(delta, [4.5, -5.0])


def test_gradients_flow_into_the_value_of_the_taken_action_only():
    q = [tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 4.0]]), tf.constant([[6.0, 5.0]])]
    with tf.GradientTape() as tape:
        tape.watch(q)
        delta = value_losses.double_q_td_error(
            q[0], tf.constant([1]), tf.constant([0.0]), tf.constant([0.9]), q[1], q[2]
        )
    gradients = tape.gradient(delta, q)
    np.testing.assert_allclose(gradients[0], [[0.0, -1.0]])
    assert gradients[1] is None and gradients[2] is None


def test_importance_weights_undo_the_sampling_bias_relative_to_the_batch():
    # (10 * 0.1)^-0.5 = 1, (10 * 0.4)^-0.5 = 0.5, (5 * 0.8)^-0.5 = 0.5.
    weights, _ = value_losses.importance_weights(
        tf.constant([0.1, 0.4, 0.8], tf.float64), tf.constant([10, 10, 5], tf.int64), 0.5
    )
    assert weights.dtype == tf.float32
    np.testing.assert_allclose(weights, [1.0, 0.5, 0.5])


def test_the_largest_importance_weight_of_a_batch_is_one():
    weights, _ = value_losses.importance_weights(
        tf.constant([0.4, 0.8], tf.float64), tf.constant([10, 10], tf.int64), 1.0
    )
    np.testing.assert_allclose(weights, [1.0, 0.5])


def test_importance_weights_are_exact_for_extreme_probabilities():
    # A float32 holds no probability below 1e-45.
    weights, _ = value_losses.importance_weights(
        tf.constant([1e-60, 1e-58], tf.float64), tf.constant([2_000_000] * 2, tf.int64), 0.5
    )
    np.testing.assert_allclose(weights, [1.0, 0.1], rtol=1e-6)


def test_without_an_exponent_all_importance_weights_are_one():
    weights, _ = value_losses.importance_weights(
        tf.constant([0.1, 0.9], tf.float64), tf.constant([10, 10], tf.int64), 0.0
    )
    np.testing.assert_allclose(weights, [1.0, 1.0])
