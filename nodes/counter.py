"""The counter: the one place that knows how far the program is."""

import collections
import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import courier

from nodes import contract
from nodes.service import ServiceNode

COUNTS_FILE = "counts.json"
EVALUATOR_WINDOW = 100
"""Episodes over which the evaluator's return is averaged."""

_WRITE_PERIOD_SECONDS = 0.5
_CALL_TIMEOUT_SECONDS = 10.0


class CounterClient:
    """Adds to the counter from another node."""

    def __init__(self, address: str) -> None:
        self._client = courier.Client(address, call_timeout=_CALL_TIMEOUT_SECONDS)

    def increment(self, **counts: int) -> None:
        """Adds to counts and waits until they are added."""
        self._client.increment(counts)

    def increment_soon(self, **counts: int) -> None:
        """Adds to counts without waiting; what the counter cannot take in time is lost."""
        self._client.futures.increment(counts)

    def report_soon(self, reporter: str, gauges: Mapping[str, float]) -> None:
        """Tells the newest values of what goes up and down, without waiting.

        Args:
            reporter: Who tells, as `group/index`.
            gauges: Values by name.
        """
        self._client.futures.report(reporter, dict(gauges))

    def add_evaluation(self, returns: Sequence[float], version: int) -> None:
        """Adds finished episodes of the evaluator.

        Args:
            returns: Undiscounted, unclipped returns, one an episode, oldest first.
            version: Learner step of the variables that the episodes began with.
        """
        self._client.add_evaluation([float(value) for value in returns], version)

    def snapshot(self) -> dict[str, Any]:
        """Returns everything that the counter knows; see `Counter.snapshot`."""
        return dict(self._client.snapshot())


class Counter:
    """Counts work done, keeps the newest gauges, and writes both into the run's directory."""

    def __init__(self) -> None:
        self._runtime = contract.runtime()
        self._lock = threading.Lock()
        self._counts: dict[str, int] = collections.defaultdict(int)
        self._gauges: dict[str, dict[str, float]] = {}
        self._returns: collections.deque[float] = collections.deque(maxlen=EVALUATOR_WINDOW)
        self._episodes = 0
        self._evaluated_version = 0
        self._learning_since: Optional[dict[str, Any]] = None

    def increment(self, counts: Mapping[str, int]) -> None:
        """Adds to counts.

        Raises:
            ValueError: A count would fall.
        """
        fallen = [name for name, count in counts.items() if count < 0]
        if fallen:
            raise ValueError(
                f"Counts never fall, but {fallen[0]!r} was to change by {counts[fallen[0]]}."
            )
        with self._lock:
            if self._learning_since is None and counts.get("learner_steps", 0) > 0:
                self._learning_since = {"time": time.time(), "counts": dict(self._counts)}
            for name, count in counts.items():
                self._counts[name] += count

    def report(self, reporter: str, gauges: Mapping[str, float]) -> None:
        """Replaces the newest gauges of `reporter`."""
        with self._lock:
            self._gauges.setdefault(reporter, {}).update(gauges)

    def add_evaluation(self, returns: Sequence[float], version: int) -> None:
        """Adds finished episodes of the evaluator."""
        with self._lock:
            self._returns.extend(returns)
            self._episodes += len(returns)
            self._evaluated_version = version

    def snapshot(self) -> dict[str, Any]:
        """Returns what is known.

        Returns:
            `counts` by name; `gauges` by reporter and name; `evaluator_episodes`;
            `evaluator_return_mean_100`, None before 100 episodes; `evaluator_return_mean` of
            those that there are; `evaluated_version`; and `learning_since`, the time (seconds
            since the epoch) and the counts when the learner began, or None before.
        """
        with self._lock:
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

    def run(self) -> None:
        """Writes the snapshot now and then, and once more at the end."""
        while not self._runtime.wait_for_stop(_WRITE_PERIOD_SECONDS):
            self._write()
        self._write()

    def _write(self) -> None:
        if self._runtime.run_directory is None:
            return
        path = os.path.join(self._runtime.run_directory, COUNTS_FILE)
        with contextlib.suppress(OSError):  # A full disk does not end a run.
            with open(f"{path}.new", "w") as file:
                json.dump(self.snapshot(), file, allow_nan=False)
            os.replace(f"{path}.new", path)


def counter_node() -> ServiceNode[CounterClient]:
    """Returns the node of the program's counter."""
    return ServiceNode(
        Counter,
        client_type=CounterClient,
        make_client=CounterClient,
        traits=contract.Traits(endless=True),
    )
