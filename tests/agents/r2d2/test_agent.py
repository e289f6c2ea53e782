import importlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from acme import specs

from agents.agent import EnvironmentSpec
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from tests.agents.episodes import batch, episode
from tests.agents.r2d2.support import VECTOR
from usage import UsageError

ATARI = EnvironmentSpec(specs.Array((4, 84, 84), np.uint8), specs.DiscreteArray(6), True)


def test_presets_are_agents_of_every_kind_of_observation():
    for config in R2D2.presets().values():
        for spec in (VECTOR, ATARI):
            assert R2D2(config, spec).batch_size == config.batch_size
    assert set(R2D2.presets()) == {"small", "paper"}


def test_continuous_actions_are_refused_in_the_agents_own_name():
    spec = EnvironmentSpec(specs.Array((4,), np.float32), specs.BoundedArray((1,), float, -1, 1))
    with pytest.raises(UsageError, match="R2D2 needs discrete actions"):
        R2D2(R2D2Config.small(), spec)


def test_a_lost_life_ends_no_episode():
    assert not R2D2(R2D2Config.paper(), ATARI).life_loss_ends_episode


def test_an_item_of_frames_is_counted_with_the_frames_of_one_period():
    frames = 40 * 84 * 84
    assert frames < R2D2(R2D2Config.paper(), ATARI).table.bytes_per_item < 1.5 * frames


def test_what_an_agent_asks_to_preload_can_be_imported():
    for module in R2D2(R2D2Config.small(), VECTOR).preload:
        importlib.import_module(module)


def test_an_agent_pickles():
    agent = pickle.loads(pickle.dumps(R2D2(R2D2Config.small(), VECTOR)))
    assert agent.config == R2D2Config.small()


def test_describing_a_program_loads_no_tensorflow():
    code = (
        "import sys; from agents.r2d2.agent import R2D2; "
        "sys.exit('tensorflow' in sys.modules or not R2D2.presets())"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("spec", [VECTOR, ATARI], ids=["vector", "frames"])
def test_an_actor_fills_the_table_that_its_agent_describes(make_replay, spec):
    agent = R2D2(R2D2Config.small(), spec)
    replay = make_replay(agent.table)
    actor = agent.make_actor(replay.make_writer, first=0, num_envs=2, total=2, seed=0)
    evaluator = agent.make_evaluator(num_envs=2, seed=0)
    variables = agent.make_learner(seed=0).variables()
    observations = [np.zeros(spec.observations.shape, spec.observations.dtype)] * 3
    for acting in (actor, evaluator):
        acting.set_variables(variables, 0)
        for step in episode(observations, [1, 1], terminal=True):
            actions = acting.step(batch([step, step]))
            assert actions.shape == (2,)
    assert replay.size() == 2
