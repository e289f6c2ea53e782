"""Gathers contributions until there are enough for a step, or it has been too long."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import NamedTuple, Optional

from nodes.contributions import Contribution, Ticket
from nodes.ledger import Fate
from nodes.version import Key


class Outcome(NamedTuple):
    """What became of a contribution.

    Attributes:
        fate: The fate of all gradients in it, or `again`, or `pending`.
        step: Learner steps in the newest model.
        reason: Why it was refused, if it was.
    """

    fate: Fate
    step: int
    reason: str = ""


def settled(outcome: Outcome) -> "futures.Future[Outcome]":
    """Returns an outcome as one that nobody has to wait for."""
    answer: futures.Future[Outcome] = futures.Future()
    answer.set_result(outcome)
    return answer


class Round:
    """Contributions that will be reduced together.

    Attributes:
        model: The model that they were computed on, or that of the first.
        contributions: What came, with where its outcome is waited for.
        began: When the first came, on the monotonic clock.
    """

    def __init__(self, model: Key) -> None:
        self.model = model
        self.contributions: list[tuple[Contribution, futures.Future[Outcome]]] = []
        self.began = time.monotonic()

    @property
    def members(self) -> set[int]:
        """Whose gradients have come."""
        return {ticket.member for ticket in self.tickets}

    @property
    def tickets(self) -> list[Ticket]:
        """All gradients' tickets."""
        return [ticket for contribution, _ in self.contributions for ticket in contribution.tickets]

    def find(self, ticket: Ticket) -> "Optional[futures.Future[Outcome]]":
        """Returns where the outcome of a gradient is waited for, on whatever way it has come."""
        for contribution, answer in self.contributions:
            if any(each[:3] == ticket[:3] for each in contribution.tickets):
                return answer
        return None

    def settle(self, outcome: Outcome) -> None:
        """Tells all who wait what became of their contributions."""
        for _, answer in self.contributions:
            answer.set_result(outcome)

    def fail(self, error: Exception) -> None:
        """Lets all who wait fail."""
        for _, answer in self.contributions:
            answer.set_exception(error)

    def take_out(
        self, leaves: Callable[[Contribution], bool]
    ) -> list[tuple[Contribution, "futures.Future[Outcome]"]]:
        """Takes contributions out, and returns them."""
        leaving = [leaves(contribution) for contribution, _ in self.contributions]
        both = list(zip(self.contributions, leaving, strict=True))
        self.contributions = [each for each, leaves_ in both if not leaves_]
        return [each for each, leaves_ in both if leaves_]


class Closed(Exception):
    """Nothing is gathered any more."""


class Gathering:
    """Gathers rounds; safe to use from several threads.

    A round is complete once every one of `members` has contributed, or, without members, once
    there are `size` gradients. One that is not complete after `seconds` goes as it is; from then on
    nobody who missed it is waited for until he contributes again. A round is overtaken, and goes
    as it is, where something newer has come, unless rounds mix what was computed on several models.
    """

    def __init__(
        self, size: int, seconds: float, members: Sequence[int] = (), mixes_models: bool = False
    ) -> None:
        """Initializes the gathering.

        Args:
            size: Gradients of a round; a second round may be gathered before the first was taken,
                and who comes then waits.
            seconds: Longest time from a round's first contribution to its end.
            members: Whose contributions each round waits for.
            mixes_models: Whether there is one round for all models.
        """
        self._size = size
        self._seconds = seconds
        self._awaited = set(members)
        self._by_member = bool(members)
        self._mixes_models = mixes_models
        self._changed = threading.Condition()
        self._rounds: list[Round] = []
        self._newest: Key = (0, -1)
        self._closed = False

    def add(self, contribution: Contribution) -> "futures.Future[Outcome]":
        """Puts a contribution into a round, once there is room for it, and returns its outcome.

        One that is there already, as its call was made once more, is not taken twice.

        Raises:
            Closed: There will be none.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._known(contribution) or self._has_room(contribution)
            )
            known = self._known(contribution)
            if known is not None:
                return known
            if self._closed:
                raise Closed("nothing is gathered any more")
            answer: futures.Future[Outcome] = futures.Future()
            self._newest = max(self._newest, contribution.model)
            if self._by_member:
                self._awaited |= contribution.members
            self._round_of(contribution.model).contributions.append((contribution, answer))
            self._changed.notify_all()
        return answer

    def take(self, timeout: float) -> Optional[Round]:
        """Returns a round that is to go, or None if there was none for `timeout` seconds."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                now = time.monotonic()
                for round_ in self._rounds:
                    if self._goes(round_, now):
                        self._rounds.remove(round_)
                        self._changed.notify_all()
                        return round_
                if now >= deadline or self._closed:
                    return None
                ends = [round_.began + self._seconds for round_ in self._rounds]
                self._changed.wait(min([deadline, *ends]) - now)

    def close(self) -> list[Round]:
        """Gathers nothing any more, and returns what was not taken."""
        with self._changed:
            self._closed = True
            left, self._rounds = self._rounds, []
            self._changed.notify_all()
        return left

    def _find(self, ticket: Ticket) -> "Optional[futures.Future[Outcome]]":
        """Returns where the outcome of a gradient is waited for, if it has come."""
        found = (round_.find(ticket) for round_ in self._rounds)
        return next((answer for answer in found if answer is not None), None)

    def _known(self, contribution: Contribution) -> "Optional[futures.Future[Outcome]]":
        """Returns the outcome of a contribution that need not be taken, or None."""
        found = {id(answer): answer for answer in map(self._find, contribution.tickets)}
        if len(found) == 1:
            return next(iter(found.values()))
        return settled(Outcome("again", contribution.model[1]))  # A part is there already.

    def _has_room(self, contribution: Contribution) -> bool:
        """Returns whether a contribution may come in; one that a round waits for always may."""
        if sum(len(round_.tickets) for round_ in self._rounds) < 2 * self._size:
            return True
        there = set().union(*(round_.members for round_ in self._rounds))
        return self._by_member and not contribution.members <= there

    def _round_of(self, model: Key) -> Round:
        for round_ in self._rounds:
            if (self._mixes_models or round_.model == model) and not self._is_full(round_):
                return round_
        self._rounds.append(Round(model))
        return self._rounds[-1]

    def _is_full(self, round_: Round) -> bool:
        return not self._by_member and len(round_.tickets) >= self._size

    def _goes(self, round_: Round, now: float) -> bool:
        if not self._mixes_models and round_.model < self._newest:
            return True
        if self._by_member and round_.members >= self._awaited:
            return True
        if self._is_full(round_):
            return True
        if now - round_.began < self._seconds:
            return False
        if self._by_member:
            self._awaited = round_.members
        return True
