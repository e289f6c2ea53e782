"""The ordered server takes a version only from who has made it from the newest."""

from collections.abc import Iterator
from concurrent import futures
from typing import Union

import numpy as np
import pytest
from courier.python.client import StatusNotOk

from launchers.run import launch
from nodes.ordered_server import OrderedClient, OrderedServer, ordered_server_node
from programs.program import Program
from usage import UsageError

DEPTH = 3


@pytest.fixture(params=["by itself", "as a node"])
def server(request: pytest.FixtureRequest) -> Iterator[Union[OrderedServer, OrderedClient]]:
    if request.param == "by itself":
        yield OrderedServer(DEPTH)
        return
    program = Program("ordered")
    handle = program.add_node(ordered_server_node(DEPTH), label="server")
    with launch(program, "test_mt") as run:
        run.wait_until_running(20)
        yield handle.dereference()


def test_a_version_follows_the_newest(server: OrderedClient) -> None:
    assert server.pull("model") is None
    assert not server.push("model", "x", 1, 0)
    assert server.push("model", [np.arange(3), "a"], 1, None)
    assert not server.push("model", "x", 1, None)
    assert not server.push("model", "x", 2, 0)
    assert server.push("model", "b", 5, 1)
    assert not server.push("model", "x", 6, 1)
    assert server.pull("model") == ("b", 5)
    found = server.pull("model", 1)
    assert found is not None and found[1] == 1
    np.testing.assert_array_equal(found[0][0], np.arange(3))
    assert server.pull("model", 2) is None
    assert server.push("other", 0, 1, None)
    assert server.pull("other") == (0, 1)


def test_exactly_so_many_versions_are_kept(server: OrderedClient) -> None:
    for version in range(10):
        assert server.push("model", version, version, version - 1 if version else None)
    kept = [version for version in range(10) if server.pull("model", version) is not None]
    assert kept == [7, 8, 9]


def test_of_many_at_once_one_succeeds(server: OrderedClient) -> None:
    server.push("model", -1, 0, None)
    with futures.ThreadPoolExecutor(8) as pool:
        for version in range(1, 20):
            calls = [
                pool.submit(server.push, "model", number, version, version - 1)
                for number in range(8)
            ]
            assert sum(call.result(timeout=20) for call in calls) == 1


def test_versions_rise(server: OrderedClient) -> None:
    with pytest.raises((ValueError, StatusNotOk), match="rise, but 3 was to follow 3"):
        server.push("model", 0, 3, 3)


def test_a_call_that_is_made_twice_counts_once() -> None:
    server = OrderedServer()
    assert server.push("model", "a", 1, None, "first")
    assert server.push("model", "a", 1, None, "first")
    assert not server.push("model", "a", 1, None, "second")


def test_a_depth_of_nothing_is_refused_while_the_graph_is_drawn() -> None:
    with pytest.raises(UsageError, match="At least 1 version must be kept, got a depth of 0"):
        ordered_server_node(0)
