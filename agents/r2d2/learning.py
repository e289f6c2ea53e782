"""Learning: n-step double Q-learning over sequences (Kapturowski et al. 2019, section 2.3)."""

from collections.abc import Mapping
from typing import NamedTuple, Optional

import numpy as np
import sonnet as snt
import tensorflow as tf
import tensorflow.experimental.numpy as tnp

from agents import value_losses
from agents.agent import EnvironmentSpec, Sample, StepResult, Variables
from agents.r2d2 import items, values
from agents.r2d2.config import R2D2Config
from agents.r2d2.networks import Inputs, RecurrentNetwork


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
        float32 [T, B]; means nothing where `sequences.real` is 0.
    """
    best = tf.argmax(q, axis=2, output_type=tf.int32)
    value = values.unscale(tf.gather(q_target, best, batch_dims=2))
    targets = values.n_step_targets(
        tnp,
        sequences.reward[:-1],
        sequences.discount[:-1] * discount,
        value,
        sequences.real[:-1],
        n_step,
    )
    taken = tf.gather(q[:-1], sequences.action[:-1], batch_dims=2)
    return tf.stop_gradient(values.rescale(targets)) - taken


class R2D2Learner:
    """Trains the recurrent Q-network on sequences; implements `agents.agent.Learner`.

    Attributes:
        online: The network that is trained.
        target: The network whose values are bootstrapped from.
        optimizer: The optimizer with its moving averages.
        steps: int64, the learner steps taken.
    """

    def __init__(self, config: R2D2Config, spec: EnvironmentSpec, seed: int):
        """Makes the networks and the optimizer.

        Args:
            config: R2D2's configuration.
            spec: The environment's specs; actions must be discrete.
            seed: Seeds the online network; the target network begins as its copy.
        """
        self._config = config
        self._spec = spec
        sizes = config.hidden_sizes, config.lstm_size, config.head_size
        self.online = RecurrentNetwork(spec, *sizes, seed, name="online")
        self.target = RecurrentNetwork(spec, *sizes, seed, name="target")
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        self.optimizer = snt.optimizers.Adam(config.learning_rate, epsilon=config.optimizer_epsilon)
        self.optimizer._initialize(self.online.parameters)  # else its first step would, in a graph
        self._update = tf.function(self._take_step, autograph=False)

    def step(self, sample: Sample) -> StepResult:
        """Takes one optimizer step and returns the sequences' new priorities."""
        priorities, trained, metrics = self._update(
            sample.probability, sample.table_size, dict(sample.data)
        )
        return StepResult(priorities, metrics, int(trained))

    def variables(self) -> Variables:
        """Copies the online network's variables, in the order of `RecurrentNetwork.parameters`."""
        return [np.array(parameter.numpy()) for parameter in self.online.parameters]

    def _take_step(
        self, probability: tf.Tensor, table_size: tf.Tensor, data: Mapping[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor, Mapping[str, tf.Tensor]]:
        """Minimises the mean of w_b delta_tb^2 / 2 over all real trained steps by one step."""
        config, burn_in = self._config, self._config.burn_in
        version, state, timesteps = items.unpack(
            tnp, data["row"], config.trace_length, config.state_size
        )
        whole = sequences_of(timesteps, data.get("frame"), self._spec)
        before = tf.nest.map_structure(lambda column: column[:burn_in], whole)
        trained = tf.nest.map_structure(lambda column: column[burn_in:], whole)
        real = trained.real[:-1]
        num_real = tf.reduce_sum(real)
        weights = value_losses.importance_weights(
            probability, table_size, config.importance_exponent
        )
        target_state = state
        if burn_in:
            state = self.online.warm_up(before.inputs, state, before.real)
            target_state = self.target.warm_up(before.inputs, target_state, before.real)
        q_target = self.target.unroll(trained.inputs, target_state)
        parameters = self.online.parameters
        with tf.GradientTape() as tape:
            q = self.online.unroll(trained.inputs, state)
            delta = td_errors(trained, q, q_target, config.discount, config.n_step)
            loss = tf.reduce_sum(real * weights * tf.square(delta)) / num_real / 2.0
        gradients, norm = tf.clip_by_global_norm(
            tape.gradient(loss, parameters), config.max_gradient_norm
        )
        self.optimizer.apply(gradients, parameters)
        staleness = tf.reduce_mean(tf.cast(self.steps, tf.float32) - version)
        self.steps.assign_add(1)
        due = tf.equal(self.steps % config.target_update_period, 0)
        tf.cond(due, self._copy_to_target, tf.no_op)
        priorities = values.sequence_priority(tnp, delta, real, config.max_priority_weight)
        metrics = {
            "loss": loss,
            "gradient_norm": norm,
            "q_value": tf.reduce_sum(tf.reduce_mean(q[:-1], axis=2) * real) / num_real,
            "td_error": tf.reduce_sum(tf.abs(delta) * real) / num_real,
            "importance_weight": tf.reduce_mean(weights),
            "staleness": staleness,
        }
        return priorities + config.priority_epsilon, num_real, metrics

    def _copy_to_target(self) -> tf.Operation:
        pairs = zip(self.target.parameters, self.online.parameters, strict=True)
        return tf.group([target.assign(parameter) for target, parameter in pairs])
