"""Reduced gradients: what a learner pushes to, and the tree of reducers behind it.

    learners -> secondary reducers -> primary reducer -> variable source -> learners

The primary takes a step with what has come, and publishes the model; learners compute their next
gradients on that. Without secondaries learners push to the primary itself.
"""

import itertools
import random
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from typing import NamedTuple, Optional

import launchpad as lp
from launchpad.nodes import base

from agents.agent import Gradients
from nodes import checkpoints, contract
from nodes.checkpoints import Schedule
from nodes.contributions import Contribution, Ticket
from nodes.counter import CounterClient
from nodes.gathering import Outcome
from nodes.peer import PeerLost, is_away
from nodes.primary_reducer import MakeModel, PrimaryReducer
from nodes.reducer import Assignment, PrimaryClient, Reduction, SecondaryReducer
from nodes.reducer_peer import Lender, ReducerPeer
from nodes.service import Handle, ServiceNode, deref
from nodes.variables import VariableClient
from nodes.version import Key
from usage import UsageError

_LOOK_SECONDS = 0.1
_MOST_BYTES = 2_000_000_000
"""A call with more would end the process that it is made to."""
_PUSHES_AT_ONCE = 4
_OTHER_CALLS = 8


class GradientRefused(ValueError):
    """A reducer has refused a gradient: it is not finite, or does not fit the model."""


class Pusher:
    """Pushes the gradients of one learner, each until its fate is known.

    Attributes:
        member: Which of the learners it is.
        client: Which life of that learner.
    """

    def __init__(
        self,
        member: int,
        primary: PrimaryClient,
        secondaries: Sequence[ReducerPeer],
        at_random: bool,
    ) -> None:
        self.member = member
        self.client = time.time_ns()
        self._primary = primary
        self._secondaries = secondaries
        self._at_random = at_random
        self._numbers = itertools.count()
        self._pushes = threading.BoundedSemaphore(_PUSHES_AT_ONCE)
        self._runtime = contract.runtime_if_any()

    def push(self, model: Key, gradients: Gradients) -> Optional[Outcome]:
        """Pushes gradients and waits for what becomes of them.

        It is safe to use from several threads, of which four push at a time. What was pushed to a
        reducer that died is pushed again, to the primary, unless it has arrived there: it is
        applied once or not at all.

        Args:
            model: Key of the version that they were computed on.
            gradients: The gradients.

        Returns:
            Whether they were applied, or late, and how many learner steps there are now; None if
            this node is to stop.

        Raises:
            GradientRefused: They are not finite or do not fit the model.
            nodes.peer.PeerLost: The primary was away for too long.
            UsageError: They are more than one call can carry.
        """
        contribution = Contribution([], model, gradients)
        if contribution.nbytes > _MOST_BYTES:
            raise UsageError(
                f"Gradients of {contribution.nbytes / 2**30:.1f} GiB are more than one call "
                f"can carry, {_MOST_BYTES / 2**30:.1f} GiB: split the model."
            )
        with self._pushes:
            ticket = Ticket(self.member, self.client, next(self._numbers), attempt=0)
            outcome = self._deliver(contribution._replace(tickets=[ticket]))
        if outcome is not None and outcome.fate == "refused":
            raise GradientRefused(outcome.reason)
        return outcome

    def _deliver(self, contribution: Contribution) -> Optional[Outcome]:
        """Pushes until the fate is known, and returns it, or None if the node is to stop."""
        (ticket,) = contribution.tickets
        outcome = self._try(self._assigned(), contribution)
        try:
            while outcome is None or outcome.fate in ("again", "pending"):
                if self._stopping:
                    return None
                if outcome is not None and outcome.fate == "pending":
                    time.sleep(_LOOK_SECONDS)
                outcome = self._primary.withdraw(ticket)
                if outcome is None:
                    ticket = ticket._replace(attempt=ticket.attempt + 1)
                    again = contribution._replace(tickets=[ticket])
                    outcome = self._try(self._primary.pushes, again)
        except PeerLost:
            if self._stopping:
                return None
            raise
        return outcome

    @property
    def _stopping(self) -> bool:
        return self._runtime is not None and self._runtime.stopping

    def _assigned(self) -> ReducerPeer:
        """Returns where the next gradient goes."""
        number = len(self._secondaries)
        if not number:
            return self._primary.pushes
        chosen = random.randrange(number) if self._at_random else self.member % number
        return self._secondaries[chosen]

    def _try(self, reducer: ReducerPeer, contribution: Contribution) -> Optional[Outcome]:
        """Pushes, and returns the outcome, or None if nothing was heard or the node is to stop."""
        outcome = None
        while outcome is None:
            sending = reducer.start_push(contribution)
            while not futures.wait([sending.call], timeout=_LOOK_SECONDS).done:
                if self._stopping:
                    return None
                if self._runtime is not None:
                    self._runtime.report_waiting("other learners, or the primary reducer")
            try:
                outcome = reducer.outcome_of(sending)
            except Exception as error:
                if not is_away(error):
                    raise
                return None
        return outcome


class ReducersClient:
    """All reducers, as learners see them."""

    def __init__(
        self, primary: str, secondaries: Sequence[str], assignment: Assignment, call_seconds: float
    ) -> None:
        """Initializes the client.

        Args:
            primary: `host:port` of the primary.
            secondaries: Those of the secondaries.
            assignment: See `nodes.reducer.Reduction`.
            call_seconds: How long a push may go without an answer.
        """
        lender = Lender()
        self._primary = PrimaryClient(primary, call_seconds, lender)
        self._secondaries = [
            ReducerPeer(address, "secondary reducer", call_seconds, lender)
            for address in secondaries
        ]
        self._at_random = assignment == "random"

    def pusher(self, member: int) -> Pusher:
        """Returns what pushes the gradients of learner `member`."""
        return Pusher(member, self._primary, self._secondaries, self._at_random)

    def accounts(self) -> dict[str, int]:
        """See `PrimaryClient.accounts`."""
        return self._primary.accounts()


class ReducersHandle(base.Handle[ReducersClient]):
    """Handle of all reducers together.

    Attributes:
        client_type: What the handle dereferences to.
    """

    client_type = ReducersClient

    def __init__(
        self, primary: lp.Address, secondaries: Sequence[lp.Address], reduction: Reduction
    ) -> None:
        self._primary = primary
        self._secondaries = list(secondaries)
        self._reduction = reduction

    def dereference(self) -> ReducersClient:
        """Returns a client of all reducers."""
        return ReducersClient(
            self._primary.resolve(),
            [address.resolve() for address in self._secondaries],
            self._reduction.assignment,
            self._reduction.call_seconds,
        )

    def __repr__(self) -> str:
        return f"handle of a primary and {len(self._secondaries)} secondary gradient reducers"


class Reducers(NamedTuple):
    """The nodes of a tree of reducers, to be added to a program, and the one handle to them.

    Attributes:
        primary: The primary.
        secondaries: The secondaries.
        handle: What learners get.
    """

    primary: ServiceNode[PrimaryClient]
    secondaries: Sequence[ServiceNode[SecondaryReducer]]
    handle: ReducersHandle


def gradient_reducers(
    make_model: MakeModel,
    models: Handle[VariableClient],
    num_learners: int,
    num_secondaries: int = 0,
    reduction: Reduction = Reduction(),  # noqa: B008 - it is frozen
    *,
    schedule: Schedule = checkpoints.DEFAULT,
    variables: Optional[Handle[VariableClient]] = None,
    publish_period: int = 1,
    counter: Optional[Handle[CounterClient]] = None,
) -> Reducers:
    """Returns a tree of reducers for `num_learners`; see `PrimaryReducer` for the arguments.

    Raises:
        UsageError: There are more secondaries than learners, or no learner.
    """
    if num_learners < 1:
        raise UsageError(f"Gradients come from at least 1 learner, got {num_learners}.")
    if not 0 <= num_secondaries <= num_learners:
        raise UsageError(
            f"There may be up to {num_learners} secondary reducers, one a learner, got "
            f"{num_secondaries}."
        )
    threads = _PUSHES_AT_ONCE * num_learners + _OTHER_CALLS
    primary = ServiceNode[PrimaryClient](
        PrimaryReducer,
        make_model,
        deref(models),
        num_learners,
        reduction,
        schedule,
        None if variables is None else deref(variables),
        publish_period,
        None if counter is None else deref(counter),
        client_type=PrimaryClient,
        make_client=lambda address: PrimaryClient(address, reduction.call_seconds),
        traits=contract.Traits(on_failure="restart", endless=True, place="pack"),
        threads=threads,
    )
    secondaries = []
    for number in range(num_secondaries):
        own = list(range(number, num_learners, num_secondaries))
        size = len(own) if reduction.synchronous else reduction.secondary_batch_size
        secondaries.append(
            ServiceNode[SecondaryReducer](
                SecondaryReducer,
                deref(primary.create_handle()),
                own if reduction.synchronous else [],
                size,
                reduction,
                client_type=SecondaryReducer,
                traits=contract.Traits(on_failure="restart", endless=True, place="spread"),
                threads=threads,
            )
        )
    handle = ReducersHandle(primary._address, [node._address for node in secondaries], reduction)
    for node in (primary, *secondaries):
        node._track_handle(handle)
    return Reducers(primary, secondaries, handle)
