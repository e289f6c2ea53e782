"""The learner's node, where one learns alone: its steps are its own, and it publishes."""

from collections.abc import Mapping
from typing import Optional

from agents.agent import Agent, Sample, StepResult
from nodes import checkpoints, contract
from nodes.checkpoints import Schedule
from nodes.counter import CounterClient
from nodes.learner_checkpoints import LearnerCheckpoints
from nodes.learner_loop import LearnerLoop, StepCounts
from nodes.publisher import Publisher
from nodes.replay import ReplayClient, ReplayHandle
from nodes.service import Handle, ServiceNode, deref
from nodes.variables import VariableClient

STALE_SECONDS = 2.0
"""Where steps are slow, there is a version after this time, whatever the publish period."""


class OwnSteps:
    """Takes a learner's steps, publishes and saves; see `nodes.learner_loop.Steps`."""

    def __init__(
        self,
        agent: Agent,
        variables: VariableClient,
        seed: int,
        schedule: Schedule = checkpoints.DEFAULT,
    ) -> None:
        """Makes the learner.

        Args:
            agent: Says how to learn.
            variables: Where the variables go.
            seed: Seeds the variables.
            schedule: When checkpoints are saved.
        """
        self._learner = agent.make_learner(seed)
        self._checkpoints = LearnerCheckpoints(self._learner, contract.runtime(), schedule)
        self._publisher = Publisher(variables)
        self._publish_period = agent.publish_period
        self._batch_size = agent.batch_size
        self._counts = StepCounts()
        self._step = 0

    @property
    def published(self) -> tuple[int, int]:
        """See `nodes.learner_loop.Steps`."""
        return self._publisher.incarnation, self._publisher.number

    def begin(self) -> bool:
        """Goes on from the newest checkpoint, if there is one, and publishes."""
        self._step = self._checkpoints.restore()
        self._publisher.offer(self._step, self._learner.variables)
        return True

    def take(self, sample: Sample) -> Optional[StepResult]:
        """Takes one step."""
        self._checkpoints.save_if_due(self._step)
        result = self._learner.step(sample)
        self._step += 1
        self._counts.add(1, result, self._batch_size)
        due = self._step % self._publish_period == 0
        if due or self._publisher.idle_seconds > STALE_SECONDS:
            self._publisher.offer(self._step, self._learner.variables)
        return result

    def take_counts(self) -> Mapping[str, int]:
        """See `nodes.learner_loop.Steps`."""
        return self._counts.take()

    def finish(self) -> None:
        """Saves the learner."""
        self._checkpoints.save(self._step)

    def close(self) -> None:
        """Publishes what was offered last."""
        self._publisher.close()


class LearnerService(LearnerLoop):
    """Runs an agent's learner against replay."""

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
        steps = OwnSteps(agent, variables, seed, schedule)
        super().__init__(agent, replay, counter, steps, 0, seed)


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
