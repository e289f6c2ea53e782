"""Versions of variables in memory that the processes of one host share.

    writer  ->  buffers  one version each, as `nodes.version` packs it
            ->  board    says which buffer holds the newest version
    reader  <-  board, then the buffer, mapped as it is

Board and buffers are files without a name, in memory, that live as long as a process has them open.
The owner has them all open, and whoever may look into its `/proc/PID/fd` opens them there. What a
process leaves behind when it is killed is freed with it, and `/dev/shm`, often small in a
container, is not touched.

A reader locks a buffer (shared) for as long as it has it mapped, which ends when its last array is
gone. The writer fills only buffers that it can lock (exclusively) and that do not hold the newest
version: so a version does not change under its readers, and pages are used again, which is 20 times
as fast as taking new ones. Where all are in use it takes one more. Nobody ever waits for a lock,
and the kernel releases those of the dead.
"""

import contextlib
import fcntl
import io
import json
import mmap
import os
import secrets
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple, Optional

import numpy as np

from nodes.version import Key, Version, erase, pack, packed_size, unpack

_TOKEN_BYTES = 16
_WANTED = _TOKEN_BYTES
_RECORD = 64
_CHECKSUM = 4
_BOARD_SIZE = mmap.PAGESIZE
_BUFFER_LINK = "/memfd:launchgraph-version"
_SPARE_SECONDS = 60.0
"""A buffer that was not needed for so long gives its memory back."""
_MADV_POPULATE_READ = 22
"""Takes all pages into the process's tables at once, which is quicker than one after the other."""


class Place(NamedTuple):
    """Where a board is.

    Attributes:
        path: Path of the board.
        token: What the board begins with, in hexadecimal digits.
        host: The host on which the path means something.
        buffers: Paths of the buffers that there are.
    """

    path: str
    token: str
    host: str
    buffers: list[str]


class NotHere(Exception):
    """A board cannot be opened from this process, as it is on another host."""


class Record(NamedTuple):
    """What a board says of the newest version.

    Attributes:
        incarnation: See `nodes.version.Version`.
        step: Likewise.
        number: Likewise.
        buffer: Path of its buffer.
    """

    incarnation: int
    step: int
    number: int
    buffer: str

    @property
    def key(self) -> Key:
        """The version's key."""
        return self.incarnation, self.step


class Store:
    """Owns a board and buffers, for as long as it exists."""

    def __init__(self) -> None:
        token = secrets.token_bytes(_TOKEN_BYTES)
        self._board = _file_without_name("board")
        self._board.write(token.ljust(_BOARD_SIZE, b"\0"))
        self._token = token.hex()
        self._buffers: list[io.FileIO] = []

    def place(self) -> Place:
        """Says where the board is."""
        return Place(_path(self._board), self._token, this_host(), [*map(_path, self._buffers)])

    def add_buffer(self) -> str:
        """Makes one more buffer, and returns its path."""
        self._buffers.append(_file_without_name("version"))
        return _path(self._buffers[-1])

    def close(self) -> None:
        """Lets go of all; what somebody has mapped he keeps."""
        for file in (self._board, *self._buffers):
            file.close()


class Board:
    """A board, as who writes or reads it sees it."""

    def __init__(self, place: Place) -> None:
        """Opens the board.

        Raises:
            NotHere: It is on another host, its owner is gone, or this process may not open it.
        """
        if place.host != this_host():
            raise NotHere(f"the board is on {place.host}")
        try:
            self._file = io.FileIO(place.path, "r+")
            self._memory = mmap.mmap(self._file.fileno(), _BOARD_SIZE)
        except (OSError, ValueError) as error:
            raise NotHere(str(error)) from None
        if self._memory[:_TOKEN_BYTES].hex() != place.token:
            raise NotHere("another file is in the board's place")
        self._path = place.path
        self._seen: tuple[bytes, Optional[Record]] = b"", None

    @property
    def is_owned(self) -> bool:
        """Whether the owner still has the board."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def write(self, record: Record) -> None:
        """Lets the board say which version is the newest."""
        payload = json.dumps(record).encode()
        content = _checksum(payload) + payload
        self._memory[_RECORD:] = content.ljust(_BOARD_SIZE - _RECORD, b"\0")

    def read(self) -> Optional[Record]:
        """Returns what the board says, or said before if it is being written just now."""
        raw = self._memory[_RECORD : self._memory.find(b"\0", _RECORD + _CHECKSUM)]
        payload = raw[_CHECKSUM:]
        seen, record = self._seen
        if payload and raw != seen and _checksum(payload) == raw[:_CHECKSUM]:
            record = Record(*json.loads(payload))
            self._seen = raw, record  # At once: several threads may read.
        return record

    def ask(self) -> None:
        """Says that a reader wants a newer version."""
        self._memory[_WANTED] = 1

    def take_question(self) -> bool:
        """Returns whether a reader has asked since the last call."""
        asked, self._memory[_WANTED] = self._memory[_WANTED], 0
        return bool(asked)


class Mapped(NamedTuple):
    """A version that is mapped.

    Attributes:
        version: The version; its arrays are in the memory.
        memory: All of its buffer.
    """

    version: Version
    memory: mmap.mmap

    def touch(self) -> None:
        """Gets all of the memory ready to be read."""
        with contextlib.suppress(OSError):  # Linux before 5.14 cannot do that.
            self.memory.madvise(_MADV_POPULATE_READ)


def map_version(record: Record) -> Optional[Mapped]:
    """Maps the buffer that a board speaks of, or returns None if it holds another version now.

    While it is mapped, nobody fills it anew. What is changed in it nobody else sees.
    """
    try:
        if not os.readlink(record.buffer).startswith(_BUFFER_LINK):
            return None
        with io.FileIO(record.buffer, "r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            size = os.fstat(file.fileno()).st_size
            # The map keeps the file open, and with it the lock.
            memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    except (OSError, ValueError):  # The writer has it, or its owner is gone, or it is empty.
        return None
    version = unpack(memory)
    return None if version is None or version.key != record.key else Mapped(version, memory)


class Writer:
    """Puts versions into a store. There is one at a time."""

    def __init__(self, place: Place, add_buffer: Callable[[], str]) -> None:
        """Initializes the writer.

        Args:
            place: Where the store's board is.
            add_buffer: Makes one more buffer and returns its path.

        Raises:
            NotHere: The store is on another host.
        """
        self.board = Board(place)
        self._add_buffer = add_buffer
        self._buffers = [Buffer(path) for path in place.buffers]

    def write(self, version: Version) -> None:
        """Copies a version into the store; from then on it is the newest.

        Raises:
            OSError: There is no memory for it.
        """
        buffer = self.take_buffer(packed_size(version))
        try:
            pack(version, buffer.memory())
        except BaseException:
            self.give_back(buffer)
            raise
        self.publish(version, buffer)

    def lend(self, version: Version) -> tuple[Record, Mapped]:
        """Copies a version into a buffer by itself, of which the board does not speak.

        Returns:
            What to map, and a map of our own: as long as that is kept, nobody fills the buffer.

        Raises:
            OSError: There is no memory for it.
        """
        buffer = self.take_buffer(packed_size(version))
        pack(version, buffer.memory())
        buffer.unlock()
        record = Record(*version.key, version.number, buffer.path)
        mapped = map_version(record)
        if mapped is None:
            raise OSError(f"{buffer.path} cannot be mapped")
        return record, mapped

    def take_buffer(self, size: int) -> "Buffer":
        """Returns a buffer of at least so many bytes that nobody else reads or fills.

        Raises:
            OSError: There is no memory for it.
        """
        newest = self.board.read()
        free = [
            buffer
            for buffer in self._buffers
            if (newest is None or buffer.path != newest.buffer) and buffer.lock()
        ]
        # The one used last, if any is large enough: others may give their memory back.
        free.sort(key=lambda buffer: (buffer.size >= size, buffer.used_at))
        chosen = free.pop() if free else self._new_buffer()
        for buffer in free:
            buffer.rest()
            buffer.unlock()
        try:
            chosen.grow(size)
        except BaseException:
            chosen.unlock()
            raise
        return chosen

    def publish(self, version: Version, buffer: "Buffer") -> None:
        """Lets readers have the version that `buffer` was filled with."""
        buffer.unlock()
        self.board.write(Record(*version.key, version.number, buffer.path))

    def give_back(self, buffer: "Buffer") -> None:
        """Lets go of a buffer that was not filled to the end."""
        erase(buffer.memory())
        buffer.unlock()

    def _new_buffer(self) -> "Buffer":
        buffer = Buffer(self._add_buffer())
        self._buffers.append(buffer)
        if not buffer.lock():
            raise OSError(f"{buffer.path} is used by somebody else")
        return buffer


class Buffer:
    """A buffer, as who fills it sees it.

    Attributes:
        path: Its path.
        used_at: When it was filled last, on the monotonic clock.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.used_at = time.monotonic()
        self._file = io.FileIO(path, "r+")
        self._memory: Optional[mmap.mmap] = None

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return os.fstat(self._file.fileno()).st_size

    def lock(self) -> bool:
        """Locks the buffer unless somebody reads it, and returns whether it did."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Lets others have the buffer."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def grow(self, size: int) -> None:
        """Takes memory for so many bytes, and marks the buffer as used."""
        self.used_at = time.monotonic()
        if self.size < size:
            self._memory = None
            os.posix_fallocate(self._file.fileno(), 0, size)

    def rest(self) -> None:
        """Gives the memory back if it was not needed for long."""
        if self.size and time.monotonic() - self.used_at > _SPARE_SECONDS:
            self._memory = None
            os.ftruncate(self._file.fileno(), 0)

    def memory(self) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        """Returns the buffer's bytes."""
        if self._memory is None:
            self._memory = mmap.mmap(self._file.fileno(), self.size)
        return np.frombuffer(self._memory, np.uint8)


def this_host() -> str:
    """Returns what tells this host, or a part of it with a network of its own, from all others.

    Where the system does not say, a board's token alone tells whether it is the right one.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return ""


def _file_without_name(kind: str) -> io.FileIO:
    return io.FileIO(os.memfd_create(f"launchgraph-{kind}"), "r+")


def _checksum(payload: bytes) -> bytes:
    return zlib.crc32(payload).to_bytes(_CHECKSUM, "little")


def _path(file: io.FileIO) -> str:
    return f"/proc/{os.getpid()}/fd/{file.fileno()}"
