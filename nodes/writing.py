"""Writes trajectories to the shards of a replay, one shard after the other."""

import collections
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tenacity
from numpy.typing import NDArray

from agents.agent import TableSpec
from nodes import contract
from nodes.origins import origin_of
from nodes.peer import PATIENCE_SECONDS
from nodes.presence import Presence
from nodes.replay_info import ask
from nodes.shard_stream import Column, ShardStream
from nodes.version import Version

_MAX_UNCONFIRMED_ITEMS = 100
"""Items that a writer sends ahead of a server before it waits for it. The actors of Horgan et al.
(2018, appendix D) send batches of 50."""
_FLUSH_PERIOD_ITEMS = 50
_TURN_ITEMS = 10
"""Items of a stream whose steps are items by themselves that go to one shard before the next."""
_WAIT_MILLISECONDS = 200
_SHORT_MILLISECONDS = 1
_PATIENT_WAITS = 5
"""Waits for a shard to confirm what it was sent before what follows goes elsewhere."""
_ORIGIN_SECONDS = 0.1
_NOBODY = Version(0, 0, 0, 0.0, ())


class ReplayWriter:
    """Writes one stream of trajectories, each to the next shard that takes it.

    It waits for a full replay only as long as its node runs.
    """

    def __init__(
        self,
        clients: Sequence[Any],
        presence: Presence,
        spec: TableSpec,
        first_shard: int,
        max_steps: int,
    ) -> None:
        """Opens the stream.

        Args:
            clients: A `reverb.Client` of each shard.
            presence: Knows which of them answer.
            spec: The table of each shard.
            first_shard: The shard that gets the first trajectory, counted round and round.
            max_steps: Newest steps that the history keeps.

        Raises:
            RuntimeError: The shards were away for too long.
        """
        self._clients = clients
        self._spec = spec
        self._max_steps = max_steps
        self._runtime = contract.runtime()
        self._streams: dict[int, ShardStream] = {}
        self._presence = presence
        self._created = 0
        self._steps = 0
        self._kept: dict[str, collections.deque[tuple[int, NDArray[Any]]]] = {}
        self._goes_round = len(clients) > 1
        self._version = _NOBODY
        self._origin: Optional[NDArray[np.int64]] = None
        self._origin_until = 0.0
        self._number = first_shard - 1
        self._stream = self._wait_for_next()

    def set_version(self, version: Version) -> None:
        """Says which variables act from now on."""
        self._version = version
        self._origin = None

    def append(self, step: Mapping[str, NDArray[Any]]) -> None:
        """Adds one step, copying it; each column may be left out of a step."""
        self._steps += 1
        if self._goes_round and self._max_steps > 1:
            self._keep(step)
        self._stream.append(step)

    @property
    def history(self) -> Mapping[str, Column]:
        """Kept steps by column, those left out not counted; they go into `create_item`."""
        return self._stream.history

    def create_item(self, priority: float, trajectory: Mapping[str, Any]) -> None:
        """Inserts the item `trajectory`, steps or slices of `history`, with `priority`."""
        self._stream.create_item(priority, trajectory, self._origin_now())
        self._created += 1
        if self._goes_round and self._max_steps == 1:
            if self._created % _TURN_ITEMS == 0:
                self._stream.forget()
                self._stream = self._next() or self._wait_for_next()
        elif self._created % _FLUSH_PERIOD_ITEMS == 0:
            stream = self._stream
            if not self._wait(lambda ms: stream.flush(_MAX_UNCONFIRMED_ITEMS, ms)):
                self._move()

    def end_episode(self) -> None:
        """Forgets `history`: no item spans what came before and what comes after."""
        if not self._steps:
            return
        self._wait(self._stream.end)
        self._steps = 0
        self._kept.clear()
        if self._goes_round:
            self._stream = self._next() or self._wait_for_next()

    def close(self) -> None:
        """Ends the stream; items that a server has not confirmed may be lost."""
        for stream in self._streams.values():
            stream.close()

    def _keep(self, step: Mapping[str, NDArray[Any]]) -> None:
        for name, value in step.items():
            kept = self._kept.setdefault(name, collections.deque(maxlen=self._max_steps))
            kept.append((self._steps, np.array(value)))

    def _move(self) -> None:
        """Goes on with the trajectory at the next shard that takes it, from the kept steps on.

        So no item spans two shards; what the shard before has not confirmed it gets later.
        """
        stream = self._next() or self._wait_for_next()
        if stream is self._stream:
            return
        self._stream.leave()
        steps: dict[int, dict[str, NDArray[Any]]] = collections.defaultdict(dict)
        for name, kept in self._kept.items():
            for number, value in kept:
                steps[number][name] = value
        for number in sorted(steps):
            stream.append(steps[number])
        self._stream = stream

    def _origin_now(self) -> NDArray[np.int64]:
        now = time.monotonic()
        if self._origin is None or now > self._origin_until:
            self._origin = origin_of(self._version, time.time_ns())
            self._origin_until = now + _ORIGIN_SECONDS
        return self._origin

    def _next(self) -> Optional[ShardStream]:
        """Returns the stream to the next shard that takes what comes, or None if none does."""
        for number in range(self._number + 1, self._number + 1 + len(self._clients)):
            stream = self._open(number % len(self._clients))
            if stream is not None and _is_ready(stream):
                self._number = number
                return stream
        return None

    def _open(self, shard: int) -> Optional[ShardStream]:
        """Returns the stream to a shard, or None if the shard does not answer."""
        if shard in self._streams:
            return self._streams[shard]
        if self._goes_round and not self._presence.is_there(shard):
            return None
        try:
            client = self._clients[shard]
            self._streams[shard] = ShardStream(client, self._spec, self._max_steps)
        except RuntimeError:
            self._presence.forget(shard)
            return None
        return self._streams[shard]

    def _wait_for_next(self) -> ShardStream:
        """Waits until a shard takes what comes, and returns the stream to it.

        Raises:
            RuntimeError: No shard has ever answered, for too long, or the node is to stop.
        """

        def gives_up(state: tenacity.RetryCallState) -> bool:
            seconds = state.seconds_since_start or 0.0
            return self._runtime.stopping or not self._streams and seconds > PATIENCE_SECONDS

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda stream: stream is None),
            stop=gives_up,
            wait=tenacity.wait_fixed(_WAIT_MILLISECONDS / 1000),
            before_sleep=lambda _: self._tell(),
            retry_error_callback=lambda _: next(iter(self._streams.values()), None),
        )
        stream: Optional[ShardStream] = retrying(self._next)
        if stream is None:
            raise RuntimeError(f"no server of replay table {self._spec.name!r} answers")
        return stream

    def _wait(self, action: Callable[[int], bool]) -> bool:
        """Waits until `action` succeeds, and returns whether the shard is to be kept to.

        Where there are others, it is given up after a second.
        """
        for _ in range(_PATIENT_WAITS) if self._goes_round else itertools.count():
            if self._runtime.stopping or action(_WAIT_MILLISECONDS):
                return True
            self._tell()
        return False

    def _tell(self) -> None:
        """Tells what this writer waits for."""
        info = ask(self._clients[self._number % len(self._clients)], self._spec.name)
        what = "a server that does not answer" if info is None else info.describe()
        self._runtime.report_waiting(f"replay to take items: {what}")


def _is_ready(stream: ShardStream) -> bool:
    """Returns whether the shard behind a stream keeps up with what it gets."""
    if stream.is_ending:
        return stream.end(_SHORT_MILLISECONDS)
    return stream.flush(_MAX_UNCONFIRMED_ITEMS, _SHORT_MILLISECONDS)
