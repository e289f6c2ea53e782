"""Gradients go through a tree of reducers, each is applied once or told why not."""

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Optional

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from agents.agent import Gradients, SharedModel, SparseGradient, Variables
from agents.trained_model import TrainedModel
from launchers.run import launch
from nodes.contributions import Contribution, Ticket
from nodes.gathering import Outcome
from nodes.gradients import GradientRefused, Pusher, ReducersClient, gradient_reducers
from nodes.reducer import Reduction
from nodes.variables import VariableClient, variable_source_node
from programs.program import Program
from tests.support import wait_for
from usage import UsageError

ASYNCHRONOUS = Reduction(synchronous=False, max_staleness=100)


def three_parameters() -> SharedModel:
    values = {"one": 1.0, "two": 2.0, "three": 3.0}
    variables = [tf.Variable(value, name=name) for name, value in values.items()]
    return TrainedModel(variables, snt.optimizers.SGD(1.0))


class Tree:
    """A running tree of reducers.

    Attributes:
        client: What learners push with.
        models: What they get models from.
        incarnation: That of all models.
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
        first = wait_for(self.models.newest)
        self.incarnation = first.incarnation
        return self

    def __exit__(self, *exc: Any) -> None:
        self.run.__exit__(*exc)
        result = self.run.wait(0)
        assert result is not None and not result.failures and not result.forced

    def push(self, pusher: Pusher, step: int, gradients: Gradients) -> Optional[Outcome]:
        """Pushes gradients that were computed on the model of a step."""
        return pusher.push((self.incarnation, step), gradients)

    def push_all(self, pushes: Sequence[tuple[Pusher, int, Gradients]]) -> list[Optional[Outcome]]:
        """Pushes at once and waits for all."""
        with futures.ThreadPoolExecutor(len(pushes)) as pool:
            calls = [pool.submit(self.push, *each) for each in pushes]
            return [call.result(timeout=60) for call in calls]

    def accounts(self) -> dict[str, int]:
        """Returns what became of the gradients."""
        accounts = self.client.accounts()
        del accounts["bytes"]
        return accounts

    def model(self, step: int) -> Sequence[Any]:
        """Returns the model's variables once it has taken `step` steps."""

        def find() -> Optional[Sequence[Any]]:
            self.models.fetch(1.0)
            newest = self.models.current
            return newest.values if newest is not None and newest.step == step else None

        values: Sequence[Any] = wait_for(find)
        return values


def constant(*values: float, weight: float = 1.0, normaliser: float = 1.0) -> Gradients:
    return Gradients([np.asarray(value, np.float32) for value in values], (), weight, normaliser)


@pytest.mark.parametrize("backend", ["numpy", "tensorflow"])
@pytest.mark.parametrize("assignment", ["fixed", "random"])
@pytest.mark.parametrize(
    "method, expected", [("mean", (-5.0, -1.0, 1.0)), ("sum", (-23.0, -10.0, -5.0))]
)
def test_two_clients_that_push_twice_take_one_step(
    method: Any, expected: Sequence[float], assignment: Any, backend: Any
) -> None:
    reduction = dataclasses.replace(
        ASYNCHRONOUS,
        method=method,
        assignment=assignment,
        backend=backend,
        batch_size=4,
        secondary_batch_size=2,
        flush_seconds=0.2 if assignment == "random" else 60,
    )
    with Tree(three_parameters, 2, 2, reduction) as tree:
        clients = [tree.client.pusher(member) for member in range(2)]
        outcomes = tree.push_all(
            [(each, 0, constant(6, 3, 2)) for each in clients for _ in range(2)]
        )
        assert outcomes == [Outcome("applied", 1)] * 4
        assert tuple(tree.model(1)[:3]) == expected
        counts = {"pushed": 4, "applied": 4, "late": 0, "refused": 0}
        assert tree.accounts() == counts


def test_the_schedule_is_stepped() -> None:
    def make_model() -> SharedModel:
        variable = tf.Variable(0.0, name="one")
        optimizer = snt.optimizers.SGD(1.0)
        return TrainedModel([variable], optimizer, learning_rate=lambda step: 10.0**-step)

    with Tree(make_model, 1, 0, Reduction()) as tree:
        learner = tree.client.pusher(0)
        for step in range(3):
            assert tree.push(learner, step, constant(-1)) == Outcome("applied", step + 1)
        assert tree.model(3)[0] == pytest.approx(1.11)


def test_moving_averages_travel_and_become_their_mean() -> None:
    norm = snt.BatchNorm(True, True, decay_rate=0.5, data_format="NC")
    batch = tf.constant([[1.0], [3.0]])

    def make_model() -> SharedModel:
        norm(batch, is_training=True)
        trained = norm.trainable_variables
        moving = [each for each in norm.variables if all(each is not one for one in trained)]
        assert len(moving) == 6
        return TrainedModel(trained, snt.optimizers.SGD(0.1), moving)

    with Tree(make_model, 2, 0, Reduction()) as tree:
        specs = tree.client.pusher(0)._primary.specs()
        names = list(specs.state)
        mean = names.index(next(name for name in names if "moving_mean/average" in name))
        gradients = [np.zeros(spec.shape, spec.dtype) for spec in specs.variables.values()]
        pushes = []
        for member, (value, weight) in enumerate([(2.0, 1.0), (5.0, 2.0)]):
            state = [np.zeros(spec.shape, spec.dtype) for spec in specs.state.values()]
            state[mean] += value
            given = Gradients(gradients, state, weight)
            pushes.append((tree.client.pusher(member), 0, given))
        assert tree.push_all(pushes) == [Outcome("applied", 1)] * 2
        assert tree.model(1)[len(gradients) + mean] == pytest.approx(4.0)


@pytest.mark.parametrize("secondaries", [0, 1])
def test_what_is_no_gradient_is_refused_by_name_and_accounted_for(secondaries: int) -> None:
    reduction = ASYNCHRONOUS
    with Tree(three_parameters, 1, secondaries, reduction) as tree:
        learner = tree.client.pusher(0)
        with pytest.raises(GradientRefused, match="of 'two' is nan at"):
            tree.push(learner, 0, constant(1, np.nan, 1))
        with pytest.raises(GradientRefused, match="2 gradients came, 3 are wanted"):
            tree.push(learner, 0, constant(1, 1))
        assert tree.push(learner, 0, constant(1, 1, 1)) == Outcome("applied", 1)
        assert tuple(tree.model(1)[:3]) == (0, 1, 2)
        counts = {"pushed": 3, "applied": 1, "late": 0, "refused": 2}
        assert tree.accounts() == counts


@pytest.mark.parametrize("secondaries", [0, 1])
def test_what_is_too_old_is_late_and_nobody_waits_for_it(secondaries: int) -> None:
    reduction = Reduction(synchronous=False, max_staleness=1)
    with Tree(three_parameters, 2, secondaries, reduction) as tree:
        quick, slow = (tree.client.pusher(member) for member in range(2))
        for step in range(3):
            assert tree.push(quick, step, constant(1, 1, 1)) == Outcome("applied", step + 1)
        assert tree.push(slow, 2, constant(1, 1, 1)) == Outcome("applied", 4)
        assert tree.push(slow, 2, constant(1, 1, 1)) == Outcome("late", 4)
        assert tree.push(slow, 5, constant(1, 1, 1)) == Outcome("late", 4)
        assert tree.model(4)[0] == -3
        assert tree.accounts() == {"pushed": 6, "applied": 4, "late": 2, "refused": 0}


class HeldUp(TrainedModel):
    """A model whose steps are taken, and then wait until they may be published."""

    began = threading.Event()
    may_go_on = threading.Event()

    def __init__(self) -> None:
        super().__init__([tf.Variable(1.0, name="one")], snt.optimizers.SGD(1.0))

    def model(self) -> Variables:
        if int(self.steps):
            self.began.set()
            assert self.may_go_on.wait(60)
        return super().model()


def test_nobody_hears_of_a_step_before_it_is_published_and_what_came_meanwhile_is_late() -> None:
    reduction = Reduction(synchronous=False, flush_seconds=60, batch_size=2)
    with Tree(HeldUp, 3, 0, reduction) as tree, futures.ThreadPoolExecutor() as pool:
        pushers = [tree.client.pusher(member) for member in range(3)]
        first = [pool.submit(tree.push, pusher, 0, constant(1)) for pusher in pushers[:2]]
        assert HeldUp.began.wait(60)
        waits = pool.submit(tree.push, pushers[2], 0, constant(1))
        wait_for(lambda: tree.client.accounts()["pushed"] == 3)
        assert tree.accounts() == {"pushed": 3, "applied": 0, "late": 0, "refused": 0}
        ticket = Ticket(0, pushers[0].client, 0, 0)
        assert pushers[0]._primary.withdraw(ticket) == Outcome("pending", 0)
        HeldUp.may_go_on.set()
        assert [call.result(timeout=20) for call in first] == [Outcome("applied", 1)] * 2
        assert waits.result(timeout=20) == Outcome("late", 1)


def test_what_adds_up_to_no_number_is_refused_and_changes_nothing() -> None:
    reduction = dataclasses.replace(ASYNCHRONOUS, method="sum", batch_size=2)
    with Tree(three_parameters, 2, 0, reduction) as tree:
        pushers = [tree.client.pusher(member) for member in range(2)]
        with pytest.raises(GradientRefused, match="reduced to is none: .* of 'two' is inf"):
            tree.push_all([(each, 0, constant(1, 3e38, 1)) for each in pushers])
        with pytest.raises(GradientRefused, match="reduced to is none: .*norm.* is inf"):
            tree.push_all([(each, 0, constant(1.5e38, 1.5e38, 1)) for each in pushers])
        given = constant(1, 1, 1)
        assert tree.push_all([(each, 0, given) for each in pushers]) == [Outcome("applied", 1)] * 2
        assert tuple(tree.model(1)[:3]) == (-1, 0, 1)
        assert tree.accounts() == {"pushed": 6, "applied": 2, "late": 0, "refused": 4}


def test_what_was_computed_on_a_lost_model_is_late() -> None:
    with Tree(three_parameters, 1, 1, ASYNCHRONOUS) as tree:
        learner = tree.client.pusher(0)
        assert learner.push((tree.incarnation - 1, 0), constant(1, 1, 1)) == Outcome("late", 0)
        assert learner.push((tree.incarnation, 0), constant(1, 1, 1)) == Outcome("applied", 1)


@pytest.mark.parametrize("secondaries", [0, 2])
def test_a_learner_that_is_missing_is_waited_for_once(secondaries: int) -> None:
    reduction = Reduction(flush_seconds=0.5)
    with Tree(three_parameters, 3, secondaries, reduction) as tree:
        pushers = [tree.client.pusher(member) for member in range(3)]
        given = constant(1, 1, 1)
        everybody = tree.push_all([(each, 0, given) for each in pushers])
        assert everybody == [Outcome("applied", 1)] * 3
        began = time.monotonic()
        assert (
            tree.push_all([(each, 1, given) for each in pushers[1:]]) == [Outcome("applied", 2)] * 2
        )
        assert time.monotonic() - began >= 0.5
        began = time.monotonic()
        for step in range(2, 12):
            assert (
                tree.push_all([(each, step, given) for each in pushers[1:]])
                == [Outcome("applied", step + 1)] * 2
            )
        assert time.monotonic() - began < 5
        assert tree.push(pushers[0], 1, given) == Outcome("late", 12)
        assert (
            tree.push_all([(each, 12, given) for each in pushers]) == [Outcome("applied", 13)] * 3
        )
        assert tree.accounts() == {"pushed": 29, "applied": 28, "late": 1, "refused": 0}


def test_sparse_gradients_change_their_rows_only() -> None:
    def make_model() -> SharedModel:
        table = tf.Variable(tf.zeros([5, 2]), name="embedding")
        return TrainedModel([table], snt.optimizers.SGD(1.0), max_gradient_norm=1e6)

    with Tree(make_model, 2, 1, Reduction(method="sum")) as tree:
        pushes = []
        for member, rows in enumerate([[0, 3, 3], [3]]):
            values = np.ones((len(rows), 2), np.float32)
            given = Gradients([SparseGradient(np.array(rows), values)])
            pushes.append((tree.client.pusher(member), 0, given))
        assert tree.push_all(pushes) == [Outcome("applied", 1)] * 2
        assert tree.model(1)[0].tolist() == [[-1, -1], [0, 0], [0, 0], [-3, -3], [0, 0]]


def test_gradients_that_no_call_can_carry_are_refused_before_they_end_a_server() -> None:
    with Tree(three_parameters, 1, 0, Reduction()) as tree:
        huge = np.broadcast_to(np.float32(0), (1 << 29,))
        with pytest.raises(UsageError, match="2.0 GiB are more than one call can carry"):
            tree.push(tree.client.pusher(0), 0, Gradients([huge]))


def test_a_gradient_whose_answer_was_lost_is_applied_once() -> None:
    reduction = Reduction(synchronous=False, batch_size=2, max_staleness=9, flush_seconds=60)
    with Tree(three_parameters, 2, 0, reduction) as tree:
        primary = tree.client.pusher(0)._primary
        first = Contribution([Ticket(0, 1, 0, 0)], (tree.incarnation, 0), constant(1, 1, 1))
        calls = [primary.pushes.start_push(first) for _ in range(2)]  # The call is made again.
        other = Contribution([Ticket(1, 2, 0, 0)], (tree.incarnation, 0), constant(1, 1, 1))
        wait_for(lambda: primary.accounts()["pushed"])
        assert primary.withdraw(Ticket(0, 1, 0, 0)) == Outcome("pending", 0)  # It has arrived.
        assert primary.pushes.push(other) == Outcome("applied", 1)
        assert [primary.pushes.outcome_of(call) for call in calls] == [Outcome("applied", 1)] * 2
        assert primary.withdraw(Ticket(0, 1, 0, 1)) == Outcome("applied", 1)
        assert primary.pushes.push(first) == Outcome("applied", 1)
        assert tree.model(1)[0] == 0
        assert tree.accounts() == {"pushed": 2, "applied": 2, "late": 0, "refused": 0}


def test_what_was_withdrawn_comes_to_nothing_with_all_that_it_was_reduced_with() -> None:
    reduction = Reduction(synchronous=False, batch_size=1, max_staleness=9)
    with Tree(three_parameters, 2, 0, reduction) as tree:
        primary = tree.client.pusher(0)._primary
        lost, other = Ticket(0, 1, 0, 0), Ticket(1, 2, 0, 0)
        assert primary.withdraw(lost) is None
        together = Contribution([lost, other], (tree.incarnation, 0), constant(2, 2, 2, weight=2))
        assert primary.pushes.push(together).fate == "again"
        for ticket in (lost._replace(attempt=1), other):
            alone = together._replace(tickets=[ticket], gradients=constant(1, 1, 1))
            assert primary.pushes.push(alone).fate == "applied"
        assert primary.pushes.push(together).fate == "applied"  # That is what became of both.
        assert tree.model(2)[0] == -1
        assert tree.accounts() == {"pushed": 2, "applied": 2, "late": 0, "refused": 0}


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"method": "median"}, "method"),
        ({"backend": "jax"}, "backend"),
        ({"flush_seconds": 0.0}, "flush_seconds must be a positive number, got 0.0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"max_staleness": 1}, "max_staleness must be 0 where learners are synchronous"),
        ({"synchronous": False, "max_staleness": -1}, "max_staleness must not be negative"),
        ({"assignment": "random"}, "assignment must be 'fixed' where learners are synchronous"),
    ],
)
def test_what_cannot_be_is_refused_while_the_graph_is_drawn(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Reduction(**fields)


def test_a_tree_needs_learners_and_no_more_secondaries_than_these() -> None:
    models = Program("reduction").add_node(variable_source_node(), label="models")
    with pytest.raises(UsageError, match="at least 1 learner, got 0"):
        gradient_reducers(three_parameters, models, 0)
    with pytest.raises(UsageError, match="up to 2 secondary reducers, one a learner, got 3"):
        gradient_reducers(three_parameters, models, 2, 3)
