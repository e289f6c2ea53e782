"""Writers go round the shards of a replay, trajectory by trajectory."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import launchpad as lp
import numpy as np
import pytest
import reverb
from acme import specs

from agents.agent import TableSpec
from launchers.run import launch
from nodes import writing
from nodes.replay import ReplayClient
from nodes.replay_server import make_table
from nodes.writing import ReplayWriter
from tests.nodes.replays import Killable, table
from tests.support import in_node, wait_for


class Shards:
    """Servers, and clients of one and of all."""

    def __init__(self, number: int, spec: TableSpec, killable: bool = False) -> None:
        self.spec = spec
        self.servers: list[Any] = [
            Killable(spec) if killable else reverb.Server([make_table(spec)]) for _ in range(number)
        ]
        self.addresses = [f"localhost:{server.port}" for server in self.servers]
        self.client = ReplayClient(self.addresses, spec)

    def sizes(self) -> list[int]:
        return [0 if shard is None else shard.size for shard in self.client.info().shards]

    def trajectories(self, shard: int) -> set[int]:
        """Returns the numbers of the trajectories whose items a shard has."""
        client = reverb.Client(self.addresses[shard])
        samples = client.sample("items", 2000, emit_timesteps=False, unpack_as_table_signature=True)
        found = set()
        for sample in samples:
            row = np.asarray(sample.data["row"])
            assert row[0] == row[0]
            found.add(int(row[0]))
        return found


@pytest.fixture
def make_shards() -> Iterator[Callable[..., Shards]]:
    made: list[Shards] = []

    def make(number: int, spec: TableSpec, killable: bool = False) -> Shards:
        made.append(Shards(number, spec, killable))
        return made[-1]

    yield make
    for shards in made:
        for server in shards.servers:
            server.stop()


def write_trajectory(writer: ReplayWriter, number: int, length: int = 5) -> None:
    for step in range(length):
        writer.append({"row": np.array([number, step], np.float32)})
        writer.create_item(1.0, {"row": writer.history["row"][-1]})
    writer.end_episode()


@pytest.mark.parametrize("first", [0, 7])
def test_each_trajectory_goes_whole_to_the_next_shard(
    first: int, make_shards: Callable[..., Shards]
) -> None:
    shards = make_shards(3, table())

    def insert() -> None:
        writer = shards.client.writer(first, 2)
        for number in range(9):
            write_trajectory(writer, number)
        writer.close()

    in_node(insert)
    assert shards.sizes() == [15, 15, 15]
    for shard in range(3):
        expected = {number for number in range(9) if (first + number) % 3 == shard}
        assert shards.trajectories(shard) == expected


def test_items_that_stand_alone_go_round_without_episodes(
    make_shards: Callable[..., Shards],
) -> None:
    shards = make_shards(3, table())

    def insert() -> None:
        writer = shards.client.writer(0, 1)
        for step in range(90):
            writer.append({"row": np.array([0, step], np.float32)})
            writer.create_item(1.0, {"row": writer.history["row"][-1]})
        writer.end_episode()
        wait_for(lambda: sum(shards.sizes()) == 90)
        writer.close()

    in_node(insert)
    assert shards.sizes() == [30, 30, 30]


def test_nothing_of_a_trajectory_is_in_the_next_ones_history(
    make_shards: Callable[..., Shards],
) -> None:
    shards = make_shards(2, table())
    lengths = []

    def insert() -> None:
        writer = shards.client.writer(0, 4)
        for number in range(6):
            lengths.append(len(writer.history["row"]))
            write_trajectory(writer, number, length=3)
        writer.close()

    in_node(insert)
    assert lengths == [0] * 6


def test_a_shard_that_never_was_there_is_passed_over(make_shards: Callable[..., Shards]) -> None:
    shards = make_shards(3, table())
    shards.servers[1].stop()

    def insert() -> None:
        writer = shards.client.writer(0, 2)
        for number in range(6):
            write_trajectory(writer, number)
        writer.close()

    in_node(insert)
    assert shards.sizes() == [15, 0, 15]


def test_a_shard_that_goes_away_in_a_trajectory_gets_it_later(
    make_shards: Callable[..., Shards], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_PATIENT_WAITS", 1)
    shards = make_shards(2, table(), killable=True)

    def insert() -> None:
        writer = shards.client.writer(0, 2)
        write_trajectory(writer, 0)
        write_trajectory(writer, 1)
        port = shards.servers[0].port
        shards.servers[0].stop()
        for number in range(2, 6):
            write_trajectory(writer, number)
        assert shards.sizes() == [0, 20]
        shards.servers.append(reverb.Server([make_table(shards.spec)], port=port))

        def is_back() -> bool:
            write_trajectory(writer, 9)
            return shards.sizes()[0] >= 10

        wait_for(is_back)
        writer.close()

    in_node(insert)
    assert 2 in shards.trajectories(0)


def windows_in(shards: Shards, shard: int) -> set[tuple[int, ...]]:
    """Returns the steps of each item of three steps that a shard has."""
    size = shards.sizes()[shard]
    found = set()
    client = reverb.Client(shards.addresses[shard])
    for sample in client.sample(
        "items", 50 * size, emit_timesteps=False, unpack_as_table_signature=True
    ):
        found.add(tuple(np.asarray(sample.data["row"])[:, 1].astype(int)))
        if len(found) == size:
            break
    return found


def test_a_long_trajectory_goes_on_elsewhere_when_its_shard_is_gone(
    make_shards: Callable[..., Shards], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_PATIENT_WAITS", 1)
    column = specs.Array((3, 2), np.float32)
    plain = dataclasses.replace(table(), item={**table().item, "row": column})
    shards = make_shards(2, plain, killable=True)
    stopped: list[int] = []

    def insert() -> None:
        writer = shards.client.writer(0, 3)
        for step in range(600):
            writer.append({"row": np.array([0, step], np.float32)})
            if step >= 2:
                writer.create_item(1.0, {"row": writer.history["row"][-3:]})
            if step == 100:
                wait_for(lambda: shards.sizes()[0] > 40)
                shards.servers[0].stop()
                stopped.append(step)
        writer.end_episode()
        writer.close()

    in_node(insert)
    windows = windows_in(shards, 1)
    assert all(window == (window[0], window[0] + 1, window[0] + 2) for window in windows)
    first = min(window[0] for window in windows)
    assert first <= 300 and windows == {(i, i + 1, i + 2) for i in range(first, 598)}


def test_a_single_writer_of_one_long_trajectory_fills_all_shards_that_must_be_filled(
    make_shards: Callable[..., Shards],
) -> None:
    shards = make_shards(2, table(min_size=100, samples_per_insert=1.0))
    sampler = shards.client.sampler(8)
    stop = threading.Event()

    def insert() -> None:
        writer = shards.client.writer(0, 2)
        while not stop.is_set() and not lp.wait_for_stop(0):
            writer.append({"row": np.zeros(2, np.float32)})
            writer.create_item(1.0, {"row": writer.history["row"][-1]})
        writer.close()

    program = lp.Program("writer")
    program.add_node(lp.PyNode(insert), label="writer")
    with launch(program, "local_mt"):

        def batch() -> object:
            sampler.renew(shards.client.info())
            return sampler.next()

        for _ in range(20):
            wait_for(batch, 30)
        stop.set()
    sampler.close()


def test_where_all_shards_are_full_a_writer_waits_as_long_as_its_node_runs(
    make_shards: Callable[..., Shards],
) -> None:
    shards = make_shards(2, table(samples_per_insert=1.0))
    written: list[int] = []

    def insert() -> None:
        writer = shards.client.writer(0, 2)
        while not lp.wait_for_stop(0):
            write_trajectory(writer, 0)
            written.append(1)
        writer.close()

    program = lp.Program("writer")
    program.add_node(lp.PyNode(insert), label="writer")
    with launch(program, "local_mt") as run:
        wait_for(lambda: min(shards.sizes()) >= 10)
        with pytest.raises(AssertionError, match="not within"):
            wait_for(lambda: len(written) > 200, seconds=0.5)
    result = run.wait(0)
    assert result is not None and result.forced == result.failures == {}


def test_a_shard_that_is_full_leaves_the_others_room(make_shards: Callable[..., Shards]) -> None:
    shards = make_shards(2, table(samples_per_insert=1.0))
    stop = threading.Event()

    def sample() -> None:
        sampler = ReplayClient(shards.addresses[1:], shards.spec).sampler(2)
        while not stop.is_set():
            sampler.next()
        sampler.close()

    thread = threading.Thread(target=sample)
    thread.start()
    finished: list[Any] = []

    def insert() -> None:
        writer = shards.client.writer(0, 2)
        for number in range(20):
            write_trajectory(writer, number)
        finished.append(shards.sizes())
        writer.close()

    began = time.monotonic()
    in_node(insert)
    stop.set()
    thread.join(20)
    (first, second), *_ = finished
    assert first <= 30 and second >= 60
    assert time.monotonic() - began < 20
