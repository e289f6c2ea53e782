"""Gradients go through a tree of reducers, each is applied once or told why not."""

from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Optional

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from agents.agent import Gradients, SharedModel
from agents.trained_model import TrainedModel
from launchers.run import launch
from nodes.gathering import Outcome
from nodes.gradients import Pusher, ReducersClient, gradient_reducers
from nodes.reducer import Reduction
from nodes.variables import VariableClient, variable_source_node
from programs.program import Program
from tests.support import wait_for

ASYNCHRONOUS = {"synchronous": False, "max_staleness": 100}


def three_parameters() -> SharedModel:
    values = {"one": 1.0, "two": 2.0, "three": 3.0}
    variables = [tf.Variable(value, name=name) for name, value in values.items()]
    return TrainedModel(variables, snt.optimizers.SGD(1.0))


class Tree:
    """A running tree of reducers.

    Attributes:
        client: What learners push with.
        models: What they get models from.
    """

    def __init__(
        self,
        make_model: Callable[[], SharedModel],
        num_learners: int,
        num_secondaries: int,
        reduction: Reduction,
    ) -> None:
        self.program = Program("reduction")
        models = self.program.add_node(variable_source_node(), label="models")
        reducers = gradient_reducers(make_model, models, num_learners, num_secondaries, reduction)
        self.program.add_node(reducers.primary, label="primary")
        for node in reducers.secondaries:
            self.program.add_node(node, label="secondary")
        self._reducers, self._models = reducers, models

    def __enter__(self) -> "Tree":
        self.run = launch(self.program, "test_mt")
        self.run.__enter__()
        self.run.wait_until_running(30)
        self.client: ReducersClient = self._reducers.handle.dereference()
        self.models: VariableClient = self._models.dereference()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.run.__exit__(*exc)

    def model(self, step: int) -> Sequence[Any]:
        """Returns the model's variables once it has taken `step` steps."""

        def find() -> Optional[Sequence[Any]]:
            self.models.fetch(1.0)
            newest = self.models.current
            return newest.values if newest is not None and newest.step == step else None

        return wait_for(find)


def constant(*values: float, weight: float = 1.0, normaliser: float = 1.0) -> Gradients:
    return Gradients([np.float32(value) for value in values], (), weight, normaliser)


def push_all(
    pushes: Sequence[tuple[Pusher, int, Gradients]],
) -> list[Optional[Outcome]]:
    """Pushes at once and waits for all."""
    with futures.ThreadPoolExecutor(len(pushes)) as pool:
        calls = [pool.submit(pusher.push, step, given) for pusher, step, given in pushes]
        return [call.result(timeout=60) for call in calls]


@pytest.mark.parametrize("backend", ["numpy", "tensorflow"])
@pytest.mark.parametrize("assignment", ["fixed", "random"])
@pytest.mark.parametrize(
    "method, expected", [("mean", (-5.0, -1.0, 1.0)), ("sum", (-23.0, -10.0, -5.0))]
)
def test_two_clients_that_push_twice_take_one_step(
    method: Any, expected: Sequence[float], assignment: Any, backend: Any
) -> None:
    reduction = Reduction(
        method=method,
        assignment=assignment,
        backend=backend,
        batch_size=4,
        secondary_batch_size=2,
        flush_seconds=0.2 if assignment == "random" else 60,
        **ASYNCHRONOUS,
    )
    with Tree(three_parameters, 2, 2, reduction) as tree:
        clients = [tree.client.pusher(member) for member in range(2)]
        outcomes = push_all([(each, 0, constant(6, 3, 2)) for each in clients for _ in range(2)])
        assert outcomes == [Outcome("applied", 1)] * 4
        assert tuple(tree.model(1)[:3]) == expected
        counts = {"pushed": 4, "applied": 4, "late": 0, "refused": 0}
        assert tree.client.accounts() == counts
