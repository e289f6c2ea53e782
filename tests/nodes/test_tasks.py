"""Tasks go to those who ask, and none is lost or used twice."""

import numpy as np
import pytest

from agents.search_agent import RolloutResults
from nodes.tasks import Task, Tasks

SIZES = (4, 4, 2)


class Clock:
    """Says a time that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def results(mark: float = 0.0, size: int = 4) -> RolloutResults:
    return RolloutResults(
        np.full(size, mark),
        np.ones(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros((size, 1)),
        np.zeros((size, 1)),
    )


def rollouts(tasks: Tasks) -> dict[str, float]:
    """Returns what became of the rollouts, as far as there are any; the sum is checked."""
    gauges = {name.removeprefix("rollouts_"): n for name, n in tasks.gauges().items()}
    assert gauges["handed_out"] == sum(gauges.values()) - gauges["handed_out"]
    return {name: number for name, number in gauges.items() if number}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tasks(clock: Clock) -> Tasks:
    tasks = Tasks(SIZES, clock)
    tasks.begin(7)
    return tasks


def taken(tasks: Tasks, worker: str, incarnation: str = "1") -> Task:
    task = tasks.take(worker, incarnation)
    assert task is not None
    return task


def test_before_an_iteration_begins_there_is_nothing_to_do() -> None:
    assert Tasks(SIZES).take("a", "1") is None


def test_each_task_is_handed_out_once_and_the_results_come_in_their_order(tasks: Tasks) -> None:
    of = {worker: taken(tasks, worker) for worker in "abc"}
    assert {task[1:] for task in of.values()} == {(7, 0), (7, 1), (7, 2)}
    assert tasks.take("d", "1") is None
    for worker in "cba":
        assert not tasks.wait(0)
        tasks.give(worker, of[worker].lease, results(of[worker].number))
    assert tasks.wait(0)
    assert [result.returns[0] for result in tasks.results()] == [0, 1, 2]
    assert rollouts(tasks) == {"handed_out": 10, "used": 10}


def test_a_question_that_is_asked_again_has_the_same_answer(tasks: Tasks) -> None:
    assert taken(tasks, "a") == taken(tasks, "a")
    assert rollouts(tasks) == {"handed_out": 4, "out": 4}


def test_results_that_are_given_again_count_once(tasks: Tasks) -> None:
    task = taken(tasks, "a")
    for mark in (1, 2):
        tasks.give("a", task.lease, results(mark))
    assert rollouts(tasks) == {"handed_out": 4, "used": 4}
    assert tasks.done == 1


def test_the_task_of_a_dead_worker_goes_to_the_next_who_asks(tasks: Tasks) -> None:
    for worker in "abc":
        taken(tasks, worker)
    lost = taken(tasks, "a", "2")  # Its own next life is the first.
    assert lost.number == 0
    assert rollouts(tasks) == {"handed_out": 14, "lost": 4, "out": 10}


def test_a_slow_workers_task_goes_to_another_too_and_the_first_result_is_used(
    tasks: Tasks, clock: Clock
) -> None:
    of = {worker: taken(tasks, worker) for worker in "abc"}
    clock.now = 1.0
    tasks.give("b", of["b"].lease, results(1))
    tasks.give("c", of["c"].lease, results(2, 2))
    assert tasks.take("b", "1") is None  # One takes a second: it may yet come.
    clock.now = 4.5
    again = taken(tasks, "b")
    assert again.number == of["a"].number and again.lease != of["a"].lease
    assert tasks.take("c", "1") is None  # The second one has only just got it.
    tasks.give("b", again.lease, results(8))
    assert tasks.wait(0)
    tasks.give("a", of["a"].lease, results(9))
    assert tasks.results()[0].returns[0] == 8
    assert rollouts(tasks) == {"handed_out": 14, "used": 10, "duplicate": 4}


def test_while_nobody_knows_how_long_a_task_takes_it_may_take_long(
    tasks: Tasks, clock: Clock
) -> None:
    for worker in "abc":
        taken(tasks, worker)
    clock.now = 29.0
    assert tasks.take("d", "1") is None
    clock.now = 31.0
    assert taken(tasks, "d").number == 0


def test_what_comes_after_its_iteration_is_late(tasks: Tasks) -> None:
    task = taken(tasks, "a")
    tasks.begin(8)
    tasks.give("a", task.lease, results())
    assert tasks.done == 0
    assert rollouts(tasks) == {"handed_out": 4, "late": 4}


def test_a_worker_that_asks_for_something_else_has_lost_what_it_had(tasks: Tasks) -> None:
    first = taken(tasks, "a")
    tasks.begin(8)
    second = taken(tasks, "a")
    assert second.iteration == 8
    tasks.give("a", first.lease, results())
    assert rollouts(tasks) == {"handed_out": 8, "lost": 4, "out": 4}


def test_results_for_an_earlier_life_of_the_search_are_not_taken(tasks: Tasks) -> None:
    old = taken(tasks, "a")
    new = Tasks(SIZES)
    new.begin(7)
    new.give("a", old.lease, results())
    taken(new, "a")
    new.give("a", old.lease, results())
    assert new.done == 0
