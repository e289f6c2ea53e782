"""The command line, as a person meets it."""

import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.command_line import (
    QUICK,
    command,
    launch,
    launched,
    result_of,
    started,
)
from tests.support import wait_for

BAD_INPUT = {
    "agent": (["--agent=apxe"], "Unknown agent 'apxe': did you mean apex?"),
    "burn_in": (["--agent=r2d2", "--config.burn_in=50"], "burn_in must be at least 0 and shorter"),
    "period": (["--agent=r2d2", "--config.period=0"], "period must be at least 1"),
    "period_long": (["--agent=r2d2", "--config.period=51"], "not longer than trace_length (50)"),
    "state": (["--agent=r2d2", "--config.lstm_size=0"], "network with a recurrent state"),
    "n_step": (
        ["--agent=r2d2", "--config.n_step=43"],
        "n_step must not be longer than the trained",
    ),
    "agent_module": (["--agent=nowhere.to_be:Found"], "no 'nowhere'"),
    "agent_class": (["--agent=agents.apex.agent:ApX"], "did you mean ApeX"),
    "mode": (["--mode=local_pm"], "Unknown mode 'local_pm': did you mean"),
    "env": (["--env=cach"], "'cach': did you mean catch?"),
    "gym": (["--env=gym:CartPol-v1"], "CartPole-v1"),
    "memory": (["--env=memory:none"], "memory"),
    "preset": (["--preset=papr"], "Unknown preset 'papr': did you mean paper?"),
    "flag": (["--num_actor=3"], "Unknown flag 'num_actor': did you mean num_actors"),
    "config_field": (["--config.batchsize=3"], "did you mean config.batch_size"),
    "config_value": (
        ["--config.batch_size=many"],
        "--config.batch_size wants an integer, got 'many'.",
    ),
    "not_finite": (["--config.learning_rate=nan"], "learning_rate must be a finite number"),
    "too_many": (["--num_actors=1000000000000"], "--num_actors must be at most"),
    "shards": (["--replay_shards=3000"], "Of 3000 replay shards each needs one of the first"),
    "no_agent": (["--agent=os:getcwd"], "os:getcwd is no agent"),
    "no_function": (["--program=os:sep"], "os:sep must be a function"),
    "needs_argument": (["--program=os:kill"], "without arguments"),
    "no_program": (["--program=os:getcwd"], "returned a str, not a launchpad.Program"),
    "agents_flag": (["--program=os:getcwd", "--max_steps=3"], "--max_steps is for --agent"),
    "count": (["--num_actors=0"], "--num_actors must be at least 1, got 0."),
    "reducers": (
        ["--num_learners=2", "--num_reducers=3"],
        "--num_reducers must be between 0 and 2, one a learner, got 3.",
    ),
    "staleness": (
        ["--num_learners=2", "--max_staleness=1"],
        "--max_staleness is for --async_learners: leave it out.",
    ),
    "envs": (["--envs_per_actor=-1"], "--envs_per_actor must be at least 1"),
    "steps": (["--max_steps=0"], "--max_steps must be at least 1"),
    "batch": (["--config.batch_size=2000000"], "batch_size"),
    "memory_size": (["--config.replay_size=2000000000000"], "GiB are free"),
    "actions": (["--env=gym:Pendulum-v1"], "discrete actions"),
    "argument": (["--seed=1", "catch"], "'catch' is not a flag"),
    "run_dir": (["--run_dir="], "--run_dir must name a directory"),
    "verb": (["stat", "runs/there"], "Unknown verb 'stat': did you mean status or stop?"),
    "program": (["--program=nowhere:draw"], "no 'nowhere'"),
}


@pytest.fixture(scope="module")
def run_bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Returns what came of each bad input."""
    with launched(
        {name: (tmp_path_factory.mktemp("bad"), BAD_INPUT[name][0]) for name in BAD_INPUT}
    ) as end:
        yield end


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_told_in_one_sentence_and_starts_nothing(
    name: str, run_bad: Callable[[str], Any]
) -> None:
    directory, run = run_bad(name)
    assert run.returncode == 2
    assert BAD_INPUT[name][1] in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert run.stdout == ""
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("name", ["plan.json", "config.json", "result.json", "logs"])
def test_a_directory_that_holds_a_run_or_the_like_is_not_touched(
    name: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("mine")
    run = launch(tmp_path, "--run_dir=run")
    assert run.returncode == 2
    assert "holds a run already, or files of the same names" in run.stderr
    assert (tmp_path / "run" / name).read_text() == "mine"
    assert [path.name for path in (tmp_path / "run").iterdir()] == [name]


def test_a_directory_with_other_files_keeps_them_when_nothing_is_started(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/mine.txt").write_text("mine")
    run = launch(tmp_path, "--run_dir=run", "--replay_shards=3000")
    assert run.returncode == 2
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_runs_of_the_same_second_get_directories_of_their_own(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ends_at_once.py").write_text(
        "import launchpad as lp\n"
        "def draw():\n"
        "    program = lp.Program('once')\n"
        "    program.add_node(lp.PyNode(print), label='node')\n"
        "    return program\n"
    )
    flags = ("--program=ends_at_once:draw", "--mode=local_mt")
    runs = [
        subprocess.Popen(command(*flags), cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(4)
    ]
    assert [run.wait(60) for run in runs] == [0] * 4
    assert len(list((tmp_path / "runs").iterdir())) == 4


def test_a_directory_that_cannot_be_made_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    run = launch(tmp_path, "--run_dir=file/run")
    assert run.returncode == 2
    assert "The run directory file/run cannot be written: Not a directory." in run.stderr


def test_help_lists_the_flags_and_the_agents_configuration(tmp_path: pathlib.Path) -> None:
    run = launch(tmp_path, "--help")
    assert run.returncode == 0
    assert "Environments of each actor" in run.stdout
    assert "--config.batch_size" in run.stdout
    assert "no help" not in run.stdout


def test_plan_prints_what_would_run_and_starts_nothing(tmp_path: pathlib.Path) -> None:
    run = launch(tmp_path, "--plan", "--num_actors=3")
    assert run.returncode == 0
    replicas = json.loads(run.stdout)["replicas"]
    assert [name for name in replicas if name.startswith("actor")] == [
        "actor/0",
        "actor/1",
        "actor/2",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["test_mt", "local_mp"])
def test_ape_x_runs_to_its_step_limit(mode: str, tmp_path: pathlib.Path) -> None:
    run = launch(
        tmp_path,
        f"--mode={mode}",
        "--max_steps=2000",
        "--nostop_when_solved",
        "--run_dir=r",
        *QUICK,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    result = result_of(tmp_path / "r")
    assert result["outcome"] == "finished"
    assert result["environment_steps"] >= 2000
    assert result["trained_samples"] == 32 * result["learner_steps"] > 0
    assert result["lives"] == 1 and set(result["restarts"].values()) == {0}
    assert "finished: " in run.stdout


BROKEN = """
import dm_env, numpy as np
from dm_env import specs

class Broken(dm_env.Environment):
    def __init__(self):
        self.steps = 0
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

def make(seed: int, evaluation: bool) -> dm_env.Environment:
    return Broken()
"""


def test_a_broken_environment_ends_the_run_and_is_named(tmp_path: pathlib.Path) -> None:
    reward = "return dm_env.transition(float('nan'), np.zeros(2, np.float32))"
    (tmp_path / "broken.py").write_text(BROKEN.replace("BREAK", reward))
    run = launch(tmp_path, "--mode=local_mt", "--env=broken:make", "--run_dir=r", *QUICK)
    assert run.returncode == 1
    failure = next(line for line in run.stdout.splitlines() if " failed: " in line)
    assert failure.startswith(("actor/", "evaluator/"))
    assert "50" in failure and "nan" in failure.lower()
    result = result_of(tmp_path / "r")
    assert result["outcome"] == "failed"
    assert not {"running", "starting"} & {
        status["state"] for status in json.loads((tmp_path / "r/status.json").read_text()).values()
    }


@pytest.mark.parametrize(
    "number, status",
    [(signal.SIGINT, 130), (signal.SIGTERM, 143)],  # SIGHUP: in test_recovery.py
)
def test_a_signal_ends_everything_within_three_seconds(
    number: signal.Signals, status: int, tmp_path: pathlib.Path
) -> None:
    counts = tmp_path / "r/counts.json"
    with started(
        tmp_path, "--run_dir=r", "--nostop_when_solved", *QUICK, start_new_session=True
    ) as launcher:
        wait_for(lambda: counts.exists() and "learner_steps" in counts.read_text(), 60)
        family = psutil.Process(launcher.pid).children(recursive=True)
        began = time.monotonic()
        os.killpg(launcher.pid, number)  # As a terminal does, to the whole group.
        assert launcher.wait(20) == status
        wait_for(lambda: not any(process.is_running() for process in family))
        assert time.monotonic() - began < 3.0
    assert result_of(tmp_path / "r")["outcome"] == "stopped"


def _when_it_says_what_it_runs(directory: pathlib.Path) -> bool:
    return (directory / "plan.json").exists()


def _when_the_fork_server_loads(directory: pathlib.Path) -> bool:
    return (directory / "logs/forkserver.log").exists()


def _when_the_first_replica_starts(directory: pathlib.Path) -> bool:
    return "starting" in _text(directory / "status.json")


def _text(path: pathlib.Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    "moment",
    [_when_it_says_what_it_runs, _when_the_fork_server_loads, _when_the_first_replica_starts],
)
def test_a_signal_while_it_starts_ends_everything_within_three_seconds(
    moment: Callable[[pathlib.Path], bool], tmp_path: pathlib.Path
) -> None:
    with started(tmp_path, "--run_dir=r", start_new_session=True) as launcher:
        wait_for(lambda: moment(tmp_path / "r"), 60)
        family = psutil.Process(launcher.pid).children(recursive=True)
        began = time.monotonic()
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.wait(20) == 130
        wait_for(lambda: not any(process.is_running() for process in family))
        assert time.monotonic() - began < 3.0
    assert result_of(tmp_path / "r")["outcome"] == "stopped"


def test_a_killed_launcher_leaves_no_fork_server_that_still_loads(tmp_path: pathlib.Path) -> None:
    with started(tmp_path, "--run_dir=r") as launcher:
        wait_for(lambda: (tmp_path / "r/logs/forkserver.log").exists(), 60)
        family = wait_for(lambda: psutil.Process(launcher.pid).children(recursive=True))
        launcher.kill()
    wait_for(lambda: not any(process.is_running() for process in family), 5)


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: pathlib.Path) -> None:
    (tmp_path / "short.py").write_text(
        "import launchpad as lp, time\n"
        "def draw():\n"
        "    program = lp.Program('short')\n"
        "    program.add_node(lp.PyNode(time.sleep, 1.0), label='node')\n"
        "    return program\n"
    )
    flags = " ".join(command("--run_dir=r", "--program=short:draw"))
    subprocess.run(f"{flags} | head -1", shell=True, cwd=tmp_path, check=True, timeout=100)
    wait_for(lambda: (tmp_path / "r/result.json").exists(), 60)
    assert result_of(tmp_path / "r")["outcome"] == "finished"


def test_a_replica_that_ends_without_having_been_asked_to_is_a_failure(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN.replace("BREAK", "raise SystemExit"))
    (tmp_path / "layout.toml").write_text(
        "[actor]\non_failure = 'stop'\n[evaluator]\non_failure = 'stop'"
    )
    flags = ("--env=broken:make", "--layout=layout.toml", "--run_dir=r", *QUICK)
    run = launch(tmp_path, *flags)
    assert run.returncode == 1
    assert "failed: It ended without having been asked to" in run.stdout
