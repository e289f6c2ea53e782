"""A replay server that is started again holds what its newest checkpoint does."""

import dataclasses
import pathlib

import numpy as np
import pytest
import reverb
from acme import specs

from agents.agent import TableSpec
from launchers.directory import RunDirectory
from launchers.run import Run, launch
from nodes.checkpoints import Schedule
from nodes.replay import ReplayClient, is_saved, replay_shards, shard_of
from nodes.replay_server import turn
from programs.program import Program
from tests.nodes.runtimes import FakeLauncher
from tests.support import in_node, wait_for

TABLE = TableSpec(
    name="items",
    item={"row": specs.Array((2,), np.float32)},
    max_size=1000,
    min_size=3,
    priority_exponent=0.5,
    samples_per_insert=2.0,
    error_buffer=50.0,
    bytes_per_item=8,
)


def replay(
    directory: pathlib.Path, shards: int, schedule: Schedule, table: TableSpec = TABLE
) -> tuple[Run, ReplayClient]:
    program = Program("replay")
    nodes, handle = replay_shards(table, shards, schedule)
    for node in nodes:
        program.add_node(node, label="replay")
    run = launch(program, "local_mp", run_directory=str(directory / "run"))
    run.wait_until_running(60)
    return run, handle.dereference()


def insert(client: ReplayClient, shard: int, priorities: list[float]) -> None:
    one = ReplayClient([client._addresses[shard]], client.spec)

    def write() -> None:
        writer = one.writer(0, 1)
        for priority in priorities:
            writer.append({"row": np.full(2, priority, np.float32)})
            writer.create_item(priority, {"row": writer.history["row"][-1]})
            writer.end_episode()
        writer.close()

    in_node(write)


def kill(run: Run, replica: str) -> None:
    restarts = run.status[replica].restarts
    run._supervisor._backend.kill(replica)
    wait_for(lambda: run.status[replica].restarts == restarts + 1)
    wait_for(lambda: run.status[replica].state == "running")


def saves(run: Run, replica: str) -> float:
    return run.status[replica].saved_at or 0.0


def test_a_killed_server_loses_only_what_came_since_its_checkpoint(tmp_path: pathlib.Path) -> None:
    run, client = replay(tmp_path, 1, Schedule(1.0))
    with run:
        insert(client, 0, [1.0] * 5)
        newest = saves(run, "replay/0")
        wait_for(lambda: saves(run, "replay/0") > newest + 0.5)
        before = client.info().gauges()
        assert before["replay_size"] == 5
        kill(run, "replay/0")
        after = wait_for(lambda: client.info().gauges().get("replay_size") and client.info())
        assert (after.size, after.inserted, after.sampled) == (5, 5, 0)
        assert run.status["replay/0"].longest_pause_seconds > 0


def test_without_a_checkpoint_a_killed_server_begins_empty(tmp_path: pathlib.Path) -> None:
    run, client = replay(tmp_path, 1, Schedule(1000.0))
    with run:
        insert(client, 0, [1.0] * 5)
        kill(run, "replay/0")
        assert wait_for(lambda: client.info().max_size and client.info()).size == 0


def test_a_restored_server_keeps_its_rate_limiters_counts(tmp_path: pathlib.Path) -> None:
    run, client = replay(tmp_path, 1, Schedule(0.5))
    with run:
        insert(client, 0, [1.0] * 5)
        reverb_client = reverb.Client(client._addresses[0])
        sampled = list(reverb_client.sample(TABLE.name, 7, emit_timesteps=False))
        assert len(sampled) == 7
        newest = saves(run, "replay/0")
        wait_for(lambda: saves(run, "replay/0") > newest + 0.5)
        before = client.info()
        kill(run, "replay/0")
        after = wait_for(lambda: client.info().max_size and client.info())
        assert (after.inserted, after.sampled) == (before.inserted, before.sampled)
        assert after.sampled >= 7


def test_shards_do_not_save_at_the_same_time(tmp_path: pathlib.Path) -> None:
    run, client = replay(tmp_path, 3, Schedule(1.5))
    with run:
        wait_for(lambda: all(saves(run, f"replay/{shard}") for shard in range(3)))
        at = sorted(saves(run, f"replay/{shard}") for shard in range(3))
        assert at[2] - at[0] > 0.2


def test_a_full_disk_is_told_and_replay_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def fail(client: reverb.Client) -> str:
        raise IndexError("chunks.tfrecord; No space left on device")  # as Reverb does

    monkeypatch.setattr(reverb.Client, "checkpoint", fail)
    program = Program("replay")
    nodes, handle = replay_shards(TABLE, 1, Schedule(0.3))
    program.add_node(nodes[0], label="replay")
    with launch(program, "local_mt", run_directory=str(tmp_path / "run")) as run:
        wait_for(lambda: run.status["replay/0"].warnings)
        said = "A checkpoint was not saved: chunks.tfrecord; No space left on device"
        assert run.status["replay/0"].warning == said
        assert handle.dereference().info().max_size == 1000
        assert run.status["replay/0"].state == "running"


def test_one_shard_saves_at_a_time(tmp_path: pathlib.Path) -> None:
    first, second = FakeLauncher(tmp_path), FakeLauncher(tmp_path)
    with turn(first) as ours:
        assert ours
        with turn(second) as theirs:
            assert not theirs
    with turn(second) as theirs:
        assert theirs


def test_a_table_that_is_too_large_is_not_saved(tmp_path: pathlib.Path) -> None:
    large = dataclasses.replace(TABLE, bytes_per_item=3 << 20)
    assert not is_saved(large)
    assert is_saved(shard_of(large, 2))
    run, client = replay(tmp_path, 1, Schedule(0.2), large)
    with run:
        insert(client, 0, [1.0] * 5)
        kill(run, "replay/0")
        assert wait_for(lambda: client.info().max_size and client.info()).size == 0
    assert not list((tmp_path / "run/checkpoints/replay-0").glob("0*"))


@pytest.mark.parametrize("life", ["next", "one after a damaged checkpoint"])
def test_the_next_life_of_a_run_goes_on_with_what_was_saved_at_the_end(
    life: str, tmp_path: pathlib.Path
) -> None:
    run, client = replay(tmp_path, 2, Schedule(1000.0))
    with run:
        insert(client, 0, [1.0] * 5)
        insert(client, 1, [2.0] * 3)
    run.wait()
    if life != "next":
        (newest,) = (tmp_path / "run/checkpoints/replay-0").glob("0*")
        (newest / "reverb/chunks.tfrecord").write_bytes(b"nothing")
    program = Program("replay")
    nodes, handle = replay_shards(TABLE, 2, Schedule(1000.0))
    for node in nodes:
        program.add_node(node, label="replay")
    again = RunDirectory.resume(str(tmp_path / "run"))
    with launch(program, "local_mp", run_directory=again) as run:
        run.wait_until_running(60)
        info = handle.dereference().info()
        assert info.size == (8 if life == "next" else 3)
        wait_for(lambda: bool(run.status["replay/0"].warnings) == (life != "next"))
