"""An ordered server: keeps the newest versions of values, each of which follows the one before."""

import collections
import threading
import uuid
from typing import Any, NamedTuple, Optional

from nodes import contract
from nodes.peer import Peer
from nodes.service import ServiceNode
from usage import UsageError


class _Entry(NamedTuple):
    """A version of a value.

    Attributes:
        version: Its number.
        value: The value.
        push: Which call has pushed it.
    """

    version: int
    value: Any
    push: str


class OrderedClient:
    """Pushes and pulls values."""

    def __init__(self, address: str) -> None:
        """Initializes the client.

        Args:
            address: `host:port` of the server.
        """
        self._peer = Peer(address, "ordered server")

    def push(self, key: str, value: Any, version: int, prev_version: Optional[int]) -> bool:
        """Makes `value` the newest version of `key`, if that was made from the newest there is.

        Args:
            key: Which value.
            value: What a call can carry: numbers, text, arrays, and lists and mappings of these.
            version: Number of the new version.
            prev_version: Number of the version that it was made from; None for the first.

        Returns:
            Whether `prev_version` was the newest; else nothing has changed.

        Raises:
            StatusNotOk: `version` is not greater than `prev_version`.
            nodes.peer.PeerLost: The server was away for too long.
        """
        push = uuid.uuid4().hex
        return bool(self._peer.call("push", key, value, version, prev_version, push))

    def pull(self, key: str, version: Optional[int] = None) -> Optional[tuple[Any, int]]:
        """Returns a version's value and number, of the newest one unless `version` is given.

        Returns:
            None if there is no such version, or it is not kept any more.

        Raises:
            nodes.peer.PeerLost: The server was away for too long.
        """
        found = self._peer.call("pull", key, version)
        return None if found is None else (found[0], int(found[1]))


class OrderedServer:
    """Keeps the newest versions of each value; safe to use from several threads."""

    def __init__(self, depth: int = 1) -> None:
        """Initializes the server.

        Args:
            depth: Versions of each value that are kept.

        Raises:
            UsageError: It is not positive.
        """
        _check(depth)
        self._depth = depth
        self._lock = threading.Lock()
        self._entries: dict[str, collections.deque[_Entry]] = {}

    def push(
        self, key: str, value: Any, version: int, prev_version: Optional[int], push: str = ""
    ) -> bool:
        """See `OrderedClient.push`.

        Args:
            key: See there.
            value: Likewise.
            version: Likewise.
            prev_version: Likewise.
            push: Tells this push from others, where a call may be made twice.

        Raises:
            ValueError: `version` is not greater than `prev_version`.
        """
        if prev_version is not None and version <= prev_version:
            raise ValueError(
                f"Versions of {key!r} rise, but {version} was to follow {prev_version}."
            )
        with self._lock:
            entries = self._entries.get(key)
            newest = entries[-1] if entries else None
            if newest is not None and push and newest.push == push:
                return True
            if (None if newest is None else newest.version) != prev_version:
                return False
            if entries is None:
                entries = self._entries[key] = collections.deque(maxlen=self._depth)
            entries.append(_Entry(version, value, push))
        return True

    def pull(self, key: str, version: Optional[int] = None) -> Optional[tuple[Any, int]]:
        """See `OrderedClient.pull`."""
        with self._lock:
            for entry in reversed(self._entries.get(key, ())):
                if version is None or entry.version == version:
                    return entry.value, entry.version
        return None


def ordered_server_node(depth: int = 1) -> ServiceNode[OrderedClient]:
    """Returns the node of an `OrderedServer`.

    Raises:
        UsageError: `depth` is not positive.
    """
    _check(depth)
    return ServiceNode(
        OrderedServer,
        depth,
        client_type=OrderedClient,
        make_client=OrderedClient,
        traits=contract.Traits(endless=True, place="pack"),
    )


def _check(depth: int) -> None:
    if depth < 1:
        raise UsageError(f"At least 1 version must be kept, got a depth of {depth}.")
