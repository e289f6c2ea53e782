"""One replay server by itself, for programs that use servers which stand already."""

import contextlib

from agents.agent import Agent, TableSpec
from nodes.replay import shard_of


def table_of(agent: Agent, num_shards: int) -> TableSpec:
    """Returns the table of one of the servers that together are the agent's replay."""
    return shard_of(agent.table, num_shards)


def served(table: TableSpec, port: int) -> contextlib.AbstractContextManager[None]:
    """Serves `table` on `port` until the context is left.

    Raises:
        UsageError: The port cannot be had.
    """
    from nodes import replay_server

    return replay_server.served(table, port)
