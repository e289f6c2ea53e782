"""Gathers contributions until there are enough for a step, or it has been too long."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import NamedTuple, Optional

from nodes.contributions import Contribution, Ticket
from nodes.ledger import Fate


class Outcome(NamedTuple):
    """What became of a contribution.

    Attributes:
        fate: The fate of all gradients in it, or `again`.
        step: Learner steps in the newest model.
        reason: Why it was refused, if it was.
    """

    fate: Fate
    step: int
    reason: str = ""


class Round:
    """Contributions that will be reduced together.

    Attributes:
        step: Learner steps in the model that they were computed on, or in the oldest.
        contributions: What came, with where its outcome is waited for.
        began: When the first came, on the monotonic clock.
    """

    def __init__(self, step: int) -> None:
        self.step = step
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
        self, size: int, seconds: float, members: Sequence[int] = (), mixes_steps: bool = False
    ) -> None:
        """Initializes the gathering.

        Args:
            size: Gradients of a round; a second round may be gathered before the first was taken,
                and who comes then waits.
            seconds: Longest time from a round's first contribution to its end.
            members: Whose contributions each round waits for.
            mixes_steps: Whether there is one round for all models.
        """
        self._size = size
        self._seconds = seconds
        self._awaited = set(members)
        self._by_member = bool(members)
        self._mixes_steps = mixes_steps
        self._changed = threading.Condition()
        self._rounds: list[Round] = []
        self._newest = -1
        self._closed = False

    @property
    def held(self) -> int:
        """Gradients that have come and were not taken yet."""
        with self._changed:
            return self._held

    def add(self, contribution: Contribution) -> "futures.Future[Outcome]":
        """Puts a contribution into a round, once there is room for it, and returns its outcome.

        Raises:
            Closed: There will be none.
        """
        answer: futures.Future[Outcome] = futures.Future()
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._held < 2 * self._size)
            if self._closed:
                raise Closed("nothing is gathered any more")
            self._newest = max(self._newest, contribution.step)
            self._awaited |= self._known(contribution)
            self._round_of(contribution.step).contributions.append((contribution, answer))
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

    def find(self, ticket: Ticket) -> "Optional[futures.Future[Outcome]]":
        """Returns where the outcome of a gradient is waited for that is gathered now."""
        with self._changed:
            found = [round_.find(ticket) for round_ in self._rounds]
        return next((answer for answer in found if answer is not None), None)

    def take_out(
        self, leaves: Callable[[Contribution], bool]
    ) -> list[tuple[Contribution, "futures.Future[Outcome]"]]:
        """Takes contributions out of all rounds, and returns them."""
        with self._changed:
            out = [each for round_ in self._rounds for each in round_.take_out(leaves)]
            self._rounds = [round_ for round_ in self._rounds if round_.contributions]
            self._changed.notify_all()
        return out

    def close(self) -> list[Round]:
        """Gathers nothing any more, and returns what was not taken."""
        with self._changed:
            self._closed = True
            left, self._rounds = self._rounds, []
            self._changed.notify_all()
        return left

    @property
    def _held(self) -> int:
        return sum(len(round_.tickets) for round_ in self._rounds)

    def _known(self, contribution: Contribution) -> set[int]:
        return {ticket.member for ticket in contribution.tickets} if self._by_member else set()

    def _round_of(self, step: int) -> Round:
        for round_ in self._rounds:
            if (self._mixes_steps or round_.step == step) and not self._is_full(round_):
                return round_
        self._rounds.append(Round(step))
        return self._rounds[-1]

    def _is_full(self, round_: Round) -> bool:
        return not self._by_member and len(round_.tickets) >= self._size

    def _goes(self, round_: Round, now: float) -> bool:
        if not self._mixes_steps and round_.step < self._newest:
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
