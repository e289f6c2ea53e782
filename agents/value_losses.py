"""Losses of value-based agents, as pure functions of tensors."""

import tensorflow as tf


def double_q_td_error(
    q_tm1: tf.Tensor,
    action_tm1: tf.Tensor,
    return_t: tf.Tensor,
    bootstrap_t: tf.Tensor,
    q_t: tf.Tensor,
    q_t_selector: tf.Tensor,
) -> tf.Tensor:
    """Computes the n-step TD error of double Q-learning.

        delta = R + gamma_m * q_t[argmax_a q_t_selector[a]] - q_tm1[action_tm1]

    (van Hasselt et al. 2016, eq. 4, with the n-step return R = sum_{k<m} gamma^k r_{t+1+k} and
    gamma_m = gamma^m of Horgan et al. 2018, section 3.1). Gradients flow into `q_tm1` only.

    Args:
        q_tm1: float32 [B, A], the online network's values where the window begins.
        action_tm1: int32 [B], the actions taken there.
        return_t: float32 [B], R.
        bootstrap_t: float32 [B], gamma_m, or 0 after a terminal state.
        q_t: float32 [B, A], the target network's values where the window ends.
        q_t_selector: float32 [B, A], the online network's values there.

    Returns:
        float32 [B].
    """
    best = tf.argmax(q_t_selector, axis=1, output_type=tf.int32)
    target = return_t + bootstrap_t * tf.gather(q_t, best, batch_dims=1)
    return tf.stop_gradient(target) - tf.gather(q_tm1, action_tm1, batch_dims=1)


def importance_weights(
    probability: tf.Tensor, table_size: tf.Tensor, exponent: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the weights that undo the bias of prioritized sampling.

        w_i = (N * P(i)) ** -beta / max_j (N * P(j)) ** -beta

    (Schaul et al. 2016, section 3.4). This is done in float64: priorities may span more
    orders of magnitude than float32 holds.

    Args:
        probability: float64 [B], P(i).
        table_size: int64 [B], N when each item was drawn.
        exponent: beta.

    Returns:
        float32 [B], the weights, in (0, 1], of which the largest is 1; and float64 [], the maximum
        that they were divided by.
    """
    expected = tf.cast(table_size, tf.float64) * tf.cast(probability, tf.float64)
    weights = expected ** tf.constant(-exponent, tf.float64)
    largest = tf.reduce_max(weights)
    return tf.cast(weights / largest, tf.float32), largest
