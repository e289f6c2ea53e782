"""Small replays for tests: tables, servers and what is written to them."""

import multiprocessing
from typing import Any

import numpy as np
import reverb
from acme import specs

from agents.agent import TableSpec
from nodes.replay import ReplayClient, shard_of
from nodes.replay_server import make_table
from tests.support import in_node


def table(min_size: int = 1, samples_per_insert: float | None = None) -> TableSpec:
    """Returns the table of one shard."""
    return shard_of(agent_table(min_size, samples_per_insert), 1)


def agent_table(min_size: int = 1, samples_per_insert: float | None = None) -> TableSpec:
    return TableSpec(
        name="items",
        item={"row": specs.Array((2,), np.float32)},
        max_size=1000,
        min_size=min_size,
        priority_exponent=0.5,
        samples_per_insert=samples_per_insert,
        error_buffer=None if samples_per_insert is None else 10.0,
        bytes_per_item=8,
    )


def client_of(servers: list[reverb.Server], spec: TableSpec, shards: int) -> ReplayClient:
    servers += [reverb.Server([make_table(spec)]) for _ in range(shards)]
    return ReplayClient([f"localhost:{server.port}" for server in servers], spec)


def write(client: ReplayClient, shard: int, priorities: list[float]) -> None:
    def insert() -> None:
        writer = client.writer(shard, 1)
        for priority in priorities:
            writer.append({"row": np.array([priority, 0], np.float32)})
            writer.create_item(priority, {"row": writer.history["row"][-1]})
        writer.end_episode()
        writer.close()

    in_node(insert)


def write_to(server: reverb.Server, priorities: list[float]) -> None:
    """Writes items to one server alone."""
    write(ReplayClient([f"localhost:{server.port}"], table()), 0, priorities)


def priorities_in(server: reverb.Server, samples: int = 300) -> set[float]:
    client = reverb.Client(f"localhost:{server.port}")
    return {
        round(sample.info.priority, 3)
        for sample in client.sample("items", samples, emit_timesteps=False)
    }


class Killable:
    """A server in a process of its own.

    One in this process would first wait for whoever writes to it, five seconds.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, spec: TableSpec) -> None:
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(spec, theirs), daemon=True)
        self._process.start()
        self.port: int = ours.recv()

    def stop(self) -> None:
        """Kills it."""
        self._process.kill()
        self._process.join()


def _serve(spec: TableSpec, pipe: Any) -> None:
    server = reverb.Server([make_table(spec)])
    pipe.send(server.port)
    server.wait()
