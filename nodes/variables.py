"""The variable source: hands the learner's newest variables to whoever acts with them."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple, Optional

from numpy.typing import NDArray

from nodes import contract
from nodes.peer import Peer
from nodes.service import ServiceNode

_CALL_SECONDS = 10.0
_FIRST_POLL_SECONDS = 0.05
_LOOK_SECONDS = 1.0
_CLOSE_SECONDS = 2.0

Key = tuple[int, int]
"""A version's incarnation and step."""


class Version(NamedTuple):
    """One whole version of the variables.

    Attributes:
        incarnation: Which life of the learner published them; no two lives have the same.
        step: Learner steps that had been taken.
        time: When they were published, in seconds since the epoch.
        values: The variables, in the network's own order.
    """

    incarnation: int
    step: int
    time: float
    values: Sequence[NDArray[Any]]

    @property
    def key(self) -> Key:
        """What tells this version from all others."""
        return self.incarnation, self.step


class VariableSource:
    """Keeps the newest version."""

    def __init__(self) -> None:
        self._newest: Optional[Version] = None

    def publish(self, incarnation: int, step: int, values: Sequence[NDArray[Any]]) -> None:
        """Replaces the newest version."""
        self._newest = Version(incarnation, step, time.time(), values)

    def key(self) -> Optional[Key]:
        """Returns which version is the newest, or None before there is one."""
        return self._newest and self._newest.key

    def other_than(self, key: Optional[Key]) -> Optional[Version]:
        """Returns the newest version unless it is the one that the caller has.

        A learner that came back from a checkpoint has taken fewer steps than one that was before
        it: what is different is newer, whatever its step.
        """
        newest = self._newest
        known = None if key is None else tuple(key)  # A call makes it a list.
        return newest if newest is not None and newest.key != known else None


class VariableClient:
    """Publishes and fetches versions, without making the caller wait."""

    def __init__(self, address: str, call_seconds: float = _CALL_SECONDS) -> None:
        """Initializes the client.

        Args:
            address: `host:port` of the source.
            call_seconds: How long a call waits for its answer.
        """
        self._peer = Peer(address, "variable source", call_seconds)
        self._pending: Optional[futures.Future[Optional[Sequence[Any]]]] = None
        self.current: Optional[Version] = None

    def publish(self, incarnation: int, step: int, values: Sequence[NDArray[Any]]) -> None:
        """Publishes a version and waits until it is there.

        Raises:
            nodes.peer.PeerLost: The source was away for too long.
        """
        self._peer.call("publish", incarnation, step, list(values))

    def published(self) -> Optional[Key]:
        """Returns which version the source has, or None if it has none.

        Raises:
            nodes.peer.PeerLost: The source was away for too long.
        """
        key = self._peer.call("key")
        return key and (key[0], key[1])

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come, or to be taken."""
        return self._pending is not None

    def request(self) -> None:
        """Asks for a newer version, in the background; `poll` has the answer later."""
        if self._pending is None:
            key = None if self.current is None else self.current.key
            self._pending = self._peer.start("other_than", key)

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
            runtime.report_waiting("the learner's first variables")
            self.request()
            version = self.poll()
            if version is not None:
                runtime.report_waiting(None)
                return version
        return None


class Publisher:
    """Publishes a learner's variables from a thread of its own; only the newest waits there.

    A source that has lost what was published, because it was started again, gets it once more.
    """

    def __init__(self, client: VariableClient) -> None:
        self._client = client
        self._incarnation = time.time_ns()
        self._newest: Optional[tuple[int, Sequence[NDArray[Any]]]] = None
        self._is_new = False
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
            self._newest = (step, values)
            self._is_new = True
            self._wake.notify()

    def close(self) -> None:
        """Publishes what was offered last, unless the source is away, and ends the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._is_new or self._closed, _LOOK_SECONDS)
                newest, is_new, self._is_new = self._newest, self._is_new, False
                closed = self._closed
            if newest is not None:
                try:
                    self._publish(*newest, is_new)
                except Exception as error:  # The next one may succeed.
                    print(f"Version {newest[0]} of the variables was not published: {error}")
            if closed:
                return

    def _publish(self, step: int, values: Sequence[NDArray[Any]], is_new: bool) -> None:
        if is_new or self._client.published() != (self._incarnation, step):
            self._client.publish(self._incarnation, step, values)


def variable_source_node() -> ServiceNode[VariableClient]:
    """Returns the node that stands between the learner and those who act."""
    return ServiceNode(
        VariableSource,
        client_type=VariableClient,
        make_client=VariableClient,
        traits=contract.Traits(on_failure="restart", endless=True, place="pack"),
    )
