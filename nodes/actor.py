"""The actors' node: steps environments, fills replay, and looks for newer variables."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Optional, Protocol

import dm_env
import numpy as np
from numpy.typing import NDArray

from agents.agent import Actor, Agent, Writer
from nodes import contract
from nodes.counter import CounterClient
from nodes.replay import ReplayClient, ReplayHandle
from nodes.service import Handle, ServiceNode, deref
from nodes.variables import VariableClient
from nodes.version import Version
from nodes.writing import ReplayWriter

_REPORT_PERIOD_SECONDS = 0.5


class Environments(Protocol):
    """A batch of E environments; see `agents.agent.Actor` for the form of its timesteps."""

    def reset(self) -> dm_env.TimeStep:
        """Starts a new episode in every environment."""

    def step(self, actions: NDArray[Any]) -> dm_env.TimeStep:
        """Takes actions [E, ...] and returns the next timestep of every environment."""

    def close(self) -> None:
        """Frees what the environments hold."""


MakeEnvironments = Callable[[int, int, bool], Environments]
"""Makes environments from their number, a seed, and whether they are for evaluation."""


class EpisodeReturns:
    """Sums rewards over the running episode of each of E environments."""

    def __init__(self, num_envs: int) -> None:
        self._running = np.zeros(num_envs, np.float64)

    def add(self, timestep: dm_env.TimeStep) -> tuple[int, NDArray[Any]]:
        """Adds a timestep [E].

        Returns:
            The environment steps in it, which are all but the first of each episode, and the
            returns float64 of the episodes that it ended.
        """
        first = timestep.step_type == dm_env.StepType.FIRST
        self._running = np.where(first, 0.0, self._running + timestep.reward)
        ended = self._running[timestep.step_type == dm_env.StepType.LAST]
        return len(first) - int(np.count_nonzero(first)), ended


class ActorService:
    """Acts in a batch of environments until the program stops."""

    def __init__(
        self,
        agent: Agent,
        make_environments: MakeEnvironments,
        replay: ReplayClient,
        variables: VariableClient,
        counter: CounterClient,
        index: int,
        num_actors: int,
        num_envs: int,
        seed: int,
    ) -> None:
        """Initializes the actor.

        Args:
            agent: Says how to act and what to write.
            make_environments: Makes the actor's environments.
            replay: Where the items go.
            variables: Where newer variables come from.
            counter: Counts the environment steps.
            index: Which of the actors this is.
            num_actors: All actors.
            num_envs: Environments of each actor.
            seed: Seeds the environments and the exploration.
        """
        self._runtime = contract.runtime()
        self._agent = agent
        self._variables = variables
        self._counter = counter
        self._name = f"actor/{index}"
        self._num_envs = num_envs
        self._replay = replay
        self._writers: list[ReplayWriter] = []
        self._index = index
        self._environments = make_environments(num_envs, seed, False)
        self._actor: Actor = agent.make_actor(
            self._make_writer, index * num_envs, num_envs, num_actors * num_envs, seed
        )
        self._returns = EpisodeReturns(num_envs)
        self._steps = self._episodes = 0
        self._newest_return: Optional[float] = None

    def run(self) -> None:
        """Acts until the program stops."""
        try:
            self._run()
        finally:
            self._environments.close()
            for writer in self._writers:
                writer.close()

    def _run(self) -> None:
        version = self._variables.wait_for_first(self._runtime)
        if version is None:
            return
        self._use(version)
        timestep = self._environments.reset()
        try:
            self._act(timestep)
        finally:
            with contextlib.suppress(Exception):  # What went wrong before matters more.
                self._counter.increment(**self._take_counts())

    def _act(self, timestep: dm_env.TimeStep) -> None:
        next_report = 0.0
        step = 0
        while not self._runtime.stopping:
            if step % self._agent.variable_update_period == 0:
                self._variables.request()
            newer = self._variables.poll()
            if newer is not None:
                self._use(newer)
            timestep = self._environments.step(self._actor.step(timestep))
            self._count(timestep)
            self._runtime.report_progress()
            step += 1
            if step == 1:
                self._runtime.report_running()
            if time.monotonic() > next_report:
                next_report = time.monotonic() + _REPORT_PERIOD_SECONDS
                self._report()

    def _use(self, version: Version) -> None:
        self._actor.set_variables(version.values, version.step)
        for writer in self._writers:
            writer.set_version(version)

    def _make_writer(self, max_steps: int) -> Writer:
        # Actors with one writer each, and one actor with many, both begin with all shards evenly.
        shard = self._index + len(self._writers)
        self._writers.append(self._replay.writer(shard, max_steps))
        return self._writers[-1]

    def _count(self, timestep: dm_env.TimeStep) -> None:
        steps, ended = self._returns.add(timestep)
        self._steps += steps
        if len(ended):
            self._episodes += len(ended)
            self._newest_return = float(ended[-1])

    def _take_counts(self) -> dict[str, int]:
        counts = {"environment_steps": self._steps, "actor_episodes": self._episodes}
        self._steps = self._episodes = 0
        return counts

    def _report(self) -> None:
        self._counter.increment_soon(**self._take_counts())
        version = self._variables.current
        assert version is not None
        gauges: dict[str, float] = {
            "version": version.step,
            "version_age_seconds": time.time() - version.time,
            "versions_behind": self._variables.versions_behind,
        }
        if self._newest_return is not None:
            gauges["episode_return"] = self._newest_return
        self._counter.report_soon(self._name, gauges)


def actor_node(
    agent: Agent,
    make_environments: MakeEnvironments,
    replay: ReplayHandle,
    variables: Handle[VariableClient],
    counter: Handle[CounterClient],
    *,
    index: int,
    num_actors: int,
    num_envs: int,
    seed: int,
) -> ServiceNode[ActorService]:
    """Returns the node of one actor; see `ActorService`."""
    return ServiceNode(
        ActorService,
        agent,
        make_environments,
        deref(replay),
        deref(variables),
        deref(counter),
        index=index,
        num_actors=num_actors,
        num_envs=num_envs,
        seed=seed,
        client_type=ActorService,
        traits=contract.Traits(
            on_failure="restart",
            reports_running=True,
            endless=True,
            place="spread",
            dispensable=True,
        ),
    )
