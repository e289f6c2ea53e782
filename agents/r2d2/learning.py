"""Learning: n-step double Q-learning over sequences (Kapturowski et al. 2019, section 2.3)."""

from collections.abc import Mapping
from typing import NamedTuple, Optional

import sonnet as snt
import tensorflow as tf
import tensorflow.experimental.numpy as tnp

from agents import value_losses
from agents.agent import EnvironmentSpec
from agents.r2d2 import items, values
from agents.r2d2.config import R2D2Config
from agents.r2d2.networks import Inputs, RecurrentNetwork
from agents.value_learner import BatchOutcome, ValueLearner


class Sequences(NamedTuple):
    """A batch of sequences, time first.

    Attributes:
        inputs: What the network sees, [T + 1, B, ...].
        action: int32 [T + 1, B].
        reward: float32 [T + 1, B], of the action.
        discount: float32 [T + 1, B], the environment's, of the action.
        real: float32 [T + 1, B], 1 where an action was taken.
    """

    inputs: Inputs
    action: tf.Tensor
    reward: tf.Tensor
    discount: tf.Tensor
    real: tf.Tensor


def sequences_of(
    timesteps: tf.Tensor, frames: Optional[tf.Tensor], spec: EnvironmentSpec
) -> Sequences:
    """Takes the timesteps [B, T + 1, W] and the frames of a batch, as in `items`, apart."""
    step = tf.transpose(timesteps, [1, 0, 2])
    length = step.shape[0]
    if frames is not None:
        frames = tf.transpose(frames, [1, 0, 2, 3])
        stacks = [frames[begin : begin + length] for begin in range(spec.observations.shape[0])]
        observation = tf.stack(stacks, axis=2)
    else:
        shape = [length, -1, *spec.observations.shape]
        observation = tf.reshape(step[..., items.OBSERVATION :], shape)
    return Sequences(
        Inputs(
            observation,
            tf.cast(step[..., items.PREVIOUS_ACTION], tf.int32),
            step[..., items.PREVIOUS_REWARD],
        ),
        tf.cast(step[..., items.ACTION], tf.int32),
        step[..., items.REWARD],
        step[..., items.DISCOUNT],
        step[..., items.REAL],
    )


def td_errors(
    sequences: Sequences, q: tf.Tensor, q_target: tf.Tensor, discount: float, n_step: int
) -> tf.Tensor:
    """Computes the TD errors of rescaled n-step double Q-learning.

        delta_t = h(G_t) - q_t[a_t],   V_t = h^-1(q_target_t[argmax_a q_t[a]])

    (Kapturowski et al. 2019, section 2.3; h is `values.rescale`, and G_t, of the values V, is
    `values.n_step_targets`). Gradients flow into q_t[a_t] only.

    Args:
        sequences: [T + 1, B, ...].
        q: float32 [T + 1, B, A], the online network's values.
        q_target: float32 [T + 1, B, A], the target network's values.
        discount: gamma.
        n_step: n.

    Returns:
        float32 [T, B], 0 where `sequences.real` is 0.
    """
    best = tf.argmax(q, axis=2, output_type=tf.int32)
    value = values.unscale(tf.gather(q_target, best, batch_dims=2))
    real = sequences.real[:-1]
    targets = values.n_step_targets(
        tnp,
        sequences.reward[:-1],
        sequences.discount[:-1] * discount,
        value,
        real,
        n_step,
    )
    taken = tf.gather(q[:-1], sequences.action[:-1], batch_dims=2)
    delta = tf.stop_gradient(values.rescale(targets)) - taken
    return tf.where(real > 0, delta, 0.0)


class R2D2Learner(ValueLearner):
    """Trains the recurrent Q-network on sequences; implements `agents.agent.ParallelLearner`."""

    def __init__(self, config: R2D2Config, spec: EnvironmentSpec, seed: int):
        """Makes the networks and the optimizer.

        Args:
            config: R2D2's configuration.
            spec: The environment's specs; actions must be discrete.
            seed: Seeds the online network; the target network begins as its copy.
        """
        sizes = config.hidden_sizes, config.lstm_size, config.head_size
        online, target = (
            RecurrentNetwork(spec, *sizes, seed, name) for name in ("online", "target")
        )
        optimizer = snt.optimizers.Adam(config.learning_rate, epsilon=config.optimizer_epsilon)
        super().__init__(config, online, target, optimizer)
        self._config = config
        self._spec = spec

    def outcome(
        self, probability: tf.Tensor, table_size: tf.Tensor, data: Mapping[str, tf.Tensor]
    ) -> BatchOutcome:
        """Computes the gradient of the mean over b of w_b sum_t delta_tb^2 / 2."""
        config, burn_in = self._config, self._config.burn_in
        version, state, timesteps = items.unpack(
            tnp, data["row"], config.trace_length, config.state_size
        )
        whole = sequences_of(timesteps, data.get("frame"), self._spec)
        before = tf.nest.map_structure(lambda column: column[:burn_in], whole)
        trained = tf.nest.map_structure(lambda column: column[burn_in:], whole)
        real = trained.real[:-1]
        num_real = tf.reduce_sum(real)
        weights, largest = value_losses.importance_weights(
            probability, table_size, config.importance_exponent
        )
        target_state = state
        if burn_in:
            state = self.online.warm_up(before.inputs, state, before.real)
            target_state = self.target.warm_up(before.inputs, target_state, before.real)
        q_target = self.target.unroll(trained.inputs, target_state)
        with tf.GradientTape() as tape:
            q = self.online.unroll(trained.inputs, state)
            delta = td_errors(trained, q, q_target, config.discount, config.n_step)
            loss = tf.reduce_mean(weights * tf.reduce_sum(tf.square(delta), axis=0)) / 2.0
        staleness = tf.reduce_mean(tf.cast(self.steps, tf.float32) - version)
        priorities = values.sequence_priority(tnp, delta, real, config.max_priority_weight)
        metrics = {
            "loss": loss,
            "q_value": tf.reduce_sum(tf.reduce_mean(q[:-1], axis=2) * real) / num_real,
            "td_error": tf.reduce_sum(tf.abs(delta)) / num_real,
            "importance_weight": tf.reduce_mean(weights),
            "staleness": staleness,
        }
        return BatchOutcome(
            tape.gradient(loss, self.online.parameters),
            largest,
            priorities + config.priority_epsilon,
            num_real,
            metrics,
        )
