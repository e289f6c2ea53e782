"""The variable source: hands the learner's newest variables to whoever acts with them.

Who runs on the source's host reads and writes its memory (`nodes.shared_versions`); who does not
calls it, and gets or gives a version in pieces.
"""

import threading
import time
from concurrent import futures
from typing import NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from nodes import contract, shared_versions
from nodes.peer import Peer
from nodes.service import ServiceNode
from nodes.shared_versions import Board, Buffer, NotHere, Place, Store, Writer
from nodes.version import Key, Version, empty_block, pack, packed_size, unpack

PIECE_BYTES = 16 << 20
"""The most that one call carries; one of 2 GiB would end the server's process."""
_CALL_SECONDS = 10.0
_FIRST_POLL_SECONDS = 0.05
_POLL_SECONDS = 0.005
_LEND_SECONDS = 30.0
"""How long a version that is given out in pieces is kept after the last one was asked for."""
_MAX_LENT = 3
_LOOK_SECONDS = 0.25
"""How long a relay may take to look at its source."""
_STOP_SECONDS = 1.0


class Loan(NamedTuple):
    """A version that is fetched in pieces.

    Attributes:
        key: Its key.
        size: Its size in bytes, packed.
        piece: uint8, its first piece.
    """

    key: Key
    size: int
    piece: NDArray[np.uint8]


class VersionServer:
    """Has versions in a store, and gives them piece by piece to those who cannot map them."""

    def __init__(self) -> None:
        self._store = Store()
        self._board = Board(self._store.place())
        self._lock = threading.Lock()
        self._lent: dict[Key, tuple[float, NDArray[np.uint8]]] = {}

    def place(self) -> Place:
        """Says where the versions are."""
        return self._store.place()

    def key(self) -> Optional[Key]:
        """Returns which version is the newest, or None before there is one."""
        newest = self._board.read()
        return newest and newest.key

    def lend(self, known: Optional[Key]) -> Optional[Loan]:
        """Begins to give out the newest version, unless it is `known`.

        A learner that came back from a checkpoint has taken fewer steps than one that was before
        it: what is different is newer, whatever its step.
        """
        self._board.ask()
        newest = self._board.read()
        if newest is None or (known is not None and newest.key == tuple(known)):
            return None
        mapped = shared_versions.map_version(newest)
        if mapped is None:
            return None
        block: NDArray[np.uint8] = np.frombuffer(mapped.memory, np.uint8)
        if block.size > PIECE_BYTES:
            self._keep(newest.key, block)
        return Loan(newest.key, block.size, block[:PIECE_BYTES])

    def piece(self, key: Key, offset: int) -> Optional[NDArray[np.uint8]]:
        """Returns the piece of a version at `offset`, or None if it is no longer given out."""
        with self._lock:
            _, block = self._lent.pop((key[0], key[1]), (0.0, None))
        if block is None:
            return None
        self._keep((key[0], key[1]), block)
        return block[offset : offset + PIECE_BYTES]

    def _keep(self, key: Key, block: NDArray[np.uint8]) -> None:
        """Keeps a version that is fetched in pieces, and of the others those used last."""
        now = time.monotonic()
        with self._lock:
            self._lent[key] = now, block
            kept = sorted(self._lent.items(), key=lambda item: item[1][0])[-_MAX_LENT:]
            self._lent = {key: lent for key, lent in kept if now - lent[0] < _LEND_SECONDS}


class _Arrival(NamedTuple):
    """A version that comes in pieces.

    Attributes:
        key: Its key.
        buffer: Where it is put together.
        received: Bytes that have come.
    """

    key: Key
    buffer: Buffer
    received: int = 0


class VariableSource(VersionServer):
    """Keeps the newest version."""

    def __init__(self) -> None:
        super().__init__()
        self._writer = Writer(self._store.place(), self._store.add_buffer)
        self._arrival: Optional[_Arrival] = None

    def run(self) -> None:
        """Serves until the program stops."""
        runtime = contract.runtime()
        try:
            while not runtime.wait_for_stop(_STOP_SECONDS):
                pass
        finally:
            self._store.close()

    def add_buffer(self) -> str:
        """Makes one more buffer for the learner to write to, and returns its path."""
        return self._store.add_buffer()

    def receive(self, key: Key, size: int, offset: int, piece: NDArray[np.uint8]) -> bool:
        """Takes the next piece of a new version of `size` bytes; with the last it is published.

        Returns:
            Whether the piece was the next, or all of the version is there; else it has to be sent
            from its begin.
        """
        with self._lock:
            if not offset:
                self._begin_arrival((key[0], key[1]), size)
            arrival = self._arrival
            if arrival is None or arrival.key != tuple(key) or arrival.received != offset:
                return (key[0], key[1]) == self.key()
            end = offset + len(piece)
            arrival.buffer.memory()[offset:end] = piece
            self._arrival = arrival._replace(received=end)
            if end == size:
                self._arrival = None
                version = unpack(arrival.buffer.memory())
                assert version is not None
                self._writer.publish(version, arrival.buffer)
            return True

    def _begin_arrival(self, key: Key, size: int) -> None:
        if self._arrival is not None:
            self._writer.give_back(self._arrival.buffer)
        self._arrival = None
        self._arrival = _Arrival(key, self._writer.take_buffer(size))


class VariableClient:
    """Publishes versions, and takes newer ones without making the caller wait.

    Attributes:
        current: The version taken last, or None before there was one.
    """

    def __init__(self, address: str, call_seconds: float = _CALL_SECONDS) -> None:
        """Initializes the client.

        Args:
            address: `host:port` of the source.
            call_seconds: How long a call waits for its answer.
        """
        self._peer = Peer(address, "variable source", call_seconds)
        self._writer: Optional[Writer] = None
        self._board: Optional[Board] = None
        self._call: Optional[futures.Future[Optional[Version]]] = None
        self._asked = False
        self.current: Optional[Version] = None

    def publish(self, version: Version) -> None:
        """Publishes a version and waits until it is there.

        Raises:
            nodes.peer.PeerLost: The source was away for too long.
            OSError: There is no memory for it.
        """
        if self._writes_here():
            assert self._writer is not None
            self._writer.write(version)
        else:
            self._send(version)

    def has(self, version: Version) -> bool:
        """Returns whether the source has this version as its newest.

        Raises:
            nodes.peer.PeerLost: The source was away for too long.
        """
        if self._writes_here():
            assert self._writer is not None
            newest = self._writer.board.read()
            return newest is not None and newest.key == version.key
        return version.is_of(self._peer.call("key"))

    @property
    def versions_behind(self) -> int:
        """How many versions newer than `current` are known to have been made in the same life."""
        newest = None if self._board is None else self._board.read()
        if newest is None or self.current is None or newest.incarnation != self.current.incarnation:
            return 0
        return max(0, newest.number - self.current.number)

    def request(self) -> None:
        """Asks for a newer version; `poll` has it once it is there."""
        if self._board is not None and not self._board.is_owned:
            self._board = None  # The source is gone; there may be a new one.
        self._asked = True
        if self._board is None and self._call is None:
            self._call = futures.Future()
            # Not of a pool: nobody waits at the end for a call that is not answered.
            threading.Thread(target=self._look_from_afar, args=(self._call,), daemon=True).start()

    def poll(self) -> Optional[Version]:
        """Returns a version that has come since the last call, or None; never waits.

        Where the source is away, the version stays as it is.
        """
        version = self._answer()
        if version is None and self._board is not None:
            version = self._look()
        if version is not None:
            self._asked = False
            self.current = version
        return version

    def fetch(self, seconds: float) -> Optional[Version]:
        """Asks for a newer version and waits for the answer, `seconds` at most."""
        deadline = time.monotonic() + seconds
        self.request()
        if self._call is not None:
            futures.wait([self._call], timeout=seconds)
        version = self.poll()
        deadline = min(deadline, time.monotonic() + _LOOK_SECONDS)
        while version is None and self._board is not None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            version = self.poll()
        return version

    def newest(self) -> Optional[Version]:
        """Returns the newest version, once the source answers, or None if that has none.

        Raises:
            nodes.peer.PeerLost: The source was away for too long.
        """
        while self._peer.call("key") is not None:
            version = self.fetch(_CALL_SECONDS) or self.current
            if version is not None:
                return version
        return None

    def wait_for_first(
        self, runtime: contract.Runtime, what: str = "the learner's first variables"
    ) -> Optional[Version]:
        """Returns the first version once there is one, or None if the node is to stop.

        Args:
            runtime: The waiting node's.
            what: What it waits for, in words for a person.
        """
        while not runtime.wait_for_stop(_FIRST_POLL_SECONDS):
            runtime.report_waiting(what)
            self.request()
            version = self.poll()
            if version is not None:
                runtime.report_waiting(None)
                return version
        return None

    def _look(self) -> Optional[Version]:
        """Returns what is new in the source's memory, if that was asked for."""
        if not self._asked:
            return None
        assert self._board is not None
        self._board.ask()
        newest = self._board.read()
        if newest is None or (self.current is not None and newest.key == self.current.key):
            return None
        mapped = shared_versions.map_version(newest)
        if mapped is None:
            return None
        mapped.touch()
        return mapped.version

    def _answer(self) -> Optional[Version]:
        """Returns what came by calls, if it has."""
        if self._call is None or not self._call.done():
            return None
        call, self._call = self._call, None
        return None if call.exception() is not None else call.result()

    def _look_from_afar(self, answer: "futures.Future[Optional[Version]]") -> None:
        """Finds the source's memory, or fetches what is new if that is on another host."""
        try:
            try:
                self._board = Board(Place(*self._peer.once("place")))
                answer.set_result(None)
            except NotHere:
                answer.set_result(self._fetch())
        except Exception as error:
            answer.set_exception(error)

    def _fetch(self) -> Optional[Version]:
        loan = self._peer.once("lend", None if self.current is None else self.current.key)
        if loan is None:
            return None
        key, size, piece = loan
        block = empty_block(size)
        offset = 0
        while piece is not None:
            block[offset : offset + len(piece)] = piece
            offset += len(piece)
            if offset == size:
                return unpack(block)
            piece = self._peer.once("piece", key, offset)
        return None

    def _writes_here(self) -> bool:
        """Returns whether this process can write to the source's memory."""
        if self._writer is None or not self._writer.board.is_owned:
            place = Place(*self._peer.call("place"))
            try:
                self._writer = Writer(place, lambda: str(self._peer.call("add_buffer")))
            except NotHere:
                self._writer = None
        return self._writer is not None

    def _send(self, version: Version) -> None:
        block = empty_block(packed_size(version))
        pack(version, block)
        offset = 0
        while offset < block.size:
            piece = block[offset : offset + PIECE_BYTES]
            goes_on = self._peer.call("receive", version.key, block.size, offset, piece)
            offset = offset + len(piece) if goes_on else 0


def variable_source_node() -> ServiceNode[VariableClient]:
    """Returns the node that stands between the learner and those who act."""
    return ServiceNode(
        VariableSource,
        client_type=VariableClient,
        make_client=VariableClient,
        traits=contract.Traits(on_failure="restart", endless=True, place="pack"),
    )
