"""The variable relay: fetches each version once for all who read it on one host."""

import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn, Optional

from numpy.typing import NDArray

from nodes import contract
from nodes.service import Handle, ServiceNode, deref
from nodes.variables import Key, VariableClient, Version
from usage import UsageError

_LOOK_SECONDS = 0.02
"""The shortest time from the begin of one look at the source to that of the next."""
_FRESH_SECONDS = 0.1
"""How long after a look its outcome is handed out without another one."""
_WAIT_SECONDS = 0.5
_WAITERS = 4
"""Calls that may wait at once; Courier's server has 16 threads for all calls."""
_STOP_SECONDS = 0.2


class VariableRelay:
    """Hands out the newest version that it has seen at the source, always a whole one.

    Each call from a reader causes a look at the source, but there is one look at a time, and none
    without readers. While the source is away, the last version stays.

    Where readers call often, a call returns at once what the looks of earlier calls have found.
    Where they call seldom, that would be as old as the time between two calls, so a call waits a
    moment for the look that it causes.
    """

    def __init__(self, source: VariableClient) -> None:
        """Initializes the relay.

        Args:
            source: Where the versions come from.
        """
        self._runtime = contract.runtime()
        self._source = source
        self._asked = threading.Event()
        self._looked = threading.Condition()
        self._looked_at = float("-inf")
        self._looks = 0
        self._waiters = 0

    def publish(self, incarnation: int, step: int, values: Sequence[NDArray[Any]]) -> NoReturn:
        """Refuses: what is published to one relay would not reach the others' readers.

        Raises:
            UsageError: Always.
        """
        raise UsageError("A relay only hands variables on: publish to the variable source.")

    def key(self) -> Optional[Key]:
        """Returns which version is the newest here, or None before there is one."""
        newest = self._newest()
        return newest and newest.key

    def other_than(self, key: Optional[Key]) -> Optional[Version]:
        """Returns the newest version here unless it is the one that the caller has."""
        newest = self._newest()
        return newest if newest is not None and newest.key != key else None

    def run(self) -> None:
        """Looks at the source when it was asked, until the program stops."""
        while not self._runtime.stopping:
            if not self._asked.wait(_STOP_SECONDS):
                continue
            self._asked.clear()  # Who asks from now on may ask for what this look does not see.
            began = time.monotonic()
            self._look()
            with self._looked:
                self._looked_at = time.monotonic()
                self._looks += 1
                self._looked.notify_all()
            self._runtime.wait_for_stop(max(0.0, began + _LOOK_SECONDS - time.monotonic()))

    def _look(self) -> None:
        self._source.fetch(_STOP_SECONDS)
        while self._source.waits and not self._runtime.stopping:
            self._source.fetch(_STOP_SECONDS)  # The same look goes on.

    def _newest(self) -> Optional[Version]:
        self._asked.set()
        with self._looked:
            is_fresh = time.monotonic() - self._looked_at < _FRESH_SECONDS
            if not is_fresh and self._waiters < _WAITERS:
                looks = self._looks
                self._waiters += 1
                self._looked.wait_for(lambda: self._looks > looks, _WAIT_SECONDS)
                self._waiters -= 1
        return self._source.current


def variable_relay_node(source: Handle[VariableClient]) -> ServiceNode[VariableClient]:
    """Returns the node that stands, on each host with readers, between them and `source`.

    Whoever reads variables takes its handle like that of the source.
    """
    return ServiceNode(
        VariableRelay,
        deref(source),
        client_type=VariableClient,
        make_client=VariableClient,
        traits=contract.Traits(
            on_failure="restart",
            endless=True,
            dispensable=True,
            per_host=True,
            stands_in_for=source.address,
        ),
    )
