"""Reducers and learners are killed: steps go on, and each gradient is applied once at most.

The model is the number of gradients that were applied, so it can be counted what became of them.
"""

import os
import pathlib
import signal
import threading
from collections.abc import Sequence
from concurrent import futures

import numpy as np
import psutil
import pytest
import sonnet as snt
import tensorflow as tf

from agents.agent import Gradients
from agents.trained_model import TrainedModel
from launchers.layout import GroupLayout, Layout
from launchers.run import launch
from nodes import contract, service
from nodes.gradients import ReducersClient, gradient_reducers
from nodes.reducer import Reduction
from nodes.variables import VariableClient, variable_source_node
from programs.program import Program
from tests.support import wait_for

MANY = contract.RestartBudget(100, 60.0, 0.05)
NUM_LEARNERS = 3


def make_counting_model() -> TrainedModel:
    return TrainedModel([tf.Variable(0.0, name="applied")], snt.optimizers.SGD(1.0))


class Contributor:
    """A learner that always wants one more."""

    def __init__(
        self, reducers: ReducersClient, models: VariableClient, member: int, synchronous: bool
    ) -> None:
        self._runtime = contract.runtime()
        self._pusher = reducers.pusher(member)
        self._models = models
        self._synchronous = synchronous
        self._account = {"applied": 0, "late": 0}
        self._held = False
        self._holds = threading.Event()

    def hold(self) -> None:
        """Lets nothing be pushed any more, and waits for the fate of what was."""
        self._held = True
        assert self._holds.wait(30)

    def account(self) -> tuple[int, dict[str, int]]:
        return self._pusher.client, self._account

    def run(self) -> None:
        version = self._models.wait_for_first(self._runtime)
        while version is not None and not self._runtime.stopping and not self._held:
            outcome = self._pusher.push(version.key, Gradients([np.float32(-1.0)]))
            if outcome is None:
                return
            self._account = {**self._account, outcome.fate: self._account[outcome.fate] + 1}
            self._runtime.report_progress()
            version = self._models.fetch(1.0) or version
        self._holds.set()
        self._runtime.wait_for_stop()


class Killed:
    """A program whose processes are killed."""

    def __init__(self, directory: pathlib.Path, reduction: Reduction) -> None:
        program = Program("killed")
        models = program.add_node(variable_source_node(), label="models")
        tree = gradient_reducers(make_counting_model, models, NUM_LEARNERS, 2, reduction)
        self._primary = program.add_node(tree.primary, label="primary")
        for node in tree.secondaries:
            program.add_node(node, label="secondary")
        self._learners = []
        for member in range(NUM_LEARNERS):
            node = service.ServiceNode(
                Contributor,
                service.deref(tree.handle),
                service.deref(models),
                member,
                reduction.synchronous,
                client_type=Contributor,
                traits=contract.Traits(on_failure="restart", endless=True),
            )
            self._learners.append(program.add_node(node, label="learner"))
        layout = Layout({group: GroupLayout(restart=MANY) for group in program.groups})
        self.run = launch(program, "local_mp", layout, str(directory / "run"))
        self._models = models

    def kill(self, name: str) -> None:
        restarts = self.run.status[name].restarts
        for process in psutil.Process().children(recursive=True):
            if process.cmdline() and process.cmdline()[0].endswith(f"killed {name}"):
                os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: self.run.status[name].restarts > restarts, what=f"{name} comes back")

    def go_on(self) -> None:
        """Waits for gradients of all learners that are applied from now on."""
        before = self._own()
        wait_for(
            lambda: all(
                client not in before or account["applied"] > before[client]["applied"] + 5
                for client, account in self._own().items()
            ),
            60,
        )

    def _own(self) -> dict[int, dict[str, int]]:
        return dict(handle.dereference().account() for handle in self._learners)

    def check(self, learners_killed: int, knows_all: bool) -> None:
        """Compares what learners, the account and the model say, once nothing is on its way."""
        with futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda handle: handle.dereference().hold(), self._learners))
        accounts = self._primary.dereference().accounts()
        settled = accounts["applied"] + accounts["late"] + accounts["refused"]
        without_fate = accounts["pushed"] - settled
        assert 0 <= without_fate <= learners_killed
        self.kill("models/0")  # Nobody takes a step: what was published is so once more.
        client = self._models.dereference()
        wait_for(lambda: client.fetch(1.0) or client.current)
        assert client.current is not None
        assert client.current.values[0] == accounts["applied"] > 0
        primary = self._primary.dereference()
        for member, handle in enumerate(self._learners):
            number, own = handle.dereference().account()
            ledger = primary.account_of(member, number)
            assert ledger["applied"] == own["applied"]
            if knows_all:
                assert ledger["late"] == own["late"]
            else:  # What a killed primary had told since it had published is forgotten.
                assert ledger["late"] <= own["late"]


@pytest.mark.parametrize(
    "reduction, killed",
    [
        (
            Reduction(method="sum", flush_seconds=1),
            ("secondary/0", "learner/0", "primary/0", "models/0", "learner/1"),
        ),
        (
            Reduction(method="sum", synchronous=False, max_staleness=3, flush_seconds=1),
            ("learner/0", "models/0", "secondary/1", "learner/0"),
        ),
    ],
    ids=["synchronous", "asynchronous"],
)
def test_whoever_is_killed_steps_go_on_and_the_account_agrees(
    reduction: Reduction, killed: Sequence[str], tmp_path: pathlib.Path
) -> None:
    program = Killed(tmp_path, reduction)
    with program.run as run:
        run.wait_until_running(60)
        for name in killed:
            program.go_on()
            program.kill(name)
        program.go_on()
        program.check(learners_killed=2, knows_all="primary/0" not in killed)
    result = run.wait(0)
    assert result is not None and not result.forced
