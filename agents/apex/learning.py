"""Learning: prioritized double Q-learning with n-step returns (Horgan et al. 2018, section 3)."""

from collections.abc import Mapping

import sonnet as snt
import tensorflow as tf

from agents import value_losses
from agents.agent import EnvironmentSpec
from agents.apex import items
from agents.apex.config import ApexConfig
from agents.apex.networks import DuelingNetwork
from agents.value_learner import BatchOutcome, ValueLearner


def observations(
    data: Mapping[str, tf.Tensor], spec: EnvironmentSpec, n_step: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the observations at the begin and at the end of each item's window.

    Args:
        data: A batch of items, as `items` describes them.
        spec: The environment's specs.
        n_step: n, the steps of a full window.

    Returns:
        Twice [B, ...]: uint8 stacks of frames, or float32.
    """
    row = data["row"]
    if not spec.frame_stack:
        size = items.observation_size(spec)
        shape = [-1, *spec.observations.shape]
        return tf.reshape(row[:, :size], shape), tf.reshape(row[:, size : 2 * size], shape)
    stack = spec.observations.shape[0]
    begin = n_step - tf.cast(row[:, items.STEPS], tf.int32)
    indices = begin[:, None] + tf.range(stack)[None, :]
    frames = data["frame"]
    return tf.gather(frames, indices, batch_dims=1), frames[:, n_step:]


class ApexLearner(ValueLearner):
    """Trains the Q-network on batches of items; implements `agents.agent.ParallelLearner`."""

    def __init__(self, config: ApexConfig, spec: EnvironmentSpec, seed: int):
        """Makes the networks and the optimizer.

        Args:
            config: Ape-X's configuration.
            spec: The environment's specs; actions must be discrete.
            seed: Seeds the online network; the target network begins as its copy.
        """
        online, target = (
            DuelingNetwork(spec, config.hidden_sizes, seed, name) for name in ("online", "target")
        )
        super().__init__(config, online, target, _make_optimizer(config))
        self._config = config
        self._spec = spec

    def outcome(
        self, probability: tf.Tensor, table_size: tf.Tensor, data: Mapping[str, tf.Tensor]
    ) -> BatchOutcome:
        """Computes the gradient of mean_i w_i * delta_i^2 / 2 (Horgan et al. 2018, section 3.1).

        New priorities are |delta| + epsilon.
        """
        row = data["row"]
        begin, end = observations(data, self._spec, self._config.n_step)
        weights, largest = value_losses.importance_weights(
            probability, table_size, self._config.importance_exponent
        )
        q_t = self.target(end)
        q_t_selector = self.online(end)
        with tf.GradientTape() as tape:
            q_tm1 = self.online(begin)
            delta = value_losses.double_q_td_error(
                q_tm1,
                tf.cast(row[:, items.ACTION], tf.int32),
                row[:, items.RETURN],
                row[:, items.BOOTSTRAP],
                q_t,
                q_t_selector,
            )
            loss = tf.reduce_mean(weights * tf.square(delta)) / 2.0
        error = tf.abs(delta)
        metrics = {
            "loss": loss,
            "q_value": tf.reduce_mean(q_tm1),
            "td_error": tf.reduce_mean(error),
            "importance_weight": tf.reduce_mean(weights),
        }
        return BatchOutcome(
            tape.gradient(loss, self.online.parameters),
            largest,
            error + self._config.priority_epsilon,
            tf.cast(tf.size(delta), tf.float32),
            metrics,
        )


def _make_optimizer(config: ApexConfig) -> snt.Optimizer:
    if config.optimizer == "adam":
        return snt.optimizers.Adam(config.learning_rate, epsilon=config.optimizer_epsilon)
    return snt.optimizers.RMSProp(
        config.learning_rate,
        decay=config.rmsprop_decay,
        epsilon=config.optimizer_epsilon,
        centered=True,
    )
