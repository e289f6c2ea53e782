"""Names of environments, and what holds for the environments of every family."""

import pickle
import subprocess
import sys

import dm_env
import numpy as np
import pytest
from dm_env import specs

from environments import registry
from usage import UsageError

USERS = """
import dm_env
import numpy as np
from dm_env import specs


class Walk(dm_env.Environment):
    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def reset(self):
        self._left = 4
        return dm_env.restart(self._rng.normal(size=3))

    def step(self, action):
        self._left -= 1
        end = dm_env.transition if self._left else dm_env.truncation
        return end(float(np.sum(action)), self._rng.normal(size=3))

    def observation_spec(self):
        return specs.Array((3,), np.float64)

    def action_spec(self):
        return specs.BoundedArray((2,), np.float64, -1.0, 1.0)


def make(seed, evaluation):
    return Walk(seed)
"""

NAMES = [
    "catch",
    "cartpole",
    "memory:5",
    "gym:CartPole-v1",
    "gym:Acrobot-v1",
    "gym:Pendulum-v1",
    "gym:FrozenLake-v1",
    "atari:Breakout",
    "users_environments:make",
]


@pytest.fixture(autouse=True)
def users_module(tmp_path, monkeypatch):
    (tmp_path / "users_environments.py").write_text(USERS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("users_environments", None)


def observations_of(timesteps):
    return np.stack([timestep.observation for timestep in timesteps])


def test_importing_the_registry_loads_no_library_of_environments_and_no_tensorflow():
    modules = ["tensorflow", "bsuite", "gym", "gymnasium", "envpool", "acme", "launchpad", "jax"]
    script = (
        "import sys, environments.registry;"
        f"print([name for name in {modules} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_timesteps_keep_the_convention(name, play):
    environment = registry.load(name)
    batch = environment.make(3, seed=1)
    before = None
    for timestep in play(batch, environment.actions, 60):
        step_type, reward, discount, observation = timestep
        assert (step_type.dtype, step_type.shape) == (np.int32, (3,))
        assert (reward.dtype, reward.shape) == (np.float32, (3,))
        assert (discount.dtype, discount.shape) == (np.float32, (3,))
        assert observation.shape == (3, *environment.observations.shape)
        for member in observation:
            environment.observations.validate(member)
        first = step_type == dm_env.StepType.FIRST
        starts = np.ones(3, bool) if before is None else before == dm_env.StepType.LAST
        np.testing.assert_array_equal(first, starts)
        assert (reward[first] == 0).all()
        assert (discount[step_type != dm_env.StepType.LAST] == 1).all()
        before = step_type
    assert (batch.reset().step_type == dm_env.StepType.FIRST).all()
    batch.close()


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_gives_one_trajectory(name, play):
    environment = registry.load(name)
    plays = [play(environment.make(2, seed=7), environment.actions, 60) for _ in range(2)]
    for one, other in zip(*plays, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_members_of_a_batch_and_batches_of_other_seeds_differ(name, play):
    environment = registry.load(name)

    def constant(seed):
        batch = environment.make(2, seed)
        actions = np.zeros((2, *environment.actions.shape), environment.actions.dtype)
        timesteps = [batch.reset()] + [batch.step(actions) for _ in range(60)]
        return observations_of(timesteps)

    one, other = constant(1), constant(2)
    assert (one[:, 0] != one[:, 1]).any()
    assert (one[:, 0] != other[:, 0]).any()


@pytest.mark.parametrize("name", NAMES)
def test_returned_arrays_are_never_modified(name, play):
    environment = registry.load(name)
    batch = environment.make(2, seed=1)
    kept = play(batch, environment.actions, 20)
    copies = [[array.copy() for array in timestep] for timestep in kept]
    play(batch, environment.actions, 20)
    for timestep, copy in zip(kept, copies, strict=True):
        for array, original in zip(timestep, copy, strict=True):
            np.testing.assert_array_equal(array, original)


@pytest.mark.parametrize("name", ["catch", "gym:CartPole-v1", "atari:Pong"])
def test_a_description_pickles(name):
    environment = registry.load(name)
    assert pickle.loads(pickle.dumps(environment)) == environment
    assert environment.name == name


def test_member_seeds_are_distinct_and_reproducible():
    seeds = [seed for actor in range(64) for seed in registry.member_seeds(actor, 4)]
    assert len(set(seeds)) == 256
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert registry.member_seeds(5, 4) == registry.member_seeds(5, 8)[:4]


def test_a_fault_names_the_environment_as_the_user_typed_it():
    batch = registry.load("memory:3").make(2, seed=0)
    batch.reset()
    with pytest.raises(RuntimeError, match=r"environment 'memory:3', step 1: raised \w+Error"):
        batch.step(np.array(["left", "right"]))


def test_atari_observes_a_stack_of_frames_and_the_others_do_not():
    assert registry.load("atari:Pong").frame_stack
    assert not registry.load("catch").frame_stack
    spec = registry.load("atari:Pong").observations
    assert (spec.shape, spec.dtype) == ((4, 84, 84), np.uint8)


@pytest.mark.parametrize(
    "name, solved_at",
    [
        ("catch", 0.95),
        ("cartpole", 500.0),
        ("memory:10", 0.9),
        ("gym:CartPole-v1", 475.0),
        ("gym:Pendulum-v1", None),
        ("atari:Pong", None),
    ],
)
def test_solved_at_comes_from_the_environment(name, solved_at):
    assert registry.load(name).solved_at == solved_at


@pytest.mark.parametrize("name", ["catch", "gym:CartPole-v1", "atari:Breakout"])
def test_discrete_actions_have_a_discrete_spec(name):
    assert isinstance(registry.load(name).actions, specs.DiscreteArray)


@pytest.mark.parametrize(
    "name, hint",
    [
        ("catchh", "did you mean catch?"),
        ("catch:3", "did you mean catch?"),
        ("memory", "did you mean memory:LENGTH?"),
        ("atari", "did you mean atari:GAME?"),
        ("gym", "did you mean gym:ID?"),
        ("", "choose from atari:GAME, cartpole"),
        ("Pong", "choose from atari:GAME, cartpole"),
        ("a b:c", "choose from atari:GAME, cartpole"),
        ("memory:0", "needs a positive whole number of steps, not '0'"),
        ("memory:-3", "needs a positive whole number of steps, not '-3'"),
        ("memory:ten", "needs a positive whole number of steps, not 'ten'"),
        ("atari:pong", "did you mean atari:Pong"),
        ("gym:CartPol-v1", "did you mean gym:CartPole-v1"),
        ("atri:Pong", "did you mean atari:Pong?"),
    ],
)
def test_a_name_that_stands_for_nothing_is_refused_with_the_nearest_right_one(name, hint):
    with pytest.raises(UsageError) as caught:
        registry.load(name)
    assert hint in str(caught.value)
