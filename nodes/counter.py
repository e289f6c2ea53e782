"""The counter: the one place that knows how far the program is."""

import collections
import contextlib
import json
import math
import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from nodes import checkpoints, contract
from nodes.checkpoints import Checkpoints, Schedule
from nodes.peer import Peer
from nodes.service import ServiceNode

COUNTS_FILE = "counts.json"
EVALUATOR_WINDOW = 100
"""Episodes over which the evaluator's return is averaged."""

_STATE_FILE = "state.json"
_STATE_FIELDS = {
    "life",
    "counts",
    "sources",
    "returns",
    "evaluator_episodes",
    "evaluated_version",
    "learning_since",
}
_WRITE_PERIOD_SECONDS = 0.5


class CounterClient:
    """Adds to the counter from another node.

    What is added is sent as totals of this client, so that nothing is lost or counted twice where
    the counter was away or an answer was.
    """

    def __init__(self, address: str) -> None:
        self._peer = Peer(address, "counter")
        self._source = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._totals: dict[str, int] = collections.defaultdict(int)
        self._rounds = 0

    def increment(self, **counts: int) -> None:
        """Adds to counts and waits until they are added.

        Raises:
            ValueError: A count would fall.
            nodes.peer.PeerLost: The counter was away for too long.
        """
        self._peer.call("add_up", self._source, self._add(counts))

    def increment_soon(self, **counts: int) -> None:
        """Adds to counts without waiting; what the counter misses comes with the next call.

        Raises:
            ValueError: A count would fall.
        """
        self._peer.start("add_up", self._source, self._add(counts))

    def _add(self, counts: Mapping[str, int]) -> dict[str, int]:
        fallen = [name for name, count in counts.items() if count < 0]
        if fallen:
            raise ValueError(
                f"Counts never fall, but {fallen[0]!r} was to change by {counts[fallen[0]]}."
            )
        with self._lock:
            for name, count in counts.items():
                self._totals[name] += count
            return dict(self._totals)

    def report_soon(self, reporter: str, gauges: Mapping[str, float]) -> None:
        """Tells the newest values of what goes up and down, without waiting.

        Args:
            reporter: Who tells, as `group/index`.
            gauges: Values by name.
        """
        self._peer.start("report", reporter, dict(gauges))

    def add_evaluation(self, returns: Sequence[float], version: int) -> None:
        """Adds finished episodes of the evaluator.

        Args:
            returns: Undiscounted, unclipped returns, one an episode, oldest first.
            version: Learner step of the variables that the episodes began with.
        """
        self._rounds += 1
        values = [float(value) for value in returns]
        self._peer.call("add_evaluation", self._source, self._rounds, values, version)

    def snapshot(self) -> dict[str, Any]:
        """Returns everything that the counter knows; see `Counter.snapshot`."""
        return dict(self._peer.call("snapshot"))


class Counter:
    """Counts work done, keeps the newest gauges, and writes both into the run's directory.

    It shows nothing that it has not written, and takes up what it has written: so what it shows
    never falls, also where it was killed.
    """

    def __init__(self, schedule: Schedule = checkpoints.DEFAULT) -> None:
        """Takes up what an earlier life has written, if there was one.

        Args:
            schedule: When checkpoints are saved.
        """
        self._runtime = contract.runtime()
        self._checkpoints = Checkpoints(self._runtime, schedule)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._gauges: dict[str, dict[str, float]] = {}
        self._counts: dict[str, int] = collections.defaultdict(int)
        self._sources: dict[str, dict[str, int]] = {}
        self._returns: collections.deque[float] = collections.deque(maxlen=EVALUATOR_WINDOW)
        self._episodes = 0
        self._evaluated_version = 0
        self._learning_since: Optional[dict[str, Any]] = None
        self._take_up()

    def add_up(self, source: str, totals: Mapping[str, int]) -> None:
        """Takes what a client has counted so far.

        Args:
            source: Which client it is.
            totals: All that it has ever counted, by name.
        """
        with self._lock:
            known = self._sources.setdefault(source, {})
            new = {name: total - known.get(name, 0) for name, total in totals.items()}
            if self._learning_since is None and new.get("learner_steps", 0) > 0:
                self._learning_since = {"time": time.time(), "counts": dict(self._counts)}
            for name, count in new.items():
                if count > 0:  # Else calls have overtaken each other.
                    self._counts[name] += count
                    known[name] = totals[name]

    def report(self, reporter: str, gauges: Mapping[str, float]) -> None:
        """Replaces the newest gauges of `reporter`; what is not a finite number is left out."""
        finite = {name: value for name, value in gauges.items() if math.isfinite(value)}
        with self._lock:
            self._gauges.setdefault(reporter, {}).update(finite)

    def add_evaluation(
        self, source: str, number: int, returns: Sequence[float], version: int
    ) -> None:
        """Adds finished episodes of the evaluator, those of round `number` of a client once."""
        with self._lock:
            known = self._sources.setdefault(source, {})
            if known.get("rounds", 0) >= number:
                return
            known["rounds"] = number
            self._returns.extend(returns)
            self._episodes += len(returns)
            self._evaluated_version = version

    def snapshot(self) -> dict[str, Any]:
        """Writes what is known and returns it.

        Returns:
            `counts` by name; `gauges` by reporter and name; `evaluator_episodes`;
            `evaluator_return_mean_100`, None before 100 episodes; `evaluator_return_mean` of
            those that there are; `evaluated_version`; and `learning_since`, the time (seconds
            since the epoch) and the counts when the learner began, or None before.
        """
        with self._writing:
            with self._lock:
                state, shown = self._state(), self._shown()
            self._write(state, shown)
        return shown

    def run(self) -> None:
        """Writes now and then, saves checkpoints, and does both once more at the end."""
        while not self._runtime.wait_for_stop(_WRITE_PERIOD_SECONDS):
            self.snapshot()
            if self._checkpoints.due:
                self._checkpoints.save(self._save)
        self.snapshot()
        self._checkpoints.save(self._save)

    def _shown(self) -> dict[str, Any]:
        full = len(self._returns) == EVALUATOR_WINDOW
        mean = sum(self._returns) / len(self._returns) if self._returns else None
        return {
            "time": time.time(),
            "counts": dict(self._counts),
            "gauges": {name: dict(gauges) for name, gauges in self._gauges.items()},
            "evaluator_episodes": self._episodes,
            "evaluator_return_mean": mean,
            "evaluator_return_mean_100": mean if full else None,
            "evaluated_version": self._evaluated_version,
            "learning_since": self._learning_since,
        }

    def _state(self) -> dict[str, Any]:
        return {
            "life": self._runtime.life,
            "counts": dict(self._counts),
            "sources": {name: dict(totals) for name, totals in self._sources.items()},
            "returns": list(self._returns),
            "evaluator_episodes": self._episodes,
            "evaluated_version": self._evaluated_version,
            "learning_since": self._learning_since,
        }

    def _write(self, state: Mapping[str, Any], shown: Mapping[str, Any]) -> None:
        own, common = self._runtime.checkpoint_directory, self._runtime.run_directory
        if own is None or common is None:
            return
        with contextlib.suppress(OSError):  # A full disk does not end a run.
            os.makedirs(own, exist_ok=True)
            _replace(os.path.join(own, _STATE_FILE), state)
            _replace(os.path.join(common, COUNTS_FILE), shown)

    def _save(self, path: str) -> float:
        began = time.monotonic()
        with self._lock:
            state = self._state()
        pause = time.monotonic() - began
        _replace(os.path.join(path, _STATE_FILE), state)
        return pause

    def _take_up(self) -> None:
        """Goes on from the newest state that can be read."""
        own = self._runtime.checkpoint_directory
        try:
            state = _read(own or "")
        except FileNotFoundError:
            state = None
        except (OSError, ValueError) as error:
            self._runtime.report_warning(f"The newest counts cannot be read: {error}")
            state = None
        state = state or self._checkpoints.restore(_read)
        if state is None:
            return
        self._counts.update(state["counts"])
        self._returns.extend(state["returns"])
        self._episodes = state["evaluator_episodes"]
        self._evaluated_version = state["evaluated_version"]
        if state["life"] == self._runtime.life:
            self._sources = state["sources"]
            self._learning_since = state["learning_since"]


def _replace(path: str, content: Any) -> None:
    with open(f"{path}.new", "w") as file:
        json.dump(content, file, allow_nan=False)
    os.replace(f"{path}.new", path)


def _read(directory: str) -> dict[str, Any]:
    with open(os.path.join(directory, _STATE_FILE)) as file:
        state: dict[str, Any] = json.load(file)
    if not isinstance(state, dict) or not state.keys() >= _STATE_FIELDS:
        raise ValueError(f"{_STATE_FILE} does not hold what it should")
    return state


def counter_node(schedule: Schedule = checkpoints.DEFAULT) -> ServiceNode[CounterClient]:
    """Returns the node of the program's counter, which saves checkpoints by `schedule`."""
    return ServiceNode(
        Counter,
        schedule,
        client_type=CounterClient,
        make_client=CounterClient,
        traits=contract.Traits(on_failure="restart", endless=True, place="pack"),
    )
