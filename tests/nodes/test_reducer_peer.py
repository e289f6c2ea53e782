"""Contributions reach a reducer in memory where both are on one host, and else by calls."""

import threading
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.agent import Gradients
from launchers.run import launch
from nodes import shared_versions
from nodes.contributions import Contribution, Ticket
from nodes.gathering import Outcome
from nodes.reducer_peer import Lender, ReducerPeer, TakesContributions, borrow
from nodes.service import ServiceNode
from programs.program import Program
from tests.support import wait_for

LARGE, SMALL = np.arange(1 << 18, dtype=np.float32), np.ones(3, np.float32)


class Keeping(TakesContributions):
    """A reducer that shows what came, and answers when it may."""

    came: list[tuple[str, Contribution]] = []
    may_answer = threading.Event()
    is_here = True

    def push(self, *arguments: Any) -> tuple[Any, ...]:
        self._way = "call"
        return super().push(*arguments)

    def push_lent(self, *arguments: Any) -> Optional[tuple[Any, ...]]:
        if not self.is_here:
            return None
        self._way = "memory"
        return super().push_lent(*arguments)

    def _take(self, contribution: Contribution) -> Outcome:
        self.came.append((self._way, contribution))
        assert self.may_answer.wait(30)
        return Outcome("applied", len(self.came))


@pytest.fixture
def peer() -> Iterator[ReducerPeer]:
    Keeping.came.clear()
    Keeping.may_answer.set()
    Keeping.is_here = True
    program = Program("peer")
    lender = Lender()
    node = ServiceNode[ReducerPeer](
        Keeping,
        client_type=ReducerPeer,
        make_client=lambda address: ReducerPeer(address, "reducer", 30.0, lender),
    )
    handle = program.add_node(node, label="reducer")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        yield handle.dereference()


def of(*values: NDArray[Any], number: int = 0) -> Contribution:
    return Contribution([Ticket(0, 1, number, 0)], (7, 3), Gradients(list(values), (), 2.0))


def ways() -> list[str]:
    return [way for way, _ in Keeping.came]


def test_what_is_large_is_lent_and_what_is_small_is_sent(peer: ReducerPeer) -> None:
    assert peer.push(of(LARGE, SMALL)) == Outcome("applied", 1)
    assert peer.push(of(SMALL)) == Outcome("applied", 2)
    assert ways() == ["memory", "call"]
    for _, came in Keeping.came:
        np.testing.assert_array_equal(came.gradients.values[-1], SMALL)
        assert (came.model, came.gradients.weight) == ((7, 3), 2.0)
    np.testing.assert_array_equal(Keeping.came[0][1].gradients.values[0], LARGE)


def test_what_is_lent_stays_as_it_is_until_it_is_answered(peer: ReducerPeer) -> None:
    Keeping.may_answer.clear()
    sendings = [peer.start_push(of(LARGE + number, number=number)) for number in range(4)]
    wait_for(lambda: len(Keeping.came) == 4)
    for _, came in Keeping.came:
        expected = LARGE + came.tickets[0].number
        np.testing.assert_array_equal(came.gradients.values[0], expected)
    Keeping.may_answer.set()
    fates = {peer.outcome_of(sending) for sending in sendings}
    assert fates == {Outcome("applied", 4)}


def test_buffers_are_used_again_once_they_are_answered(peer: ReducerPeer) -> None:
    for number in range(20):
        peer.push(of(LARGE, number=number))
        Keeping.came.clear()
    assert len(peer._lender._store.place().buffers) <= 2


def test_what_cannot_be_reached_in_memory_is_sent_from_then_on(peer: ReducerPeer) -> None:
    Keeping.is_here = False
    assert peer.push(of(LARGE)) == Outcome("applied", 1)
    sending = peer.start_push(of(LARGE))
    assert sending.loan is None and peer.outcome_of(sending) == Outcome("applied", 2)
    assert ways() == ["call", "call"]


def test_where_there_is_no_memory_to_lend_it_is_sent(
    peer: ReducerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(shared_versions.Buffer, "grow", full)
    assert peer.push(of(LARGE)) == Outcome("applied", 1)
    assert ways() == ["call"]


def test_arrays_of_another_host_are_not_borrowed() -> None:
    lender = Lender()
    record, _loan = lender.lend([LARGE])
    here = shared_versions.this_host()
    assert borrow("another", record) is None
    found = borrow(here, record)
    assert found is not None
    np.testing.assert_array_equal(found[0], LARGE)
    assert borrow(here, record._replace(step=7)) is None
