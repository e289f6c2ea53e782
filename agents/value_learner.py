"""What learners with a target network do in the same way."""

from typing import Any

import numpy as np
import tensorflow as tf

from agents.agent import Variables
from agents.config import ReplayConfig


class ValueLearner:
    """An online network, the target network that follows it, and the online network's optimizer.

    Attributes:
        online: The network that is trained.
        target: The network whose values are bootstrapped from.
        optimizer: The optimizer with its moving averages.
        steps: int64, the learner steps taken.
    """

    def __init__(self, config: ReplayConfig, online: Any, target: Any, optimizer: Any) -> None:
        """Takes two networks with the same variables, and a fresh optimizer."""
        self.online = online
        self.target = target
        self.optimizer = optimizer
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        self._max_gradient_norm = config.max_gradient_norm
        self._target_update_period = config.target_update_period
        optimizer._initialize(online.parameters)  # Its first step would, within a graph.

    def variables(self) -> Variables:
        """Copies the online network's variables, in the order of its `parameters`."""
        return [np.array(parameter.numpy()) for parameter in self.online.parameters]

    def apply(self, gradients: list[tf.Tensor]) -> tf.Tensor:
        """Takes one optimizer step, and copies to the target network where that is due.

        Args:
            gradients: Those of the online network's parameters.

        Returns:
            float32 [], the norm of all gradients together, before it was clipped.
        """
        gradients, norm = tf.clip_by_global_norm(gradients, self._max_gradient_norm)
        self.optimizer.apply(gradients, self.online.parameters)
        self.steps.assign_add(1)
        due = tf.equal(self.steps % self._target_update_period, 0)
        tf.cond(due, self._copy_to_target, tf.no_op)
        return norm

    def _copy_to_target(self) -> tf.Operation:
        pairs = zip(self.target.parameters, self.online.parameters, strict=True)
        return tf.group([target.assign(parameter) for target, parameter in pairs])
