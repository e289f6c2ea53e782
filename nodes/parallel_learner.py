"""The node of one of several learners, whose gradients are reduced to one step's."""

from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Optional, cast

import numpy as np

from agents.agent import Agent, Gradients, ParallelLearner, Sample, StepResult
from nodes import contract
from nodes.counter import CounterClient
from nodes.gathering import Outcome
from nodes.gradients import GradientRefused, ReducersClient, ReducersHandle
from nodes.learner_loop import LearnerLoop, StepCounts
from nodes.replay import ReplayClient, ReplayHandle
from nodes.service import Handle, ServiceNode, deref
from nodes.variables import VariableClient
from nodes.version import Key, Version
from usage import UsageError

_FETCH_SECONDS = 1.0
_MOST_REFUSED = 10
"""Gradients that are refused one after the other, before the learner fails."""
_NOBODY = (-1, 0)


def parallel_learner(agent: Agent, seed: int) -> ParallelLearner:
    """Makes an agent's learner.

    Raises:
        UsageError: It cannot be one of several.
    """
    learner = agent.make_learner(seed)
    if not callable(getattr(learner, "gradients", None)):
        raise UsageError(
            f"{type(learner).__name__} cannot be one of several learners, as it has no "
            "`gradients`: see agents.agent.ParallelLearner, or take one learner."
        )
    return cast(ParallelLearner, learner)


class SharedSteps:
    """Takes part in steps; see `nodes.learner_loop.Steps`."""

    published = _NOBODY  # The primary reducer publishes.

    def __init__(
        self,
        agent: Agent,
        reducers: ReducersClient,
        models: VariableClient,
        index: int,
        synchronous: bool,
    ) -> None:
        """Makes the learner.

        Args:
            agent: Says how to learn.
            reducers: Where gradients go.
            models: Where models come from.
            index: Which of the learners this is.
            synchronous: Whether each gradient is computed on the newest model, and waits for all
                others'. Else the next one is computed while this one is on its way.
        """
        self._runtime = contract.runtime()
        self._learner = parallel_learner(agent, seed=0)  # All variables come with the model.
        self._batch_size = agent.batch_size
        self._pusher = reducers.pusher(index)
        self._models = models
        self._synchronous = synchronous
        self._pool = futures.ThreadPoolExecutor(1, "pusher")
        self._under_way: Optional[futures.Future[bool]] = None
        self._counts = StepCounts()
        self._model: Key = _NOBODY
        self._refused = 0

    def begin(self) -> bool:
        """Takes up the newest model, once there is one."""
        version = self._models.wait_for_first(self._runtime)
        if version is None:
            return False
        self._use(version)
        return True

    def take(self, sample: Sample) -> Optional[StepResult]:
        """Computes gradients and pushes them."""
        gradients, result = self._learner.gradients(sample)
        if not np.isfinite(result.priorities).all():  # Nor are its gradients.
            result = result._replace(priorities=None)
        if self._synchronous:
            return result if self._push(self._model, gradients, result, self._await) else None
        if self._under_way is not None and not self._under_way.result():
            return None
        self._under_way = self._pool.submit(self._push, self._model, gradients, result)
        self._models.request()
        newer = self._models.poll()
        if newer is not None:
            self._use(newer)
        return result

    def take_counts(self) -> Mapping[str, int]:
        """See `nodes.learner_loop.Steps`; steps are counted where they are taken."""
        return self._counts.take()

    def finish(self) -> None:
        """Does nothing: whoever takes the steps saves the model."""

    def close(self) -> None:
        """Lets go of what is on its way."""
        self._pool.shutdown(wait=False)

    def _push(
        self,
        model: Key,
        gradients: Gradients,
        result: StepResult,
        then: Callable[[int], bool] = lambda step: True,
    ) -> bool:
        """Pushes and counts; returns False if the node is to stop."""
        try:
            outcome: Optional[Outcome] = self._pusher.push(model, gradients)
        except GradientRefused as error:
            self._refused += 1
            if self._refused >= _MOST_REFUSED:
                raise
            self._runtime.report_warning(f"A gradient was refused: {error}")
            return True
        if outcome is None:
            return False
        self._refused = 0
        if outcome.fate == "applied":
            self._counts.add(0, result, self._batch_size)
        return then(outcome.step)

    def _await(self, step: int) -> bool:
        """Takes up a model with so many steps, or one that took the place of a lost one.

        Returns:
            False if the node is to stop before.
        """
        incarnation = self._model[0]
        while not self._runtime.stopping:
            newer = self._models.fetch(_FETCH_SECONDS)
            if newer is not None:
                self._use(newer)
            if self._model[1] >= step or self._model[0] != incarnation:
                return True
            self._runtime.report_waiting(f"the model of step {step}")
        return False

    def _use(self, version: Version) -> None:
        *model, _ = version.values
        self._learner.set_model(model)
        self._model = version.key


class ParallelLearnerService(LearnerLoop):
    """Runs one of an agent's learners against replay."""

    def __init__(
        self,
        agent: Agent,
        replay: ReplayClient,
        reducers: ReducersClient,
        models: VariableClient,
        counter: CounterClient,
        index: int,
        seed: int,
        synchronous: bool,
    ) -> None:
        """Makes the learner.

        Args:
            agent: Says how to learn.
            replay: Where samples come from and priorities go.
            reducers: Where gradients go.
            models: Where models come from.
            counter: Counts what was learned from.
            index: Which of the learners this is.
            seed: Seeds the choice of shards.
            synchronous: See `SharedSteps`.
        """
        steps = SharedSteps(agent, reducers, models, index, synchronous)
        super().__init__(agent, replay, counter, steps, index, seed)


def parallel_learner_node(
    agent: Agent,
    replay: ReplayHandle,
    reducers: ReducersHandle,
    models: Handle[VariableClient],
    counter: Handle[CounterClient],
    *,
    index: int,
    seed: int,
    synchronous: bool,
) -> ServiceNode[ParallelLearnerService]:
    """Returns the node of one of several learners; see `ParallelLearnerService`."""
    return ServiceNode(
        ParallelLearnerService,
        agent,
        deref(replay),
        deref(reducers),
        deref(models),
        deref(counter),
        index=index,
        seed=seed,
        synchronous=synchronous,
        client_type=ParallelLearnerService,
        traits=contract.Traits(on_failure="restart", wants_gpu=True, endless=True, place="spread"),
    )
