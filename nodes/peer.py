"""Calls to another node: each has a deadline, and is made again until it is answered."""

from concurrent import futures
from typing import Any

import courier
import tenacity
from courier.python.client import StatusNotOk

from nodes import contract

CALL_SECONDS = 5.0
"""How long one call waits for its answer."""
PATIENCE_SECONDS = 60.0
"""How long a peer may be away before a call to it fails."""
_PAUSE_SECONDS = 0.2
_AWAY = ("DEADLINE_EXCEEDED", "UNAVAILABLE", "CANCELLED")


class PeerLost(ConnectionError):
    """A peer has not answered for too long."""


class Peer:
    """Another node's service, as its clients call it.

    A call may be executed more than once, if an answer is lost: what is called must bear that.
    """

    def __init__(
        self,
        address: str,
        name: str,
        call_seconds: float = CALL_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Initializes the peer; nothing is called yet.

        Args:
            address: `host:port` of the service.
            name: What the service is called in messages.
            call_seconds: How long one call waits for its answer.
            patience_seconds: How long it is made again before it fails.
        """
        self._client = courier.Client(address, call_timeout=call_seconds)
        self._name = f"the {name} at {address}"
        self._patience = patience_seconds
        self._runtime = contract.runtime_if_any()

    def call(self, method: str, *arguments: Any) -> Any:
        """Returns the answer, once there is one.

        Raises:
            PeerLost: There was none for long, or there was none and this node is to stop.
            StatusNotOk: The peer's method raised an exception.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_away),
            stop=self._gives_up,
            wait=tenacity.wait_fixed(_PAUSE_SECONDS),
            before_sleep=self._tell,
        )
        try:
            answer = retrying(getattr(self._client, method), *arguments)
            if self._runtime is not None and retrying.statistics["attempt_number"] > 1:
                self._runtime.report_waiting(None)
            return answer
        except tenacity.RetryError:
            raise PeerLost(f"{self._name} does not answer {method!r}") from None

    def once(self, method: str, *arguments: Any) -> Any:
        """Makes a call once.

        Raises:
            StatusNotOk: There was no answer in time, or the peer's method raised an exception.
        """
        return getattr(self._client, method)(*arguments)

    def start(self, method: str, *arguments: Any) -> "futures.Future[Any]":
        """Makes a call once, in the background."""
        return getattr(self._client.futures, method)(*arguments)  # type: ignore[no-any-return]

    def _gives_up(self, state: tenacity.RetryCallState) -> bool:
        stopping = self._runtime is not None and self._runtime.stopping
        return stopping or (state.seconds_since_start or 0.0) >= self._patience

    def _tell(self, _: tenacity.RetryCallState) -> None:
        if self._runtime is not None:
            self._runtime.report_waiting(f"{self._name}, which does not answer")


def is_away(error: BaseException) -> bool:
    """Returns whether an error of a call says that there was no answer."""
    code = getattr(error, "code", None)
    return isinstance(error, StatusNotOk) and getattr(code, "name", None) in _AWAY
