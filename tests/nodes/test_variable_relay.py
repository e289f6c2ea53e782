"""A relay fetches each version once and hands it to all who read it."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Optional

import courier
import numpy as np
import pytest
from courier.python.client import StatusNotOk

from launchers.ports import ReservedPort
from launchers.run import launch
from nodes import contract, variable_relay
from nodes.service import Handle, ServiceNode
from nodes.variable_relay import VariableRelay, variable_relay_node
from nodes.variables import Key, VariableClient, VariableSource, Version, variable_source_node
from programs.program import Program
from tests.support import wait_for


class WatchedSource(VariableSource):
    """Counts its readers' calls and the copies that it hands out; answers only while open."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.copies = self.running = self.most_at_once = 0
        self.open = threading.Event()
        self.open.set()
        self._lock = threading.Lock()

    def other_than(self, key: Optional[Key]) -> Optional[Version]:
        with self._lock:
            self.calls += 1
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
        self.open.wait(60)
        version = super().other_than(key)
        with self._lock:
            self.running -= 1
            self.copies += version is not None
        return version


class CountedWaits(threading.Event):
    """An event that counts how often somebody waited for it."""

    waits = 0

    def wait(self, timeout: Optional[float] = None) -> bool:
        self.waits += 1
        return super().wait(timeout)


class Relayed(NamedTuple):
    """A source and a relay of it, both within reach of the test, and the relay's handle."""

    source: WatchedSource
    relay: VariableRelay
    nearby: Handle[VariableClient]

    def reader(self) -> VariableClient:
        return self.nearby.dereference()


def service(constructor: Callable[..., Any]) -> ServiceNode[VariableClient]:
    return ServiceNode(constructor, client_type=VariableClient, make_client=VariableClient)


@pytest.fixture
def relayed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Relayed]:
    source = WatchedSource()
    relays: list[VariableRelay] = []

    def make_relay(client: VariableClient) -> VariableRelay:
        relays.append(VariableRelay(client))
        return relays[-1]

    monkeypatch.setattr(variable_relay, "VariableRelay", make_relay)
    program = Program("relay")
    node = variable_relay_node(program.add_node(service(lambda: source), label="variables"))
    # Else a launcher of one host may leave it out.
    contract.set_traits(node, contract.Traits(on_failure="restart", endless=True))
    nearby = program.add_node(node, label="relay")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        yield Relayed(source, relays[0], nearby)
        source.open.set()


def is_answered(client: VariableClient) -> bool:
    return client._pending is not None and client._pending.done()


def answer(client: VariableClient) -> Optional[Version]:
    """Asks once and returns what the answer brings."""
    client.request()
    wait_for(lambda: is_answered(client))
    return client.poll()


def arrival(client: VariableClient) -> Version:
    """Asks until an answer brings a version."""
    version: Version = wait_for(lambda: answer(client))
    return version


def test_versions_arrive_whole_through_a_relay(relayed: Relayed) -> None:
    actor = relayed.reader()
    for step in range(3):
        values = [np.full((64, 999), step, np.float32), np.full(3, step), np.array(step, np.uint8)]
        relayed.source.publish(1, step, values)
        version, published = arrival(actor), relayed.source._newest
        assert published is not None
        assert (version.key, version.time) == (published.key, published.time)
        for value, expected in zip(version.values, values, strict=True):
            np.testing.assert_array_equal(value, expected)
            assert value.dtype == expected.dtype


def test_a_version_leaves_the_source_once_however_many_read_it(relayed: Relayed) -> None:
    actors = [relayed.reader() for _ in range(10)]
    for step in range(3):
        relayed.source.publish(1, step, [np.ones(1000)])
        for actor in actors:
            actor.request()
        assert {arrival(actor).step for actor in actors} == {step}
    assert relayed.source.copies == 3


def test_a_reader_gets_a_version_once(relayed: Relayed) -> None:
    relayed.source.publish(1, 3, [np.ones(3)])
    actor = relayed.reader()
    arrival(actor)
    assert answer(actor) is None
    assert actor.current is not None and actor.current.step == 3


def test_before_anything_is_published_a_relay_gives_none(relayed: Relayed) -> None:
    actor = relayed.reader()
    assert answer(actor) is None and actor.published() is None
    assert relayed.source.calls > 0


def test_a_relay_says_which_version_it_has(relayed: Relayed) -> None:
    relayed.source.publish(4, 2, [np.ones(3)])
    actor = relayed.reader()
    wait_for(lambda: actor.published() == (4, 2))


def test_publishing_to_a_relay_is_refused(relayed: Relayed) -> None:
    with pytest.raises(StatusNotOk, match="publish to the variable source"):
        relayed.reader().publish(1, 1, [np.ones(3)])


def test_a_relay_that_nobody_asks_does_not_ask_the_source(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variable_relay, "_STOP_SECONDS", 0.001)
    asked = relayed.relay._asked = CountedWaits()
    relayed.source.publish(1, 1, [np.ones(3)])
    arrival(relayed.reader())
    rounds = asked.waits
    wait_for(lambda: asked.waits > rounds + 2)  # The look that the last call caused is over.
    calls, rounds = relayed.source.calls, asked.waits
    relayed.source.publish(1, 2, [np.ones(3)])
    wait_for(lambda: asked.waits > rounds + 20)
    assert relayed.source.calls == calls


def test_one_who_asks_seldom_gets_what_is_newest_when_it_asks(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variable_relay, "_FRESH_SECONDS", 0.0)  # So every call counts as rare.
    monkeypatch.setattr(variable_relay, "_WAIT_SECONDS", 60.0)
    evaluator = relayed.reader()
    for step in range(5):
        relayed.source.publish(1, step, [np.ones(3)])
        version = answer(evaluator)
        assert version is not None and version.step == step


def test_however_many_ask_there_is_one_look_at_a_time(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variable_relay, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(variable_relay, "_WAIT_SECONDS", 0.0)
    relayed.source.open.clear()
    for _ in range(5):
        for actor in [relayed.reader() for _ in range(5)]:
            answer(actor)
    wait_for(lambda: relayed.source.calls)
    assert (relayed.source.calls, relayed.source.most_at_once) == (1, 1)


def test_however_often_they_ask_there_is_time_between_looks(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variable_relay, "_LOOK_SECONDS", 60.0)
    monkeypatch.setattr(variable_relay, "_WAIT_SECONDS", 0.0)
    actor = relayed.reader()
    for _ in range(10):
        answer(actor)
    wait_for(lambda: relayed.source.calls)
    assert relayed.source.calls == 1


def test_a_source_that_hangs_holds_only_a_few_calls_to_the_relay(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variable_relay, "_WAIT_SECONDS", 60.0)
    relayed.source.open.clear()
    actors = [relayed.reader() for _ in range(30)]
    for actor in actors:
        actor.request()
    calls = [actor._pending for actor in actors if actor._pending is not None]
    wait_for(lambda: sum(call.done() and call.exception() is None for call in calls) >= 26)
    relayed.source.open.set()
    wait_for(lambda: all(call.done() for call in calls))  # Else their clients wait to be freed.


def serve(source: VariableSource, port: ReservedPort) -> Any:
    server = courier.Server(port=port.port)
    server.Bind("other_than", source.other_than)
    server.Start()
    return server


@pytest.mark.parametrize("key", [(1, 90), (2, 100)], ids=["fewer steps", "another incarnation"])
def test_the_last_version_is_served_until_the_source_is_back_with_another(key: Key) -> None:
    port = ReservedPort()
    program = Program("relay")
    nearby = program.add_node(
        service(lambda: VariableRelay(VariableClient(port.build(), call_seconds=0.3))),
        label="relay",
    )
    source = VariableSource()
    source.publish(1, 100, [np.full(3, 1.0)])
    server = serve(source, port)
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        early = nearby.dereference()
        assert arrival(early).key == (1, 100)
        server.Stop()
        server.Join()
        for _ in range(2):
            late = nearby.dereference()
            last = answer(late)
            assert last is not None and last.key == (1, 100)
        source = VariableSource()
        server = serve(source, port)
        source.publish(*key, [np.full(3, 2.0)])
        for actor in early, late:
            version = arrival(actor)
            assert version.key == key and version.values[0][0] == 2.0
    server.Stop()
    server.Join()
    port.close()


def test_a_relay_whose_source_is_away_ends_at_once() -> None:
    program = Program("relay")
    relays: list[VariableRelay] = []

    def make() -> VariableRelay:
        relays.append(VariableRelay(VariableClient("localhost:1", call_seconds=60)))
        return relays[-1]

    nearby = program.add_node(service(make), label="relay")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        actor = nearby.dereference()
        actor.request()
        look = wait_for(lambda: relays[0]._source._pending)
        began = time.monotonic()
        run.stop()
        run.wait(20)
        assert time.monotonic() - began < 5
    look.cancel()  # Else the tests' own end waits for it.


def test_a_relay_stands_in_for_its_source_on_each_host() -> None:
    source = variable_source_node().create_handle()
    traits = contract.traits_of(variable_relay_node(source))
    assert traits.per_host and traits.stands_in_for is source.address
