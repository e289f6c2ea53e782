"""A version of a network's variables, and its form as one block of bytes."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 64
"""Bytes; TensorFlow takes an array as it is where it begins at a multiple of this."""
_LENGTH = 8

Key = tuple[int, int]
"""A version's incarnation and step."""


class Version(NamedTuple):
    """One whole version of the variables.

    Attributes:
        incarnation: Which life of the learner published them; no two lives have the same.
        step: Learner steps that had been taken.
        number: How many versions this life had made, with this one.
        time: When they were copied, in seconds since the epoch.
        values: The variables, in the network's own order.
    """

    incarnation: int
    step: int
    number: int
    time: float
    values: Sequence[NDArray[Any]]

    @property
    def key(self) -> Key:
        """What tells this version from all others."""
        return self.incarnation, self.step

    def is_of(self, key: Optional[Key]) -> bool:
        """Returns whether this is the version of that key."""
        return key is not None and self.key == tuple(key)  # A call makes it a list.


def pack(version: Version, block: NDArray[np.uint8]) -> None:
    """Copies a version into a block of at least `packed_size` bytes.

    Until it is whole, the block holds none.
    """
    header = _header(version)
    length = block[:_LENGTH].view(np.int64)
    length[0] = 0
    end = _LENGTH + len(header)
    block[_LENGTH:end] = np.frombuffer(header, np.uint8)
    for value in version.values:
        begin = _aligned(end)
        end = begin + value.nbytes
        np.copyto(np.ndarray(value.shape, value.dtype, block, begin), value)
    length[0] = len(header)


def erase(block: NDArray[np.uint8]) -> None:
    """Lets a block hold no version."""
    block[:_LENGTH] = 0


def packed_size(version: Version) -> int:
    """Returns the bytes that `pack` writes."""
    end = _LENGTH + len(_header(version))
    for value in version.values:
        end = _aligned(end) + value.nbytes
    return end


def unpack(block: Any) -> Optional[Version]:
    """Returns the version in a block, whose memory its arrays are in, or None if it holds none.

    Args:
        block: What `pack` has written: a buffer that begins at a multiple of 64 bytes.
    """
    length = int(np.frombuffer(block, np.int64, 1)[0])
    if not length:
        return None
    incarnation, step, number, time, arrays = json.loads(
        bytes(memoryview(block)[_LENGTH : _LENGTH + length])
    )
    values = []
    end = _LENGTH + length
    for dtype, shape in arrays:
        begin = _aligned(end)
        value: NDArray[Any] = np.ndarray(shape, dtype, block, begin)
        end = begin + value.nbytes
        values.append(value)
    return Version(incarnation, step, number, time, values)


def empty_block(size: int) -> NDArray[np.uint8]:
    """Returns a block of so many bytes that begins where `unpack` wants it to."""
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size]


def _header(version: Version) -> bytes:
    arrays = [(value.dtype.str, value.shape) for value in version.values]
    facts = version.incarnation, version.step, version.number, version.time
    return json.dumps([*facts, arrays]).encode()


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
