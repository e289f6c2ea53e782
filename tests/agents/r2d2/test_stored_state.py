"""Why states are stored and burnt in (Kapturowski et al. 2019, section 3, figure 1)."""

import numpy as np
import pytest
import tensorflow as tf

from agents.r2d2.networks import Inputs, RecurrentNetwork
from tests.agents.r2d2.support import VECTOR

LSTM_SIZE = 16
BURN_IN, TRAINED = 20, 20
BEGIN = 30
"""Timestep at which the burn-in begins; before it, much has been seen."""
NUM_EPISODES = 32


def network_of(seed):
    network = RecurrentNetwork(VECTOR, (16,), LSTM_SIZE, 16, seed=seed)
    rng = np.random.default_rng(seed)
    for parameter in network.parameters:
        parameter.assign(0.4 * rng.normal(size=parameter.shape).astype(np.float32))
    return network


@pytest.fixture(scope="module")
def discrepancies():
    """Returns the mean of dQ over the trained timesteps, by what the state at the begin was.

    dQ is |q(h) - q(h*)|_2 / max_a |q(h*)_a|, where h* is the state that the learner's own variables
    reach from the episode's start. The actor's are older: off by a twentieth of their size.
    """
    learner, actor = network_of(1), network_of(1)
    rng = np.random.default_rng(2)
    for parameter in actor.parameters:
        scale = 0.05 * np.abs(parameter.numpy())
        parameter.assign_add((scale * rng.normal(size=parameter.shape)).astype(np.float32))
    length = BEGIN + BURN_IN + TRAINED
    inputs = Inputs(
        tf.constant(rng.normal(size=(length, NUM_EPISODES, 1)).astype(np.float32)),
        tf.constant(rng.integers(3, size=(length, NUM_EPISODES)).astype(np.int32)),
        tf.constant(rng.normal(size=(length, NUM_EPISODES)).astype(np.float32)),
    )
    zero = tf.zeros([NUM_EPISODES, 2 * LSTM_SIZE])
    trained = slice(BEGIN + BURN_IN, length)

    def part(begin, end):
        return Inputs(*(column[begin:end] for column in inputs))

    def state(network, begin, end, before):
        return network.warm_up(part(begin, end), before, tf.ones([end - begin, NUM_EPISODES]))

    def q_values(before):
        return learner.unroll(part(trained.start, trained.stop), before).numpy()

    true = q_values(state(learner, 0, trained.start, zero))
    stored = state(actor, 0, BEGIN, zero)
    stored_late = state(actor, 0, trained.start, zero)
    states = {
        "zero": zero,
        "zero, burnt in": state(learner, BEGIN, trained.start, zero),
        "stored": stored_late,
        "stored, burnt in": state(learner, BEGIN, trained.start, stored),
    }
    scale = np.abs(true).max(axis=(0, 2), keepdims=True)[..., 0]
    return {
        name: float(np.mean(np.linalg.norm(q_values(before) - true, axis=2) / scale))
        for name, before in states.items()
    }


def test_a_zero_state_gives_worse_values_than_a_stored_one(discrepancies):
    assert discrepancies["zero"] > 1.5 * discrepancies["stored"]


def test_a_stale_state_gives_worse_values_than_one_that_is_also_burnt_in(discrepancies):
    assert discrepancies["stored"] > 3 * discrepancies["stored, burnt in"]


def test_burning_in_from_zero_is_worse_than_from_the_stored_state(discrepancies):
    assert discrepancies["zero, burnt in"] > 1.5 * discrepancies["stored, burnt in"]
