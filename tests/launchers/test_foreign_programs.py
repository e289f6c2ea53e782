"""Programs written for Launchpad's own launcher run unchanged.

Some sleep long: those all run at once.
"""

import gc
import pathlib
from collections.abc import Iterator
from typing import Any

import acme.testing.fakes
import launchpad as lp
import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from acme import specs
from acme.agents.tf import d4pg
from acme.tf import networks
from acme.tf import utils as tf2_utils
from launchpad.examples.consumer_producers.program import make_program as consumer_producers
from launchpad.examples.program_wait.launch import make_program as program_wait

from launchers.layout import GroupLayout, Layout
from launchers.run import Run, launch

MODES = ("test_mt", "local_mp")


@pytest.mark.parametrize("mode", MODES)
def test_the_consumer_producers_example_runs(mode: str, tmp_path: pathlib.Path) -> None:
    run = launch(consumer_producers(num_producers=2), mode, run_directory=str(tmp_path / "run"))
    result = run.wait(60)
    assert result is not None
    assert (result.outcome, result.reason) == ("stopped", "consumer/0 called stop")
    assert result.failures == result.forced == {}


@pytest.mark.parametrize("mode", MODES)
def test_the_program_wait_example_ends_cleanly(
    mode: str, sleepers: dict[tuple[str, str], Run]
) -> None:
    run = sleepers["program_wait", mode]
    result = run.wait(60)
    assert result is not None
    assert (result.outcome, result.reason) == ("stopped", "_stop_program/0 called stop")
    assert result.failures == result.forced == {}
    for node in ("sleep", "_wait_for_stop", "_stop_event", "_register_stop_handler"):
        assert run.status[f"{node}/0"].state == "stopped"
    if mode == "local_mp":
        log = pathlib.Path(run.directory or "", "logs/sleep-0.log").read_text()
        assert "Clean termination of _sleep node" in log


def make_environment(evaluation: bool) -> Any:
    return acme.testing.fakes.ContinuousEnvironment(
        action_dim=1, observation_dim=2, episode_length=10, bounded=True
    )


def make_networks(action_spec: specs.BoundedArray) -> dict[str, Any]:
    size = int(np.prod(action_spec.shape))
    return {
        "policy": snt.Sequential([snt.nets.MLP([8, size]), networks.TanhToSpec(action_spec)]),
        "critic": snt.Sequential(
            [
                networks.CriticMultiplexer(),
                snt.nets.MLP([8, 8]),
                networks.DiscreteValuedHead(-10.0, 10.0, 11),
            ]
        ),
        "observation": tf2_utils.to_sonnet_module(tf.identity),
    }


def d4pg_program() -> lp.Program:
    agent = d4pg.DistributedD4PG(
        make_environment,
        make_networks,
        num_actors=2,
        batch_size=8,
        min_replay_size=16,
        max_actor_steps=100,
        samples_per_insert=None,
    )
    return agent.build()


@pytest.fixture(scope="module")
def sleepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Run]]:
    """The runs that sleep long, by program and mode."""
    directory = tmp_path_factory.mktemp("sleepers")
    # The learner of D4PG never looks whether it should stop.
    layout = Layout({"learner": GroupLayout(stop_seconds=1.0)})
    runs = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(directory))  # D4PG's checkpoints go to ~/acme.
        for mode in MODES:
            at = str(directory / f"{mode}-program_wait")
            runs["program_wait", mode] = launch(program_wait(), mode, run_directory=at)
            at = str(directory / f"{mode}-d4pg")
            runs["d4pg", mode] = launch(d4pg_program(), mode, layout, at)
        yield runs
        for run in runs.values():  # Not all have ended where not all tests were selected.
            run.stop()
            run.wait(60)
        gc.freeze()  # To collect what D4PG's threads leave takes ten seconds, in some other test.


@pytest.mark.parametrize("mode", MODES)
def test_acmes_distributed_d4pg_runs_to_its_step_limit(
    mode: str, sleepers: dict[tuple[str, str], Run]
) -> None:
    result = sleepers["d4pg", mode].wait(100)
    assert result is not None
    assert (result.outcome, result.reason) == ("stopped", "coordinator/0 called stop")
    assert result.failures == {}
    assert list(result.forced) == ["learner/0"]
