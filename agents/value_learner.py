"""What learners with a target network do in the same way."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from agents import tensors
from agents.agent import Gradients, Sample, StepResult
from agents.config import ReplayConfig
from agents.trained_model import TrainedModel


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


class ValueLearner(TrainedModel, abc.ABC):
    """An online network, the target network that follows it, and the online network's optimizer.

    It implements `agents.agent.ParallelLearner`; what is left to each agent is its loss.

    Attributes:
        online: The network that is trained.
        target: The network whose values are bootstrapped from.
    """

    def __init__(self, config: ReplayConfig, online: Any, target: Any, optimizer: Any) -> None:
        """Takes two networks with the same variables, and a fresh optimizer."""
        super().__init__(
            online.parameters,
            optimizer,
            following=target.parameters,
            max_gradient_norm=config.max_gradient_norm,
        )
        self.online = online
        self.target = target
        self._target_update_period = config.target_update_period
        self._step = tf.function(self._take_step, autograph=False)
        self._outcome = tf.function(self.outcome, autograph=False)

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

    def _change(self, gradients: Sequence[Any], norm: tf.Tensor) -> tf.Operation:
        super()._change(gradients, norm)
        due = tf.equal(self.steps % self._target_update_period, 0)
        tf.cond(due, self._copy_to_target, tf.no_op)
        return tf.no_op()

    def _take_step(
        self, probability: tf.Tensor, table_size: tf.Tensor, data: Mapping[str, tf.Tensor]
    ) -> BatchOutcome:
        outcome = self.outcome(probability, table_size, data)
        outcome.metrics["gradient_norm"] = self.apply(outcome.gradients)
        return outcome

    def _copy_to_target(self) -> tf.Operation:
        pairs = zip(self.target.parameters, self.online.parameters, strict=True)
        return tf.group([target.assign(parameter) for target, parameter in pairs])


def _result(outcome: BatchOutcome) -> StepResult:
    return StepResult(outcome.priorities, outcome.metrics, int(outcome.trained_timesteps))
