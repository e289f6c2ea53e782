"""Variables and the optimizer that trains them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import sonnet as snt
import tensorflow as tf
from acme import specs
from numpy.typing import NDArray

from agents import tensors
from agents.agent import Gradient, Variables
from usage import UsageError


class TrainedModel:
    """Trains variables by gradients; implements `agents.agent.SharedModel`.

    Attributes:
        trained: The variables that get gradients.
        moving: Those that change otherwise, such as a normalisation's moving averages.
        following: Those that this class's heirs set by the others, such as a target network's.
        optimizer: The optimizer, with its own variables.
        steps: int64, the steps taken.
    """

    def __init__(
        self,
        trained: Sequence[tf.Variable],
        optimizer: Any,
        moving: Sequence[tf.Variable] = (),
        following: Sequence[tf.Variable] = (),
        learning_rate: Optional[Callable[[int], float]] = None,
        max_gradient_norm: Optional[float] = None,
    ) -> None:
        """Initializes the model.

        Args:
            trained: See the class.
            optimizer: A fresh optimizer of Sonnet's.
            moving: See the class.
            following: See the class.
            learning_rate: The schedule: the step size from the number of steps taken before. The
                optimizer's own unless given.
            max_gradient_norm: All gradients together are scaled down to this norm, if it is given.

        Raises:
            UsageError: A trained variable is not of float32 or float64.
        """
        for variable in trained:
            if variable.dtype not in (tf.float32, tf.float64):
                raise UsageError(
                    f"Trained variables are float32 or float64, {variable.name} is "
                    f"{variable.dtype.name}."
                )
        self.trained = list(trained)
        self.moving = list(moving)
        self.following = list(following)
        self.optimizer = optimizer
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        self._schedule = learning_rate
        self._max_gradient_norm = max_gradient_norm
        if learning_rate is not None:
            optimizer.learning_rate = tf.Variable(learning_rate(0), trainable=False)
        snt.allow_empty_variables(optimizer)  # Plain gradient descent has none.
        if hasattr(optimizer, "_initialize"):
            optimizer._initialize(self.trained)  # Its first step would, within a graph.
        self._apply = tf.function(self.apply, autograph=False)

    def apply(self, gradients: Sequence[Any]) -> tf.Tensor:
        """Takes one optimizer step, unless the norm is not finite.

        Args:
            gradients: Those of `trained`, as tensors or `tf.IndexedSlices`.

        Returns:
            float32 [], the norm of all gradients together, before it was clipped.
        """
        norm = tensors.global_norm(gradients)
        tf.cond(tf.math.is_finite(norm), lambda: self._change(gradients, norm), tf.no_op)
        return norm

    def _change(self, gradients: Sequence[Any], norm: tf.Tensor) -> tf.Operation:
        if self._max_gradient_norm is not None:
            factor = self._max_gradient_norm / tf.maximum(norm, self._max_gradient_norm)
            gradients = [tensors.scale(gradient, factor) for gradient in gradients]
        self.optimizer.apply(gradients, self.trained)
        self.steps.assign_add(1)
        return tf.no_op()

    def apply_gradients(
        self, gradients: Sequence[Gradient], state: Sequence[NDArray[Any]]
    ) -> Mapping[str, tf.Tensor]:
        """Takes one optimizer step, with the step size that is due, and assigns `moving`.

        Raises:
            FloatingPointError: The norm of all gradients is not finite; nothing has changed.
        """
        given = [
            tensors.from_gradient(gradient, variable.shape)
            for gradient, variable in zip(gradients, self.trained, strict=True)
        ]
        if self._schedule is not None:
            self.optimizer.learning_rate.assign(self._schedule(int(self.steps)))
        norm = self._apply(given)
        if not np.isfinite(norm):
            raise FloatingPointError(f"the norm of the gradients is {norm}")
        for variable, value in zip(self.moving, state, strict=True):
            variable.assign(value)
        return {"gradient_norm": norm}

    @property
    def gradient_specs(self) -> Mapping[str, specs.Array]:
        """The trained variables, by name."""
        return tensors.specs_of(self.trained)

    @property
    def state_specs(self) -> Mapping[str, specs.Array]:
        """The moving variables, by name."""
        return tensors.specs_of(self.moving)

    def model(self) -> Variables:
        """Returns all variables but the optimizer's; nothing is copied from the host's memory."""
        return [np.asarray(variable.read_value()) for variable in self._model()]

    def set_model(self, values: Variables) -> None:
        """Takes up what `model` returned."""
        for variable, value in zip(self._model(), values, strict=True):
            variable.assign(value)

    def variables(self) -> Variables:
        """Returns the trained and the moving variables; nothing is copied likewise."""
        return [np.asarray(variable.read_value()) for variable in [*self.trained, *self.moving]]

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Copies all variables, also the optimizer's."""
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

    def _model(self) -> list[tf.Variable]:
        return [*self.trained, *self.moving, *self.following, self.steps]

    def _all(self) -> dict[str, tf.Variable]:
        groups = {
            "online": self.trained,
            "moving": self.moving,
            "target": self.following,
            "optimizer": self.optimizer.variables,
            "steps": [self.steps],
        }
        return {
            f"{group}.{index}": variable
            for group, variables in groups.items()
            for index, variable in enumerate(variables)
        }
