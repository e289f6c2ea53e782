"""The workers' node: makes rollouts of the policies that a search wants to know of."""

import time
import uuid
from typing import Optional

from agents.agent import Variables
from agents.search_agent import RolloutResults, Rollouts, SearchAgent
from nodes import contract
from nodes.actor import MakeEnvironments
from nodes.counter import CounterClient
from nodes.peer import PeerLost
from nodes.search import SearchClient
from nodes.service import Handle, ServiceNode, deref
from nodes.tasks import Task
from nodes.variables import VariableClient

_REPORT_PERIOD_SECONDS = 0.5
_SHORTEST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.05
"""Between two questions for something to do."""
_VERSION_SECONDS = 0.5
"""How long a worker waits for a policy before it asks whether that is still wanted."""


class RolloutWorkerService:
    """Takes tasks and gives their results until the program stops.

    The environments of a task are made for it. So what becomes of it does not depend on who makes
    it, nor on what he has made before.
    """

    def __init__(
        self,
        agent: SearchAgent,
        make_environments: MakeEnvironments,
        noise: VariableClient,
        search: SearchClient,
        variables: VariableClient,
        counter: CounterClient,
        index: int,
        seed: int,
    ) -> None:
        """Initializes the worker.

        Args:
            agent: Says what the rollouts are.
            make_environments: Makes their environments.
            noise: Has the table of noise.
            search: Has the tasks, and takes the results.
            variables: Where policies come from.
            counter: Takes how the worker is doing.
            index: Which of the workers this is.
            seed: The search's seed.
        """
        self._runtime = contract.runtime()
        self._agent = agent
        self._make_environments = make_environments
        self._noise = noise
        self._search = search
        self._variables = variables
        self._counter = counter
        self._name = f"worker/{index}"
        self._incarnation = uuid.uuid4().hex
        self._seed = seed
        self._reported_at = 0.0
        self._rollouts = 0

    def run(self) -> None:
        """Works until the program stops."""
        noise = self._noise.wait_for_first(self._runtime, "the table of noise")
        if noise is None:
            return
        self._runtime.report_running()
        try:
            while not self._runtime.stopping:
                task = self._wait_for_task()
                variables = None if task is None else self._variables_of(task)
                if task is None or variables is None:
                    continue
                rollouts = self._agent.make_rollouts(
                    noise.values[0], variables, task.number, self._seed
                )
                results = self._play(rollouts)
                if results is not None:
                    self._search.give(self._name, task, results)
                    self._rollouts += len(results.returns)
                    self._report(task)
        except PeerLost:
            if not self._runtime.stopping:
                raise

    def _wait_for_task(self) -> Optional[Task]:
        """Returns the next task, or None if the node is to stop."""
        pause = _SHORTEST_PAUSE_SECONDS
        while not self._runtime.stopping:
            task = self._search.take(self._name, self._incarnation)
            if task is not None:
                return task
            self._runtime.report_waiting("rollouts to make")
            self._runtime.wait_for_stop(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return None

    def _variables_of(self, task: Task) -> Optional[Variables]:
        """Returns the policy that a task is about, or None if there is none for now.

        If there is a newer one, the task is not wanted any more, or the search has gone back to it
        and will publish that policy again: whether it is wanted the search is to say.
        """
        deadline = time.monotonic() + _VERSION_SECONDS
        while True:
            version = self._variables.poll() or self._variables.current
            if version is not None and version.step == task.iteration:
                return version.values
            self._variables.request()
            stopping = self._runtime.wait_for_stop(_SHORTEST_PAUSE_SECONDS)
            is_past = version is not None and version.step > task.iteration
            if stopping or is_past or time.monotonic() > deadline:
                self._runtime.report_waiting(f"the policy of iteration {task.iteration}")
                return None

    def _play(self, rollouts: Rollouts) -> Optional[RolloutResults]:
        """Returns what becomes of a task's rollouts, or None if the node is to stop before."""
        environments = self._make_environments(rollouts.num_envs, rollouts.environment_seed, False)
        try:
            actions = rollouts.step(environments.reset())
            while actions is not None:
                if self._runtime.stopping:
                    return None
                actions = rollouts.step(environments.step(actions))
                self._runtime.report_progress()
            return rollouts.results()
        finally:
            environments.close()

    def _report(self, task: Task) -> None:
        """Tells the counter what the worker has done, now and then."""
        if time.monotonic() < self._reported_at + _REPORT_PERIOD_SECONDS:
            return
        self._reported_at = time.monotonic()
        self._counter.report_soon(
            self._name, {"version": task.iteration, "rollouts": self._rollouts}
        )


def rollout_worker_node(
    agent: SearchAgent,
    make_environments: MakeEnvironments,
    noise: Handle[VariableClient],
    search: Handle[SearchClient],
    variables: Handle[VariableClient],
    counter: Handle[CounterClient],
    *,
    index: int,
    seed: int,
) -> ServiceNode[RolloutWorkerService]:
    """Returns the node of one worker; see `RolloutWorkerService`."""
    return ServiceNode(
        RolloutWorkerService,
        agent,
        make_environments,
        deref(noise),
        deref(search),
        deref(variables),
        deref(counter),
        index=index,
        seed=seed,
        client_type=RolloutWorkerService,
        traits=contract.Traits(
            on_failure="restart",
            reports_running=True,
            endless=True,
            place="spread",
            dispensable=True,
        ),
    )
