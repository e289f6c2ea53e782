"""Rounds go when they are complete, overtaken or too old; who comes too early waits."""

import threading
from concurrent import futures
from typing import Any

import pytest

from agents.agent import Gradients
from nodes.contributions import Contribution, Ticket
from nodes.gathering import Closed, Gathering, Outcome
from tests.support import wait_for


def of(*members: int, step: int = 0, number: int = 0) -> Contribution:
    return Contribution([Ticket(each, 1, number, 0) for each in members], step, Gradients([]))


def in_thread(function: Any, *arguments: Any) -> "futures.Future[Any]":
    done: futures.Future[Any] = futures.Future()

    def run() -> None:
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def test_a_round_goes_once_all_members_have_contributed() -> None:
    gathering = Gathering(3, 60, members=range(3))
    gathering.add(of(0))
    gathering.add(of(0, number=1))
    assert gathering.take(0) is None
    gathering.add(of(1, 2))
    round_ = gathering.take(0)
    assert round_ is not None and len(round_.tickets) == 4
    assert gathering.take(0) is None


def test_a_round_goes_once_there_are_enough_gradients() -> None:
    gathering = Gathering(3, 60)
    gathering.add(of(0, 0))
    assert gathering.take(0) is None
    gathering.add(of(0))
    gathering.add(of(0, number=1))
    round_ = gathering.take(0)
    assert round_ is not None and len(round_.tickets) == 3
    assert gathering.take(0) is None and gathering.held == 1


def test_who_missed_a_round_is_not_waited_for_until_he_is_back() -> None:
    gathering = Gathering(2, 0.05, members=range(2))
    gathering.add(of(0))
    late = gathering.take(20)
    assert late is not None and late.members == {0}
    gathering = _with_patience(gathering)
    gathering.add(of(0))
    assert gathering.take(0) is not None
    gathering.add(of(1))
    assert gathering.take(0) is None
    gathering.add(of(0))
    assert gathering.take(0) is not None


def _with_patience(gathering: Gathering) -> Gathering:
    gathering._seconds = 60
    return gathering


def test_a_round_goes_where_something_newer_has_come() -> None:
    gathering = Gathering(2, 60, members=range(2))
    gathering.add(of(0, step=3))
    gathering.add(of(1, step=4))
    overtaken = gathering.take(0)
    assert overtaken is not None and overtaken.step == 3
    gathering.add(of(0, step=3, number=1))
    alone = gathering.take(0)
    assert alone is not None and alone.step == 3
    assert gathering.take(0) is None
    gathering.add(of(0, step=4))
    assert gathering.take(0) is not None


def test_rounds_that_mix_models_are_not_overtaken() -> None:
    gathering = Gathering(2, 60, mixes_steps=True)
    gathering.add(of(0, step=3))
    gathering.add(of(1, step=4))
    round_ = gathering.take(0)
    assert round_ is not None and round_.members == {0, 1}


def test_who_comes_while_two_rounds_are_full_waits() -> None:
    gathering = Gathering(2, 60)
    for number in range(4):
        gathering.add(of(0, number=number))
    fifth = in_thread(gathering.add, of(0, number=4))
    with pytest.raises(futures.TimeoutError):
        fifth.result(timeout=0.2)
    assert gathering.held == 4
    assert gathering.take(0) is not None
    fifth.result(timeout=20)


def test_who_waits_hears_what_became_of_it_by_any_ticket() -> None:
    gathering = Gathering(2, 60)
    answer = gathering.add(of(0, 1))
    assert gathering.find(Ticket(1, 1, 0, 7)) is answer
    assert gathering.find(Ticket(1, 1, 1, 0)) is None
    round_ = gathering.take(0)
    assert round_ is not None
    round_.settle(Outcome("applied", 1))
    assert answer.result(timeout=0) == Outcome("applied", 1)


def test_what_is_taken_out_makes_room() -> None:
    gathering = Gathering(1, 60, members=[9], mixes_steps=True)
    gathering.add(of(0, step=1))
    gathering.add(of(0, step=2))
    waits = in_thread(gathering.add, of(0, step=3))
    out = gathering.take_out(lambda each: each.step < 2)
    assert [each.step for each, _ in out] == [1]
    waits.result(timeout=20)


def test_nothing_is_gathered_after_the_end() -> None:
    gathering = Gathering(1, 60, members=[1])
    gathering.add(of(0))
    gathering.add(of(0, number=1))
    waits = in_thread(gathering.add, of(0, number=2))
    taken = in_thread(gathering.take, 60.0)
    left = gathering.close()
    assert [len(round_.tickets) for round_ in left] == [2]
    assert isinstance(waits.exception(timeout=20), Closed)
    assert wait_for(taken.done) and taken.result() is None
