"""Where the samples of a shard come from: Reverb's own calls, or memory shared on one host."""

import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import numpy as np
from courier.python.client import StatusNotOk

from agents.agent import TableSpec
from nodes import shared_versions
from nodes.origins import ORIGIN
from nodes.peer import Peer, is_away
from nodes.samples import Prefetch, Samples
from nodes.shared_versions import Board, NotHere, Place, Record
from nodes.version import Version

_LONG_WAIT_MILLISECONDS = 5000


class ShardAddress(NamedTuple):
    """Where a shard is.

    Attributes:
        replay: `host:port` of its Reverb server.
        parts: `host:port` of its `nodes.part_server`, if it has one.
    """

    replay: str
    parts: Optional[str] = None


class ShardAway(Exception):
    """A shard does not answer."""


class Feed:
    """Takes samples from one shard, as near as it is."""

    def __init__(self, address: ShardAddress, spec: TableSpec, size: int, prefetch: Prefetch):
        """Initializes the feed.

        Args:
            address: Where the shard is.
            spec: Its table.
            size: Samples of a part.
            prefetch: How far to go ahead.
        """
        self._address = address
        self._spec = spec
        self._size = size
        self._prefetch = prefetch
        self._parts = None
        if address.parts is not None:
            self._parts = Peer(address.parts, "replay server")

    def samples(self, closed: threading.Event) -> Iterator[Samples]:
        """Gives part after part until there was none for long.

        Args:
            closed: Set where no more are wanted; looked at now and then.

        Raises:
            ShardAway: The shard does not answer.
        """
        if self._parts is None:
            return self.from_calls()
        try:
            place = Place(*self._parts.once("place"))
            Board(place)
        except StatusNotOk as error:
            raise _as_it_is(error) from None
        except NotHere:
            return self.from_calls()
        if place.path.startswith(f"/proc/{os.getpid()}/"):  # Reverb's calls are near enough.
            return self.from_calls()
        return self._from_memory(self._parts, closed)

    def from_calls(self) -> Iterator[Samples]:
        """Gives samples as Reverb sends them.

        Raises:
            ShardAway: The shard does not answer.
        """
        import reverb
        import tensorflow as tf

        columns = self._spec.item.items()
        dataset = reverb.TrajectoryDataset(
            server_address=self._address.replay,
            table=self._spec.name,
            dtypes={name: tf.as_dtype(array.dtype) for name, array in columns},
            shapes={name: tf.TensorShape(array.shape) for name, array in columns},
            max_in_flight_samples_per_worker=self._prefetch.in_flight * self._size,
            num_workers_per_iterator=self._prefetch.workers,
            rate_limiter_timeout_ms=_LONG_WAIT_MILLISECONDS,
        )
        try:
            for sample in dataset.batch(self._size).prefetch(self._prefetch.prefetched):
                yield _from_tensors(sample)
        except (tf.errors.UnavailableError, tf.errors.CancelledError) as error:
            raise ShardAway(str(error)) from None
        except tf.errors.InternalError as error:
            if "UnavailableError" not in str(error):  # TensorFlow hides it for its own networks.
                raise
            raise ShardAway(str(error)) from None

    def _from_memory(self, parts: Peer, closed: threading.Event) -> Iterator[Samples]:
        """Gives samples that the server has put into memory which is mapped here."""
        try:
            token = parts.once("open", self._size, tuple(vars(self._prefetch).values()))
            while not closed.is_set():
                is_open, record = parts.once("next", token)
                if not is_open:
                    return
                if record is not None:
                    mapped = shared_versions.map_version(Record(*record))
                    if mapped is None:
                        return
                    yield unpacked(mapped.version, self._spec)
        except StatusNotOk as error:
            raise _as_it_is(error) from None


def _as_it_is(error: StatusNotOk) -> Exception:
    """Returns what an error of a call says: that the shard is away, or what went wrong in it."""
    return ShardAway(str(error)) if is_away(error) else RuntimeError(str(error))


def packed(samples: Samples, token: int, number: int) -> Version:
    """Returns samples in the form in which they can be put into shared memory.

    Args:
        samples: The samples.
        token: The stream that they belong to.
        number: Parts that this stream has given before.
    """
    *info, data = samples
    return Version(token, number, 0, 0.0, [*info, *(data[name] for name in sorted(data))])


def unpacked(part: Version, spec: TableSpec) -> Samples:
    """Returns the samples that `packed` was given."""
    # Copied, as these are kept longer than the memory that all are in should be.
    key, probability, priority, table_size = map(np.array, part.values[:4])
    data = dict(zip(sorted(spec.item), part.values[4:], strict=True))
    data[ORIGIN] = np.array(data[ORIGIN])
    return Samples(key, probability, priority, table_size, data)


def _from_tensors(sample: Any) -> Samples:
    info = sample.info
    return Samples(
        np.asarray(info.key),
        np.asarray(info.probability),
        np.asarray(info.priority),
        np.asarray(info.table_size),
        {name: np.asarray(column) for name, column in sample.data.items()},
    )
