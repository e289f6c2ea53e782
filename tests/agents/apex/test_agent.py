import dataclasses
import importlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from acme import specs

from agents import exploration
from agents.agent import EnvironmentSpec
from agents.apex.agent import ApeX
from agents.apex.config import ApexConfig
from tests.agents.apex.support import VECTOR
from tests.agents.episodes import FIRST, Step, batch, episode, numbers
from usage import UsageError

ATARI = EnvironmentSpec(specs.Array((4, 84, 84), np.uint8), specs.DiscreteArray(6), True)


def test_presets_are_agents_of_every_kind_of_observation():
    for config in ApeX.presets().values():
        for spec in (VECTOR, ATARI):
            assert ApeX(config, spec).batch_size == config.batch_size
    assert set(ApeX.presets()) == {"small", "paper"}


def test_continuous_actions_are_refused():
    spec = EnvironmentSpec(specs.Array((4,), np.float32), specs.BoundedArray((1,), float, -1, 1))
    with pytest.raises(UsageError, match="discrete actions"):
        ApeX(ApexConfig.small(), spec)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 84, 84), np.float32), ((84, 84), np.uint8), ((4, 84, 35), np.uint8)]
)
def test_frames_that_the_convolutions_cannot_take_are_refused(shape, dtype):
    spec = EnvironmentSpec(specs.Array(shape, dtype), specs.DiscreteArray(6), frame_stack=True)
    with pytest.raises(UsageError, match="stack of frames"):
        ApeX(ApexConfig.paper(), spec)


def test_the_table_is_the_configurations():
    config = dataclasses.replace(ApexConfig.small(), replay_size=5000, priority_exponent=0.7)
    table = ApeX(config, VECTOR).table
    assert (table.max_size, table.min_size, table.priority_exponent) == (5000, 1000, 0.7)
    assert (table.samples_per_insert, table.error_buffer) == (4.0, 4000.0)
    assert table.item["row"].shape == (5,)


def test_an_item_of_frames_is_counted_as_one_frame_and_some_overhead():
    assert 84 * 84 < ApeX(ApexConfig.paper(), ATARI).table.bytes_per_item < 2 * 84 * 84


def test_what_an_agent_asks_to_preload_can_be_imported():
    for module in ApeX(ApexConfig.small(), VECTOR).preload:
        importlib.import_module(module)


def test_an_agent_pickles():
    agent = pickle.loads(pickle.dumps(ApeX(ApexConfig.small(), VECTOR)))
    assert agent.config == ApexConfig.small()
    assert agent.table.item["row"].shape == (5,)


def test_describing_a_program_loads_no_tensorflow():
    code = (
        "import sys; from agents.apex.agent import ApeX; "
        "sys.exit('tensorflow' in sys.modules or not ApeX.presets())"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_actors_environments_stand_on_their_own_steps_of_the_ladder(monkeypatch, make_replay):
    used = []
    greedy = exploration.epsilon_greedy

    def epsilon_greedy(rng, q_values, epsilons):
        used.append(epsilons)
        return greedy(rng, q_values, epsilons)

    monkeypatch.setattr(exploration, "epsilon_greedy", epsilon_greedy)
    config = dataclasses.replace(ApexConfig.small(), evaluator_epsilon=0.25)
    agent = ApeX(config, VECTOR)
    timestep = batch([Step(FIRST, 0, 1, np.zeros(1, np.float32))] * 2)
    make_writer = make_replay(agent.table).make_writer
    actor = agent.make_actor(make_writer, first=1, num_envs=2, total=4, seed=0)
    evaluator = agent.make_evaluator(num_envs=2, seed=0)
    variables = agent.make_learner(seed=0).variables()
    for either in (actor, evaluator):
        either.set_variables(variables, 0)
        either.step(timestep)
    np.testing.assert_allclose(used, [[0.0471556, 0.0055591], [0.25, 0.25]], rtol=1e-5)


def test_actors_of_one_seed_act_the_same(make_replay):
    config = dataclasses.replace(ApexConfig.small(), epsilon_base=1.0)
    agent = ApeX(config, VECTOR)
    steps = episode(numbers(*range(50)), [0] * 49, terminal=False)
    make_writer = make_replay(agent.table).make_writer
    variables = agent.make_learner(seed=0).variables()

    def actions(seed):
        actor = agent.make_actor(make_writer, first=0, num_envs=1, total=1, seed=seed)
        actor.set_variables(variables, 0)
        return [int(actor.step(batch([step]))[0]) for step in steps]

    assert actions(1) == actions(1) != actions(2)


def test_an_actor_fills_the_table_that_its_agent_describes(make_replay):
    for spec in (VECTOR, ATARI):
        agent = ApeX(ApexConfig.small(), spec)
        replay = make_replay(agent.table)
        actor = agent.make_actor(replay.make_writer, first=0, num_envs=1, total=1, seed=0)
        actor.set_variables(agent.make_learner(seed=0).variables(), 0)
        actor.set_variables(agent.make_learner(seed=0).variables(), 0)
        observations = [np.zeros(spec.observations.shape, spec.observations.dtype)] * 3
        for step in episode(observations, [1, 1], terminal=True):
            actor.step(batch([step]))
        assert replay.size() == 2
