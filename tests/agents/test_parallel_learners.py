"""N learners with batches of B take the same steps as one learner with batches of N B."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from agents.agent import Gradients, Sample
from agents.apex.config import ApexConfig
from agents.apex.learning import ApexLearner
from agents.r2d2 import items
from agents.r2d2.config import R2D2Config
from agents.r2d2.learning import R2D2Learner
from agents.trained_model import TrainedModel
from agents.value_learner import ValueLearner
from nodes.contributions import Contribution, Ticket, reduce
from tests.agents.apex.support import VECTOR
from usage import UsageError

STEPS = 5
SHARED = {
    "max_gradient_norm": 0.01,
    "target_update_period": 2,
    "importance_exponent": 0.6,
    "learning_rate": 1.0,
    "optimizer_epsilon": 0.1,  # So that the size of a gradient matters.
}
APEX = dataclasses.replace(ApexConfig.small(), hidden_sizes=(8, 8), **SHARED)
R2D2 = dataclasses.replace(
    R2D2Config.small(),
    trace_length=6,
    period=3,
    burn_in=2,
    n_step=2,
    lstm_size=4,
    head_size=4,
    **SHARED,
)


def sample_of(rng: np.random.Generator, rows: np.ndarray) -> Sample:
    return Sample(
        tf.constant(10.0 ** rng.uniform(-6, -1, len(rows))),
        tf.constant(rng.integers(100, 200, len(rows))),
        {"row": tf.constant(rows, tf.float32)},
    )


def apex_batch(rng: np.random.Generator, size: int) -> Sample:
    rows = rng.normal(size=(size, 5))
    rows[:, 2] = rng.integers(3, size=size)
    rows[:, 4] = rng.choice([0.0, 0.9], size)
    return sample_of(rng, rows)


def r2d2_batch(rng: np.random.Generator, size: int) -> Sample:
    """Returns sequences of unequal lengths."""
    steps = rng.normal(size=(size, R2D2.trace_length + 1, items.OBSERVATION + 1))
    for column in (items.ACTION, items.PREVIOUS_ACTION):
        steps[..., column] = rng.integers(3, size=steps.shape[:2])
    steps[..., items.DISCOUNT] = 1
    lengths = rng.integers(R2D2.burn_in + 1, R2D2.trace_length + 1, (size, 1))
    steps[..., items.REAL] = np.arange(R2D2.trace_length + 1) < lengths
    states = rng.normal(size=(size, R2D2.state_size)).astype(np.float32)
    pairs = zip(states, steps.astype(np.float32), strict=True)
    return sample_of(rng, np.stack([items.pack(0, *pair) for pair in pairs]))


def parts_of(sample: Sample, ends: Sequence[int]) -> list[Sample]:
    begins = [0, *ends[:-1]]
    return [
        Sample(
            sample.probability[begin:end],
            sample.table_size[begin:end],
            {name: column[begin:end] for name, column in sample.data.items()},
        )
        for begin, end in zip(begins, ends, strict=True)
    ]


def take_together(primary: ValueLearner, learners: Sequence[ValueLearner], sample: Sample) -> list:
    """Takes one step of all learners, each with its part; returns all new priorities."""
    size = int(sample.probability.shape[0])
    ends = [size * number // len(learners) for number in range(1, len(learners) + 1)]
    came, priorities = [], []
    for learner, part in zip(learners, parts_of(sample, ends), strict=True):
        learner.set_model([np.array(value) for value in primary.model()])
        gradients, result = learner.gradients(part)
        came.append(Contribution([Ticket(0, 0, 0, 0)], (0, 0), gradients))
        priorities.extend(result.priorities.numpy())
    reduced = reduce(came, "mean").gradients
    primary.apply_gradients(reduced.values, reduced.state)
    return priorities


@pytest.mark.parametrize(
    "make, make_batch, number",
    [
        (lambda seed: ApexLearner(APEX, VECTOR, seed), apex_batch, 1),
        (lambda seed: ApexLearner(APEX, VECTOR, seed), apex_batch, 3),
        (lambda seed: R2D2Learner(R2D2, VECTOR, seed), r2d2_batch, 2),
    ],
    ids=["apex-1", "apex-3", "r2d2-2"],
)
def test_several_learners_take_the_step_of_one_with_all_their_samples(
    make: Callable[[int], ValueLearner],
    make_batch: Callable[[np.random.Generator, int], Sample],
    number: int,
) -> None:
    one, primary = make(0), make(0)
    learners = [make(seed) for seed in range(1, number + 1)]
    rng = np.random.default_rng(number)
    for _ in range(STEPS):
        sample = make_batch(rng, 16)
        alone = one.step(sample)
        together = take_together(primary, learners, sample)
        np.testing.assert_allclose(together, alone.priorities, rtol=2e-4)
        assert float(alone.metrics["gradient_norm"]) > APEX.max_gradient_norm  # It is clipped.
    for ours, theirs in zip(primary.model(), one.model(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert int(primary.steps) == STEPS


def test_gradients_change_nothing() -> None:
    learner = ApexLearner(APEX, VECTOR, 0)
    before = learner.state()
    learner.gradients(apex_batch(np.random.default_rng(0), 4))
    for name, value in learner.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_masked_means_over_parts_are_weighted_by_what_counts_in_them() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 6)).astype(np.float32)
    mask = np.arange(6) < np.array([[1], [6], [2], [5]])
    came = []
    for part in (slice(0, 1), slice(1, 4)):
        weight = float(mask[part].sum())
        mean = np.asarray((values[part] * mask[part]).sum() / weight, np.float32)
        came.append(Contribution([Ticket(0, 0, 0, 0)], (0, 0), Gradients([mean], (), weight)))
    np.testing.assert_allclose(reduce(came, "mean").gradients.values[0], values[mask].mean(), 1e-5)


def test_what_squares_too_large_is_clipped_and_what_has_no_norm_changes_nothing() -> None:
    variables = [tf.Variable([0.0, 0.0]), tf.Variable(0.0, dtype=tf.float64)]
    model = TrainedModel(variables, snt.optimizers.SGD(1.0), max_gradient_norm=1.0)
    large = [np.array([3e20, 0], np.float32), np.array(4e20)]
    norm = model.apply_gradients(large, [])["gradient_norm"]
    assert float(norm) == pytest.approx(5e20)
    np.testing.assert_allclose(variables[0].numpy(), [-0.6, 0], rtol=1e-6)
    np.testing.assert_allclose(variables[1].numpy(), -0.8, rtol=1e-6)
    before = model.state()
    with pytest.raises(FloatingPointError, match="norm of the gradients is inf"):
        model.apply_gradients([np.array([3e38, 3e38], np.float32), np.array(0.0)], [])
    for name, value in model.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_variables_that_cannot_be_trained_are_named() -> None:
    with pytest.raises(UsageError, match="float32 or float64, half:0 is float16"):
        TrainedModel([tf.Variable(0.0, dtype=tf.float16, name="half")], snt.optimizers.SGD(1.0))
