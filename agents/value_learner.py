"""What learners with a target network do in the same way."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from acme import specs
from numpy.typing import NDArray

from agents import tensors
from agents.agent import Gradient, Gradients, Sample, StepResult, Variables
from agents.config import ReplayConfig


class BatchOutcome(NamedTuple):
    """What a batch of B items says, as tensors.

    Attributes:
        gradients: Of the online network's parameters, of the mean loss over the batch.
        normaliser: float64 [], the largest importance weight, by which all were divided.
        priorities: float32 [B], the items' new priorities.
        trained_timesteps: float32 [], environment steps that the loss was taken over.
        metrics: Scalars by name.
    """

    gradients: list[tf.Tensor]
    normaliser: tf.Tensor
    priorities: tf.Tensor
    trained_timesteps: tf.Tensor
    metrics: dict[str, tf.Tensor]


class ValueLearner(abc.ABC):
    """An online network, the target network that follows it, and the online network's optimizer.

    It implements `agents.agent.ParallelLearner`; what is left to each agent is its loss.

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
        self._step = tf.function(self._take_step, autograph=False)
        self._outcome = tf.function(self.outcome, autograph=False)
        self._apply = tf.function(self.apply, autograph=False)

    @abc.abstractmethod
    def outcome(
        self, probability: tf.Tensor, table_size: tf.Tensor, data: Mapping[str, tf.Tensor]
    ) -> BatchOutcome:
        """Computes what a batch says; the arguments are the parts of `agents.agent.Sample`."""

    def step(self, sample: Sample) -> StepResult:
        """Takes one optimizer step and returns the items' new priorities."""
        outcome = self._step(sample.probability, sample.table_size, dict(sample.data))
        return _result(outcome)

    def gradients(self, sample: Sample) -> tuple[Gradients, StepResult]:
        """Computes what `step` would change the online network by, and changes nothing."""
        outcome = self._outcome(sample.probability, sample.table_size, dict(sample.data))
        values = [tensors.to_gradient(gradient) for gradient in outcome.gradients]
        weight = float(outcome.priorities.shape[0])
        return Gradients(values, (), weight, float(outcome.normaliser)), _result(outcome)

    def apply_gradients(
        self, gradients: Sequence[Gradient], state: Sequence[NDArray[Any]]
    ) -> Mapping[str, tf.Tensor]:
        """Takes one optimizer step; there is no `state`."""
        given = [
            tensors.from_gradient(gradient, parameter.shape)
            for gradient, parameter in zip(gradients, self.online.parameters, strict=True)
        ]
        return {"gradient_norm": self._apply(given)}

    @property
    def gradient_specs(self) -> Mapping[str, specs.Array]:
        """The online network's parameters, by name."""
        return tensors.specs_of(self.online.parameters)

    @property
    def state_specs(self) -> Mapping[str, specs.Array]:
        """Nothing: the target network is the same for all who have taken the same steps."""
        return {}

    def model(self) -> Variables:
        """Returns both networks' parameters and the step count; nothing is copied."""
        return [np.asarray(variable.read_value()) for variable in self._model()]

    def set_model(self, values: Variables) -> None:
        """Takes up what `model` returned."""
        for variable, value in zip(self._model(), values, strict=True):
            variable.assign(value)

    def _model(self) -> list[tf.Variable]:
        return [*self.online.parameters, *self.target.parameters, self.steps]

    def _take_step(
        self, probability: tf.Tensor, table_size: tf.Tensor, data: Mapping[str, tf.Tensor]
    ) -> BatchOutcome:
        outcome = self.outcome(probability, table_size, data)
        outcome.metrics["gradient_norm"] = self.apply(outcome.gradients)
        return outcome

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


def _result(outcome: BatchOutcome) -> StepResult:
    return StepResult(outcome.priorities, outcome.metrics, int(outcome.trained_timesteps))
