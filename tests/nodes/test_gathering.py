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
    tickets = [Ticket(each, 1, number, 0) for each in members]
    return Contribution(tickets, (7, step), Gradients([]))


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
    assert gathering.take(0) is None


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
    assert overtaken is not None and overtaken.model == (7, 3)
    gathering.add(of(0, step=3, number=1))
    alone = gathering.take(0)
    assert alone is not None and alone.model == (7, 3)
    assert gathering.take(0) is None
    gathering.add(of(0, step=4))
    assert gathering.take(0) is not None


def test_rounds_that_mix_models_are_not_overtaken() -> None:
    gathering = Gathering(2, 60, mixes_models=True)
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
    assert gathering.take(0) is not None
    fifth.result(timeout=20)


def test_a_round_has_room_for_whom_it_waits_for() -> None:
    gathering = Gathering(2, 60, members=range(2))
    for number in range(4):
        gathering.add(of(0, number=number))
    fifth = in_thread(gathering.add, of(0, number=4))
    gathering.add(of(1))
    round_ = gathering.take(0)
    assert round_ is not None and round_.members == {0, 1}
    fifth.result(timeout=20)


def test_what_comes_twice_is_taken_once() -> None:
    gathering = Gathering(2, 60)
    answer = gathering.add(of(0, 1))
    assert gathering.add(of(0, 1)) is answer
    assert gathering.add(of(1, 2)).result(timeout=0).fate == "again"
    round_ = gathering.take(0)
    assert round_ is not None and len(round_.tickets) == 2
    round_.settle(Outcome("applied", 1))
    assert answer.result(timeout=0) == Outcome("applied", 1)


def test_what_comes_twice_while_there_is_no_room_is_taken_once() -> None:
    gathering = Gathering(1, 60)
    for number in range(2):
        gathering.add(of(0, number=number))
    waiting = [in_thread(gathering.add, of(0, number=2)) for _ in range(2)]
    with pytest.raises(futures.TimeoutError):
        waiting[0].result(timeout=0.2)
    for _ in range(2):
        assert gathering.take(0) is not None
    assert waiting[0].result(timeout=20) is waiting[1].result(timeout=20)


def test_nothing_is_gathered_after_the_end() -> None:
    gathering = Gathering(1, 60)
    for number in range(2):
        gathering.add(of(0, number=number))
    waits = in_thread(gathering.add, of(0, number=2))
    left = gathering.close()
    assert [len(round_.tickets) for round_ in left] == [1, 1]
    taken = in_thread(gathering.take, 60.0)
    assert isinstance(waits.exception(timeout=20), Closed)
    assert wait_for(taken.done) and taken.result() is None
