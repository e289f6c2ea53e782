"""The counter and the coordinator."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from launchers.directory import RunDirectory
from launchers.run import launch
from nodes.coordinator import coordinator_node
from nodes.counter import Counter, CounterClient, counter_node
from nodes.service import Handle
from programs.program import Program
from tests.support import in_node, wait_for


def counted() -> tuple[Program, Handle[CounterClient]]:
    program = Program("counted")
    return program, program.add_node(counter_node(), label="counter")


def test_counts_add_up_and_are_written_at_the_end(tmp_path: pathlib.Path) -> None:
    program, handle = counted()
    with launch(program, "local_mt", run_directory=str(tmp_path / "run")) as run:
        run.wait_until_running(20)
        client = handle.dereference()
        client.increment(environment_steps=3)
        client.increment_soon(environment_steps=4)
        wait_for(lambda: client.snapshot()["counts"] == {"environment_steps": 7})
    counts = json.loads((tmp_path / "run/counts.json").read_text())
    assert counts["counts"] == {"environment_steps": 7}


def test_a_count_never_falls() -> None:
    with pytest.raises(ValueError, match="never fall, but 'steps' was to change by -1"):
        CounterClient("localhost:1").increment(steps=-1)


def test_the_evaluators_mean_is_over_its_last_100_episodes() -> None:
    counter = in_node(Counter)
    counter.add_evaluation("evaluator", 1, [0.0] * 60, 1)
    assert counter.snapshot()["evaluator_return_mean_100"] is None
    counter.add_evaluation("evaluator", 2, [1.0] * 60, 2)
    snapshot = counter.snapshot()
    assert snapshot["evaluator_return_mean_100"] == 0.6
    assert snapshot["evaluator_episodes"] == 120


def test_the_counts_at_the_learners_first_step_are_kept() -> None:
    counter = in_node(Counter)
    counter.add_up("actor", {"environment_steps": 50})
    counter.add_up("learner", {"learner_steps": 1})
    counter.add_up("actor", {"environment_steps": 100})
    since = counter.snapshot()["learning_since"]
    assert since["counts"] == {"environment_steps": 50}


@pytest.mark.parametrize("mean, outcome", [(0.9, "solved"), (0.5, "finished")])
def test_the_coordinator_ends_the_program(mean: float, outcome: str) -> None:
    program, handle = counted()
    program.add_node(coordinator_node(handle, max_steps=10, solved_at=0.9), label="coordinator")
    with launch(program, "test_mt") as run:
        run.wait_until_running(20)
        client = handle.dereference()
        client.add_evaluation([mean] * 100, 1)
        if outcome == "finished":
            assert run.wait(0.5) is None
            client.increment(environment_steps=10)
        result = run.wait(20)
    assert result is not None and result.outcome == outcome


def test_what_is_sent_twice_or_late_counts_once() -> None:
    counter = in_node(Counter)
    counter.add_up("actor", {"steps": 5})
    counter.add_up("actor", {"steps": 9})
    counter.add_up("actor", {"steps": 5})  # It was overtaken.
    counter.add_up("another", {"steps": 5})
    counter.add_evaluation("evaluator", 1, [1.0], 1)
    counter.add_evaluation("evaluator", 1, [1.0], 1)
    snapshot = counter.snapshot()
    assert snapshot["counts"] == {"steps": 14}
    assert snapshot["evaluator_episodes"] == 1


def test_a_gauge_that_is_no_number_is_left_out() -> None:
    counter = in_node(Counter)
    counter.report("learner/0", {"loss": float("nan"), "steps": 1.0})
    assert counter.snapshot()["gauges"] == {"learner/0": {"steps": 1.0}}


def test_a_killed_counter_shows_no_less_than_it_has_shown(tmp_path: pathlib.Path) -> None:
    program, handle = counted()
    with launch(program, "local_mp", run_directory=str(tmp_path / "run")) as run:
        run.wait_until_running(60)
        client = handle.dereference()
        client.increment(environment_steps=3, learner_steps=1)
        client.add_evaluation([0.5] * 100, 7)
        shown = client.snapshot()
        run._supervisor._backend.kill("counter/0")
        client.increment_soon(environment_steps=4)
        again = client.snapshot()
        assert run.status["counter/0"].restarts == 1
        assert again["learning_since"] == shown["learning_since"] is not None
        assert again["evaluator_return_mean_100"] == 0.5
        assert again["counts"]["environment_steps"] >= 3
        client.increment(environment_steps=0)  # What was sent to the dead is not lost.
        assert client.snapshot()["counts"] == {"environment_steps": 7, "learner_steps": 1}


def test_counts_go_on_in_the_next_life_of_a_run(tmp_path: pathlib.Path) -> None:
    def live(directory: str | RunDirectory) -> dict[str, Any]:
        program, handle = counted()
        with launch(program, "local_mt", run_directory=directory) as run:
            run.wait_until_running(20)
            handle.dereference().increment(learner_steps=2)
            snapshot = handle.dereference().snapshot()
        if isinstance(directory, RunDirectory):
            directory.release()
        return snapshot

    first = live(str(tmp_path / "run"))
    second = live(RunDirectory.resume(str(tmp_path / "run")))
    assert second["counts"] == {"learner_steps": 4}
    assert second["learning_since"]["counts"] == {"learner_steps": 2}  # Rates are this life's.
    assert second["learning_since"]["time"] > first["learning_since"]["time"]
    state = tmp_path / "run/checkpoints/counter-0/state.json"
    for steps, damage in ((6, state.read_text()[:-5]), (8, '{"life": 2}'), (10, "[]")):
        state.write_text(damage)
        later = live(RunDirectory.resume(str(tmp_path / "run")))
        assert later["counts"] == {"learner_steps": steps}


LAUNCHPAD = """
import launchpad as lp, os
from nodes.counter import counter_node
from programs.program import Program

program = Program("counted")
handle = program.add_node(counter_node(), label="counter")
lp.launch(program, launch_type="local_mt")
client = handle.dereference()
client.increment(steps=1)
assert client.snapshot()["counts"] == {"steps": 1}
os._exit(7)
"""


def test_launchpads_own_launcher_runs_our_nodes_too() -> None:
    run = subprocess.run([sys.executable, "-c", LAUNCHPAD], timeout=60, check=False)
    assert run.returncode == 7
