"""What has come to the primary reducer: what waits, what is at work, and the account of all."""

from collections.abc import Sequence
from concurrent import futures
from typing import Optional

import numpy as np
from numpy.typing import NDArray

from nodes.contributions import Contribution, Ticket
from nodes.gathering import Gathering, Outcome, Round, settled
from nodes.ledger import Ledger
from nodes.version import Key


class Intake(Gathering):
    """Gathers contributions and knows what became of them; safe to use from several threads.

    A gradient is applied once the model with it is published: until `finish` its outcome is waited
    for, by whoever asks.
    """

    def __init__(
        self, size: int, seconds: float, members: Sequence[int], max_staleness: int
    ) -> None:
        """Initializes the intake.

        Args:
            size: See `Gathering`.
            seconds: Likewise.
            members: Likewise.
            max_staleness: Steps by which the newest model may be ahead of a gradient's.
        """
        super().__init__(size, seconds, members, mixes_models=True)
        self._max_staleness = max_staleness
        self._ledger = Ledger()
        self._model: Key = (0, -1)
        self._at_work: Optional[Round] = None

    def take_up(self, ledger: Ledger, model: Key) -> None:
        """Goes on with the account of an earlier life, and with the model that was published."""
        with self._changed:
            self._ledger = ledger
            self._model = model

    def add(self, contribution: Contribution) -> "futures.Future[Outcome]":
        """See `Gathering`; of what needs no step the outcome is there at once."""
        with self._changed:
            self._ledger.note(contribution.tickets)
            return super().add(contribution)

    def take(self, timeout: float) -> Optional[Round]:
        """See `Gathering`; what is returned is at work until it is finished."""
        with self._changed:
            round_ = super().take(timeout)
            if round_ is None:
                return None
            self._tell_decided(round_)
            self._at_work = round_ if round_.contributions else None
            return self._at_work

    def finish(self, round_: Round, outcome: Outcome, model: Key) -> None:
        """Settles what was at work, by which there is a new model, or still the same."""
        with self._changed:
            self._ledger.settle(round_.tickets, outcome.fate)
            self._model = model
            self._at_work = None
            for waiting in list(self._rounds):
                self._tell_decided(waiting)
                if not waiting.contributions:
                    self._rounds.remove(waiting)
            self._changed.notify_all()
        round_.settle(outcome)

    def withdraw(self, ticket: Ticket) -> Optional[Outcome]:
        """Lets an attempt come to nothing unless it has arrived; see `PrimaryClient.withdraw`."""
        with self._changed:
            if self._find(ticket) is not None:
                return Outcome("pending", self._model[1])
            fate = self._ledger.fate(ticket)
            if fate is not None:
                return Outcome(fate, self._model[1])
            self._ledger.withdraw(ticket)
            return None

    def refuse(self, tickets: Sequence[Ticket], reason: str) -> Outcome:
        """Accounts for gradients that are none of the model."""
        with self._changed:
            self._ledger.note(tickets)
            self._ledger.settle(tickets, "refused")
            return Outcome("refused", self._model[1], reason)

    def accounts(self) -> dict[str, int]:
        """Returns how many gradients were pushed, and what became of them, by name."""
        with self._changed:
            return {"pushed": self._ledger.pushed, **self._ledger.total._asdict()}

    def account_of(self, member: int, client: int) -> dict[str, int]:
        """Returns what became of the gradients of one life of a learner, by name."""
        with self._changed:
            return dict(self._ledger.of(member, client)._asdict())

    def packed_ledger(self, applied: Optional[Round] = None) -> NDArray[np.uint8]:
        """Returns the account as an array, as it is, or as it will be once a round is applied."""
        with self._changed:
            packed = self._ledger.pack()
        if applied is None:
            return packed
        later = Ledger.unpack(packed)
        later.settle(applied.tickets, "applied")
        return later.pack()

    def _find(self, ticket: Ticket) -> "Optional[futures.Future[Outcome]]":
        at_work = None if self._at_work is None else self._at_work.find(ticket)
        return at_work or super()._find(ticket)

    def _known(self, contribution: Contribution) -> "Optional[futures.Future[Outcome]]":
        decided = self._decide(contribution)
        return super()._known(contribution) if decided is None else settled(decided)

    def _tell_decided(self, round_: Round) -> None:
        """Takes what needs no step out of a round, and tells those who wait for it."""
        for contribution, answer in round_.take_out(lambda each: self._decide(each) is not None):
            answer.set_result(self._decide(contribution) or Outcome("again", self._model[1]))

    def _decide(self, contribution: Contribution) -> Optional[Outcome]:
        """Returns the outcome of a contribution for which no step is needed, or None."""
        incarnation, step = self._model
        fates = {self._ledger.fate(ticket) for ticket in contribution.tickets}
        if len(fates) == 1 and None not in fates:
            return Outcome(fates.pop() or "again", step)
        if any(self._ledger.is_void(ticket) for ticket in contribution.tickets):
            return Outcome("again", step)
        is_of_a_lost_model = contribution.model[0] != incarnation or contribution.model[1] > step
        if is_of_a_lost_model or step - contribution.model[1] > self._max_staleness:
            self._ledger.settle(contribution.tickets, "late")
            return Outcome("late", step)
        return None
