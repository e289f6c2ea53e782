"""Samples come through memory that a replay server's process shares with its host."""

import os
import pathlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np
import psutil
import pytest
import reverb
from acme import specs

from agents.agent import TableSpec
from launchers.ports import ReservedPort
from launchers.run import Run, launch
from nodes import part_server, sample_feeds
from nodes.part_server import PartServer
from nodes.replay import ReplayClient, replay_shards, shard_of
from nodes.replay_server import make_table
from nodes.sample_feeds import Feed, ShardAddress
from nodes.samples import DEFAULT_PREFETCH, Samples
from nodes.sampling import Batch, Sampler
from nodes.shared_versions import map_version
from programs.program import Program
from tests.support import in_node, wait_for

TABLE = TableSpec(
    name="items",
    item={"row": specs.Array((2,), np.float32), "frame": specs.Array((7, 5), np.uint8)},
    max_size=1000,
    min_size=2,
    priority_exponent=0.5,
    samples_per_insert=None,
    error_buffer=None,
    bytes_per_item=43,
)
SIZE = 16


@pytest.fixture(scope="module")
def two_shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, ReplayClient]]:
    program = Program("replay")
    nodes, handle = replay_shards(TABLE, 2)
    with program.group("replay"):
        for node in nodes:
            program.add_node(node)
    directory = str(tmp_path_factory.mktemp("parts") / "run")
    with launch(program, "local_mp", run_directory=directory) as run:
        run.wait_until_running(60)
        client = handle.dereference()
        fill(client)
        yield run, client


def fill(client: ReplayClient) -> None:
    """Writes items of which the n-th says n, half of them to each shard."""

    def write() -> None:
        writer = client.writer(0, 2)
        for number in range(40):
            step = {
                "row": np.full(2, number, np.float32),
                "frame": np.full((7, 5), number, np.uint8),
            }
            writer.append(step)
            item = {name: writer.history[name][-1] for name in step}
            writer.create_item(number % 5 + 1.0, item)
            writer.end_episode()
        writer.close()

    in_node(write)


def check(batch: Batch) -> None:
    """Checks that each item is whole, and has the priority that it was written with."""
    rows, frames = (np.asarray(batch.sample.data[name]) for name in ("row", "frame"))
    np.testing.assert_array_equal(rows[:, 0], rows[:, 1])
    assert (frames == rows[:, :1, None]).all()
    np.testing.assert_array_equal(batch.priorities, rows[:, 0] % 5 + 1.0)


def uses_memory(sampler: Sampler) -> bool:
    """Returns whether the samples that are there now are in mapped memory."""
    kept = [samples for shard in sampler._shards for samples in list(shard._kept)]
    return bool(kept) and all(_base(samples.data["frame"]) == "mmap" for samples in kept)


def _base(array: Any) -> str:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return type(getattr(array, "obj", array)).__name__


def process_of(run: Run, name: str) -> psutil.Process:
    for child in psutil.Process().children(recursive=True):
        if f" {name}" in " ".join(child.cmdline()):
            return child
    raise AssertionError(f"{name} has no process")


def test_samples_on_the_same_host_are_mapped(two_shards: tuple[Run, ReplayClient]) -> None:
    sampler = two_shards[1].sampler(SIZE)
    for _ in range(20):
        check(wait_for(sampler.next))
    wait_for(lambda: uses_memory(sampler))
    sampler.close()


def test_batches_that_are_kept_stay_as_they_are(two_shards: tuple[Run, ReplayClient]) -> None:
    one = ReplayClient(two_shards[1]._addresses[:1], shard_of(TABLE, 2), two_shards[1]._parts[:1])
    sampler = one.sampler(SIZE)
    kept = [wait_for(sampler.next) for _ in range(50)]
    copies = [np.array(batch.sample.data["frame"]) for batch in kept]
    for _ in range(50):
        wait_for(sampler.next)
    for batch, copy in zip(kept, copies, strict=True):
        check(batch)
        np.testing.assert_array_equal(batch.sample.data["frame"], copy)
    sampler.close()


def test_from_another_host_samples_come_by_calls(
    two_shards: tuple[Run, ReplayClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_feeds.shared_versions, "this_host", lambda: "another")
    sampler = two_shards[1].sampler(SIZE)
    for _ in range(20):
        check(wait_for(sampler.next))
    assert not uses_memory(sampler)
    sampler.close()


def test_two_who_sample_get_samples_of_their_own(two_shards: tuple[Run, ReplayClient]) -> None:
    samplers = [two_shards[1].sampler(SIZE) for _ in range(2)]
    for _ in range(20):
        for sampler in samplers:
            check(wait_for(sampler.next))
    for sampler in samplers:
        sampler.close()


def test_a_stopped_shard_is_left_out_until_it_goes_on(
    two_shards: tuple[Run, ReplayClient],
) -> None:
    run, client = two_shards
    sampler = client.sampler(SIZE)
    wait_for(lambda: len(set(wait_for(sampler.next).shards.tolist())) == 2)
    process = process_of(run, "replay/1")
    process.send_signal(signal.SIGSTOP)
    try:
        waits = []
        for _ in range(200):
            began = time.monotonic()
            batch = wait_for(sampler.next)
            waits.append(time.monotonic() - began)
            check(batch)
        assert set(batch.shards.tolist()) == {0}
        np.testing.assert_array_equal(batch.sample.table_size, np.full(SIZE, 20))
        assert sum(waits) < 20  # It would be 40 if every batch waited for the shard.
    finally:
        process.send_signal(signal.SIGCONT)
    wait_for(lambda: 1 in wait_for(sampler.next).shards, 30)
    sampler.close()


def test_a_killed_shard_is_left_out_until_it_is_back(two_shards: tuple[Run, ReplayClient]) -> None:
    run, client = two_shards
    sampler = client.sampler(SIZE)
    wait_for(lambda: len(set(wait_for(sampler.next).shards.tolist())) == 2)
    restarts = run.status["replay/1"].restarts
    os.kill(process_of(run, "replay/1").pid, signal.SIGKILL)
    wait_for(lambda: set(wait_for(sampler.next).shards.tolist()) == {0})
    wait_for(lambda: run.status["replay/1"].restarts == restarts + 1)
    wait_for(lambda: run.status["replay/1"].state == "running")
    fill(client)

    def is_back() -> bool:
        batch = wait_for(sampler.next)
        check(batch)
        return 1 in batch.shards

    wait_for(is_back, 30)
    wait_for(lambda: uses_memory(sampler))
    sampler.close()


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[tuple[PartServer, ReplayClient]]:
    spec = shard_of(TABLE, 1)
    replay = reverb.Server([make_table(spec)])
    port = ReservedPort()
    parts = PartServer(f"localhost:{replay.port}", spec, port.port)
    client = ReplayClient([f"localhost:{replay.port}"], spec, [f"localhost:{port.port}"])
    fill(client)
    yield parts, client
    parts.close()
    replay.stop()
    port.close()


def first(feed: Feed) -> Optional[Samples]:
    return next(iter(feed.samples(threading.Event())), None)


def test_in_the_servers_own_process_nothing_is_copied_twice(
    server: tuple[PartServer, ReplayClient],
) -> None:
    parts, client = server
    address = ShardAddress(client._addresses[0], client._parts[0])
    assert first(Feed(address, client.spec, SIZE, DEFAULT_PREFETCH)) is not None
    assert not parts._streams


def test_a_part_that_its_reader_has_not_mapped_yet_is_not_filled_anew_by_the_next(
    server: tuple[PartServer, ReplayClient],
) -> None:
    parts, _ = server
    token = parts.open(SIZE, (2, 2, 2, 1))
    first, second = (wait_for(lambda: parts.next(token)[1]) for _ in range(2))
    assert map_version(first) is not None and map_version(second) is not None


def test_a_stream_that_nobody_asks_is_closed_and_can_be_opened_anew(
    server: tuple[PartServer, ReplayClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, _ = server
    token = parts.open(SIZE, (2, 2, 2, 1))
    wait_for(lambda: parts.next(token)[1])
    parts.forget()
    assert parts.next(token)[0]
    monkeypatch.setattr(part_server, "_FORGOTTEN_SECONDS", 0.0)
    parts.forget()
    assert parts.next(token) == (False, None)
    again = parts.open(SIZE, (2, 2, 2, 1))
    assert again != token
    wait_for(lambda: parts.next(again)[1])


def test_a_server_without_samples_answers_all_the_same(
    server: tuple[PartServer, ReplayClient],
) -> None:
    spec = shard_of(TABLE, 1)
    empty = reverb.Server([make_table(spec)])
    port = ReservedPort()
    parts = PartServer(f"localhost:{empty.port}", spec, port.port)
    token = parts.open(SIZE, (2, 2, 2, 1))
    assert parts.next(token) == (True, None)
    parts.close()
    empty.stop()
    port.close()
