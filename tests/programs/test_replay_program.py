"""The program of Ape-X and R2D2 in threads: real replay, real calls, real environments."""

import dataclasses
import io
import pathlib
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest
import reverb
from rich.console import Console

from agents.agent import EnvironmentSpec, Sample, StepResult
from agents.apex.agent import ApeX
from agents.apex.config import ApexConfig
from agents.apex.learning import ApexLearner
from agents.config import ReplayConfig
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.value_agent import ValueAgent
from environments import registry
from launchers.run import launch
from monitoring import progress
from nodes import contract
from programs.program import Program
from programs.replay_program import ReplayOptions, make_program
from tests.support import wait_for
from usage import UsageError

QUICK = dataclasses.replace(
    ApexConfig.small(), batch_size=32, min_replay_size=64, error_buffer=2000.0, publish_period=1
)
# What is traced grows with the traces; the actors soon wait, for in threads they hold up tracing.
SHORT = {"trace_length": 8, "burn_in": 2, "period": 4}
QUICK_R2D2 = dataclasses.replace(
    R2D2Config.small(),
    **SHORT,
    batch_size=8,
    min_replay_size=16,
    error_buffer=200.0,
    publish_period=1,
)


def program_of(
    options: ReplayOptions,
    config: ReplayConfig = QUICK,
    env: str = "catch",
    agent_class: type[ValueAgent] = ApeX,
) -> Program:
    environment = registry.load(env)
    spec = EnvironmentSpec(environment.observations, environment.actions, environment.frame_stack)
    return make_program("test", agent_class(config, spec), environment.make, options)


def snapshot(program: Program) -> dict:
    counter = program.groups["counter"][0].create_handle()
    return counter.dereference().snapshot()


@pytest.mark.parametrize(
    "options",
    [
        ReplayOptions(num_actors=1),
        ReplayOptions(num_actors=2, envs_per_actor=2, replay_shards=2),
    ],
    ids=["one of each", "many of each"],
)
@pytest.mark.parametrize(
    "agent_class, config", [(ApeX, QUICK), (R2D2, QUICK_R2D2)], ids=["apex", "r2d2"]
)
def test_everything_moves_round_the_circle_and_stops(
    agent_class: type[ValueAgent], config: ReplayConfig, options: ReplayOptions
) -> None:
    before = set(threading.enumerate())
    program = program_of(options, config, agent_class=agent_class)
    with launch(program, "test_mt") as run:
        run.wait_until_running(60)
        wait_for(lambda: snapshot(program)["counts"].get("learner_steps", 0) > 20, 60)
        gauges = snapshot(program)["gauges"]
        for index in range(options.num_actors):
            wait_for(
                lambda index=index: snapshot(program)["gauges"][f"actor/{index}"]["version"] > 0, 60
            )
        wait_for(lambda: snapshot(program)["evaluator_episodes"] > 0)
        wait_for(lambda: snapshot(program)["gauges"].get("learner/0", {}).get("replay_size"))
        assert gauges["actor/0"]["version_age_seconds"] >= 0
    result = run.wait(0)
    assert result is not None and result.forced == {} and result.failures == {}
    ours = {"actor", "learner", "replay", "counter", "variables", "evaluator", "coordinator"}
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in left if name.partition("/")[0] in ours], left
    assert not {"publisher", "priorities", "reporter"} & set(left)
    wait_for(lambda: "sampler" not in {t.name for t in set(threading.enumerate()) - before})


BROKEN = """
import dm_env
import numpy as np
from dm_env import specs

class Broken(dm_env.Environment):
    steps = 0

    def observation_spec(self):
        return specs.Array((2,), np.float32)

    def action_spec(self):
        return specs.DiscreteArray(2)

    def reset(self):
        return dm_env.restart(np.zeros(2, np.float32))

    def step(self, action):
        self.steps += 1
        if self.steps == 50:
            BREAK
        return dm_env.transition(0.0, np.zeros(2, np.float32))

def make(seed, evaluation):
    return Broken()
"""


@pytest.mark.parametrize(
    "what, cause",
    [
        ("raise RuntimeError('the dog ate it')", "the dog ate it"),
        ("return dm_env.transition(0.0, np.zeros(3, np.float32))", "float32 [3]"),
    ],
    ids=["raises", "shape"],
)
def test_a_broken_environment_ends_the_program_and_is_named(
    what: str, cause: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_tasks.py").write_text(BROKEN.replace("BREAK", what))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_tasks", raising=False)
    program = program_of(ReplayOptions(num_actors=2), env="broken_tasks:make")
    result = launch(program, "local_mt").wait(60)
    assert result is not None and result.outcome == "failed"
    failed = {name for name in result.failures if name.startswith(("actor/", "evaluator/"))}
    assert failed and failed == set(result.failures)
    for error in result.failures.values():
        last = error.strip().splitlines()[-1]
        assert "50" in last and cause in last.lower()


def test_nothing_is_evaluated_before_something_was_learned() -> None:
    config = dataclasses.replace(QUICK, min_replay_size=50_000)
    program = program_of(ReplayOptions(num_actors=1), config)
    with launch(program, "test_mt") as run:
        run.wait_until_running(60)
        wait_for(lambda: snapshot(program)["counts"].get("environment_steps", 0) > 3000, 60)
        assert snapshot(program)["evaluator_episodes"] == 0


def test_the_screen_says_why_the_learner_does_not_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(progress, "_LINE_PERIOD_SECONDS", 0.2)
    program = program_of(
        ReplayOptions(num_actors=1), dataclasses.replace(QUICK, min_replay_size=50_000)
    )
    said = io.StringIO()

    def line() -> str:
        screen.update()
        return next((it for it in said.getvalue().splitlines() if "learner waits" in it), "")

    with launch(program, "local_mt", run_directory=str(tmp_path / "run")) as run:
        run.wait_until_running(60)
        with progress.Progress(run, Console(file=said, width=1000)) as screen:
            shown = wait_for(line)
    assert "learner waits for samples: table 'windows' holds " in shown
    assert shown.endswith("items and gives out samples from 50,000 on")


def test_replay_leaves_no_directory_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with launch(program_of(ReplayOptions(num_actors=1)), "test_mt") as run:
        run.wait_until_running(60)
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


class Marking(ApeX):
    """Ape-X whose learner gives every item the same priority."""

    def make_learner(self, seed: int) -> "MarkingLearner":
        return MarkingLearner(self.config, self.spec, seed)


class MarkingLearner(ApexLearner):
    def step(self, sample: Sample) -> StepResult:
        result = super().step(sample)
        return result._replace(priorities=np.full(len(sample.probability), 123.0, np.float32))


def test_the_learners_priorities_come_back_to_replay() -> None:
    program = program_of(ReplayOptions(num_actors=1), agent_class=Marking)
    address = program.groups["replay"][0].reverb_address
    with launch(program, "local_mt") as run:
        run.wait_until_running(60)
        client = reverb.Client(address.resolve())

        def marked() -> bool:
            samples = client.sample("windows", 50, emit_timesteps=False)
            return any(sample.info.priority == 123.0 for sample in samples)

        wait_for(lambda: client.server_info()["windows"].current_size > 64, 60)
        wait_for(marked, 60)


def test_samples_per_insert_is_kept() -> None:
    config = dataclasses.replace(QUICK, samples_per_insert=2.0, error_buffer=64.0)
    program = program_of(ReplayOptions(num_actors=1), config)
    with launch(program, "local_mt") as run:
        run.wait_until_running(60)
        wait_for(lambda: snapshot(program)["counts"].get("learner_steps", 0) > 200, 60)
        ratio = snapshot(program)["gauges"]["learner/0"]["samples_per_insert"]
    assert 1.6 < ratio < 2.4


def test_replicas_have_seeds_of_their_own() -> None:
    program = program_of(ReplayOptions(num_actors=3, seed=7))
    seeds = [node._kwargs["seed"] for node in program.groups["actor"]]
    seeds += [program.groups["evaluator"][0]._kwargs["seed"], program.groups["learner"][0]._args[4]]
    assert len(set(seeds)) == 5
    again = program_of(ReplayOptions(num_actors=3, seed=7))
    assert [node._kwargs["seed"] for node in again.groups["actor"]] == seeds[:3]
    other = program_of(ReplayOptions(num_actors=3, seed=8))
    assert not set(seeds) & {node._kwargs["seed"] for node in other.groups["actor"]}


def test_only_the_learner_wants_a_gpu() -> None:
    program = program_of(ReplayOptions(num_actors=1))
    wanting = [
        group for group, nodes in program.groups.items() if contract.traits_of(nodes[0]).wants_gpu
    ]
    assert wanting == ["learner"]


@pytest.mark.parametrize("mode", ["test_mt", "local_mp"])
@pytest.mark.parametrize("agent_class", [ApeX, R2D2])
def test_atari_with_the_papers_network_advances(agent_class, mode, tmp_path) -> None:  # noqa: ANN001
    short = SHORT if (agent_class, mode) == (R2D2, "test_mt") else {}  # In processes the paper's.
    config = dataclasses.replace(
        agent_class.presets()["paper"],
        **short,
        batch_size=4,
        min_replay_size=4,
        replay_size=100,
        publish_period=1,
        samples_per_insert=1.0,  # As above; the paper's actors wait for nobody.
        error_buffer=4.0,
    )
    options = ReplayOptions(num_actors=1, evaluator_envs=1)
    program = program_of(options, config, "atari:Pong", agent_class)
    directory = str(tmp_path / "run")
    with launch(program, mode, run_directory=directory) as run:
        run.wait_until_running(100)
        wait_for(lambda: snapshot(program)["counts"].get("learner_steps", 0) > 2, 60)
        steps = snapshot(program)["counts"]["environment_steps"]
        wait_for(lambda: snapshot(program)["counts"]["environment_steps"] > steps, 60)
        assert run.status["evaluator/0"].state == "running"
    result = run.wait(0)
    assert result is not None and result.forced == {}


@pytest.mark.parametrize("name", ["num_actors", "envs_per_actor", "replay_shards"])
def test_counts_are_positive(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be at least 1, got 0"):
        ReplayOptions(**{name: 0})


LAUNCHPAD = """
import os
import launchpad as lp
from programs.replay_program import ReplayOptions
from tests.programs.test_replay_program import program_of, snapshot
from tests.support import wait_for

program = program_of(ReplayOptions(num_actors=2))
lp.launch(program, launch_type="local_mt")
wait_for(lambda: snapshot(program)["counts"].get("learner_steps", 0) > 20, 60)
wait_for(lambda: snapshot(program)["evaluator_episodes"] > 0, 60)
os._exit(7)
"""


def test_launchpads_own_launcher_runs_the_program_too() -> None:
    run = subprocess.run([sys.executable, "-c", LAUNCHPAD], timeout=110, check=False)
    assert run.returncode == 7
