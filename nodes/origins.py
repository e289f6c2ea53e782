"""Where an item of replay comes from: which version of the variables acted, and when it was made.

Each item has it in a column of its own, which writers add and samplers take off again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from acme import specs
from numpy.typing import NDArray

from nodes.version import Version
from usage import UsageError

ORIGIN = "origin"
"""Name of the column."""
_FIELDS = 4


class Origins(NamedTuple):
    """Origins of B items.

    Attributes:
        incarnation: int64 [B], the life of the learner that made the version; 0 if none did.
        number: int64 [B], how many versions that life had made, with this one.
        published_ns: int64 [B], when the version was made, in nanoseconds since the epoch.
        written_ns: int64 [B], when the item was made, likewise, give or take a tenth of a second.
    """

    incarnation: NDArray[np.int64]
    number: NDArray[np.int64]
    published_ns: NDArray[np.int64]
    written_ns: NDArray[np.int64]

    @classmethod
    def of(cls, column: Any) -> "Origins":
        """Returns the origins in a column, int64 [B, 4]."""
        return cls(*np.asarray(column).T)


def origin_of(version: Version, now_ns: int) -> NDArray[np.int64]:
    """Returns the origin, int64 [4], of an item that is made with `version` now."""
    published_ns = int(version.time * 1e9)
    return np.array([version.incarnation, version.number, published_ns, now_ns], np.int64)


def with_origin(item: Mapping[str, specs.Array]) -> dict[str, specs.Array]:
    """Returns the columns of an item with that of its origin.

    Raises:
        UsageError: The agent has a column of that name.
    """
    if ORIGIN in item:
        raise UsageError(f"An item's column must not be named {ORIGIN!r}: it is taken.")
    return {**item, ORIGIN: specs.Array((_FIELDS,), np.int64, ORIGIN)}
