import dm_env
import numpy as np
import pytest
import tensorflow as tf
from acme import specs

from agents.agent import EnvironmentSpec
from agents.r2d2 import networks
from agents.r2d2.networks import Inputs, Memory
from tests.agents.episodes import FIRST, LAST, MID

VECTOR = EnvironmentSpec(specs.Array((2, 3), np.float32), specs.DiscreteArray(4))
FRAMES = EnvironmentSpec(specs.Array((4, 36, 36), np.uint8), specs.DiscreteArray(3), True)


def random_network(spec, hidden_sizes=(5,), lstm_size=3, head_size=4):
    network = networks.RecurrentNetwork(spec, hidden_sizes, lstm_size, head_size, seed=1)
    rng = np.random.default_rng(0)
    for parameter in network.parameters:
        parameter.assign(0.5 * rng.normal(size=parameter.shape).astype(np.float32))
    return network


def random_inputs(spec, length, batch, seed=0):
    rng = np.random.default_rng(seed)
    shape = (length, batch, *spec.observations.shape)
    return Inputs(
        rng.integers(256, size=shape).astype(spec.observations.dtype),
        rng.integers(-1, spec.actions.num_values, size=(length, batch)).astype(np.int32),
        rng.normal(size=(length, batch)).astype(np.float32),
    )


def at(inputs, t):
    return Inputs(*(tf.constant(column[t]) for column in inputs))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_network_is_an_lstm_that_sees_the_previous_action_and_reward():
    network = random_network(VECTOR, hidden_sizes=())
    w_input, b_input, *_, recurrent = (p.numpy().astype(float) for p in network.parameters)
    inputs = random_inputs(VECTOR, 1, 2)
    state = np.random.default_rng(1).normal(size=(2, 6))
    seen = np.concatenate(
        [
            inputs.observation[0].reshape(2, 6) / 1.0,
            np.eye(5)[inputs.previous_action[0]][:, :4],  # -1 is no action
            np.tanh(inputs.previous_reward[0])[:, None],
        ],
        axis=1,
    )
    i, g, f, o = np.split(seen @ w_input + b_input + state[:, :3] @ recurrent, 4, axis=1)
    c = sigmoid(f + 1) * state[:, 3:] + sigmoid(i) * np.tanh(g)
    expected = np.concatenate([sigmoid(o) * np.tanh(c), c], axis=1)
    _, after = network.step(at(inputs, 0), tf.constant(state, tf.float32))
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", [VECTOR, FRAMES], ids=["vector", "frames"])
def test_unrolling_is_stepping_time_and_again(spec):
    network = random_network(spec)
    inputs = random_inputs(spec, 5, 2)
    state = tf.constant(np.random.default_rng(1).normal(size=(2, 6)), tf.float32)
    unrolled = network.unroll(Inputs(*map(tf.constant, inputs)), state)
    warm = network.warm_up(Inputs(*map(tf.constant, inputs)), state, tf.ones([5, 2]))
    for t in range(5):
        q_values, state = network.step(at(inputs, t), state)
        np.testing.assert_allclose(unrolled[t], q_values, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(warm, state, rtol=1e-3, atol=1e-4)


def test_before_an_episode_the_state_stays_zero():
    network = random_network(VECTOR)
    inputs = random_inputs(VECTOR, 4, 1)
    nothing = tf.zeros([1, 6])
    real = tf.constant([[0.0], [0.0], [1.0], [1.0]])
    padded = network.warm_up(Inputs(*map(tf.constant, inputs)), nothing, real)
    rest = Inputs(*(tf.constant(column[2:]) for column in inputs))
    expected = network.warm_up(rest, nothing, tf.ones([2, 1]))
    np.testing.assert_allclose(padded, expected, atol=1e-6)


def policies(spec):
    network = random_network(spec)
    memory = Memory(2, lstm_size=3)
    if spec.frame_stack:
        fresh = networks.RecurrentNetwork(spec, (5,), 3, 4, seed=0)
        policy = networks.ConvolutionalPolicy(fresh, spec, memory)
    else:
        policy = networks.VectorPolicy(4, memory)
    policy.set_variables([parameter.numpy() for parameter in network.parameters])
    return network, policy


@pytest.mark.parametrize("spec", [VECTOR, FRAMES], ids=["vector", "frames"])
def test_an_actors_policy_remembers_each_environments_own_episode(spec):
    network, policy = policies(spec)
    inputs = random_inputs(spec, 6, 2)
    step_types = np.array(
        [[FIRST, FIRST], [MID, MID], [MID, LAST], [LAST, FIRST], [FIRST, MID], [MID, MID]]
    )
    state, taken = np.zeros((2, 6), np.float32), np.zeros(2, np.int64)
    for t, step_type in enumerate(step_types):
        reward = np.where(step_type == FIRST, np.float32("nan"), inputs.previous_reward[t])
        timestep = dm_env.TimeStep(step_type, reward, np.ones(2), inputs.observation[t])
        q_values = policy(timestep, taken)
        first = step_type == FIRST
        state[first] = 0
        seen = Inputs(
            tf.constant(inputs.observation[t]),
            tf.constant(np.where(first, -1, taken)),
            tf.constant(np.where(first, 0, inputs.previous_reward[t]), tf.float32),
        )
        np.testing.assert_allclose(policy.memory.before, state, rtol=1e-3, atol=1e-4)
        expected, state = (tensor.numpy() for tensor in network.step(seen, tf.constant(state)))
        np.testing.assert_allclose(q_values, expected, rtol=1e-3, atol=1e-4)
        taken = q_values.argmax(axis=1)


def test_the_papers_network_is_the_papers():
    spec = EnvironmentSpec(specs.Array((4, 84, 84), np.uint8), specs.DiscreteArray(6), True)
    network = networks.RecurrentNetwork(spec, (), 512, 512, seed=0)
    weights = [tuple(p.shape) for p in network.parameters if len(p.shape) > 1]
    assert weights == [
        (8, 8, 4, 32),
        (4, 4, 32, 64),
        (3, 3, 64, 64),
        (7 * 7 * 64 + 6 + 1, 4 * 512),
        (512, 2 * 512),
        (512, 1),
        (512, 6),
        (512, 4 * 512),
    ]


def test_the_same_seed_makes_the_same_variables_and_another_seed_others():
    def recurrent(seed):
        return networks.RecurrentNetwork(VECTOR, (8,), 4, 4, seed).parameters[-1].numpy()

    np.testing.assert_array_equal(recurrent(1), recurrent(1))
    assert not np.allclose(recurrent(1), recurrent(2))
