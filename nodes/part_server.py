"""Gives out a shard's samples in memory that the processes of its host share.

Sampling within the server's own process costs a third of what it costs through calls, which carry
every byte through a socket. So here the server samples itself, and puts each part of a batch into a
buffer that who asked for it maps as it is; see `nodes.shared_versions`.
"""

import itertools
import threading
import time
from typing import Optional

import courier

from agents.agent import TableSpec
from nodes.sample_feeds import Feed, ShardAddress, packed
from nodes.samples import Prefetch
from nodes.shard_sampling import ShardSampler
from nodes.shared_versions import Mapped, Place, Record, Store, Writer

_WAIT_SECONDS = 0.2
_FORGOTTEN_SECONDS = 60.0


class _Stream:
    """The parts for one who samples."""

    def __init__(self, token: int, sampler: ShardSampler) -> None:
        self.token = token
        self.asked_at = time.monotonic()
        self._sampler = sampler
        self._store = Store()
        self._writer = Writer(self._store.place(), self._store.add_buffer)
        self._number = 0
        self._handed_over: Optional[Mapped] = None

    def next(self) -> Optional[Record]:
        """Returns where the next part is, or None if there was none in a short time."""
        self.asked_at = time.monotonic()
        samples = self._sampler.wait_for_part(_WAIT_SECONDS)
        if samples is None:
            return None
        part = packed(samples, self.token, self._number)
        self._number += 1
        # It stays as it is until the next is asked for, which is when this one has been mapped.
        record, self._handed_over = self._writer.lend(part)
        return record

    def close(self) -> None:
        self._sampler.close()


class PartServer:
    """Serves parts to all who sample on this host, each of whom has a stream of its own."""

    def __init__(self, replay: str, spec: TableSpec, port: int) -> None:
        """Begins to serve.

        Args:
            replay: `host:port` of the Reverb server in this process.
            spec: Its table.
            port: Where to serve.
        """
        self._address = ShardAddress(replay)
        self._spec = spec
        self._store = Store()
        self._tokens = itertools.count(time.time_ns())
        self._streams: dict[int, _Stream] = {}
        self._lock = threading.Lock()
        self._server = courier.Server(port=port)
        for call in (self.place, self.open, self.next):
            self._server.Bind(call.__name__, call)
        self._server.Start()

    def place(self) -> Place:
        """Says on which host the parts are."""
        return self._store.place()

    def open(self, size: int, prefetch: tuple[int, ...]) -> int:
        """Opens a stream of parts of `size` samples, and returns its token."""
        ahead = Prefetch(*prefetch)
        feed = Feed(self._address, self._spec, size, ahead)
        sampler = ShardSampler(
            self._address.replay, feed, self._spec, ahead.ready * size, threading.Condition()
        )
        with self._lock:
            stream = _Stream(next(self._tokens), sampler)
            self._streams[stream.token] = stream
        return stream.token

    def next(self, token: int) -> tuple[bool, Optional[Record]]:
        """Returns whether a stream is open, and where its next part is if there is one."""
        stream = self._streams.get(token)
        return (False, None) if stream is None else (True, stream.next())

    def forget(self) -> None:
        """Closes the streams that nobody has asked for long."""
        now = time.monotonic()
        with self._lock:
            for token, stream in list(self._streams.items()):
                if now - stream.asked_at > _FORGOTTEN_SECONDS:
                    self._streams.pop(token).close()

    def close(self) -> None:
        """Ends to serve."""
        self._server.Stop()
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._store.close()
