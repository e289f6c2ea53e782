"""`launch.py --resume`: runs that were killed, stopped or finished go on."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from command import assembly, resumption
from launchers.directory import RunDirectory
from tests.command_line import QUICK, Completed, launch, launched, result_of, started
from tests.support import wait_for

ENDLESS = ("--run_dir=r", "--nostop_when_solved", "--checkpoint_seconds=1", *QUICK)


def counts(run: pathlib.Path) -> dict[str, int]:
    path = run / "counts.json"
    content: dict[str, int] = json.loads(path.read_text())["counts"] if path.exists() else {}
    return content


def newest(run: pathlib.Path, replica: str) -> pathlib.Path:
    return max((run / "checkpoints" / replica).glob("0*"))


def saved_steps(run: pathlib.Path) -> int:
    with np.load(newest(run, "learner-0") / "learner.npz") as arrays:
        return int(arrays["node/steps"])


def run_and_kill(directory: pathlib.Path) -> None:
    """Starts a run, kills its launcher once everything was saved twice, and waits for the end."""
    with started(directory, *ENDLESS) as launcher:
        saved = [directory / f"r/checkpoints/{name}-0/00000002" for name in ("learner", "replay")]
        wait_for(lambda: all(path.exists() for path in saved), 60)
        launcher.kill()
    wait_for(lambda: not is_running(directory / "r"))


def is_running(run: pathlib.Path) -> bool:
    from launchers import directory

    return directory.is_running(str(run))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory of a run whose launcher was killed; only to be copied."""
    directory = tmp_path_factory.mktemp("killed")
    run_and_kill(directory)
    return directory / "r"


@pytest.fixture
def run(killed: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(killed, tmp_path / "r")
    return tmp_path / "r"


class GoneOn(NamedTuple):
    """A run that was killed, and went on until it was finished; only to be copied."""

    directory: pathlib.Path
    before: dict[str, int]
    saved: int
    steps: int
    launched: Completed


@pytest.fixture(scope="module")
def gone_on(killed: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> GoneOn:
    run = tmp_path_factory.mktemp("gone_on") / "r"
    shutil.copytree(killed, run)
    before, saved = counts(run), saved_steps(run)
    steps = before["environment_steps"] + 3000
    launched = launch(run.parent, "--resume=r", "--env=catch", f"--max_steps={steps}")
    return GoneOn(run, before, saved, steps, launched)


def test_of_a_killed_run_it_is_said_how_to_go_on(run: pathlib.Path) -> None:
    shown = launch(run.parent, "status", "r").stdout
    assert "launcher is gone; launch.py --resume r goes on with it" in shown


def test_a_killed_run_goes_on_from_its_checkpoints(gone_on: GoneOn) -> None:
    run, before, saved, steps, again = gone_on
    assert saved > 0
    assert again.returncode == 0, again.stdout + again.stderr
    assert ", life 2" in again.stdout and "warns" not in again.stdout
    result = result_of(run)
    assert result["outcome"] == "finished" and result["lives"] == 2
    assert steps <= result["environment_steps"] < steps + 20_000
    assert result["learner_steps"] > before["learner_steps"]
    assert saved_steps(run) > saved
    for replica in ("learner-0", "replay-0"):
        assert (run / f"logs/{replica}.log").read_text().count("was restored.") == 1
    assert result["seconds_to_first_learner_step"] < result["wall_seconds"]
    config = json.loads((run / "config.json").read_text())
    assert config["config"]["batch_size"] == 32  # as it was started
    assert config["settings"]["max_steps"] == steps  # as it was resumed


def test_a_finished_run_goes_on_once_more_and_can_be_solved(
    gone_on: GoneOn, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(gone_on.directory, tmp_path / "r")
    before = result_of(tmp_path / "r")
    assert before["outcome"] == "finished"
    again = launch(tmp_path, "--resume=r", "--stop_when_solved", "--max_steps=none")
    assert again.returncode == 0, again.stdout + again.stderr
    result = result_of(tmp_path / "r")
    assert (result["outcome"], result["lives"]) == ("solved", 3)
    assert result["environment_steps"] >= before["environment_steps"]  # It may be solved already.
    assert result["learner_steps"] >= before["learner_steps"]


def test_damaged_checkpoints_fall_back_and_are_told(run: pathlib.Path) -> None:
    last = saved_steps(run)
    for replica, file in (("learner-0", "learner.npz"), ("replay-0", "reverb/chunks.tfrecord")):
        path = newest(run, replica) / file
        path.write_bytes(path.read_bytes()[:-100])
    steps = counts(run)["environment_steps"] + 1000
    again = launch(run.parent, "--resume=r", f"--max_steps={steps}")
    assert again.returncode == 0, again.stdout
    for replica in ("learner/0", "replay/0"):
        assert f"{replica} warns: Checkpoint" in again.stdout
    log = (run / "logs/learner-0.log").read_text()
    assert "was restored" in log and last


@pytest.mark.parametrize("network", ["own", "host"])
def test_a_run_goes_on_in_the_network_in_which_it_was_started(
    network: str, run: pathlib.Path
) -> None:
    config = json.loads((run / "config.json").read_text())
    config["settings"]["network"] = network
    (run / "config.json").write_text(json.dumps(config))
    ours = os.readlink("/proc/self/ns/net")
    with started(run.parent, "--resume=r") as launcher:
        wait_for(lambda: json.loads((run / "lock").read_text() or "{}").get("life") == 2, 60)
        theirs = os.readlink(f"/proc/{launcher.pid}/ns/net")
        launcher.terminate()
        launcher.wait(20)
    if network == "host":
        assert theirs == ours
    elif isolation_works():
        assert theirs != ours


def isolation_works() -> bool:
    code = "from launchers import isolation; isolation.enclose()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def tree(run: pathlib.Path) -> dict[str, Any]:
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and not str(path).endswith("lock")
    }


MISTAKES = {
    "nowhere": (["--resume=nowhere"], "There is no run in nowhere"),
    "nothing": (["--resume="], "--resume must name"),
    "env": (
        ["--resume=r", "--env=cartpole"],
        "--env stays as the run in r was started with: leave it out.",
    ),
    "shards": (["--resume=r", "--replay_shards=2"], "--replay_shards stays"),
    "config": (["--resume=r", "--config.n_step=1"], "--config.n_step stays"),
    "run_dir": (["--resume=r", "--run_dir=other"], "--run_dir stays"),
    "count": (["--resume=r", "--num_actors=0"], "--num_actors must be at least 1"),
    "stall": (["--resume=r", "--stall_timeout=0.1"], "the stall timeout must be at least 3 s"),
    "layout": (["--resume=r", "--layout=none.toml"], "none.toml cannot be read"),
    "anew": (["--run_dir=r"], "go on with --resume r"),
}


@pytest.fixture(scope="module")
def make_mistake(
    killed: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Any]]:
    """Returns what came of each mistake, made beside a copy of the killed run."""
    directories = {name: tmp_path_factory.mktemp("mistake") for name in MISTAKES}
    for directory in directories.values():
        shutil.copytree(killed, directory / "r")
    with launched({name: (directories[name], MISTAKES[name][0]) for name in MISTAKES}) as end:
        yield end


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_start_and_change_nothing(
    name: str, killed: pathlib.Path, make_mistake: Callable[[str], Any]
) -> None:
    directory, again = make_mistake(name)
    said = MISTAKES[name][1] in again.stderr
    assert (again.returncode, said) == (2, True), again.stdout + again.stderr
    before, after = tree(killed), tree(directory / "r")
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed <= {"logs/launcher.log", "logs/forkserver.log"}


def test_a_run_that_still_runs_is_not_taken_up(tmp_path: pathlib.Path) -> None:
    with started(tmp_path, *ENDLESS) as launcher:
        wait_for(lambda: (tmp_path / "r/plan.json").exists(), 60)
        again = launch(tmp_path, "--resume=r")
        assert (again.returncode, again.stderr) == (2, "The run in r still runs: stop it first.\n")
        assert launch(tmp_path, "stop", "r").returncode == 0
        assert launcher.wait(20) == 0


DAMAGED = [b"", b"{", b'"settings"', b'{"settings": 5}', b"\xff"]


@pytest.fixture(scope="module")
def resume_damaged(
    killed: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[bytes], Any]]:
    """Returns what came of going on with copies whose configuration is damaged."""
    directories = {content: tmp_path_factory.mktemp("damaged") for content in DAMAGED}
    for content, directory in directories.items():
        shutil.copytree(killed, directory / "r")
        (directory / "r/config.json").write_bytes(content)
    with launched({content: (directories[content], ["--resume=r"]) for content in DAMAGED}) as end:
        yield end


@pytest.mark.parametrize("content", DAMAGED)
def test_a_run_without_its_configuration_is_refused(
    content: bytes, resume_damaged: Callable[[bytes], Any]
) -> None:
    _, again = resume_damaged(content)
    assert again.returncode == 2
    said = "The run in r cannot go on: its config.json is not there or damaged.\n"
    assert again.stderr == said


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b'{"life": "x"}', b"\xff"])
def test_a_damaged_lock_file_does_not_matter(content: bytes, run: pathlib.Path) -> None:
    (run / "lock").write_bytes(content)
    assert RunDirectory.resume(str(run)).life == 2


@pytest.mark.parametrize(
    "given, mode, address",
    [
        ((), "ray", "10.0.0.1:6379"),
        (("--address=10.0.0.2:6379",), "ray", "10.0.0.2:6379"),
        (("--mode=local_mp",), "local_mp", None),
    ],
)
def test_a_run_of_a_cluster_goes_on_in_it_in_another_one_or_on_one_machine(
    given: tuple[str, ...], mode: str, address: str | None, tmp_path: pathlib.Path
) -> None:
    path = str(tmp_path / "r")
    before = ["--mode=ray", "--address=10.0.0.1:6379"]
    settings, values = assembly.read(before)
    directory = RunDirectory(path)
    directory.write("config.json", assembly.assemble(settings, values, before).describe())
    now = [f"--resume={path}", *given]
    _, values = assembly.read(now)
    merged = resumption.arguments(path, values, now)
    settings, values = assembly.read(merged)
    assembly.assemble(settings, values, merged)
    assert (settings.mode, settings.address) == (mode, address)
