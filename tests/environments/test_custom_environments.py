"""A user's own environments."""

import sys

import numpy as np
import pytest

from environments import registry
from usage import UsageError

MODULE = """
import dm_env
import numpy as np
from dm_env import specs


class Told(dm_env.Environment):
    def __init__(self, seed, evaluation):
        self._told = np.array([seed, evaluation])

    def reset(self):
        return dm_env.restart(self._told)

    def step(self, action):
        return dm_env.transition(0.0, self._told)

    def observation_spec(self):
        return specs.Array((2,), np.int64)

    def action_spec(self):
        return specs.DiscreteArray(2)


def told(seed, evaluation):
    return Told(seed, evaluation)


def solvable(seed, evaluation):
    return Told(seed, evaluation)


solvable.solved_at = 7


def vague(seed, evaluation):
    return Told(seed, evaluation)


vague.solved_at = "soon"


def no_evaluation(seed):
    return Told(seed, False)


def nothing(seed, evaluation):
    pass


number = 3
"""


@pytest.fixture(autouse=True)
def users_package(tmp_path, monkeypatch):
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "tasks.py").write_text(MODULE)
    (tmp_path / "users" / "broken.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "users"]:
        del sys.modules[name]


def test_the_function_is_told_its_seed_and_whether_it_serves_an_evaluator():
    environment = registry.load("users.tasks:told")
    seeds = registry.member_seeds(9, 2)
    training = environment.make(2, seed=9).reset().observation
    evaluation = environment.make(2, seed=9, evaluation=True).reset().observation
    assert training.tolist() == [[seeds[0], 0], [seeds[1], 0]]
    assert evaluation.tolist() == [[seeds[0], 1], [seeds[1], 1]]


def test_whole_numbers_are_observed_as_they_are():
    assert registry.load("users.tasks:told").observations.dtype == np.int64


def test_solved_at_is_an_attribute_of_the_function():
    assert registry.load("users.tasks:solvable").solved_at == 7.0
    assert registry.load("users.tasks:told").solved_at is None


@pytest.mark.parametrize(
    "name, reason",
    [
        ("users.absent:told", "needs module 'users.absent', and there is none"),
        ("no_such_users.tasks:told", "needs module 'no_such_users', and there is none"),
        ("users.tasks:tolt", "did you mean told"),
        ("users.tasks:number", "must be a function(seed, evaluation), but is int 3"),
        ("users.tasks:no_evaluation", "takes (seed): got an unexpected keyword argument"),
        ("users.tasks:nothing", "must return a dm_env.Environment, but returned NoneType"),
        ("users.tasks:vague", "has solved_at 'soon'"),
    ],
)
def test_a_function_that_makes_no_environment_is_refused_with_the_reason(name, reason):
    with pytest.raises(UsageError) as caught:
        registry.load(name)
    assert reason in str(caught.value)


def test_a_bug_in_the_users_module_keeps_its_traceback():
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        registry.load("users.broken:told")
