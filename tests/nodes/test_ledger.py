"""Every gradient has one fate, and the sums agree."""

from nodes.contributions import Ticket
from nodes.ledger import Account, Ledger


def tickets(member: int, client: int, *numbers: int) -> list[Ticket]:
    return [Ticket(member, client, number, 0) for number in numbers]


def test_a_fate_does_not_change() -> None:
    ledger = Ledger()
    ledger.settle(tickets(0, 1, 0), "applied")
    ledger.settle(tickets(0, 1, 0, 1), "late")
    assert ledger.fate(Ticket(0, 1, 0, 3)) == "applied"
    assert ledger.of(0, 1) == Account(applied=1, late=1)


def test_the_sums_agree_over_lives_that_were_forgotten() -> None:
    ledger = Ledger()
    for client in range(10):
        ledger.settle(tickets(0, client, 0, 1), "applied")
        ledger.settle(tickets(1, 99, client), "refused")
        ledger.settle(tickets(0, client, 2), "late")
    assert ledger.total == Account(20, 10, 10)
    assert ledger.pushed == sum(ledger.total)
    assert ledger.of(1, 99) == Account(refused=10)
    assert ledger.of(0, 9) == ledger.of(0, 8) == Account(2, 1) and ledger.of(0, 7) == Account()
    assert len(ledger.pack()) < 1000


def test_what_comes_of_a_life_that_was_forgotten_comes_to_nothing() -> None:
    ledger = Ledger()
    ledger.note(tickets(0, 1, 0))
    for client in (2, 3):
        ledger.settle(tickets(0, client, 0), "applied")
    ledger.settle(tickets(0, 1, 0), "late")  # It was on its way all the time.
    assert (ledger.total, ledger.pushed) == (Account(2, 1), 3)
    assert ledger.is_void(Ticket(0, 1, 1, 0))
    ledger.note(tickets(0, 1, 1))
    assert ledger.pushed == 3
    assert not ledger.is_void(Ticket(0, 4, 0, 0)) and not ledger.is_void(Ticket(1, 1, 0, 0))


def test_what_is_under_way_is_pushed_but_has_no_fate() -> None:
    ledger = Ledger()
    ledger.settle(tickets(0, 1, 5), "applied")
    assert ledger.pushed == 6 and sum(ledger.total) == 1


def test_what_was_withdrawn_comes_to_nothing_in_this_attempt_and_those_before() -> None:
    ledger = Ledger()
    ledger.withdraw(Ticket(0, 1, 0, 1))
    assert [ledger.is_void(Ticket(0, 1, 0, attempt)) for attempt in range(3)] == [True, True, False]
    ledger.settle(tickets(0, 1, 0), "applied")
    assert ledger.is_void(Ticket(0, 1, 0, 2))


def test_a_ledger_that_was_packed_goes_on_as_it_was() -> None:
    ledger = Ledger()
    ledger.settle(tickets(2, 2**62, *range(100)), "applied")
    ledger.settle(tickets(2, 2**62, 100), "late")
    again = Ledger.unpack(ledger.pack())
    assert (again.total, again.pushed) == (ledger.total, ledger.pushed)
    assert again.fate(Ticket(2, 2**62, 100, 0)) == "late"
    assert again.fate(Ticket(2, 2**62, 99, 0)) == "applied"
    again.settle(tickets(2, 2**62, 99, 101), "refused")
    assert again.total == Account(100, 1, 1)
