"""A reducer: gathers gradients, reduces them, and passes on what they came to."""

import dataclasses
import threading
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Optional

import numpy as np
from acme import specs

from nodes import contract, contributions
from nodes.contributions import BACKENDS, METHODS, Backend, Contribution, Method, NotAGradient
from nodes.gathering import Closed, Gathering, Outcome, Round
from nodes.peer import Peer, PeerLost
from nodes.reducer_peer import Lender, ReducerPeer, TakesContributions
from usage import UsageError, unknown

Assignment = Literal["fixed", "random"]
ASSIGNMENTS: tuple[Assignment, ...] = ("fixed", "random")

_TAKE_SECONDS = 0.2
_ROUNDS_UNDER_WAY = 4
_LONGEST_STEP_SECONDS = 120.0
"""What a step may take besides the wait for contributions: reduction, optimizer, publication."""


@dataclasses.dataclass(frozen=True)
class Reduction:
    """How gradients are reduced.

    Attributes:
        method: `mean`, weighted, or `sum`; see `nodes.contributions.reduce`.
        synchronous: Whether each learner contributes to each step, on the newest model. Else a step
            is taken with `batch_size` gradients, whosever they are.
        max_staleness: Steps that the model may be ahead of the one that a gradient was computed on,
            before the gradient is late; 0 where learners are synchronous.
        batch_size: Gradients of a step where learners are not synchronous.
        secondary_batch_size: Gradients that a secondary reduces to one, likewise.
        flush_seconds: A secondary waits so long for what a round still lacks, and the primary
            twice as long.
        assignment: Whether a learner always pushes to the same secondary or each time to any.
        backend: `numpy`, `tensorflow`, or `auto`: on the GPU that the layout gives, else NumPy.

    Raises:
        UsageError: A field is out of its range, or two do not fit together.
    """

    method: Method = "mean"
    synchronous: bool = True
    max_staleness: int = 0
    batch_size: int = 1
    secondary_batch_size: int = 1
    flush_seconds: float = 15.0
    assignment: Assignment = "fixed"
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        for name, known in (
            ("method", METHODS),
            ("assignment", ASSIGNMENTS),
            ("backend", tuple(BACKENDS)),
        ):
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known)
        for name in ("batch_size", "secondary_batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 < self.flush_seconds < np.inf:
            raise UsageError(f"flush_seconds must be a positive number, got {self.flush_seconds}.")
        if self.max_staleness < 0:
            raise UsageError(f"max_staleness must not be negative, got {self.max_staleness}.")
        if self.synchronous and self.max_staleness:
            raise UsageError(
                "max_staleness must be 0 where learners are synchronous, as each then waits for "
                f"the newest model, got {self.max_staleness}."
            )
        if self.synchronous and self.assignment == "random":
            raise UsageError(
                "assignment must be 'fixed' where learners are synchronous, as a secondary then "
                "waits for its own learners, got 'random'."
            )

    @property
    def call_seconds(self) -> float:
        """How long a push may go without an answer."""
        return 3 * self.flush_seconds + _LONGEST_STEP_SECONDS


class GradientSpecs(NamedTuple):
    """What the gradients of a model look like; see `agents.agent.SharedModel`.

    Attributes:
        variables: Of `Gradients.values`.
        state: Of `Gradients.state`.
    """

    variables: Mapping[str, specs.Array]
    state: Mapping[str, specs.Array]

    def pack(self) -> list[list[tuple[str, str, list[int]]]]:
        """Returns the specs as a call carries them."""
        return [
            [(name, np.dtype(spec.dtype).str, list(spec.shape)) for name, spec in part.items()]
            for part in self
        ]

    @classmethod
    def unpack(cls, packed: Any) -> "GradientSpecs":
        """Returns what `pack` has packed."""
        variables, state = (
            {name: specs.Array(tuple(shape), np.dtype(dtype)) for name, dtype, shape in part}
            for part in packed
        )
        return cls(variables, state)


class PrimaryClient:
    """The primary reducer as secondaries and learners see it.

    Attributes:
        pushes: Takes contributions.
    """

    def __init__(self, address: str, call_seconds: float, lender: Optional[Lender] = None) -> None:
        """Initializes the client.

        Args:
            address: `host:port` of the primary.
            call_seconds: How long a push may go without an answer.
            lender: Lends what is pushed; one of its own unless given.
        """
        self.pushes = ReducerPeer(address, "primary reducer", call_seconds, lender or Lender())
        self._peer = Peer(address, "primary reducer")

    def withdraw(self, ticket: contributions.Ticket) -> Optional[Outcome]:
        """Lets an attempt of which nothing was heard come to nothing, unless it has arrived.

        Returns:
            What became of the gradient; `pending` if that is not known yet; or None if it may be
            pushed once more.

        Raises:
            nodes.peer.PeerLost: The primary was away for too long.
        """
        outcome = self._peer.call("withdraw", *ticket)
        return None if outcome is None else Outcome(*outcome)

    def refuse(self, ticket: contributions.Ticket) -> None:
        """Accounts for a gradient that is none of the model."""
        self._peer.call("refuse", *ticket)

    def specs(self) -> GradientSpecs:
        """Returns what gradients look like."""
        return GradientSpecs.unpack(self._peer.call("specs"))

    def account_of(self, member: int, client: int) -> dict[str, int]:
        """Returns what became of the gradients of one life of a learner, by name."""
        return dict(self._peer.call("account_of", member, client))

    def accounts(self) -> dict[str, int]:
        """Returns what has come to the primary, by name.

        Returns:
            `pushed`: gradients of all learners, as far as they, or later ones, have come;
            `applied`, `late`, `refused`: what became of them, over all lives of the primary; and
            `bytes`: those of the arrays that came to it, in this life.
        """
        return dict(self._peer.call("accounts"))


class SecondaryReducer(TakesContributions):
    """Reduces the gradients of some of the learners, and contributes the result to the primary."""

    def __init__(
        self, primary: PrimaryClient, members: list[int], size: int, reduction: Reduction
    ) -> None:
        """Initializes the reducer.

        Args:
            primary: Where the results go.
            members: Whose gradients each round waits for; nobody's in particular if empty.
            size: Gradients of a round.
            reduction: How they are reduced.
        """
        self._runtime = contract.runtime()
        self._primary = primary
        self._reduction = reduction
        mixes = not reduction.synchronous
        self._gathering = Gathering(size, reduction.flush_seconds, members, mixes)
        self._under_way = threading.BoundedSemaphore(_ROUNDS_UNDER_WAY)
        self._specs: Optional[GradientSpecs] = None

    def _take(self, contribution: Contribution) -> Outcome:
        if self._specs is None:
            self._specs = self._primary.specs()
        try:
            contributions.check(contribution.gradients, *self._specs)
        except NotAGradient as error:
            for ticket in contribution.tickets:
                self._primary.refuse(ticket)
            return Outcome("refused", contribution.model[1], str(error))
        try:
            return self._gathering.add(contribution).result()
        except Closed:
            return Outcome("again", contribution.model[1])

    def run(self) -> None:
        """Reduces until the program stops."""
        try:
            while not self._runtime.stopping:
                round_ = self._gathering.take(_TAKE_SECONDS)
                if round_ is None:
                    self._runtime.report_waiting("gradients")
                    continue
                self._runtime.report_progress()
                while not self._under_way.acquire(timeout=_TAKE_SECONDS):
                    if self._runtime.stopping:
                        round_.settle(Outcome("again", round_.model[1]))
                        return
                threading.Thread(target=self._pass_on, args=(round_,), daemon=True).start()
                del round_  # With the gradients that are lent to it.
        finally:
            for round_ in self._gathering.close():
                round_.settle(Outcome("again", round_.model[1]))

    def _pass_on(self, round_: Round) -> None:
        try:
            came = [contribution for contribution, _ in round_.contributions]
            backend = BACKENDS[self._reduction.backend]
            reduced = contributions.reduce(came, self._reduction.method, backend)
            round_.settle(self._primary.pushes.push(reduced))
        except PeerLost:
            round_.settle(Outcome("again", round_.model[1]))
        except Exception as error:  # Who has pushed gets it, and tells of it.
            round_.fail(error)
        finally:
            self._under_way.release()
