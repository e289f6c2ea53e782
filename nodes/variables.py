"""The variable source: hands the learner's newest variables to whoever acts with them."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple, Optional

import courier
from numpy.typing import NDArray

from nodes import contract
from nodes.service import ServiceNode

_CALL_TIMEOUT_SECONDS = 10.0
_FIRST_POLL_SECONDS = 0.05


class Version(NamedTuple):
    """One whole version of the variables.

    Attributes:
        step: Learner steps that had been taken.
        time: When they were published, in seconds since the epoch.
        values: The variables, in the network's own order.
    """

    step: int
    time: float
    values: Sequence[NDArray[Any]]


class VariableSource:
    """Keeps the newest version."""

    def __init__(self) -> None:
        self._newest: Optional[Version] = None

    def publish(self, step: int, values: Sequence[NDArray[Any]]) -> None:
        """Replaces the newest version."""
        self._newest = Version(step, time.time(), values)

    def newer_than(self, step: int) -> Optional[Version]:
        """Returns the newest version if it is newer than `step`, else None."""
        newest = self._newest
        return newest if newest is not None and newest.step > step else None


class VariableClient:
    """Publishes and fetches versions, without making the caller wait."""

    def __init__(self, address: str, timeout: float = _CALL_TIMEOUT_SECONDS) -> None:
        """Initializes the client.

        Args:
            address: `host:port` of the source.
            timeout: Seconds after which a call that was not answered has failed.
        """
        self._client = courier.Client(address, call_timeout=timeout)
        self._pending: Optional[futures.Future[Optional[tuple[int, float, list[NDArray[Any]]]]]] = (
            None
        )
        self.current: Optional[Version] = None

    def publish(self, step: int, values: Sequence[NDArray[Any]]) -> None:
        """Publishes a version and waits until it is there."""
        self._client.publish(step, list(values))

    def request(self) -> None:
        """Asks for a newer version, in the background; `poll` has the answer later."""
        if self._pending is None:
            step = -1 if self.current is None else self.current.step
            self._pending = self._client.futures.newer_than(step)

    def poll(self) -> Optional[Version]:
        """Returns a version that has arrived since the last call, or None; never waits.

        A source that does not answer in time leaves the version as it is.
        """
        if self._pending is None or not self._pending.done():
            return None
        pending, self._pending = self._pending, None
        if pending.exception() is not None:
            return None
        answer = pending.result()
        if answer is None:
            return None
        self.current = Version(*answer)
        return self.current

    def fetch(self, seconds: float) -> Optional[Version]:
        """Asks for a newer version and waits for the answer, `seconds` at most."""
        self.request()
        if self._pending is not None:
            futures.wait([self._pending], timeout=seconds)
        return self.poll()

    def wait_for_first(self, runtime: contract.Runtime) -> Optional[Version]:
        """Returns the first version once there is one, or None if the node is to stop."""
        while not runtime.wait_for_stop(_FIRST_POLL_SECONDS):
            self.request()
            version = self.poll()
            if version is not None:
                return version
        return None


class Publisher:
    """Publishes a learner's variables from a thread of its own; only the newest waits there."""

    def __init__(self, client: VariableClient) -> None:
        self._client = client
        self._offered: Optional[tuple[int, Sequence[NDArray[Any]]]] = None
        self._wake = threading.Condition()
        self._closed = False
        self._offered_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    @property
    def idle_seconds(self) -> float:
        """How long ago variables were offered last."""
        return time.monotonic() - self._offered_at

    def offer(self, step: int, copy_variables: Callable[[], Sequence[NDArray[Any]]]) -> None:
        """Hands over a copy of the variables; one that was not yet published is replaced."""
        values = copy_variables()
        self._offered_at = time.monotonic()
        with self._wake:
            self._offered = (step, values)
            self._wake.notify()

    def close(self) -> None:
        """Publishes what was offered last and ends the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._offered is not None or self._closed)
                offered, self._offered = self._offered, None
            if offered is None:
                return
            try:
                self._client.publish(*offered)
            except Exception as error:  # Courier's errors share no base; the next one may succeed.
                print(f"Version {offered[0]} of the variables was not published: {error}")


def variable_source_node() -> ServiceNode[VariableClient]:
    """Returns the node that stands between the learner and those who act."""
    return ServiceNode(
        VariableSource,
        client_type=VariableClient,
        make_client=VariableClient,
        traits=contract.Traits(endless=True),
    )
