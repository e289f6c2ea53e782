"""A learner among several goes on with whatever model there is."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from agents.agent import Gradients, Sample, StepResult
from launchers.run import launch
from nodes.gathering import Outcome
from nodes.ledger import Ledger
from nodes.parallel_learner import SharedSteps
from nodes.variables import VariableClient, variable_source_node
from nodes.version import Key, Version
from programs.program import Program
from tests.support import in_node

SAMPLE = Sample(None, None, {})


class Learner:
    """Counts what it takes up."""

    def __init__(self) -> None:
        self.models: list[float] = []
        self.priorities = np.ones(3)

    def set_model(self, values: Sequence[Any]) -> None:
        self.models.append(float(values[0]))

    def gradients(self, sample: Sample) -> tuple[Gradients, StepResult]:
        return Gradients([]), StepResult(self.priorities, {}, 3)


@dataclasses.dataclass
class Agent:
    """An agent with one learner."""

    learner: Learner
    batch_size: int = 3

    def make_learner(self, seed: int) -> Learner:
        return self.learner


class Reducers:
    """Answers pushes as it is told."""

    def __init__(self, answer: Callable[[Key], Outcome]) -> None:
        self.models: list[Key] = []
        self._answer = answer

    def pusher(self, member: int) -> "Reducers":
        return self

    def push(self, model: Key, gradients: Gradients) -> Outcome:
        self.models.append(model)
        return self._answer(model)


@pytest.fixture
def models() -> Iterator[VariableClient]:
    program = Program("models")
    handle = program.add_node(variable_source_node(), label="models")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        yield handle.dereference()


def publish(models: VariableClient, incarnation: int, step: int) -> None:
    values = [np.float32(step), Ledger().pack()]
    models.publish(Version(incarnation, step, step, 0.0, values))


def steps_of(
    models: VariableClient, learner: Learner, answer: Callable[[Key], Outcome]
) -> tuple[SharedSteps, Reducers]:
    agent: Any = Agent(learner)
    reducers: Any = Reducers(answer)
    steps = in_node(lambda: SharedSteps(agent, reducers, models, 0, synchronous=True))
    assert steps.begin()
    return steps, reducers


def test_it_computes_each_gradient_on_the_newest_model(models: VariableClient) -> None:
    publish(models, 7, 4)

    def apply(model: Key) -> Outcome:
        publish(models, 7, model[1] + 1)
        return Outcome("applied", model[1] + 1)

    learner = Learner()
    steps, reducers = steps_of(models, learner, apply)
    for _ in range(3):
        assert steps.take(SAMPLE) is not None
    assert reducers.models == [(7, 4), (7, 5), (7, 6)]
    assert learner.models == [4, 5, 6, 7]
    assert steps.take_counts()["trained_samples"] == 9


def test_it_goes_on_with_a_model_that_took_the_place_of_a_lost_one(models: VariableClient) -> None:
    publish(models, 7, 100)

    def lose(model: Key) -> Outcome:
        publish(models, 8, 50)
        return Outcome("applied", 101) if model == (7, 100) else Outcome("late", 50)

    learner = Learner()
    steps, reducers = steps_of(models, learner, lose)
    assert steps.take(SAMPLE) is not None and steps.take(SAMPLE) is not None
    assert reducers.models == [(7, 100), (8, 50)]
    assert learner.models == [100, 50]


def test_a_batch_whose_errors_are_no_numbers_changes_no_priorities(models: VariableClient) -> None:
    publish(models, 7, 0)
    learner = Learner()
    learner.priorities = np.array([1.0, np.nan, 1.0])
    steps, _ = steps_of(models, learner, lambda model: Outcome("late", 0))
    result = steps.take(SAMPLE)
    assert result is not None and result.priorities is None
    assert steps.take_counts()["trained_samples"] == 0
