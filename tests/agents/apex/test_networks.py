import dm_env
import numpy as np
import pytest
import tensorflow as tf
from acme import specs

from agents.agent import EnvironmentSpec
from agents.apex import networks

NO_ACTIONS = np.zeros(5, np.int64)

VECTOR = EnvironmentSpec(specs.Array((2, 3), np.float32), specs.DiscreteArray(4))
FRAMES = EnvironmentSpec(specs.Array((4, 84, 84), np.uint8), specs.DiscreteArray(6), True)


@pytest.mark.parametrize("hidden_sizes", [(8,), (16, 8), (16, 12, 8)])
def test_an_actors_dense_policy_computes_what_the_network_does(hidden_sizes):
    network = networks.DuelingNetwork(VECTOR, hidden_sizes, seed=1)
    rng = np.random.default_rng(0)
    variables = [rng.normal(size=v.shape).astype(np.float32) for v in network.parameters]
    for parameter, value in zip(network.parameters, variables, strict=True):
        parameter.assign(value)
    policy = networks.DensePolicy(num_envs=5)
    policy.set_variables(variables)
    observation = rng.normal(size=(5, 2, 3)).astype(np.float32)
    expected = network(tf.constant(observation))
    np.testing.assert_allclose(
        policy(dm_env.restart(observation), NO_ACTIONS), expected, rtol=1e-4, atol=1e-4
    )


def test_a_dense_policy_reads_whole_numbers_as_numbers():
    policy = networks.DensePolicy(num_envs=1)
    network = networks.DuelingNetwork(VECTOR, (8,), seed=0)
    policy.set_variables([variable.numpy() for variable in network.parameters])
    whole = np.arange(6).reshape(1, 2, 3)
    values = policy(dm_env.restart(whole), NO_ACTIONS)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(
        values, policy(dm_env.restart(whole.astype(np.float32)), NO_ACTIONS)
    )


def test_the_frame_policy_computes_what_the_network_does_from_the_variables_it_is_given():
    network = networks.DuelingNetwork(FRAMES, (16,), seed=1)
    policy = networks.ConvolutionalPolicy(FRAMES, (16,), num_envs=2)
    frames = np.random.default_rng(0).integers(256, size=(2, 4, 84, 84)).astype(np.uint8)
    expected = network(tf.constant(frames)).numpy()
    assert not np.allclose(policy(dm_env.restart(frames), NO_ACTIONS), expected, atol=1e-3)
    policy.set_variables([variable.numpy() for variable in network.parameters])
    np.testing.assert_allclose(
        policy(dm_env.restart(frames), NO_ACTIONS), expected, rtol=1e-4, atol=1e-5
    )


def test_the_frame_network_is_that_of_the_dueling_paper():
    network = networks.DuelingNetwork(FRAMES, (512,), seed=0)
    assert [tuple(weights.shape) for weights in network.parameters[::2]] == [
        (8, 8, 4, 32),
        (4, 4, 32, 64),
        (3, 3, 64, 64),
        (7 * 7 * 64, 2 * 512),
        (512, 1),
        (512, 6),
    ]


def test_dueling_adds_to_the_value_the_advantages_less_their_mean():
    network = networks.DuelingNetwork(VECTOR, (2,), seed=0)
    w_streams, b_streams, w_value, b_value, w_advantage, b_advantage = network.parameters
    w_streams.assign(tf.zeros_like(w_streams))
    b_streams.assign([1.0, 2.0, 3.0, 4.0])
    w_value.assign([[10.0], [20.0]])
    b_value.assign([-1.0])
    w_advantage.assign([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    b_advantage.assign([0.0, 0.0, 2.0, -1.0])
    # V = 1 * 10 + 2 * 20 - 1 = 49; A = 3, 4, 2, -1, whose mean is 2.
    np.testing.assert_allclose(network(tf.zeros([1, 2, 3])), [[50.0, 51.0, 49.0, 46.0]])


def test_the_same_seed_makes_the_same_variables_every_time_and_another_seed_others():
    def weights(seed):
        return networks.DuelingNetwork(VECTOR, (8, 8), seed).parameters[0].numpy()

    np.testing.assert_array_equal(weights(1), weights(1))
    assert not np.allclose(weights(1), weights(2))


def test_initial_weights_spread_by_their_fan_in():
    network = networks.DuelingNetwork(VECTOR, (400, 200), seed=0)
    # A normal distribution cut at two deviations has 0.88 of its deviation.
    assert np.std(network.parameters[2]) == pytest.approx(0.88 / np.sqrt(400), rel=0.02)
    np.testing.assert_array_equal(network.parameters[3], np.zeros(400))
