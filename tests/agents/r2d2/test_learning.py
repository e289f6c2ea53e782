"""What one learner step does, and that it undoes what the actors' states lost."""

import dataclasses

import numpy as np
import pytest
import reverb
import tensorflow as tf

from agents.agent import Sample
from agents.r2d2 import items, learning, values
from agents.r2d2.agent import R2D2
from agents.r2d2.learning import R2D2Learner
from agents.r2d2.networks import Inputs
from tests.agents.episodes import batch, episode, numbers
from tests.agents.r2d2.support import FRAMES, TINY, VECTOR

CONFIG = dataclasses.replace(TINY, lstm_size=4, trace_length=6, burn_in=2, period=4, n_step=2)


def sample_of(steps, states, probability=None, versions=None, frames=None):
    """Returns a batch of items, every probability 1 / 8 of 8 items unless told."""
    size = len(steps)
    rows = [items.pack(*row) for row in zip(versions or [0] * size, states, steps, strict=True)]
    data = {"row": tf.constant(np.stack(rows), tf.float32)}
    if frames is not None:
        data["frame"] = tf.constant(frames)
    probability = tf.constant(probability or [1 / 8] * size, tf.float64)
    return Sample(probability, tf.fill([size], tf.constant(8, tf.int64)), data)


def random_steps(size=2, config=CONFIG, seed=0):
    """Returns rows of sequences in the midst of an episode, [B, T + 1, ...]."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(size, config.trace_length + 1, items.OBSERVATION + 1))
    for column in (items.ACTION, items.PREVIOUS_ACTION):
        steps[..., column] = rng.integers(3, size=steps.shape[:2])
    steps[..., items.DISCOUNT] = 1
    steps[..., items.REAL] = 1
    steps[:, -1, items.REAL] = 0
    return steps.astype(np.float32)


def random_states(size=2, config=CONFIG):
    return np.random.default_rng(5).normal(size=(size, config.state_size)).astype(np.float32)


def inputs_of(steps):
    time_first = tf.constant(steps.swapaxes(0, 1))
    return Inputs(
        time_first[..., items.OBSERVATION :],
        tf.cast(time_first[..., items.PREVIOUS_ACTION], tf.int32),
        time_first[..., items.PREVIOUS_REWARD],
    )


def errors_step_by_step(learner, steps, states, config=CONFIG):
    """Computes the TD errors [B, trained] with nothing but single steps of the networks."""
    inputs = inputs_of(steps)
    q = {}
    for network in (learner.online, learner.target):
        state, rows = tf.constant(states), []
        for t in range(config.trace_length + 1):
            now = Inputs(*(column[t] for column in inputs))
            q_values, state = network.step(now, state)
            rows.append(q_values.numpy())
        q[network] = rows
    end = config.trace_length
    errors = np.zeros((len(steps), end))
    for b, rows in enumerate(steps):
        for t in range(config.burn_in, end):
            total, product, m = 0.0, 1.0, t
            while m < min(t + config.n_step, end) and rows[m, items.REAL]:
                total += product * rows[m, items.REWARD]
                product *= config.discount * rows[m, items.DISCOUNT]
                m += 1
            best = q[learner.online][m][b].argmax()
            total += product * values.unscale(np.float32(q[learner.target][m][b][best]))
            errors[b, t] = values.rescale(total) - q[learner.online][t][b][int(rows[t, 2])]
    return errors[:, config.burn_in :]


def changed_learner(config=CONFIG, spec=VECTOR):
    """Returns a learner whose target network differs from its online network."""
    learner = R2D2Learner(config, spec, seed=1)
    rng = np.random.default_rng(2)
    for parameter in (*learner.online.parameters, *learner.target.parameters):
        parameter.assign(0.7 * rng.normal(size=parameter.shape).astype(np.float32))
    return learner


@pytest.mark.parametrize("burn_in", [0, 2])
def test_priorities_are_mixtures_of_the_errors_after_burn_in(burn_in):
    config = dataclasses.replace(CONFIG, burn_in=burn_in)
    learner, steps, states = changed_learner(config), random_steps(), random_states()
    errors = np.abs(errors_step_by_step(learner, steps, states, config))
    result = learner.step(sample_of(steps, states))
    expected = 0.9 * errors.max(axis=1) + 0.1 * errors.mean(axis=1)
    np.testing.assert_allclose(result.priorities, expected, rtol=1e-3)
    assert result.trained_timesteps == 2 * (6 - burn_in)


@pytest.mark.parametrize("terminal", [True, False])
def test_padding_is_neither_trained_on_nor_counted(terminal):
    learner, steps, states = changed_learner(), random_steps(), random_states()
    steps[0, 4:, items.REAL] = 0  # timestep 4 is the last of its episode
    steps[0, 3, items.DISCOUNT] = 0 if terminal else 1
    errors = np.abs(errors_step_by_step(learner, steps, states))
    loss = (np.square(errors[0, :2]).sum() + np.square(errors[1]).sum()) / 2 / 2
    other = steps.copy()
    other[0, 5:, items.OBSERVATION] = 50
    other[0, 4:, [items.REWARD, items.ACTION]] = 2
    results = [changed_learner().step(sample_of(rows, states)) for rows in (steps, other)]
    for result in results:
        assert float(result.metrics["loss"]) == pytest.approx(loss, rel=1e-3)
        assert result.trained_timesteps == 6
        mixture = 0.9 * errors[0, :2].max() + 0.1 * errors[0, :2].mean()
        assert float(result.priorities[0]) == pytest.approx(mixture, rel=1e-3)


def test_burn_in_is_outside_the_gradient():
    # The gradient is that of a sequence which starts with the burnt-in state, and with an epsilon
    # this large the optimizer's step is in proportion to it.
    plain = {"learning_rate": 1000.0, "optimizer_epsilon": 1000.0}
    steps, states = random_steps(), random_states()
    whole = changed_learner(dataclasses.replace(CONFIG, **plain))
    warm = whole.online.warm_up(
        Inputs(*(column[:2] for column in inputs_of(steps))), tf.constant(states), tf.ones([2, 2])
    )
    cut = changed_learner(dataclasses.replace(CONFIG, trace_length=4, burn_in=0, period=4, **plain))
    for learner in (whole, cut):
        pairs = zip(learner.target.parameters, learner.online.parameters, strict=True)
        for target, online in pairs:
            target.assign(online)
    before = whole.variables()
    norms = [
        float(learner.step(sample).metrics["gradient_norm"])
        for learner, sample in (
            (whole, sample_of(steps, states)),
            (cut, sample_of(steps[:, 2:], warm.numpy())),
        )
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    for left, right, start in zip(whole.variables(), cut.variables(), before, strict=True):
        moved = left - start
        assert np.abs(moved).max() > 0
        np.testing.assert_allclose(right - start, moved, atol=1e-3 * np.abs(moved).max())


def test_importance_weights_scale_the_loss_and_at_exponent_zero_are_one():
    steps, states = random_steps(), random_states()
    errors = errors_step_by_step(changed_learner(), steps, states)
    per_sequence = np.square(errors).sum(axis=1) / 2 / 2
    config = dataclasses.replace(CONFIG, importance_exponent=0.6)
    result = changed_learner(config).step(sample_of(steps, states, [0.5, 0.125]))
    expected = per_sequence[0] * (0.5 / 0.125) ** -0.6 + per_sequence[1]
    assert float(result.metrics["loss"]) == pytest.approx(expected, rel=1e-3)
    config = dataclasses.replace(CONFIG, importance_exponent=0.0)
    result = changed_learner(config).step(sample_of(steps, states, [0.5, 0.125]))
    assert float(result.metrics["importance_weight"]) == 1.0
    assert float(result.metrics["loss"]) == pytest.approx(per_sequence.sum(), rel=1e-3)


def test_staleness_is_the_learner_steps_since_the_states_were_computed():
    learner = R2D2Learner(CONFIG, VECTOR, seed=0)
    sample = sample_of(random_steps(), random_states(), versions=[0, 1])
    staleness = [float(learner.step(sample).metrics["staleness"]) for _ in range(3)]
    assert staleness == [-0.5, 0.5, 1.5]


def test_the_target_network_is_copied_on_schedule():
    learner = changed_learner(dataclasses.replace(CONFIG, target_update_period=2))
    sample = sample_of(random_steps(), random_states())
    for step in (1, 2, 3):
        before = [parameter.numpy() for parameter in learner.target.parameters]
        learner.step(sample)
        source = learner.variables() if step == 2 else before
        for target, expected in zip(learner.target.parameters, source, strict=True):
            np.testing.assert_array_equal(target, expected)


def test_the_loss_of_a_batch_falls_when_it_is_learnt_again_and_again():
    config = dataclasses.replace(CONFIG, learning_rate=0.01, target_update_period=10)
    learner = R2D2Learner(config, VECTOR, seed=0)
    sample = sample_of(random_steps(), random_states())
    losses = [float(learner.step(sample).metrics["loss"]) for _ in range(300)]
    assert losses[-1] < 0.05 * losses[0]


def test_frames_are_learnt_from_as_they_come_out_of_replay():
    config = dataclasses.replace(CONFIG, trace_length=3, burn_in=1, period=2)
    rng = np.random.default_rng(0)
    frames = rng.integers(256, size=(2, 7, 36, 36)).astype(np.uint8)
    steps = random_steps(config=config)[..., : items.OBSERVATION]
    sequences = learning.sequences_of(tf.constant(steps), tf.constant(frames), FRAMES)
    for t in range(4):
        np.testing.assert_array_equal(sequences.inputs.observation[t], frames[:, t : t + 4])
    learner = R2D2Learner(config, FRAMES, seed=0)
    assert np.isfinite(
        learner.step(sample_of(steps, random_states(), frames=frames)).priorities
    ).all()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_learner_reproduces_the_actors_priorities_of_its_own_variables(make_replay, terminal):
    agent = R2D2(dataclasses.replace(CONFIG, hidden_sizes=(5,)), VECTOR)
    replay = make_replay(agent.table, reverb.selectors.Prioritized(0.9))
    learner = agent.make_learner(seed=0)
    actor = agent.make_actor(replay.make_writer, first=0, num_envs=1, total=1, seed=0)
    actor.set_variables(learner.variables(), 0)
    for length in (3, 12):
        rewards = np.random.default_rng(length).normal(size=length)
        for step in episode(numbers(*range(length + 1)), rewards, terminal=terminal):
            actor.step(batch([step]))
    assert replay.size() == 4
    taken = replay.sample(16)
    data = {
        name: tf.constant(np.stack([item.data[name] for item in taken])) for name in taken[0].data
    }
    probability = tf.constant([item.probability for item in taken], tf.float64)
    result = learner.step(Sample(probability, tf.fill([16], tf.constant(4, tf.int64)), data))
    np.testing.assert_allclose(
        result.priorities, [item.priority for item in taken], rtol=1e-3, atol=1e-4
    )
