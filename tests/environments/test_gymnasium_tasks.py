"""Environments of Gymnasium."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from environments import registry
from usage import UsageError


class Counting(gymnasium.Env):
    """Observes the number of steps; ends after three, terminated by action `stop`."""

    stop = 5
    action_space = spaces.Discrete(3, start=4)
    observation_space = spaces.Discrete(4, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = -1
        return self._steps, {}

    def step(self, action):
        self._steps += 1
        return self._steps, float(action), action == self.stop, self._steps == 2, {}


class Vector(VectorEnv):
    """A vector environment that resets in the step of the LAST, unlike our convention."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space = Counting.observation_space
    single_action_space = Counting.action_space

    def __init__(self, num_envs):
        self.num_envs = num_envs


class Spaces(gymnasium.Env):
    """An environment that has only spaces."""

    def __init__(self, observations=None, actions=None):
        self.observation_space = observations or spaces.Box(0.0, 1.0, (2,))
        self.action_space = actions or spaces.Discrete(2)


@pytest.fixture
def register():
    """Registers an environment under a name and forgets it after the test."""
    registered = []

    def add(name, entry_point, **settings):
        gymnasium.register(name, entry_point, **settings)
        registered.append(name)
        return f"gym:{name}"

    yield add
    for name in registered:
        del gymnasium.registry[name]


def test_discrete_actions_that_do_not_start_at_zero_are_shifted(register):
    environment = registry.load(register("Counting-v0", Counting))
    assert environment.actions.num_values == 3
    batch = environment.make(2, seed=0)
    batch.reset()
    assert batch.step(np.array([0, 2])).reward.tolist() == [4.0, 6.0]


def test_a_discrete_observation_becomes_one_hot(register):
    environment = registry.load(register("Counting-v0", Counting))
    assert (environment.observations.shape, environment.observations.dtype) == ((4,), np.float32)
    batch = environment.make(2, seed=0)
    assert batch.reset().observation.tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
    assert batch.step(np.array([0, 0])).observation.tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]


def test_a_truncated_episode_bootstraps_and_a_terminated_one_does_not(register):
    batch = registry.load(register("Counting-v0", Counting)).make(3, seed=0)
    batch.reset()
    batch.step(np.array([0, 0, 0]))
    batch.step(np.array([0, 0, 0]))
    timestep = batch.step(np.array([0, 1, 2]))
    assert timestep.step_type.tolist() == [2, 2, 2]
    assert timestep.discount.tolist() == [1.0, 0.0, 1.0]


def test_a_member_starts_again_while_the_others_go_on(register):
    batch = registry.load(register("Counting-v0", Counting)).make(2, seed=0)
    batch.reset()
    assert batch.step(np.array([1, 0])).step_type.tolist() == [2, 1]
    timestep = batch.step(np.array([1, 0]))
    assert timestep.step_type.tolist() == [0, 1]
    assert timestep.reward.tolist() == [0.0, 4.0]
    assert timestep.observation.argmax(axis=1).tolist() == [0, 2]


def test_a_vector_environment_with_another_convention_is_not_used(register):
    name = register("Counting-v0", Counting, vector_entry_point=Vector)
    batch = registry.load(name).make(2, seed=0)
    assert batch.reset().step_type.tolist() == [0, 0]


def test_cartpole_runs_in_its_own_vector_environment():
    batch = registry.load("gym:CartPole-v1").make(2, seed=0)
    assert not isinstance(batch._environment._vector, SyncVectorEnv)


def test_the_vector_environment_of_cartpole_moves_as_the_single_one_does():
    batch = registry.load("gym:CartPole-v1").make(4, seed=3)
    singles = [gymnasium.make("CartPole-v1") for _ in range(4)]
    timestep = batch.reset()
    for single, observation in zip(singles, timestep.observation, strict=True):
        single.reset()
        single.unwrapped.state = observation.astype(np.float64)
    rng = np.random.default_rng(0)
    over = np.zeros(4, bool)
    for _ in range(100):
        actions = rng.integers(2, size=4)
        timestep = batch.step(actions)
        for index in np.flatnonzero(~over):
            observation, reward, terminated, _, _ = singles[index].step(actions[index])
            np.testing.assert_allclose(timestep.observation[index], observation, atol=1e-4)
            assert timestep.reward[index] == reward
            assert (timestep.step_type[index] == 2) == terminated
            assert timestep.discount[index] == 1 - terminated
            over[index] = terminated
    assert over.all()


def test_a_balanced_cartpole_is_cut_short_after_500_steps_and_bootstraps():
    batch = registry.load("gym:CartPole-v1").make(3, seed=0)
    timestep = batch.reset()
    total = np.zeros(3)
    for _ in range(500):
        assert (timestep.step_type != 2).all()
        x, speed, angle, turn = timestep.observation.T
        timestep = batch.step((angle + turn + 0.1 * x + 0.2 * speed > 0).astype(int))
        total += timestep.reward
    assert timestep.step_type.tolist() == [2, 2, 2]
    assert timestep.discount.tolist() == [1.0, 1.0, 1.0]
    assert total.tolist() == [500.0] * 3


@pytest.mark.parametrize("name", ["gym:CartPole-v1", "gym:Acrobot-v1"])
def test_a_second_reset_does_not_repeat_the_first_episode(name):
    batch = registry.load(name).make(2, seed=0)
    assert (batch.reset().observation != batch.reset().observation).any()


def test_a_continuous_action_has_a_bounded_spec():
    spec = registry.load("gym:Pendulum-v1").actions
    assert isinstance(spec, specs.BoundedArray)
    assert (spec.shape, spec.minimum.tolist(), spec.maximum.tolist()) == ((1,), [-2.0], [2.0])


def test_a_double_precision_observation_becomes_single_precision(register):
    box = spaces.Box(-1e300, 1e300, (3,), np.float64)
    name = register("Spaces-v0", Spaces, kwargs={"observations": box})
    assert registry.load(name).observations.dtype == np.float32


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"actions": spaces.Box(-np.inf, np.inf, (2,))}, "has no finite bounds"),
        ({"actions": spaces.MultiDiscrete([2, 3])}, "only Discrete and Box of floats"),
        ({"observations": spaces.Dict(x=spaces.Discrete(2))}, "only Box and Discrete"),
    ],
)
def test_spaces_that_no_spec_can_say_are_refused(register, settings, reason):
    name = register("Spaces-v0", Spaces, kwargs=settings)
    with pytest.raises(UsageError) as caught:
        registry.load(name)
    assert reason in str(caught.value)


def test_an_environment_whose_package_is_missing_says_which(register):
    name = register("Absent-v0", "no_such_package.environments:Absent")
    with pytest.raises(UsageError, match="No module named 'no_such_package'"):
        registry.load(name)
