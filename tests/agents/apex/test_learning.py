import dataclasses

import numpy as np
import pytest
import reverb
import tensorflow as tf
from acme import specs

from agents.agent import EnvironmentSpec, Sample
from agents.apex.agent import ApeX
from agents.apex.config import ApexConfig
from agents.apex.learning import ApexLearner
from tests.agents.apex.support import VECTOR
from tests.agents.episodes import batch, episode, numbers

SMALL = dataclasses.replace(ApexConfig.small(), hidden_sizes=(8, 8))


def make_sample(rows, probability=None, table_size=10):
    """Returns a batch of windows of a one-number observation."""
    size = len(rows)
    probability = [1.0 / table_size] * size if probability is None else probability
    return Sample(
        tf.constant(probability, tf.float64),
        tf.constant([table_size] * size, tf.int64),
        {"row": tf.constant(rows, tf.float32)},
    )


def set_constant_values(network, value, advantages):
    """Makes a network value every state alike, at `value` plus the centred `advantages`."""
    for parameter in network.parameters:
        parameter.assign(tf.zeros_like(parameter))
    network.parameters[-3].assign([value])
    network.parameters[-1].assign(advantages)


def copies(network):
    return [parameter.numpy().copy() for parameter in network.parameters]


RANDOM_ROWS = np.concatenate(
    [
        np.random.default_rng(0).normal(size=(32, 2)),
        np.random.default_rng(1).integers(3, size=(32, 1)),
        np.random.default_rng(2).normal(size=(32, 1)),
        np.full((32, 1), 0.5),
    ],
    axis=1,
)


def test_new_priorities_are_the_absolute_double_q_td_errors():
    learner = ApexLearner(dataclasses.replace(SMALL, priority_epsilon=0.5), VECTOR, seed=0)
    set_constant_values(learner.online, 1.0, [2.0, -1.0, -1.0])  # Q = 3, 0, 0
    set_constant_values(learner.target, 1.0, [-2.0, 4.0, -2.0])  # Q = -1, 5, -1
    # Rows: s_t, s_{t+m}, a_t, R, gamma^m. The online network prefers action 0, worth -1.
    result = learner.step(make_sample([[0, 0, 1, 4, 0.5], [0, 0, 0, 1, 0]]))
    np.testing.assert_allclose(result.priorities, [4 - 0.5 - 0 + 0.5, abs(1 - 3) + 0.5], rtol=1e-6)
    assert result.trained_timesteps == 2


def test_the_loss_is_half_the_mean_of_the_weighted_squared_errors():
    learner = ApexLearner(dataclasses.replace(SMALL, importance_exponent=0.5), VECTOR, seed=0)
    set_constant_values(learner.online, 0.0, [0.0, 0.0, 0.0])
    # (10 * 0.1)^-0.5 = 1 and (10 * 0.4)^-0.5 = 0.5.
    sample = make_sample([[0, 0, 0, 2, 0], [0, 0, 1, -4, 0]], probability=[0.1, 0.4])
    metrics = learner.step(sample).metrics
    assert float(metrics["loss"]) == pytest.approx((1 * 4 + 0.5 * 16) / 2 / 2)
    assert float(metrics["td_error"]) == pytest.approx(3)
    assert float(metrics["importance_weight"]) == pytest.approx(0.75)
    assert float(metrics["q_value"]) == 0


def test_the_target_network_is_copied_every_period_and_only_then():
    learner = ApexLearner(dataclasses.replace(SMALL, target_update_period=2), VECTOR, seed=0)
    initial = copies(learner.target)
    np.testing.assert_array_equal(initial[0], copies(learner.online)[0])
    expected = [initial]
    for step in range(1, 6):
        learner.step(make_sample(RANDOM_ROWS))
        expected.append(copies(learner.online) if step % 2 == 0 else expected[-1])
        for target, wanted in zip(copies(learner.target), expected[-1], strict=True):
            np.testing.assert_array_equal(target, wanted)
    assert not np.allclose(expected[2][0], expected[4][0])
    assert int(learner.steps) == 5


def change_of_one_step(config, sample):
    """Returns by how much one step moves each number of the network, and the step's metrics."""
    learner = ApexLearner(config, VECTOR, seed=0)
    before = copies(learner.online)
    metrics = learner.step(sample).metrics
    after = copies(learner.online)
    moves = [(b - a).ravel() for a, b in zip(before, after, strict=True)]
    return np.concatenate(moves), metrics


def test_the_gradient_of_all_variables_is_clipped_together():
    # Where epsilon dwarfs the squared gradient, RMSProp moves by gradient * rate / sqrt(epsilon).
    plain = dataclasses.replace(
        SMALL, optimizer="rmsprop", optimizer_epsilon=1e12, learning_rate=1e6
    )
    rows = RANDOM_ROWS * [1, 1, 1, 100, 1]
    free, metrics = change_of_one_step(
        dataclasses.replace(plain, max_gradient_norm=1e9), make_sample(rows)
    )
    norm = float(metrics["gradient_norm"])
    assert norm > 10
    assert np.linalg.norm(free) == pytest.approx(norm, rel=1e-4)
    clipped, metrics = change_of_one_step(
        dataclasses.replace(plain, max_gradient_norm=0.5), make_sample(rows)
    )
    assert float(metrics["gradient_norm"]) == pytest.approx(norm, rel=1e-4)
    np.testing.assert_allclose(clipped, free * 0.5 / norm, rtol=1e-3, atol=1e-7)


def test_rmsprop_is_centred():
    config = dataclasses.replace(
        SMALL, optimizer="rmsprop", optimizer_epsilon=1e-30, rmsprop_decay=0.9, learning_rate=0.01
    )
    moves, _ = change_of_one_step(config, make_sample(RANDOM_ROWS))
    # 0.1 g^2 - (0.1 g)^2 = 0.09 g^2: each number moves by rate / 0.3, or not at all.
    moved = np.abs(moves[np.abs(moves) > 1e-4])
    assert moved.size > 20
    np.testing.assert_allclose(moved, 0.01 / 0.3, rtol=1e-3)


def test_adam_moves_each_number_by_the_learning_rate_at_first():
    config = dataclasses.replace(SMALL, learning_rate=0.01, optimizer_epsilon=1e-30)
    moves, _ = change_of_one_step(config, make_sample(RANDOM_ROWS))
    np.testing.assert_allclose(np.abs(moves[np.abs(moves) > 1e-4]), 0.01, rtol=1e-3)


def test_the_loss_of_a_batch_falls_when_it_is_learnt_again_and_again():
    learner = ApexLearner(dataclasses.replace(SMALL, learning_rate=0.01), VECTOR, seed=0)
    # Four states, whose only action returns their number.
    sample = make_sample([[state, 0, 1, state, 0] for state in (-2, -1, 1, 2)])
    losses = [float(learner.step(sample).metrics["loss"]) for _ in range(200)]
    assert losses[-1] < 0.01 * losses[0]


def test_published_variables_are_copies_in_the_order_that_actors_take(make_replay):
    agent = ApeX(SMALL, VECTOR)
    learner = agent.make_learner(seed=3)
    published = learner.variables()
    kept = [value.copy() for value in published]
    learner.step(make_sample(RANDOM_ROWS))
    for value, before in zip(published, kept, strict=True):
        np.testing.assert_array_equal(value, before)
    evaluator = agent.make_evaluator(num_envs=1, seed=0)
    for observation in numbers(*np.linspace(-3, 3, 20)):
        evaluator.set_variables(learner.variables(), 0)
        steps = episode([observation, observation], [0], terminal=True)
        best = np.argmax(learner.online(tf.constant(observation[None])))
        assert evaluator.step(batch(steps[:1])) == [best]


def test_learners_of_one_seed_learn_the_same():
    first, second, other = (ApexLearner(SMALL, VECTOR, seed) for seed in (0, 0, 1))
    for _ in range(3):
        for learner in (first, second, other):
            learner.step(make_sample(RANDOM_ROWS))
    np.testing.assert_array_equal(first.variables()[0], second.variables()[0])
    assert not np.allclose(first.variables()[0], other.variables()[0])


def test_the_learner_is_traced_for_its_first_batch_only():
    learner = ApexLearner(SMALL, VECTOR, seed=0)
    learner.step(make_sample(RANDOM_ROWS))
    traces = learner._step.experimental_get_tracing_count()
    for scale in (2, 3):
        learner.step(make_sample(RANDOM_ROWS * [scale, scale, 1, scale, 1], table_size=10 * scale))
    assert learner._step.experimental_get_tracing_count() == traces


def test_frames_are_learnt_from_as_they_come_out_of_replay():
    spec = EnvironmentSpec(specs.Array((4, 36, 36), np.uint8), specs.DiscreteArray(3), True)
    learner = ApexLearner(dataclasses.replace(SMALL, n_step=2), spec, seed=0)
    frames = np.random.default_rng(0).integers(256, size=(2, 6, 36, 36)).astype(np.uint8)
    # Rows: m, a_t, R, gamma^m.
    sample = Sample(
        tf.constant([0.1, 0.1], tf.float64),
        tf.constant([10, 10], tf.int64),
        {"frame": tf.constant(frames), "row": tf.constant([[2.0, 1, 0, 0.25], [1.0, 2, 1, 0]])},
    )
    begin = np.stack([frames[0, :4], frames[1, 1:5]])
    q_tm1, q_t = (learner.online(tf.constant(s)).numpy() for s in (begin, frames[:, 2:]))
    expected = [abs(0.25 * q_t[0].max() - q_tm1[0, 1]), abs(1 - q_tm1[1, 2])]
    np.testing.assert_allclose(learner.step(sample).priorities, expected, atol=1e-4)


def test_the_learner_reproduces_the_actors_priorities_of_its_own_variables(make_replay):
    agent = ApeX(SMALL, VECTOR)
    replay = make_replay(agent.table, reverb.selectors.Prioritized(0.6))
    learner = agent.make_learner(seed=0)
    actor = agent.make_actor(replay.make_writer, first=0, num_envs=1, total=1, seed=0)
    actor.set_variables(learner.variables(), 0)
    for step in episode(numbers(*range(9)), [1, -1, 2, 0, 1, 5, -2, 1], terminal=False):
        actor.step(batch([step]))
    assert replay.size() == 8
    taken = replay.sample(20)
    sample = make_sample(
        [item.data["row"] for item in taken], [item.probability for item in taken], table_size=8
    )
    np.testing.assert_allclose(
        learner.step(sample).priorities, [item.priority for item in taken], rtol=1e-4, atol=1e-4
    )
