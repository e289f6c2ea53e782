"""The search's node: hands out rollouts, and makes better policies out of their results."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from agents.search_agent import RolloutResults, Search, SearchAgent
from nodes import checkpoints, contract
from nodes.checkpoints import Schedule
from nodes.counter import CounterClient
from nodes.learner_checkpoints import LearnerCheckpoints
from nodes.peer import Peer, PeerLost
from nodes.publisher import Publisher
from nodes.service import Handle, ServiceNode, deref
from nodes.tasks import Task, Tasks
from nodes.variables import VariableClient

_WAIT_SECONDS = 0.2
_REPORT_PERIOD_SECONDS = 0.5


class SearchClient:
    """Takes rollouts to make, and gives their results; a call may be made more than once."""

    def __init__(self, address: str) -> None:
        self._peer = Peer(address, "search")

    def take(self, worker: str, incarnation: str) -> Optional[Task]:
        """Returns a task, or None if there is nothing to do just now; see `Tasks.take`."""
        task = self._peer.call("take", worker, incarnation)
        return None if task is None else Task(*task)

    def give(self, worker: str, task: Task, results: RolloutResults) -> None:
        """Gives the results of a task; see `Tasks.give`."""
        self._peer.call("give", worker, task.lease, list(results))


class SearchService:
    """Runs a search: one iteration after the other, each with a policy that does not change.

    What is published is all that an iteration depends on. So one that was killed goes on from the
    newest that is still to be had, and finds what it would have found.
    """

    def __init__(
        self,
        agent: SearchAgent,
        noise: VariableClient,
        variables: VariableClient,
        counter: CounterClient,
        seed: int,
        schedule: Schedule = checkpoints.DEFAULT,
    ) -> None:
        """Initializes the search.

        Args:
            agent: Says how to search.
            noise: Has the table of noise.
            variables: Where the policies go.
            counter: Counts updates, and the rollouts and environment steps that they used.
            seed: Says which policies are tried.
            schedule: When checkpoints are saved.
        """
        self._runtime = contract.runtime()
        self._agent = agent
        self._noise = noise
        self._variables = variables
        self._counter = counter
        self._seed = seed
        self._schedule = schedule
        self._tasks = Tasks([agent.rollouts_in(task) for task in range(agent.num_tasks)])
        self._metrics: Mapping[str, float] = {}
        self._reported_at = 0.0

    def take(self, worker: str, incarnation: str) -> Optional[Task]:
        """Returns a task for a worker; see `Tasks.take`."""
        return self._tasks.take(worker, incarnation)

    def give(self, worker: str, lease: int, results: Sequence[Any]) -> None:
        """Takes a task's results, the fields of `RolloutResults`; see `Tasks.give`."""
        self._tasks.give(worker, lease, RolloutResults(*results))

    def run(self) -> None:
        """Searches until the program stops."""
        noise = self._noise.wait_for_first(self._runtime, "the table of noise")
        if noise is None:
            return
        search = self._agent.make_search(noise.values[0], self._seed)
        saved = LearnerCheckpoints(search, self._runtime, self._schedule)
        saved.restore()
        published = self._variables.newest()
        if published is not None and published.step > search.iteration:
            search.take_up(published.values)
        counts = _Counts(search, self._counter)
        publisher = Publisher(self._variables)
        publisher.offer(search.iteration, search.variables)
        self._runtime.report_running()
        try:
            while self._iterate(search):
                publisher.offer(search.iteration, search.variables)
                counts.add()
                self._runtime.report_progress()
                saved.save_if_due(search.iteration)
            saved.save(search.iteration)
        finally:
            publisher.close()
        with contextlib.suppress(PeerLost):  # It may have ended before us.
            counts.finish()
            self._report(search, at_once=True)

    def _iterate(self, search: Search) -> bool:
        """Makes an update; returns False if the node is to stop before it can be made."""
        self._tasks.begin(search.iteration)
        done = 0
        while not self._tasks.wait(_WAIT_SECONDS):
            if self._runtime.stopping:
                return False
            if self._tasks.done > done:
                done = self._tasks.done
                self._runtime.report_progress()
            else:
                self._runtime.report_waiting(
                    f"workers' rollouts: {done} of {self._agent.num_tasks} tasks of iteration "
                    f"{search.iteration} are done"
                )
            self._report(search)
        if self._runtime.stopping:
            return False
        self._metrics = search.update(self._tasks.results())
        self._report(search)
        return True

    def _report(self, search: Search, at_once: bool = False) -> None:
        """Tells the counter how the search is doing, now and then."""
        if not at_once and time.monotonic() < self._reported_at + _REPORT_PERIOD_SECONDS:
            return
        self._reported_at = time.monotonic()
        gauges = {**self._metrics, **self._tasks.gauges(), "iteration": search.iteration}
        self._counter.report_soon("search/0", gauges)


class _Counts:
    """Counts what the updates used, each rollout once.

    The search knows how much that is in all its lives; what the counter knows already is left out.
    """

    def __init__(self, search: Search, counter: CounterClient) -> None:
        self._search = search
        self._counter = counter
        self._counted: Mapping[str, int] = counter.snapshot()["counts"]
        self._first = True

    def add(self) -> None:
        """Counts what is new; waits for the counter only the first time.

        The time over which rates are taken begins with the first update: the rollouts behind it
        are counted before it.
        """
        new = self._new()
        if not self._first:
            self._counter.increment_soon(**new)
            return
        updates = new.pop("learner_steps")
        self._counter.increment(**new)
        self._counter.increment(learner_steps=updates)
        self._first = False

    def finish(self) -> None:
        """Waits until the counter knows all.

        Raises:
            nodes.peer.PeerLost: It does not answer.
        """
        self._counter.increment(**self._new())

    def _new(self) -> dict[str, int]:
        search, before = self._search, self._counted
        now = {
            "learner_steps": search.iteration,
            "trained_samples": search.rollouts,
            "environment_steps": search.environment_steps,
        }
        new = {name: max(0, count - before.get(name, 0)) for name, count in now.items()}
        self._counted = {name: before.get(name, 0) + count for name, count in new.items()}
        return new


def search_node(
    agent: SearchAgent,
    noise: Handle[VariableClient],
    variables: Handle[VariableClient],
    counter: Handle[CounterClient],
    seed: int,
    schedule: Schedule = checkpoints.DEFAULT,
) -> ServiceNode[SearchClient]:
    """Returns the node that searches; see `SearchService`."""
    return ServiceNode(
        SearchService,
        agent,
        deref(noise),
        deref(variables),
        deref(counter),
        seed,
        schedule,
        client_type=SearchClient,
        make_client=SearchClient,
        traits=contract.Traits(
            on_failure="restart", reports_running=True, endless=True, place="pack"
        ),
    )
