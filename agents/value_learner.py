"""What learners with a target network do in the same way."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

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
        """Returns the online network's variables, in the order of its `parameters`.

        Nothing is copied where they are in the host's memory.
        """
        return [np.asarray(parameter.read_value()) for parameter in self.online.parameters]

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Copies networks, optimizer and step count."""
        return {name: np.array(variable.numpy()) for name, variable in self._all().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Takes up what `state` returned.

        Raises:
            ValueError: It is the state of another network or optimizer.
        """
        variables = self._all()
        ours = {name: tuple(variable.shape) for name, variable in variables.items()}
        theirs = {name: array.shape for name, array in state.items()}
        if ours != theirs:
            name = sorted(ours.items() ^ theirs.items())[0][0]
            raise ValueError(
                f"the state is of another learner: {name} has the shape {theirs.get(name)}, "
                f"{ours.get(name)} is wanted"
            )
        for name, variable in variables.items():
            variable.assign(state[name])

    def _all(self) -> dict[str, tf.Variable]:
        groups = {
            "online": self.online.parameters,
            "target": self.target.parameters,
            "optimizer": self.optimizer.variables,
            "steps": [self.steps],
        }
        return {
            f"{group}.{index}": variable
            for group, variables in groups.items()
            for index, variable in enumerate(variables)
        }

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
