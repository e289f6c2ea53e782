"""The tasks of an iteration: who has which, and what becomes of those that are lost."""

import collections
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

from agents.search_agent import RolloutResults

_FIRST_PATIENCE_SECONDS = 30.0
"""How long a task may take while nobody knows how long one takes."""
_LEAST_PATIENCE_SECONDS = 0.5
_PATIENCE = 4.0
"""How many times as long as usual a task may take before another worker gets it, too."""
_DURATIONS = 32


class Task(NamedTuple):
    """A task as a worker gets it.

    Attributes:
        lease: Tells this handing out from all others.
        iteration: Updates made before the policy that it is about.
        number: Its number in the iteration.
    """

    lease: int
    iteration: int
    number: int


class _Lease(NamedTuple):
    """A task that a worker has.

    Attributes:
        task: The task.
        incarnation: Which life of the worker has it.
        since: When it was handed out.
    """

    task: Task
    incarnation: str
    since: float


class Tasks:
    """Hands out tasks and takes their results; safe to use from several threads.

    A task goes to one worker, unless that turns out to be dead or slow. Dead is one whose next life
    asks; its task goes to the next who asks, whoever that is. Slow is one that takes several times
    as long as usual; where there is nothing else to do, its task goes to another worker, too, and
    the first result that comes is used.

    Each rollout that was handed out is then used, a duplicate (another result was used), late (its
    iteration was over), lost (its worker asked for something else), or still out.
    """

    def __init__(self, sizes: Sequence[int], clock: Callable[[], float] = time.monotonic) -> None:
        """Initializes the tasks; none is handed out before `begin`.

        Args:
            sizes: Rollouts of each task of an iteration.
            clock: Tells the time in seconds.
        """
        self._sizes = sizes
        self._clock = clock
        self._changed = threading.Condition()
        self._iteration: Optional[int] = None
        self._results: dict[int, RolloutResults] = {}
        self._leases: dict[str, _Lease] = {}
        self._numbers = itertools.count(time.time_ns())  # Not those of an earlier life.
        self._durations: collections.deque[float] = collections.deque(maxlen=_DURATIONS)
        self._rollouts = dict.fromkeys(("handed_out", "used", "duplicate", "late", "lost"), 0)

    def begin(self, iteration: int) -> None:
        """Begins an iteration; what is given of the one before is late."""
        with self._changed:
            self._iteration = iteration
            self._results = {}

    def take(self, worker: str, incarnation: str) -> Optional[Task]:
        """Returns a task for a worker that has nothing to do, or None if there is none.

        A worker that has one gets it again, as an answer may have been lost.

        Args:
            worker: Who asks.
            incarnation: Which life of the worker it is.
        """
        with self._changed:
            held = self._leases.get(worker)
            if held is not None:
                if held.incarnation == incarnation and self._is_open(held.task):
                    return held.task
                self._settle(worker, "lost")
            number = self._next()
            if number is None or self._iteration is None:
                return None
            task = Task(next(self._numbers), self._iteration, number)
            self._leases[worker] = _Lease(task, incarnation, self._clock())
            self._rollouts["handed_out"] += self._sizes[number]
            return task

    def give(self, worker: str, lease: int, results: RolloutResults) -> None:
        """Takes the results of what was handed out as `lease`, once."""
        with self._changed:
            held = self._leases.get(worker)
            if held is None or held.task.lease != lease:
                return
            task = held.task
            if task.iteration != self._iteration:
                self._settle(worker, "late")
            elif task.number in self._results:
                self._settle(worker, "duplicate")
            else:
                self._settle(worker, "used")
                self._durations.append(self._clock() - held.since)
                self._results[task.number] = results
                self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Waits until all of the iteration is there; returns whether it is, within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: self.done == len(self._sizes), seconds)

    def results(self) -> list[RolloutResults]:
        """Returns the results of all tasks, in their order; they are there."""
        with self._changed:
            return [self._results[number] for number in range(len(self._sizes))]

    @property
    def done(self) -> int:
        """How many tasks of the iteration are done."""
        return len(self._results)

    def gauges(self) -> dict[str, float]:
        """Returns what became of all rollouts handed out; those that still are out make up."""
        with self._changed:
            out = sum(self._sizes[lease.task.number] for lease in self._leases.values())
            rollouts = {**self._rollouts, "out": out}
        return {f"rollouts_{name}": float(number) for name, number in rollouts.items()}

    def _is_open(self, task: Task) -> bool:
        return task.iteration == self._iteration and task.number not in self._results

    def _settle(self, worker: str, how: str) -> None:
        self._rollouts[how] += self._sizes[self._leases.pop(worker).task.number]

    def _next(self) -> Optional[int]:
        """Returns the first task that nobody has, or one whose last holder is slow."""
        since = {
            lease.task.number: lease.since
            for lease in sorted(self._leases.values(), key=lambda lease: lease.since)
            if self._is_open(lease.task)
        }
        for number in range(len(self._sizes)):
            if number not in since and number not in self._results:
                return number
        oldest = min(since, key=since.__getitem__, default=None)
        if oldest is None or self._clock() - since[oldest] < self._patience():
            return None
        return oldest

    def _patience(self) -> float:
        if not self._durations:
            return _FIRST_PATIENCE_SECONDS
        return max(_LEAST_PATIENCE_SECONDS, _PATIENCE * statistics.median(self._durations))
