"""The learner's node: samples, steps, publishes, and sends priorities back."""

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any, Optional

from agents.agent import Agent, StepResult
from nodes import checkpoints, contract
from nodes.batch_stats import BatchStats
from nodes.checkpoints import Schedule
from nodes.counter import CounterClient
from nodes.learner_checkpoints import LearnerCheckpoints
from nodes.peer import PeerLost
from nodes.priorities import PriorityUpdater
from nodes.publisher import Publisher
from nodes.replay import ReplayClient, ReplayHandle
from nodes.replay_info import Rates
from nodes.sampling import Sampler
from nodes.service import Handle, ServiceNode, deref
from nodes.variables import VariableClient

_REPORT_PERIOD_SECONDS = 0.5
_JOIN_SECONDS = 2.0
_STALE_SECONDS = 2.0
"""A learner whose steps are slow publishes after this time, whatever its publish period."""


class LearnerService:
    """Runs an agent's learner against replay; nothing but sampling makes it wait."""

    def __init__(
        self,
        agent: Agent,
        replay: ReplayClient,
        variables: VariableClient,
        counter: CounterClient,
        seed: int,
        schedule: Schedule = checkpoints.DEFAULT,
    ) -> None:
        """Makes the learner.

        Args:
            agent: Says how to learn.
            replay: Where samples come from and priorities go.
            variables: Where the variables go.
            counter: Counts the learner steps.
            seed: Seeds the variables and the choice of shards.
            schedule: When checkpoints are saved.
        """
        self._runtime = contract.runtime()
        self._agent = agent
        self._replay = replay
        self._variables = variables
        self._counter = counter
        self._seed = seed
        self._learner = agent.make_learner(seed)
        self._checkpoints = LearnerCheckpoints(self._learner, self._runtime, schedule)
        self._progress = _Progress()
        self._ended = threading.Event()
        self._lacking = "samples"
        self._report_failure: Optional[Exception] = None

    def run(self) -> None:
        """Learns until the program stops, from the newest checkpoint on if there is one."""
        step = self._checkpoints.restore()
        stats = BatchStats()
        updater = self._replay.priority_updater()
        sampler = self._replay.sampler(self._agent.batch_size, seed=self._seed)
        publisher = Publisher(self._variables)
        publisher.offer(step, self._learner.variables)
        reporter = threading.Thread(
            target=self._report,
            args=(updater, sampler, stats, publisher),
            name="reporter",
            daemon=True,
        )
        reporter.start()
        first = True
        try:
            while not self._runtime.stopping:
                if self._report_failure is not None:
                    raise self._report_failure
                self._checkpoints.save_if_due(step)
                began = time.monotonic()
                batch = sampler.next()
                self._progress.add_wait(time.monotonic() - began)
                if batch is None:
                    self._runtime.report_waiting(self._lacking)
                    continue
                result = self._learner.step(batch.sample)
                updater.update(batch, result.priorities)
                stats.add(batch)
                self._progress.add_step(result, self._agent.batch_size)
                self._runtime.report_progress()
                step += 1
                due = step % self._agent.publish_period == 0
                if due or publisher.idle_seconds > _STALE_SECONDS:
                    publisher.offer(step, self._learner.variables)
                if first:
                    self._counter.increment(**self._progress.take_counts())
                    first = False
            self._checkpoints.save(step)
        finally:
            self._ended.set()
            sampler.close()
            updater.close()
            publisher.close()
            reporter.join(_JOIN_SECONDS)
        with contextlib.suppress(PeerLost):  # It may have ended before us.
            self._counter.increment(**self._progress.take_counts())

    def _report(
        self, updater: PriorityUpdater, sampler: Sampler, stats: BatchStats, publisher: Publisher
    ) -> None:
        """Tells the counter how the learner and its replay are doing, also while it waits."""
        rates = Rates()
        try:
            while not self._ended.wait(_REPORT_PERIOD_SECONDS):
                info = self._replay.info()
                sampler.renew(info)
                updater.note(info)
                self._lacking = f"samples: {info.describe()}"
                self._counter.increment_soon(**self._progress.take_counts())
                self._counter.report_soon(
                    "learner/0",
                    {
                        **self._progress.take_gauges(),
                        **stats.gauges(publisher),
                        **info.gauges(),
                        **rates.of(info),
                        **{f"priorities_{k}": v for k, v in updater.counts._asdict().items()},
                    },
                )
        except Exception as error:  # It is raised where it ends the node.
            self._report_failure = error


class _Progress:
    """What the learner has done since somebody asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"learner_steps": 0, "trained_samples": 0, "trained_timesteps": 0}
        self._metrics: Mapping[str, Any] = {}
        self._waited = 0.0
        self._since = time.monotonic()

    def add_wait(self, seconds: float) -> None:
        with self._lock:
            self._waited += seconds

    def add_step(self, result: StepResult, batch_size: int) -> None:
        with self._lock:
            self._counts["learner_steps"] += 1
            self._counts["trained_samples"] += batch_size
            self._counts["trained_timesteps"] += result.trained_timesteps
            self._metrics = result.metrics

    def take_counts(self) -> dict[str, int]:
        with self._lock:
            counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return counts

    def take_gauges(self) -> dict[str, float]:
        """Returns the newest step's metrics and the share of time spent waiting for samples."""
        now = time.monotonic()
        with self._lock:
            waited, self._waited = self._waited, 0.0
            since, self._since = self._since, now
            metrics = self._metrics
        gauges = {name: float(value) for name, value in metrics.items()}
        return {**gauges, "waiting_for_samples": min(1.0, waited / max(now - since, 1e-9))}


def learner_node(
    agent: Agent,
    replay: ReplayHandle,
    variables: Handle[VariableClient],
    counter: Handle[CounterClient],
    seed: int,
    schedule: Schedule = checkpoints.DEFAULT,
) -> ServiceNode[LearnerService]:
    """Returns the node that learns; see `LearnerService`."""
    return ServiceNode(
        LearnerService,
        agent,
        deref(replay),
        deref(variables),
        deref(counter),
        seed,
        schedule,
        client_type=LearnerService,
        traits=contract.Traits(on_failure="restart", wants_gpu=True, endless=True, place="pack"),
    )
