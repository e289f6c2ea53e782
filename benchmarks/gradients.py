"""How fast gradients are reduced, in a tree and by one flat server.

    python -m benchmarks.gradients [--megabytes=32] [--learners=4] [--secondaries=2]

Both are programs on processes of this machine: learners push gradients that are there already, all
at once, and take up the model that comes of them; a step is plain gradient descent. The two take
steps in turn. On few cores the tree can only lose, since all its processes share them, and a
gradient passes one process more: what it is for is in the other column, the bytes that reach the
process which takes the steps.
"""

import dataclasses
import functools
import statistics
import time
from concurrent import futures
from typing import Any

import numpy as np
from absl import app, flags

from agents.agent import Gradients, SharedModel
from benchmarks import support
from launchers.fork_server import ForkServer
from launchers.run import launch
from nodes import contract, service
from nodes.gradients import ReducersClient, gradient_reducers
from nodes.primary_reducer import PrimaryReducer
from nodes.reducer import Reduction
from nodes.variables import VariableClient, variable_source_node
from programs.program import Program

MEGABYTES = flags.DEFINE_integer("megabytes", 32, "Size of one gradient.", lower_bound=1)
LEARNERS = flags.DEFINE_integer("learners", 4, "Learners.", lower_bound=1)
SECONDARIES = flags.DEFINE_integer("secondaries", 2, "Secondary reducers.", lower_bound=1)
STEPS = flags.DEFINE_integer("steps", 10, "Steps of each turn.", lower_bound=1)
TURNS = flags.DEFINE_integer("turns", 5, "Turns of each of the two.", lower_bound=1)
BACKEND = flags.DEFINE_enum("backend", "numpy", ["numpy", "tensorflow"], "What reduces.")

_VARIABLES = 8


def make_model(megabytes: int) -> SharedModel:
    """Returns a model of so many megabytes of float32."""
    import sonnet as snt
    import tensorflow as tf

    from agents.trained_model import TrainedModel

    shape = [megabytes * 2**20 // 4 // _VARIABLES]
    variables = [tf.Variable(tf.zeros(shape), name=f"v{index}") for index in range(_VARIABLES)]
    return TrainedModel(variables, snt.optimizers.SGD(1.0))


class BenchLearner:
    """Pushes the same gradients whenever it is told."""

    def __init__(
        self, reducers: ReducersClient, models: VariableClient, member: int, megabytes: int
    ) -> None:
        self._runtime = contract.runtime()
        self._pusher = reducers.pusher(member)
        self._models = models
        size = megabytes * 2**20 // 4 // _VARIABLES
        gradient = np.random.default_rng(member).standard_normal(size, np.float32)
        self._gradients = Gradients([gradient] * _VARIABLES)

    def take(self, steps: int) -> int:
        """Takes part in so many steps; returns how many of its gradients were applied."""
        if self._models.current is None:
            self._models.wait_for_first(self._runtime)
        applied = 0
        for _ in range(steps):
            assert self._models.current is not None
            outcome = self._pusher.push(self._models.current.key, self._gradients)
            assert outcome is not None
            applied += outcome.fate == "applied"
            while self._models.current.step < outcome.step:
                self._models.fetch(1.0)
        return applied


@dataclasses.dataclass
class Bench:
    """One of the two programs.

    Attributes:
        program: The program.
        learners: Handles of its learners.
        primary: Handle of its primary reducer.
        seconds: Seconds a step, of each turn.
        applied: Gradients that were applied.
    """

    program: Program
    learners: list[Any]
    primary: Any
    seconds: list[float] = dataclasses.field(default_factory=list)
    applied: int = 0

    def take(self, steps: int) -> None:
        """Lets all learners take part in so many steps."""
        clients = [handle.dereference() for handle in self.learners]
        began = time.monotonic()
        calls: list[futures.Future[int]] = [client.futures.take(steps) for client in clients]
        self.applied += sum(call.result(300) for call in calls)
        self.seconds.append((time.monotonic() - began) / steps)


def draw(name: str, num_secondaries: int) -> Bench:
    """Draws one of the programs."""
    program = Program(name)
    models = program.add_node(variable_source_node(), label="models")
    make = functools.partial(make_model, MEGABYTES.value)
    reduction = Reduction(backend=BACKEND.value, flush_seconds=60)
    tree = gradient_reducers(make, models, LEARNERS.value, num_secondaries, reduction)
    primary = program.add_node(tree.primary, label="primary")
    for node in tree.secondaries:
        program.add_node(node, label="secondary")
    learners = [
        program.add_node(
            service.node(
                BenchLearner,
                service.deref(tree.handle),
                service.deref(models),
                member,
                MEGABYTES.value,
            ),
            label="learner",
        )
        for member in range(LEARNERS.value)
    ]
    return Bench(program, learners, primary)


def bytes_per_step(bench: Bench, steps: int) -> float:
    """Returns the bytes of gradients that came to the primary, for each step."""
    accounts = bench.primary.dereference().accounts()
    assert accounts["applied"] == bench.applied == steps * LEARNERS.value
    return float(accounts["bytes"] / steps)


def main(_: list[str]) -> None:
    """Lets both take steps in turn, and reports."""
    ForkServer.prepare(["agents.trained_model", PrimaryReducer.__module__])
    benches = {"tree": draw("tree", SECONDARIES.value), "flat": draw("flat", 0)}
    with (
        launch(benches["tree"].program, "local_mp") as tree_run,
        launch(benches["flat"].program, "local_mp") as flat_run,
    ):
        tree_run.wait_until_running(120)
        flat_run.wait_until_running(120)
        for bench in benches.values():
            bench.take(STEPS.value)
            bench.seconds.clear()
        for _turn in range(TURNS.value):
            for bench in benches.values():
                bench.take(STEPS.value)
        steps = STEPS.value * (TURNS.value + 1)
        received = {name: bytes_per_step(bench, steps) for name, bench in benches.items()}
    seconds = {name: statistics.median(bench.seconds) for name, bench in benches.items()}
    gradient = MEGABYTES.value * 2**20
    rows = [
        (name, 1e3 * seconds[name], LEARNERS.value / seconds[name], received[name] / gradient)
        for name in benches
    ]
    support.report(
        "gradients",
        ("reducers", "ms a step", "gradients/s", "gradients' bytes into the primary a step"),
        rows,
        {
            "ratio": seconds["flat"] / seconds["tree"],
            "megabytes": MEGABYTES.value,
            "learners": LEARNERS.value,
            "secondaries": SECONDARIES.value,
            "tree_ms": 1e3 * seconds["tree"],
            "flat_ms": 1e3 * seconds["flat"],
            "tree_bytes_into_primary": received["tree"],
            "flat_bytes_into_primary": received["flat"],
        },
    )


if __name__ == "__main__":
    app.run(main)
