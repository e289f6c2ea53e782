"""Replay against real Reverb servers."""

import threading
import time
from typing import Optional
from unittest import mock

import launchpad as lp
import numpy as np
import pytest
import reverb

from agents.value_losses import importance_weights
from launchers.run import launch
from nodes import contract, shard_sampling, shard_stream
from nodes.replay import replay_shards
from nodes.replay_server import make_table
from nodes.sampling import Batch
from nodes.version import Version
from tests.nodes.replays import agent_table, client_of, priorities_in, table, write, write_to
from tests.nodes.runtimes import FakeLauncher
from tests.support import in_node, wait_for
from usage import UsageError


def test_items_arrive_with_their_priorities(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 1)
    write(client, 0, [1.0, 4.0])
    info = client.info()
    assert (info.size, info.max_size, info.inserted) == (2, 1000, 2)
    assert priorities_in(servers[0]) == {1.0, 4.0}


def test_the_priority_exponent_shapes_the_probabilities(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 1)
    write(client, 0, [1.0, 9.0])  # to the power of 0.5: 1 and 3
    batch = wait_for(client.sampler(64).next)
    rows = batch.sample.data["row"].numpy()
    probability = batch.sample.probability.numpy()
    assert {*rows[:, 0].tolist()} == {1.0, 9.0}
    np.testing.assert_allclose(probability[rows[:, 0] == 1.0], 0.25)
    np.testing.assert_allclose(probability[rows[:, 0] == 9.0], 0.75)


def test_a_sampler_that_waits_for_items_gives_up_now_and_then(
    servers: list[reverb.Server],
) -> None:
    client = client_of(servers, table(min_size=3), 1)
    sampler = client.sampler(2)
    assert sampler.next() is None
    write(client, 0, [1.0, 2.0, 3.0])
    assert wait_for(sampler.next).sample.data["row"].shape == (2, 2)


def test_samples_that_come_slowly_still_make_whole_batches(
    servers: list[reverb.Server],
) -> None:
    client = client_of(servers, table(samples_per_insert=1.0), 1)
    sampler = client.sampler(24)
    write(client, 0, [1.0] * 11)  # With its buffer of 10, the limiter gives out 21 samples.
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        assert sampler.next() is None
    write(client, 0, [1.0] * 11)
    batch = wait_for(sampler.next)
    assert batch.keys.shape == batch.shards.shape == batch.sample.probability.shape == (24,)


def test_a_batch_takes_from_each_shard_by_its_mass(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 2)
    write_to(servers[0], [1.0] * 6)
    write_to(servers[1], [9.0] * 2)  # To the power of 0.5: as much as the six.
    assert client.info().size == 8
    sampler = client.sampler(1000)
    batch = wait_for(sampler.next)
    np.testing.assert_allclose(batch.sample.probability, np.where(batch.shards, 1 / 4, 1 / 12))
    assert set(batch.sample.table_size.numpy()) == {8}
    assert 400 < np.count_nonzero(batch.shards) < 600


def test_a_full_replay_evicts_its_oldest_item(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 1)
    write(client, 0, [1.0] + [2.0] * 1000)
    assert client.info().size == 1000
    assert priorities_in(servers[0]) == {2.0}


@pytest.mark.parametrize("end_episodes", [False, True])
def test_a_writer_waits_for_a_limited_replay_but_not_longer_than_its_node_runs(
    end_episodes: bool, servers: list[reverb.Server]
) -> None:
    client = client_of(servers, table(samples_per_insert=1.0), 1)
    created: list[int] = []

    def insert() -> None:
        writer = client.writer(0, 1)
        while not lp.wait_for_stop(0):
            writer.append({"row": np.zeros(2, np.float32)})
            writer.create_item(1.0, {"row": writer.history["row"][-1]})
            created.append(1)
            if end_episodes and len(created) % 5 == 0:
                writer.end_episode()
        writer.close()

    program = lp.Program("writer")
    program.add_node(lp.PyNode(insert), label="writer")
    with launch(program, "local_mt") as run:
        wait_for(lambda: client.info().size >= 10)  # The limiter takes no more.
        with pytest.raises(AssertionError, match="not within"):
            wait_for(lambda: len(created) > 200, seconds=0.5)
    result = run.wait(0)
    assert result is not None and result.forced == result.failures == {}


def test_more_shards_than_first_items_are_refused() -> None:
    with pytest.raises(UsageError, match="first 3 items"):
        replay_shards(agent_table(min_size=3), 4)


def test_importance_weights_undo_priorities_over_all_shards(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 2)
    write_to(servers[0], [1.0] * 6)
    write_to(servers[1], [16.0] * 2)
    batch = wait_for(client.sampler(512).next)
    sample = batch.sample
    # Items of priority 16 are drawn four times as often as those of 1.
    weights, _ = importance_weights(sample.probability, sample.table_size, exponent=1.0)
    np.testing.assert_allclose(weights, np.where(batch.shards, 1 / 4, 1), rtol=1e-6)


def test_before_every_shard_has_its_first_items_there_are_no_batches(
    servers: list[reverb.Server],
) -> None:
    client = client_of(servers, table(min_size=4, samples_per_insert=1.0), 2)
    write_to(servers[0], [1.0] * 8)
    sampler = client.sampler(8)
    for _ in range(4):
        assert sampler.next() is None
    write_to(servers[1], [2.0] * 8)
    assert wait_for(sampler.next).keys.shape == (8,)


def test_a_shard_with_few_items_is_not_waited_for_where_all_together_have_enough(
    servers: list[reverb.Server],
) -> None:
    client = client_of(servers, table(min_size=4), 2)
    write_to(servers[0], [1.0] * 6)
    write_to(servers[1], [1.0])
    sampler = client.sampler(8)
    sampler.renew(client.info())
    assert sampler.next() is None  # Together they have seven, and must have eight.
    write_to(servers[1], [1.0])
    sampler.renew(client.info())
    batch = wait_for(sampler.next)
    assert set(batch.shards.tolist()) == {0}
    np.testing.assert_allclose(batch.sample.probability, np.full(8, 1 / 6))


def test_a_shard_that_never_was_there_is_left_out(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 2)
    servers[1].stop()
    write_to(servers[0], [1.0] * 6)
    sampler = client.sampler(8)
    assert sampler.next() is None
    sampler.renew(client.info())
    batch = wait_for(sampler.next)
    np.testing.assert_allclose(batch.sample.probability, np.full(8, 1 / 6))


def test_a_shard_that_is_gone_is_left_out_until_it_is_back(
    servers: list[reverb.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_sampling, "_STUCK_SECONDS", 1.0)
    client = client_of(servers, table(), 2)
    write_to(servers[0], [1.0] * 6)
    write_to(servers[1], [9.0] * 2)
    sampler = client.sampler(64)
    assert set(wait_for(sampler.next).shards.tolist()) == {0, 1}
    servers[1].stop()

    def without_it() -> Optional[Batch]:
        batch: Batch = wait_for(sampler.next)
        return None if 1 in batch.shards else batch

    batch = wait_for(without_it)
    assert set(batch.sample.data["row"][:, 0].numpy()) == {1.0}
    # All draws go to the one shard now.
    np.testing.assert_allclose(batch.sample.probability, np.full(64, 1 / 6))
    assert batch.sample.table_size.numpy().tolist() == [6] * 64
    servers.append(reverb.Server([make_table(table())], port=servers[1].port))
    write_to(servers[2], [3.0])

    def with_it() -> bool:
        sampler.renew(client.info())
        return 3.0 in wait_for(sampler.next).sample.data["row"][:, 0].numpy()

    wait_for(with_it, 40)


def test_a_writer_waits_for_a_server_that_is_not_there_yet(
    servers: list[reverb.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_stream, "SIGNATURE_MILLISECONDS", 300)
    client = client_of(servers, table(), 1)
    port = servers[0].port
    servers[0].stop()
    said: list[list[str]] = []

    def insert() -> None:
        launcher = FakeLauncher(None)
        with mock.patch.object(contract, "runtime", lambda: launcher):
            writer = client.writer(0, 1)
        said.append(launcher.waiting)
        writer.append({"row": np.ones(2, np.float32)})
        writer.create_item(1.0, {"row": writer.history["row"][-1]})
        writer.end_episode()
        writer.close()

    thread = threading.Thread(target=insert)
    thread.start()
    thread.join(1)  # One attempt takes 0.3 s.
    assert thread.is_alive()
    servers.append(reverb.Server([make_table(table())], port=port))
    thread.join(30)
    assert said[0][0] == "replay to take items: a server that does not answer"
    wait_for(lambda: client.info().size == 1)


def test_items_say_which_version_made_them_and_when(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 1)

    def insert() -> None:
        writer = client.writer(0, 1)
        for number in range(3):
            if number:
                writer.set_version(Version(7, 10 * number, number, 5.0 * number, ()))
            for _ in range(20):
                writer.append({"row": np.array([number, 0], np.float32)})
                writer.create_item(1.0, {"row": writer.history["row"][-1]})
        writer.end_episode()
        writer.close()

    began = time.time_ns()
    in_node(insert)
    batch = wait_for(client.sampler(256).next)
    number = batch.sample.data["row"].numpy()[:, 0]
    assert set(batch.sample.data) == {"row"}
    assert {*number} == {0, 1, 2}
    np.testing.assert_array_equal(batch.origins.number, number)
    np.testing.assert_array_equal(batch.origins.incarnation, np.where(number > 0, 7, 0))
    np.testing.assert_array_equal(batch.origins.published_ns, number * 5 * 10**9)
    assert (batch.origins.written_ns >= began).all()
    assert (batch.origins.written_ns <= time.time_ns()).all()


@pytest.mark.parametrize(
    "inserts, samples, said",
    [
        (2, 0, "holds 2 items and gives out samples from 3 on"),
        (10, 19, "10 inserts x 1 - 19 samples = -9, kept between -7 and 13: samples wait"),
        (13, 0, "13 inserts x 1 - 0 samples = 13, kept between -7 and 13: inserts wait"),
        (5, 3, "holds 5 items and holds nobody up"),
    ],
    ids=["too few", "ahead", "behind", "well"],
)
def test_whom_a_limiter_holds_up_can_be_read(
    inserts: int, samples: int, said: str, servers: list[reverb.Server]
) -> None:
    client = client_of(servers, table(min_size=3, samples_per_insert=1.0), 1)
    write(client, 0, [1.0] * inserts)
    info = client.info()
    described = info._known[0]._replace(sampled=samples).describe()
    assert said in described
    assert described.startswith(f"table 'items' holds {inserts} items")
