"""The program of ARS: the same search whoever makes its rollouts, and whatever becomes of them."""

import dataclasses
import io
import pathlib
import re
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from rich.console import Console

from agents.ars.config import ArsConfig
from agents.search_agent import RolloutResults
from environments import registry
from launchers.layout import GroupLayout, Layout
from launchers.run import Run, launch
from monitoring import progress, snapshot
from nodes import tasks
from nodes.contract import RestartBudget
from nodes.search import SearchClient
from programs.ars import SearchOptions, make_program
from programs.program import Program
from tests.agents.ars.support import (
    SMALL,
    Recorded,
    agent_of,
    check_recorded,
    loop,
    noise_of,
    play,
    recorded,
    updates,
)
from tests.programs.test_replay_program import BROKEN
from tests.support import wait_for
from usage import UsageError

PENDULUM = "gym:Pendulum-v1"
SEED = 3
WIDE = dataclasses.replace(
    SMALL,
    num_directions=20,
    top_directions=10,
    rollouts_per_task=5,
    episode_limit=10,
    noise_table_size=3_000_000,
)


def program_of(
    directory: pathlib.Path, options: SearchOptions, env: str, config: ArsConfig = SMALL
) -> Program:
    agent = agent_of(env, config, Recorded, str(directory))
    return make_program("test", agent, registry.load(env).make, options)


def client_of(program: Program, group: str) -> Any:
    return program.groups[group][0].create_handle().dereference()


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("env", ["catch", PENDULUM], ids=["discrete", "continuous"])
def test_however_many_workers_there_are_the_same_policies_are_found(
    env: str, num_workers: int, tmp_path: pathlib.Path
) -> None:
    options = SearchOptions(num_workers=num_workers, seed=SEED, evaluator_envs=2)
    program = program_of(tmp_path, options, env)
    with launch(program, "test_mt") as run:
        run.wait_until_running(60)
        wait_for(lambda: updates(tmp_path) >= 4, 60)
        wait_for(lambda: client_of(program, "counter").snapshot()["evaluator_episodes"] >= 2, 60)
    result = run.wait(0)
    assert result is not None and not result.forced and not result.failures
    check_recorded(tmp_path, loop(agent_of(env), env, 4, SEED))


def test_one_iterations_rollouts_are_used_once_each_whoever_makes_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test is the workers: one freezes, one is late, one dies."""
    monkeypatch.setattr(tasks, "_LEAST_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(tasks, "_PATIENCE", 1e-9)
    agent = agent_of("catch")
    program = program_of(tmp_path, SearchOptions(num_workers=1, seed=SEED), "catch")
    del program.groups["worker"][:], program._groups["worker"]
    search = agent.make_search(noise_of(agent, SEED), SEED)

    def results(task: int) -> RolloutResults:
        return play(agent, "catch", search, task, SEED)

    with launch(program, "test_mt") as run:
        run.wait_until_running(60)
        workers: SearchClient = client_of(program, "search")
        frozen = wait_for(lambda: workers.take("worker/0", "1"))
        dead = workers.take("worker/1", "1")
        third = workers.take("worker/2", "1")
        assert [task.number for task in (frozen, dead, third)] == [0, 1, 2]
        workers.give("worker/2", third, results(2))
        again = workers.take("worker/1", "2")
        assert again is not None and again.number == 1
        workers.give("worker/1", again, results(1))
        copy = wait_for(lambda: workers.take("worker/2", "1"))
        assert copy.number == 0
        workers.give("worker/2", copy, results(0))
        newer = wait_for(lambda: workers.take("worker/2", "1"))
        assert newer.iteration == 1
        workers.give("worker/0", frozen, results(0))
        expected = {"handed_out": 22, "used": 10, "late": 4, "lost": 4, "duplicate": 0, "out": 4}

        def accounts() -> bool:
            gauges = client_of(program, "counter").snapshot()["gauges"].get("search/0", {})
            return all(gauges.get(f"rollouts_{name}") == n for name, n in expected.items())

        wait_for(accounts)
        counts = client_of(program, "counter").snapshot()["counts"]
        assert counts == {"learner_steps": 1, "trained_samples": 10, "environment_steps": 90}
    check_recorded(tmp_path, loop(agent, "catch", 1, SEED))


@dataclasses.dataclass(frozen=True)
class Running:
    """A run in processes, whose search writes down what it finds."""

    directory: pathlib.Path
    run: Run

    @property
    def found(self) -> pathlib.Path:
        return self.directory / "found"

    def process(self, replica: str) -> psutil.Process:
        for process in psutil.Process().children(recursive=True):
            if process.cmdline() and process.cmdline()[0].endswith(replica):
                return process
        raise AssertionError(f"{replica} has no process")

    def searches_on(self) -> int:
        """Waits for five updates from now, and returns the last."""
        before = updates(self.found)
        wait_for(lambda: updates(self.found) >= before + 5, 60)
        return before + 5

    def check_policies(self, first: int, last: int) -> None:
        """Checks the updates after `first`, up to `last`."""
        begin = recorded(self.found, first)[0]
        expected = loop(agent_of(PENDULUM, WIDE), PENDULUM, last - first, SEED, begin)
        check_recorded(self.found, expected, first)

    def check_accounts(self) -> None:
        """Checks what became of the rollouts, and that each used one was counted once."""
        now = snapshot.read(str(self.directory / "run"))
        gauges = {
            name.removeprefix("rollouts_"): number
            for name, number in now["gauges"]["search/0"].items()
            if name.startswith("rollouts_")
        }
        handed_out = gauges.pop("handed_out")
        assert handed_out == sum(gauges.values()) > 0
        counts = now["counts"]
        made = recorded(self.found, updates(self.found))[0]
        assert made[-1].tolist() == [counts["learner_steps"], counts["environment_steps"]]
        assert counts["trained_samples"] == WIDE.num_rollouts * counts["learner_steps"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("running")
    (directory / "found").mkdir()
    often = GroupLayout(restart=RestartBudget(100, 60.0, 0.05))
    program = program_of(
        directory / "found",
        SearchOptions(num_workers=3, seed=SEED, checkpoint_seconds=1000.0),
        PENDULUM,
        WIDE,
    )
    layout = Layout({group: often for group in program.groups})
    with launch(program, "local_mp", layout, str(directory / "run")) as run:
        run.wait_until_running(60)
        yield Running(directory, run)


def test_the_processes_of_a_host_read_one_table_of_noise(running: Running) -> None:
    running.searches_on()
    tables = {}
    for replica in ("worker/0", "worker/1", "worker/2", "search/0"):
        smaps = pathlib.Path(f"/proc/{running.process(replica).pid}/smaps").read_text()
        for entry in re.findall(r"^[\da-f]+-[\da-f]+ (?s:.*?)^VmFlags", smaps, re.MULTILINE):
            size = int(re.search(r"^Size: +(\d+) kB", entry, re.MULTILINE)[1])
            if "memfd:launchgraph-version" in entry and size > 11_000:
                copied = int(re.search(r"^Private_Dirty: +(\d+) kB", entry, re.MULTILINE)[1])
                tables[replica] = entry.split()[4], copied
    assert len(tables) == 4 and len(set(tables.values())) == 1, tables
    assert tables["search/0"][1] == 0  # None has a page of its own.


@pytest.mark.parametrize("replica", ["worker/1", "search/0", "noise/0", "variables/0"])
def test_whatever_is_killed_the_search_goes_on_as_if_nothing_had_been(
    replica: str, running: Running
) -> None:
    before = running.searches_on() - 2
    restarts = running.run.status[replica].restarts
    running.process(replica).kill()
    at_most = updates(running.found)
    wait_for(lambda: running.run.status[replica].restarts == restarts + 1)
    wait_for(lambda: running.run.status[replica].state == "running", 60)
    assert running.searches_on() > at_most
    running.check_policies(before, at_most + 2)


def test_a_frozen_worker_holds_nobody_up(running: Running) -> None:
    running.searches_on()
    frozen = running.process("worker/2")
    frozen.send_signal(signal.SIGSTOP)
    try:
        running.searches_on()
    finally:
        frozen.send_signal(signal.SIGCONT)
    running.searches_on()
    assert running.run.status["worker/2"].restarts == 0


def test_without_the_published_policy_the_search_finds_the_same_ones_again(
    running: Running,
) -> None:
    """There is no checkpoint yet: it begins anew, while workers know newer policies."""
    assert running.searches_on() > 10
    both = [running.process(replica) for replica in ("search/0", "variables/0")]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in both:
            process.send_signal(number)
    wait_for(lambda: len(recorded(running.found, 5)) == 2, 60)
    running.check_policies(1, 5)


def test_in_the_end_every_rollout_is_accounted_for(running: Running) -> None:
    running.run.stop()
    running.run.wait(30)
    running.check_accounts()


def test_a_stopped_search_goes_on_in_its_next_life(tmp_path: pathlib.Path) -> None:
    from launchers.directory import RunDirectory

    found = tmp_path / "found"
    found.mkdir()
    for life in (1, 2):
        path = str(tmp_path / "run")
        directory = path if life == 1 else RunDirectory.resume(path)
        before = updates(found)
        program = program_of(found, SearchOptions(num_workers=2, seed=SEED), "catch")
        with launch(program, "local_mt", run_directory=directory) as run:
            run.wait_until_running(60)
            wait_for(lambda before=before: updates(found) >= before + 3, 60)
            run.stop()
            run.wait(30)
        if isinstance(directory, RunDirectory):
            directory.release()
        counts = snapshot.read(path)["counts"]
        assert counts["learner_steps"] == updates(found)
        assert counts["environment_steps"] == 90 * updates(found)
    last = updates(found)
    assert all(len(recorded(found, update)) == 1 for update in range(1, last + 1))
    check_recorded(found, loop(agent_of("catch"), "catch", last, SEED))


def test_a_reward_that_is_no_number_ends_the_program_and_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_a_number = "return dm_env.transition(float('nan'), np.zeros(2, np.float32))"
    (tmp_path / "broken_rollouts.py").write_text(BROKEN.replace("BREAK", not_a_number))
    monkeypatch.syspath_prepend(tmp_path)
    program = program_of(tmp_path, SearchOptions(num_workers=1), "broken_rollouts:make")
    result = launch(program, "local_mt").wait(60)
    assert result is not None and result.outcome == "failed"
    (error,) = result.failures.values()
    assert "step 50: reward is nan" in error.strip().splitlines()[-1]


def test_the_screen_shows_what_a_search_does(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_PERIOD_SECONDS", 0.1)
    program = program_of(tmp_path, SearchOptions(num_workers=2, seed=SEED), "catch")
    said = io.StringIO()
    with launch(program, "local_mt", run_directory=str(tmp_path / "run")) as run:
        run.wait_until_running(60)

        def shown() -> str:
            screen.update()
            return next((it for it in said.getvalue().splitlines() if "return" in it), "")

        with progress.Progress(run, Console(file=said, width=1000)) as screen:
            line = wait_for(shown, 60)
    assert re.search(r"steps [\d,]+  .*iterations [\d,]+  .*rollouts' return -?\d\.\d+", line)
    assert "replay" not in line


@pytest.mark.parametrize("name", ["num_workers", "evaluator_envs", "max_steps"])
def test_counts_are_positive(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be at least 1, got 0"):
        SearchOptions(**{name: 0})
