"""Replay in servers that stand already, against real Reverb servers."""

import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import reverb
import tensorflow as tf
from acme import specs

from agents.agent import TableSpec
from launchers.plan import make_plan
from nodes.replay import ReplayClient, replay_at, shard_of
from nodes.replay_server import make_table, served
from nodes.standing_replay import StandingServer, check, servers_at
from programs.replay_program import ReplayOptions
from tests.programs.test_replay_program import program_of
from tests.support import in_node, wait_for
from usage import UsageError

TABLE = TableSpec(
    name="items",
    item={"row": specs.Array((2,), np.float32), "frame": specs.Array((3, 4), np.uint8)},
    max_size=100,
    min_size=1,
    priority_exponent=0.5,
    samples_per_insert=4.0,
    error_buffer=100.0,
    bytes_per_item=20,
)
ITEM = {"row": np.zeros(2, np.float32), "frame": np.zeros((3, 4), np.uint8)}
UNIFORM = dataclasses.replace(TABLE, priority_exponent=0.0)
SHARD = shard_of(TABLE, 1)


def start(servers: list[reverb.Server], *tables: reverb.Table) -> list[str]:
    started = [reverb.Server([table]) for table in tables]
    servers += started
    return [f"localhost:{server.port}" for server in started]


def insert(client: ReplayClient, shard: int, priority: float = 1.0) -> None:
    def write() -> None:
        writer = client.writer(shard, 1)
        writer.append(ITEM)
        writer.create_item(priority, {name: writer.history[name][-1] for name in ITEM})
        writer.end_episode()
        writer.close()

    in_node(write)


def test_a_handle_of_standing_servers_leads_to_them(servers: list[reverb.Server]) -> None:
    addresses = start(servers, make_table(SHARD), make_table(SHARD))
    handle = pickle.loads(pickle.dumps(replay_at(addresses, SHARD)))
    client = handle.dereference()
    insert(client, 0)
    insert(client, 1)
    assert [shard.size for shard in client.info().shards] == [1, 1]
    assert wait_for(client.sampler(64).next).keys.shape == (64,)
    assert all(server.tables["items"].num_unique_samples for server in map(_only, addresses))


def _only(address: str) -> StandingServer:
    (server,) = servers_at(address)
    return server


def test_a_program_with_standing_replay_has_no_replay_nodes() -> None:
    options = ReplayOptions(num_actors=2, replay_addresses=("localhost:1", "localhost:2"))
    program = program_of(options)
    assert "replay" not in program.groups
    plan = make_plan(program, "local_mp")
    assert {"learner/0", "actor/1"} <= plan.replicas.keys()


def test_a_server_keeps_its_identity_and_no_other_has_it(servers: list[reverb.Server]) -> None:
    addresses = start(servers, make_table(SHARD), make_table(SHARD))
    before = [servers_at(address) for address in addresses]
    insert(ReplayClient(addresses[:1], SHARD), 0)
    after = [servers_at(address) for address in addresses]
    assert [len(here) for here in before] == [1, 1]
    identities = [here[0].identity for here in before]
    assert len(set(identities)) == 2
    assert [here[0].identity for here in after] == identities
    assert after[0][0].tables["items"].current_size == 1


def test_servers_that_fit_are_taken_whatever_their_sizes(servers: list[reverb.Server]) -> None:
    larger = dataclasses.replace(TABLE, max_size=500)
    check(start(servers, make_table(TABLE), make_table(larger)), TABLE)


def test_a_table_that_is_sampled_uniformly_fits_an_agent_without_priorities(
    servers: list[reverb.Server],
) -> None:
    check(start(servers, table(sampler=reverb.selectors.Uniform())), UNIFORM)


def table(
    sampler: Any = None, signature: Mapping[str, tf.TensorSpec] | None | str = "ours"
) -> reverb.Table:
    signatures = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in ITEM.items()}
    return reverb.Table(
        name="items",
        sampler=sampler or reverb.selectors.Prioritized(0.5),
        remover=reverb.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signatures if signature == "ours" else signature,
    )


ROW = tf.TensorSpec((2,), tf.float32)
FRAME = tf.TensorSpec((3, 4), tf.uint8)
UNFIT = {
    "name": (
        lambda: make_table(dataclasses.replace(TABLE, name="sequences")),
        "has no table 'items', which the agent needs, but 'sequences': start it for this agent.",
    ),
    "shape": (
        lambda: table(signature={"row": tf.TensorSpec((5,), tf.float32), "frame": FRAME}),
        "Column 'row' of table 'items' at ADDRESS is float32 [5], but the agent's is float32 [2]",
    ),
    "dtype": (
        lambda: table(signature={"row": ROW, "frame": tf.TensorSpec((3, 4), tf.int32)}),
        "Column 'frame' of table 'items' at ADDRESS is int32 [3, 4], but the agent's is uint8 "
        "[3, 4]",
    ),
    "unknown shape": (
        lambda: table(signature={"row": tf.TensorSpec(None, tf.float32), "frame": FRAME}),
        "Column 'row' of table 'items' at ADDRESS is float32 of any shape, but",
    ),
    "lacking": (
        lambda: table(signature={"row": ROW}),
        "Column 'frame' of table 'items' at ADDRESS is not there, but the agent's is uint8 [3, 4]",
    ),
    "extra": (
        lambda: table(signature={"row": ROW, "frame": FRAME, "zeal": ROW}),
        "Column 'zeal' of table 'items' at ADDRESS is float32 [2], but the agent's is not there",
    ),
    "unsigned": (
        lambda: table(signature=None),
        "does not say what columns it has, but the agent's are 'row', 'frame'",
    ),
    "exponent": (
        lambda: make_table(dataclasses.replace(TABLE, priority_exponent=0.6)),
        "has the priority exponent 0.6, but the agent's is 0.5",
    ),
    "uniform": (
        lambda: table(sampler=reverb.selectors.Uniform()),
        "has the priority exponent 0, but the agent's is 0.5",
    ),
    "sampler": (
        lambda: table(sampler=reverb.selectors.Fifo()),
        "has the sampler 'fifo', but the agent's priority exponent is 0.5",
    ),
}


@pytest.mark.parametrize("make, said", UNFIT.values(), ids=UNFIT)
def test_a_table_that_does_not_fit_is_refused(
    make: Any, said: str, servers: list[reverb.Server]
) -> None:
    addresses = start(servers, make_table(TABLE), make())
    with pytest.raises(UsageError) as raised:
        check(addresses, TABLE)
    assert said.replace("ADDRESS", addresses[1]) in str(raised.value)
    assert addresses[1] in str(raised.value)


def test_servers_whose_limiters_differ_are_refused(servers: list[reverb.Server]) -> None:
    other = dataclasses.replace(TABLE, samples_per_insert=2.0)
    addresses = start(servers, make_table(TABLE), make_table(other))
    with pytest.raises(UsageError, match=" 4 for each.* but at .* 2 for each") as raised:
        check(addresses, TABLE)
    assert all(address in str(raised.value) for address in addresses)


def test_a_server_under_two_names_is_refused(servers: list[reverb.Server]) -> None:
    (address,) = start(servers, make_table(TABLE))
    other = address.replace("localhost", "127.0.0.1")
    with pytest.raises(UsageError, match=f"same replay server answers at {address} and {other}"):
        check([address, other], TABLE)


def test_several_servers_behind_one_address_do_without_priorities(
    servers: list[reverb.Server],
) -> None:
    (address,) = start(servers, make_table(UNIFORM))
    port = servers[0].port  # Reverb lets two servers share a port; so calls go to both.
    servers.append(reverb.Server([make_table(UNIFORM)], port=port))
    assert len(servers_at(address)) == 2
    with pytest.raises(UsageError, match=f"Several servers answer at {address}.*own addresses"):
        check([address], TABLE)
    check([address], UNIFORM)


def test_a_port_that_is_taken_is_not_served_once_more(servers: list[reverb.Server]) -> None:
    (address,) = start(servers, make_table(TABLE))
    port = servers[0].port
    refused = f"Port {port} cannot be served: Address already in use: choose another --port"
    with pytest.raises(UsageError, match=refused), served(TABLE, port):
        pass
    assert len(servers_at(address)) == 1


def test_new_priorities_that_make_no_difference_are_not_sent(
    servers: list[reverb.Server],
) -> None:
    shard = shard_of(UNIFORM, 1)
    addresses = start(servers, make_table(shard))
    client = ReplayClient(addresses, shard)
    insert(client, 0, priority=2.0)
    batch = wait_for(client.sampler(4).next)
    updater = client.priority_updater()
    updater.update(batch, np.full(4, 7.0, np.float32))
    updater.close()
    (sample,) = reverb.Client(addresses[0]).sample("items", 1, emit_timesteps=False)
    assert (updater.counts.dropped, sample.info.priority) == (0, 2.0)
    updater = client.priority_updater()
    updater.update(batch, np.full(4, np.nan, np.float32))
    updater.close()
    with pytest.raises(FloatingPointError, match="loss has diverged"):
        updater.update(batch, np.ones(4, np.float32))
