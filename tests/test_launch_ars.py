"""ARS on the command line."""

import pathlib

import pytest
from rich.console import Console

from command import assembly, resumption, standing_replay
from command.assembly import Assembly
from launchers.directory import RunDirectory
from launchers.plan import make_plan
from tests.test_launch import launch, result_of
from usage import UsageError


def test_ars_solves_cartpole_in_processes_and_tells_how(tmp_path: pathlib.Path) -> None:
    run = launch(tmp_path, "--agent=ars", "--env=gym:CartPole-v1", "--run_dir=r")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    result = result_of(tmp_path / "r")
    assert result["outcome"] == "solved" and result["evaluator_return_mean_100"] >= 475
    assert result["trained_samples"] == 64 * result["learner_steps"] > 0
    assert set(result["restarts"].values()) == {0}
    shown = launch(tmp_path, "status", "r").stdout
    assert "rollouts returned" in shown and "handed out" in shown and "worker/3" in shown


def assembled(*arguments: str) -> Assembly:
    settings, values = assembly.read(["--agent=ars", *arguments])
    return assembly.assemble(settings, values, ["--agent=ars", *arguments])


def test_a_search_goes_on_with_more_workers(tmp_path: pathlib.Path) -> None:
    first = assembled("--num_actors=1", "--seed=7", "--config.top_directions=5")
    RunDirectory(str(tmp_path / "r")).write("config.json", first.describe())
    given = [f"--resume={tmp_path / 'r'}", "--num_actors=3"]
    _, values = assembly.read(given)
    arguments = resumption.arguments(str(tmp_path / "r"), values, given)
    settings, values = assembly.read(arguments)
    second = assembly.assemble(settings, values, arguments)
    assert second.config == first.config and second.config.top_directions == 5
    assert (settings.agent, settings.seed, settings.num_actors) == ("ars", 7, 3)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["--replay_shards=2"],
            "--replay_shards is for agents with replay and means nothing with --agent ars: leave",
        ),
        (["--replay_address=a:1"], "--replay_address is for agents with replay"),
        (["--envs_per_actor=2"], "--envs_per_actor is for agents with replay"),
        (["--config.noise_table_size=149"], "noise_table_size must be at least 150"),
        (["--config.noise_table_size=99999999999999"], "GiB are free: make it smaller."),
    ],
)
def test_what_does_not_fit_a_search_is_told(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        assembled(*arguments)


def test_an_agent_without_replay_has_none_to_serve() -> None:
    with pytest.raises(UsageError, match="--agent ars has no replay that could be served."):
        standing_replay.serve(["--agent=ars", "--port=1"], Console())


def test_there_are_one_table_of_noise_and_as_many_workers_as_asked() -> None:
    program = assembled("--num_actors=2").draw()
    assert {*make_plan(program, "local_mp").replicas} == {
        *("variables/0", "counter/0", "noise/0", "search/0", "worker/0", "worker/1"),
        *("evaluator/0", "coordinator/0"),
    }
