"""What every learner does: samples, takes steps, and sends priorities back."""

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any, Optional, Protocol

from agents.agent import Agent, Sample, StepResult
from nodes import contract
from nodes.batch_stats import BatchStats
from nodes.counter import CounterClient
from nodes.peer import PeerLost
from nodes.priorities import PriorityUpdater
from nodes.replay import ReplayClient
from nodes.replay_info import Rates
from nodes.sampling import Sampler

_REPORT_PERIOD_SECONDS = 0.5
_JOIN_SECONDS = 2.0


class Steps(Protocol):
    """How a learner's steps are taken."""

    @property
    def published(self) -> tuple[int, int]:
        """This learner's life, and how many versions of the variables it has published in it."""

    def begin(self) -> bool:
        """Makes all ready for the first step; returns False if the node is to stop instead."""

    def take(self, sample: Sample) -> Optional[StepResult]:
        """Takes a step, or a part in one; returns None if the node is to stop instead."""

    def take_counts(self) -> Mapping[str, int]:
        """Returns the learner steps, samples and timesteps since the last call, by name."""

    def finish(self) -> None:
        """Saves what is to be saved."""

    def close(self) -> None:
        """Frees what is held, also where something went wrong."""


class LearnerLoop:
    """Lets steps be taken on what is in replay; nothing but sampling makes it wait."""

    def __init__(
        self,
        agent: Agent,
        replay: ReplayClient,
        counter: CounterClient,
        steps: Steps,
        index: int,
        seed: int,
    ) -> None:
        """Initializes the loop.

        Args:
            agent: Says how large batches are.
            replay: Where samples come from and priorities go.
            counter: Counts the learner steps.
            steps: Takes them.
            index: Which of the learners this is.
            seed: Seeds the choice of shards.
        """
        self._runtime = contract.runtime()
        self._batch_size = agent.batch_size
        self._replay = replay
        self._counter = counter
        self._steps = steps
        self._name = f"learner/{index}"
        self._seed = seed
        self._progress = _Progress()
        self._ended = threading.Event()
        self._lacking = "samples"
        self._report_failure: Optional[Exception] = None

    def run(self) -> None:
        """Learns until the program stops."""
        stats = BatchStats()
        updater = self._replay.priority_updater()
        sampler = self._replay.sampler(self._batch_size, seed=self._seed)
        reporter = threading.Thread(
            target=self._report, args=(updater, sampler, stats), name="reporter", daemon=True
        )
        try:
            if not self._steps.begin():
                return
            reporter.start()
            self._learn(sampler, updater, stats)
            self._steps.finish()
        finally:
            self._ended.set()
            sampler.close()
            updater.close()
            self._steps.close()
            if reporter.ident is not None:
                reporter.join(_JOIN_SECONDS)
        with contextlib.suppress(PeerLost):  # It may have ended before us.
            self._counter.increment(**self._steps.take_counts())

    def _learn(self, sampler: Sampler, updater: PriorityUpdater, stats: BatchStats) -> None:
        first = True
        while not self._runtime.stopping:
            if self._report_failure is not None:
                raise self._report_failure
            began = time.monotonic()
            batch = sampler.next()
            self._progress.add_wait(time.monotonic() - began)
            if batch is None:
                self._runtime.report_waiting(self._lacking)
                continue
            result = self._steps.take(batch.sample)
            if result is None:
                return
            if result.priorities is not None:
                updater.update(batch, result.priorities)
            stats.add(batch)
            self._progress.metrics = result.metrics
            self._runtime.report_progress()
            if first:
                self._counter.increment(**self._steps.take_counts())
                first = False

    def _report(self, updater: PriorityUpdater, sampler: Sampler, stats: BatchStats) -> None:
        """Tells the counter how the learner and its replay are doing, also while it waits."""
        rates = Rates()
        try:
            while not self._ended.wait(_REPORT_PERIOD_SECONDS):
                info = self._replay.info()
                sampler.renew(info)
                updater.note(info)
                self._lacking = f"samples: {info.describe()}"
                self._counter.increment_soon(**self._steps.take_counts())
                self._counter.report_soon(
                    self._name,
                    {
                        **self._progress.take_gauges(),
                        **stats.gauges(*self._steps.published),
                        **info.gauges(),
                        **rates.of(info),
                        **{f"priorities_{k}": v for k, v in updater.counts._asdict().items()},
                    },
                )
        except Exception as error:  # It is raised where it ends the node.
            self._report_failure = error


class StepCounts:
    """Counts what was learned from; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"learner_steps": 0, "trained_samples": 0, "trained_timesteps": 0}

    def add(self, learner_steps: int, result: StepResult, samples: int) -> None:
        """Adds a batch of so many samples, and the steps taken with it."""
        with self._lock:
            self._counts["learner_steps"] += learner_steps
            self._counts["trained_samples"] += samples
            self._counts["trained_timesteps"] += result.trained_timesteps

    def take(self) -> dict[str, int]:
        """Returns what was added since the last call."""
        with self._lock:
            counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return counts


class _Progress:
    """How the learner has fared since somebody asked.

    Attributes:
        metrics: The newest step's.
    """

    def __init__(self) -> None:
        self.metrics: Mapping[str, Any] = {}
        self._lock = threading.Lock()
        self._waited = 0.0
        self._since = time.monotonic()

    def add_wait(self, seconds: float) -> None:
        with self._lock:
            self._waited += seconds

    def take_gauges(self) -> dict[str, float]:
        """Returns the newest step's metrics and the share of time spent waiting for samples."""
        now = time.monotonic()
        with self._lock:
            waited, self._waited = self._waited, 0.0
            since, self._since = self._since, now
        gauges = {name: float(value) for name, value in self.metrics.items()}
        return {**gauges, "waiting_for_samples": min(1.0, waited / max(now - since, 1e-9))}
