"""A reducer, as who contributes sees it: arrays go through memory where both are on one host."""

import itertools
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from nodes import shared_versions
from nodes.contributions import Contribution, assemble
from nodes.gathering import Outcome
from nodes.peer import Peer
from nodes.shared_versions import Mapped, Record, Store, Writer
from nodes.version import Version

_LEAST_BYTES = 1 << 16
"""What is smaller goes with the call, which then costs less than a buffer."""


class Lender:
    """Lends arrays to other processes of this host; safe to use from several threads."""

    def __init__(self) -> None:
        self._store = Store()
        self._writer = Writer(self._store.place(), self._store.add_buffer)
        self._lock = threading.Lock()
        self._incarnation = time.time_ns()
        self._numbers = itertools.count()

    def lend(self, arrays: Sequence[NDArray[Any]]) -> tuple[Record, Mapped]:
        """Copies arrays to where `borrow` finds them as long as the returned map is kept.

        Raises:
            OSError: There is no memory for them.
        """
        with self._lock:
            version = Version(self._incarnation, next(self._numbers), 0, 0.0, arrays)
            return self._writer.lend(version)


def borrow(host: str, record: Sequence[Any]) -> Optional[Sequence[NDArray[Any]]]:
    """Returns lent arrays where they are, or None if they cannot be reached from here.

    Args:
        host: Where they are lent, as `nodes.shared_versions.this_host` says.
        record: What to map.
    """
    if host != shared_versions.this_host():
        return None
    mapped = shared_versions.map_version(Record(*record))
    if mapped is None:
        return None
    mapped.touch()
    return mapped.version.values


class Sending(NamedTuple):
    """A contribution on its way; it is kept until it is answered.

    Attributes:
        call: Gives an `Outcome`'s parts, or None if the arrays could not be reached.
        loan: The arrays, if they are lent.
    """

    call: "futures.Future[Optional[Sequence[Any]]]"
    loan: Optional[Mapped]


class ReducerPeer(Peer):
    """A reducer that takes contributions."""

    def __init__(self, address: str, name: str, call_seconds: float, lender: Lender) -> None:
        """Initializes the peer.

        Args:
            address: `host:port` of the reducer.
            name: What it is called in messages.
            call_seconds: How long a push may go without an answer.
            lender: Lends the arrays.
        """
        super().__init__(address, name, call_seconds)
        self._lender = lender
        self._is_far = False

    def push(self, contribution: Contribution) -> Outcome:
        """Contributes, and returns what became of it once that is known.

        Raises:
            nodes.peer.PeerLost: The reducer was away for too long.
        """
        method, arguments, _loan = self._prepared(contribution)
        outcome = self.call(method, *arguments)
        if outcome is None:
            self._is_far = True
            return self.push(contribution)
        return Outcome(*outcome)

    def start_push(self, contribution: Contribution) -> Sending:
        """Contributes once, in the background."""
        method, arguments, loan = self._prepared(contribution)
        return Sending(self.start(method, *arguments), loan)

    def outcome_of(self, sending: Sending) -> Optional[Outcome]:
        """Returns what became of what was sent, or None if it has to be sent once more.

        Raises:
            StatusNotOk: There was no answer.
        """
        outcome = sending.call.result()
        self._is_far |= outcome is None
        return None if outcome is None else Outcome(*outcome)

    def _prepared(self, contribution: Contribution) -> tuple[str, tuple[Any, ...], Any]:
        """Returns which method to call with what, and what to keep meanwhile."""
        arrays, header = contribution.arrays, contribution.header()
        if not self._is_far and contribution.nbytes >= _LEAST_BYTES:
            try:
                record, loan = self._lender.lend(arrays)
                return "push_lent", (header, shared_versions.this_host(), tuple(record)), loan
            except OSError:  # There is no memory left to lend.
                pass
        return "push", (header, arrays), None


class TakesContributions:
    """How a reducer takes what a `ReducerPeer` pushes."""

    def push(self, header: Sequence[Any], arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Takes a contribution, and returns its outcome once that is known."""
        return self._take(assemble(header, [np.asarray(array) for array in arrays]))

    def push_lent(
        self, header: Sequence[Any], host: str, record: Sequence[Any]
    ) -> Optional[tuple[Any, ...]]:
        """Does the same where the arrays are lent; returns None if they cannot be reached."""
        arrays = borrow(host, record)
        return None if arrays is None else self._take(assemble(header, arrays))

    def _take(self, contribution: Contribution) -> Outcome:
        raise NotImplementedError
