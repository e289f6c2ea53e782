"""New priorities go back to the shards, and what becomes of them is counted."""

import threading
import time

import numpy as np
import pytest
import reverb

from tests.nodes.replays import client_of, priorities_in, table, write, write_to
from tests.support import wait_for


def test_updated_priorities_reach_their_items(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 1)
    write(client, 0, [1.0, 4.0])
    batch = wait_for(client.sampler(64).next)  # Both are in it, but for a chance of 1e-11.
    updater = client.priority_updater()
    updater.update(batch, np.full(64, 7.5, np.float32))
    updater.close()
    assert priorities_in(servers[0]) == {7.5}


def test_a_priority_that_is_not_finite_is_told_to_the_learner(
    servers: list[reverb.Server],
) -> None:
    client = client_of(servers, table(), 1)
    write(client, 0, [1.0])
    batch = wait_for(client.sampler(2).next)
    updater = client.priority_updater()
    updater.update(batch, np.array([1.0, np.nan], np.float32))
    updater.close()
    with pytest.raises(FloatingPointError, match="loss has diverged"):
        updater.update(batch, np.ones(2, np.float32))


def test_priorities_go_to_the_shard_that_has_the_item(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 2)
    write_to(servers[0], [1.0])
    write_to(servers[1], [2.0])
    batch = wait_for(client.sampler(64).next)
    updater = client.priority_updater()
    updater.update(batch, np.where(batch.shards, 6.0, 5.0))
    updater.close()
    assert [priorities_in(server) for server in servers] == [{5.0}, {6.0}]
    assert updater.counts == (64, 0, 0)


def test_priorities_of_a_dead_shard_hold_nobody_up(servers: list[reverb.Server]) -> None:
    client = client_of(servers, table(), 2)
    write_to(servers[0], [1.0])
    write_to(servers[1], [1.0])
    batch = wait_for(client.sampler(64).next)
    there = np.count_nonzero(batch.shards == 0)
    servers[1].stop()
    updater = client.priority_updater()
    began = time.monotonic()
    updater.update(batch, np.full(64, 5.0, np.float32))
    updater.close()
    assert time.monotonic() - began < 3
    assert priorities_in(servers[0]) == {5.0}
    assert updater.counts == (there, 0, 64 - there)


def test_priorities_that_wait_too_long_are_dropped_and_counted(
    servers: list[reverb.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(servers, table(), 1)
    write(client, 0, [1.0])
    batch = wait_for(client.sampler(2).next)
    updater = client.priority_updater()
    go_on = threading.Event()
    sent: list[int] = []

    def mutate(_: str, updates: dict[int, float]) -> None:
        go_on.wait(20)
        sent.append(len(updates))

    monkeypatch.setattr(client._clients[0], "mutate_priorities", mutate)
    updater.update(batch, np.ones(2, np.float32))
    wait_for(lambda: not updater._shards[0]._waiting)  # The first is on its way.
    for _ in range(70):
        updater.update(batch, np.ones(2, np.float32))
    go_on.set()
    updater.close()
    assert updater.counts == (2 * (1 + 64), 0, 2 * 6)


def test_priorities_of_items_that_are_gone_are_counted_as_late(
    servers: list[reverb.Server],
) -> None:
    client = client_of(servers, table(), 1)
    updater = client.priority_updater()
    updater.note(client.info())
    write(client, 0, [1.0] * 10)
    early = wait_for(client.sampler(16).next)
    wait_for(lambda: time.time_ns() > early.origins.written_ns.max() + 2.5e8)
    updater.note(client.info())
    write(client, 0, [2.0] * 1000)  # The table holds no more than these.
    updater.note(client.info())
    assert priorities_in(servers[0]) == {2.0}
    updater.update(early, np.full(16, 9.0, np.float32))
    late = wait_for(client.sampler(16).next)
    updater.update(late, np.full(16, 4.0, np.float32))
    updater.close()
    assert updater.counts == (16, 16, 0)
    assert 9.0 not in priorities_in(servers[0], 1000)
