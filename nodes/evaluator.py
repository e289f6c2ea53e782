"""The evaluator's node: plays whole episodes with the newest variables."""

import time
from typing import Any, Optional

import dm_env
import numpy as np
from numpy.typing import NDArray

from agents.agent import AnyAgent
from nodes import contract
from nodes.actor import EpisodeReturns, MakeEnvironments
from nodes.counter import CounterClient
from nodes.service import Handle, ServiceNode, deref
from nodes.variables import VariableClient

_LONGEST_PAUSE_SECONDS = 30.0
_FETCH_SECONDS = 1.0
_UNLEARNED_SECONDS = 0.2


class EvaluatorService:
    """Plays rounds of one episode in each of its environments.

    A round counts whole or not at all, so that short episodes are not counted more often than
    long ones. All episodes of a round are played with the variables that it began with; the first
    begins once the learner has taken a step.
    """

    def __init__(
        self,
        agent: AnyAgent,
        make_environments: MakeEnvironments,
        variables: VariableClient,
        counter: CounterClient,
        num_envs: int,
        duty: float,
        seed: int,
    ) -> None:
        """Initializes the evaluator.

        Args:
            agent: Says how to act.
            make_environments: Makes the environments.
            variables: Where newer variables come from.
            counter: Takes the returns.
            num_envs: Environments, and so episodes a round.
            duty: Share of its time in which the evaluator plays, so that learning has the rest.
            seed: Seeds the environments and the policy.
        """
        self._runtime = contract.runtime()
        self._variables = variables
        self._counter = counter
        self._num_envs = num_envs
        self._duty = duty
        self._environments = make_environments(num_envs, seed, True)
        self._actor = agent.make_evaluator(num_envs, seed)

    def run(self) -> None:
        """Evaluates until the program stops."""
        try:
            self._run()
        finally:
            self._environments.close()

    def _run(self) -> None:
        version = self._variables.wait_for_first(self._runtime)
        self._runtime.report_running()
        while version is not None and version.step == 0:  # Nobody has learned anything yet.
            if self._runtime.wait_for_stop(_UNLEARNED_SECONDS):
                return
            version = self._variables.fetch(_FETCH_SECONDS) or version
        while version is not None and not self._runtime.stopping:
            began = time.monotonic()
            self._actor.set_variables(version.values, version.step)
            returns = self._play_round()
            if returns is None:
                return
            self._counter.add_evaluation(returns.tolist(), version.step)
            played = time.monotonic() - began
            pause = min(_LONGEST_PAUSE_SECONDS, played * (1 / self._duty - 1))
            if not self._runtime.wait_for_stop(pause):
                version = self._variables.fetch(_FETCH_SECONDS) or version

    def _play_round(self) -> Optional[NDArray[Any]]:
        """Returns the first episode's return of each environment [E], or None if interrupted."""
        returns = np.full(self._num_envs, np.nan)
        sums = EpisodeReturns(self._num_envs)
        timestep = self._environments.reset()
        while np.isnan(returns).any():
            if self._runtime.stopping:
                return None
            timestep = self._environments.step(self._actor.step(timestep))
            self._runtime.report_progress()
            _, ended = sums.add(timestep)
            last = timestep.step_type == dm_env.StepType.LAST
            finished = np.full(self._num_envs, np.nan)
            finished[last] = ended
            returns = np.where(np.isnan(returns), finished, returns)
        return returns


def evaluator_node(
    agent: AnyAgent,
    make_environments: MakeEnvironments,
    variables: Handle[VariableClient],
    counter: Handle[CounterClient],
    *,
    num_envs: int,
    duty: float,
    seed: int,
) -> ServiceNode[EvaluatorService]:
    """Returns the node that evaluates; see `EvaluatorService`."""
    return ServiceNode(
        EvaluatorService,
        agent,
        make_environments,
        deref(variables),
        deref(counter),
        num_envs=num_envs,
        duty=duty,
        seed=seed,
        client_type=EvaluatorService,
        traits=contract.Traits(
            on_failure="restart", reports_running=True, endless=True, place="pack"
        ),
    )
