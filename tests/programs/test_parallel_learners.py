"""Several learners of a replay program take each step together."""

import dataclasses
import json
import pathlib
import threading

import pytest

from agents.agent import EnvironmentSpec, Learner
from agents.apex.agent import ApeX
from agents.config import ReplayConfig
from agents.r2d2.agent import R2D2
from agents.value_agent import ValueAgent
from environments import registry
from launchers.run import launch
from nodes.parallel_learner import parallel_learner
from programs.replay_program import ReplayOptions
from tests.programs.test_replay_program import QUICK, QUICK_R2D2, program_of, snapshot
from tests.support import wait_for
from usage import UsageError

TWO = ReplayOptions(num_actors=1, num_learners=2)


@pytest.mark.parametrize(
    "options, config, agent_class",
    [
        (dataclasses.replace(TWO, num_reducers=2, replay_shards=2), QUICK, ApeX),
        (dataclasses.replace(TWO, async_learners=True), QUICK_R2D2, R2D2),
    ],
    ids=["apex, synchronous, through secondaries", "r2d2, asynchronous"],
)
def test_two_learners_learn_together(
    options: ReplayOptions,
    config: ReplayConfig,
    agent_class: type[ValueAgent],
    tmp_path: pathlib.Path,
) -> None:
    before = set(threading.enumerate())
    program = program_of(options, config, agent_class=agent_class)
    with launch(program, "test_mt", run_directory=str(tmp_path / "run")) as run:
        run.wait_until_running(60)
        wait_for(lambda: snapshot(program)["counts"].get("learner_steps", 0) > 20, 100)
        wait_for(lambda: snapshot(program)["gauges"]["actor/0"]["version"] > 0)
        reporters = {"learner/0", "learner/1", "reducer/0"}
        wait_for(lambda: reporters <= snapshot(program)["gauges"].keys())
        applied = snapshot(program)["gauges"]["reducer/0"]["gradients_applied"]
        assert applied > 0
    result = run.wait(0)
    assert result is not None and result.forced == {} and result.failures == {}
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {"publisher", "priorities", "reporter", "pusher"} & left, left
    counts = json.loads((tmp_path / "run/counts.json").read_text())["counts"]
    learners = 1 if options.async_learners else 2  # Whose samples are in a step.
    expected = counts["learner_steps"] * learners * config.batch_size
    assert abs(counts["trained_samples"] - expected) <= 2 * config.batch_size  # Told at the end.


class Lonely(ApeX):
    """An agent whose learner computes no gradients for others."""

    def make_learner(self, seed: int) -> Learner:
        learner = super().make_learner(seed)
        learner.gradients = None  # type: ignore[attr-defined]
        return learner


def test_a_learner_that_cannot_be_one_of_several_says_so() -> None:
    environment = registry.load("catch")
    agent = Lonely(QUICK, EnvironmentSpec(environment.observations, environment.actions))
    with pytest.raises(UsageError, match="ApexLearner cannot be one of several learners"):
        parallel_learner(agent, seed=0)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"num_learners": 0}, "num_learners must be at least 1, got 0"),
        ({"num_learners": 2, "num_reducers": 3}, "num_reducers must be between 0 and num_learners"),
        ({"num_reducers": 1}, "0 where there is one learner, got 1"),
        ({"num_learners": 2, "max_staleness": 1}, "must be 0 where learners are synchronous"),
    ],
)
def test_options_that_do_not_fit_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ReplayOptions(**fields)  # type: ignore[arg-type]
