"""A learner that comes back from a checkpoint takes the very steps that it would have taken."""

import pathlib

import numpy as np
import pytest

from agents.agent import Learner, Sample
from agents.apex.learning import ApexLearner
from agents.r2d2.learning import R2D2Learner
from nodes.checkpoints import Schedule
from nodes.learner_checkpoints import LearnerCheckpoints
from tests.agents.apex import support as apex
from tests.agents.apex import test_learning as apex_learning
from tests.agents.r2d2 import support as r2d2
from tests.agents.r2d2 import test_learning as r2d2_learning
from tests.nodes.runtimes import FakeLauncher
from tests.support import wait_for


def learner_of(agent: str, seed: int) -> Learner:
    if agent == "apex":
        return ApexLearner(apex_learning.SMALL, apex.VECTOR, seed)
    return R2D2Learner(r2d2_learning.CONFIG, r2d2.VECTOR, seed)


def sample_of(agent: str) -> Sample:
    if agent == "apex":
        return apex_learning.make_sample(apex_learning.RANDOM_ROWS)
    return r2d2_learning.sample_of(r2d2_learning.random_steps(), r2d2_learning.random_states())


@pytest.mark.parametrize("agent", ["apex", "r2d2"])
def test_a_restored_learner_goes_on_as_the_one_that_was_saved(
    agent: str, tmp_path: pathlib.Path
) -> None:
    launcher, sample = FakeLauncher(tmp_path), sample_of(agent)
    learner, other = learner_of(agent, seed=1), learner_of(agent, seed=2)
    for _ in range(3):
        learner.step(sample)
    LearnerCheckpoints(learner, launcher, Schedule()).save(3)
    expected = [learner.step(sample) for _ in range(3)]
    assert LearnerCheckpoints(other, launcher, Schedule()).restore() == 3
    for result in expected:
        np.testing.assert_array_equal(other.step(sample).priorities, result.priorities)
    for ours, theirs in zip(learner.variables(), other.variables(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not launcher.warnings


def test_a_checkpoint_of_another_network_is_refused(tmp_path: pathlib.Path) -> None:
    launcher = FakeLauncher(tmp_path)
    LearnerCheckpoints(learner_of("r2d2", 0), launcher, Schedule()).save(3)
    assert LearnerCheckpoints(learner_of("apex", 0), launcher, Schedule()).restore() == 0
    assert "the state is of another learner" in launcher.warnings[0]


def test_what_is_saved_by_schedule_is_the_state_of_that_moment(tmp_path: pathlib.Path) -> None:
    launcher, sample = FakeLauncher(tmp_path), sample_of("apex")
    learner, other = learner_of("apex", 1), learner_of("apex", 2)
    checkpoints = LearnerCheckpoints(learner, launcher, Schedule(period_seconds=0.01))
    wait_for(lambda: checkpoints._checkpoints.due)
    before = learner.variables()
    checkpoints.save_if_due(0)
    learner.step(sample)
    wait_for(lambda: launcher.pauses)
    assert 0 < launcher.pauses[0] < 1
    assert LearnerCheckpoints(other, launcher, Schedule()).restore() == 0
    for ours, theirs in zip(before, other.variables(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
