"""Batches of single environments, and the check around every batch."""

import pickle

import dm_env
import numpy as np
import pytest
from dm_env import specs

from environments.batched import Checked, EnvironmentFault
from environments.single import Batch, action_spec, observation_spec
from usage import UsageError


class Scripted(dm_env.Environment):
    """Plays timesteps from a list; observations are float64 [2] and reused in place."""

    def __init__(self, *timesteps, dtype=np.float64):
        self._timesteps = list(timesteps)
        self._observation = np.zeros(2, dtype)
        self.actions = []
        self.closed = False

    def _next(self):
        timestep = self._timesteps.pop(0)
        if isinstance(timestep, Exception):
            raise timestep
        if timestep.observation is not None:
            return timestep
        self._observation += 1
        return timestep._replace(observation=self._observation)

    def reset(self):
        return self._next()

    def step(self, action):
        self.actions.append(action)
        return self._next()

    def close(self):
        self.closed = True

    def observation_spec(self):
        if self._observation.dtype.kind == "f":
            return specs.BoundedArray((2,), self._observation.dtype, -1e300, 1e300)
        return specs.Array((2,), self._observation.dtype)

    def action_spec(self):
        return specs.DiscreteArray(5)


def first(observation=None):
    return dm_env.restart(observation)


def mid(reward=1.0, observation=None, discount=1.0):
    return dm_env.transition(reward, observation, discount)


def checked(*environments, name="thing"):
    return Checked(Batch(environments), name, observation_spec(name, environments[0]))


def actions(*values):
    return np.array(values, np.int32)


def fault_of(*timesteps, dtype=np.float64):
    """Plays `timesteps` in member 1 of a batch of two and returns the message of the fault."""
    batch = checked(
        Scripted(first(), *[mid()] * len(timesteps), dtype=dtype), Scripted(*timesteps, dtype=dtype)
    )
    with pytest.raises(EnvironmentFault) as caught:
        batch.reset()
        for _ in timesteps:
            batch.step(actions(0, 0))
    return str(caught.value)


def test_timesteps_are_batched_in_single_precision():
    batch = checked(Scripted(first(), mid(0.5)), Scripted(first(), mid(-2.0, discount=0.25)))
    batch.reset()
    step_type, reward, discount, observation = batch.step(actions(0, 0))
    assert step_type.tolist() == [1, 1]
    assert reward.tolist() == [0.5, -2.0]
    assert discount.tolist() == [1.0, 0.25]
    assert observation.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert step_type.dtype == np.int32
    assert reward.dtype == discount.dtype == observation.dtype == np.float32


def test_a_double_precision_spec_becomes_single_precision():
    spec = observation_spec("thing", Scripted())
    assert spec.dtype == np.float32
    assert spec.shape == (2,)
    assert np.isposinf(spec.maximum).all()


def test_a_time_limit_bootstraps_and_a_terminal_state_does_not():
    over = dm_env.termination(1.0, None), dm_env.truncation(1.0, None)
    batch = checked(*[Scripted(first(), last) for last in over])
    batch.reset()
    timestep = batch.step(actions(0, 0))
    assert timestep.step_type.tolist() == [2, 2]
    assert timestep.discount.tolist() == [0.0, 1.0]


def test_an_environment_after_its_last_step_ignores_its_action_and_starts_again():
    over = Scripted(first(), dm_env.termination(1.0, None), first(), mid(3.0))
    going_on = Scripted(first(), mid(), mid(), mid())
    batch = checked(over, going_on)
    batch.reset()
    batch.step(actions(1, 2))
    timestep = batch.step(actions(3, 4))
    assert timestep.step_type.tolist() == [0, 1]
    assert timestep.reward.tolist() == [0.0, 1.0]
    assert timestep.discount.tolist() == [1.0, 1.0]
    assert batch.step(actions(0, 0)).reward.tolist() == [3.0, 1.0]
    assert over.actions == [1, 0]
    assert going_on.actions == [2, 4, 0]


def test_reset_starts_an_episode_in_every_environment():
    batch = checked(Scripted(first(), mid(), first()), Scripted(first(), mid(), first()))
    batch.reset()
    batch.step(actions(0, 0))
    assert batch.reset().step_type.tolist() == [0, 0]


def test_what_was_returned_does_not_change_when_the_environment_reuses_its_array():
    batch = checked(Scripted(first(), mid()))
    kept = batch.reset()
    batch.step(actions(0))
    assert kept.observation.tolist() == [[1.0, 1.0]]


def test_an_action_reaches_its_environment_in_the_dtype_of_the_spec():
    environment = Scripted(first(), mid())
    batch = checked(environment)
    batch.reset()
    batch.step(np.array([3], np.int64))
    environment.action_spec().validate(environment.actions[0])


def test_close_closes_every_environment():
    environments = Scripted(), Scripted()
    checked(*environments).close()
    assert all(environment.closed for environment in environments)


def test_an_environment_that_raises_is_named_with_its_index_and_step():
    broken = Scripted(first(), mid(), ValueError("no more\nballs"))
    batch = checked(Scripted(first(), mid(), mid()), broken, name="catch")
    batch.reset()
    batch.step(actions(0, 0))
    with pytest.raises(EnvironmentFault) as caught:
        batch.step(actions(0, 0))
    message = "environment 'catch' [1], step 2: raised ValueError: no more balls"
    assert str(caught.value) == message
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_whole_batch_that_raises_is_named_without_an_index():
    class Broken:
        num_envs = 2

        def reset(self):
            raise OSError("pool is gone")

    batch = Checked(Broken(), "atari:Pong", specs.Array((2,), np.float32))
    with pytest.raises(EnvironmentFault) as caught:
        batch.reset()
    assert str(caught.value) == "environment 'atari:Pong', step 0: raised OSError: pool is gone"
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf, 1e39])
def test_a_reward_that_is_not_finite_in_single_precision_is_a_fault(reward):
    with np.errstate(over="ignore"):
        message = fault_of(first(), mid(), mid(reward))
    assert message == f"environment 'thing' [1], step 2: reward is {np.float32(reward)}"


def test_a_missing_reward_is_a_fault():
    assert fault_of(first(), mid(None)) == "environment 'thing' [1], step 1: reward is nan"


def test_an_observation_that_is_not_finite_is_a_fault_with_its_place():
    message = fault_of(first(), mid(observation=np.array([0.0, -np.inf])))
    assert message == "environment 'thing' [1], step 1: observation is -inf at [1]"


def test_an_observation_of_another_shape_is_a_fault_even_if_it_could_be_broadcast():
    message = fault_of(first(), mid(observation=np.zeros(1)))
    assert message.endswith("[1], step 1: observation is float64 [1], its spec says float64 [2]")


def test_an_observation_of_another_dtype_is_a_fault():
    message = fault_of(first(np.zeros(2, np.float32)))
    assert message.endswith("[1], step 0: observation is float32 [2], its spec says float64 [2]")


@pytest.mark.parametrize("discount", [np.nan, None, -0.5, 1.5])
def test_a_discount_outside_of_0_and_1_is_a_fault(discount):
    message = fault_of(first(), mid(discount=discount))
    assert message.endswith(f"[1], step 1: discount is {discount}, not between 0 and 1")


def test_an_episode_that_begins_before_the_last_one_ended_is_a_fault():
    assert fault_of(first(), first()).endswith("[1], step 1: FIRST came without a LAST")


def test_an_episode_that_does_not_begin_with_first_is_a_fault():
    assert fault_of(mid()).endswith("[1], step 0: reset() did not give a FIRST step")


def test_a_batch_whose_observations_do_not_match_the_spec_is_a_fault():
    batch = Checked(Batch([Scripted(first())]), "thing", specs.Array((3,), np.float32))
    with pytest.raises(EnvironmentFault, match=r"float32 \[1, 2\], the spec says float32 \[1, 3\]"):
        batch.reset()


def test_observations_of_bytes_stay_bytes():
    batch = checked(Scripted(first(np.array([0, 255], np.uint8)), dtype=np.uint8))
    observation = batch.reset().observation
    assert observation.dtype == np.uint8
    assert observation.tolist() == [[0, 255]]


def test_a_fault_pickles():
    fault = pickle.loads(pickle.dumps(EnvironmentFault("environment 'catch', step 1: ...")))
    assert str(fault) == "environment 'catch', step 1: ..."


def test_nested_observations_are_refused():
    environment = Scripted()
    environment.observation_spec = lambda: {"position": specs.Array((2,), np.float32)}
    with pytest.raises(UsageError, match="must observe one array of numbers"):
        observation_spec("thing", environment)


@pytest.mark.parametrize(
    "spec",
    [
        specs.Array((2,), np.float32),
        specs.BoundedArray((2,), np.float32, -np.inf, 1.0),
        specs.BoundedArray((), np.int32, 0, 3),
        [specs.DiscreteArray(2)],
    ],
)
def test_actions_that_are_neither_discrete_nor_bounded_floats_are_refused(spec):
    environment = Scripted()
    environment.action_spec = lambda: spec
    with pytest.raises(UsageError, match="must take a DiscreteArray or a BoundedArray of floats"):
        action_spec("thing", environment)
