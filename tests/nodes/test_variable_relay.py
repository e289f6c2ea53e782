"""A relay fetches each version once and hands it to all who read it."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Optional

import courier
import numpy as np
import pytest
from courier.python.client import StatusNotOk

from launchers.ports import ReservedPort
from launchers.run import launch
from nodes import contract, variable_relay, variables
from nodes.service import Handle, ServiceNode
from nodes.shared_versions import Place
from nodes.variable_relay import VariableRelay, variable_relay_node
from nodes.variables import Loan, VariableClient, VariableSource, variable_source_node
from nodes.version import Key, Version
from programs.program import Program
from tests.support import wait_for


class FarSource(VariableSource):
    """A source on another host; counts the calls for something newer and the copies given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.copies = 0

    def place(self) -> Place:
        return super().place()._replace(host="another")

    def lend(self, known: Optional[Key]) -> Optional[Loan]:
        self.calls += 1
        loan = super().lend(known)
        self.copies += loan is not None
        return loan

    def publish(self, step: int, *values: Any, incarnation: int = 1) -> Version:
        version = Version(incarnation, step, step, 0.5, values or [np.full(1000, step)])
        self._writer.write(version)
        return version


class CountedRelay(VariableRelay):
    """Counts the rounds of its work."""

    rounds = 0

    @property
    def _runtime(self) -> Any:
        self.rounds += 1
        return self._kept

    @_runtime.setter
    def _runtime(self, runtime: Any) -> None:
        self._kept = runtime


class Relayed(NamedTuple):
    """A source and a relay of it, both within reach of the test, and the relay's handle."""

    source: FarSource
    relay: CountedRelay
    nearby: Handle[VariableClient]

    def reader(self) -> VariableClient:
        return self.nearby.dereference()


def service(constructor: Callable[..., Any]) -> ServiceNode[VariableClient]:
    return ServiceNode(constructor, client_type=VariableClient, make_client=VariableClient)


@pytest.fixture
def relayed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Relayed]:
    source = FarSource()
    relays: list[CountedRelay] = []

    def make_relay(client: VariableClient) -> VariableRelay:
        relays.append(CountedRelay(client))
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


def fetch(client: VariableClient) -> Optional[Version]:
    client.request()
    return client.poll()


def arrival(client: VariableClient) -> Version:
    """Asks until a version comes."""
    version: Version = wait_for(lambda: fetch(client))
    return version


def wait_for_rounds(relay: CountedRelay, number: int) -> None:
    """Waits until the relay has gone through its work so many times more."""
    rounds = relay.rounds
    wait_for(lambda: relay.rounds >= rounds + number)


def test_versions_arrive_whole_through_a_relay(relayed: Relayed) -> None:
    actor = relayed.reader()
    for step in range(3):
        values = [np.full((64, 999), step, np.float32), np.full(3, step), np.array(step, np.uint8)]
        published = relayed.source.publish(step, *values)
        version = arrival(actor)
        assert version[:4] == published[:4]
        for value, expected in zip(version.values, values, strict=True):
            np.testing.assert_array_equal(value, expected)
            assert value.dtype == expected.dtype


def test_a_version_leaves_the_source_once_however_many_read_it(relayed: Relayed) -> None:
    actors = [relayed.reader() for _ in range(10)]
    for step in range(3):
        relayed.source.publish(step)
        for actor in actors:
            actor.request()
        assert {arrival(actor).step for actor in actors} == {step}
    assert relayed.source.copies == 3


def test_readers_map_the_memory_of_the_relay(relayed: Relayed) -> None:
    relayed.source.publish(1)
    actor = relayed.reader()
    arrival(actor)
    assert actor._board is not None
    assert actor._board._path == relayed.relay.place().path


def test_a_reader_gets_a_version_once(relayed: Relayed) -> None:
    relayed.source.publish(3)
    actor = relayed.reader()
    arrival(actor)
    actor.request()
    wait_for_rounds(relayed.relay, 3)
    assert actor.poll() is None
    assert actor.current is not None and actor.current.step == 3


def test_a_reader_that_has_asked_gets_what_is_published_later(relayed: Relayed) -> None:
    relayed.source.publish(3)
    actor = relayed.reader()
    arrival(actor)
    actor.request()
    assert actor.poll() is None
    relayed.source.publish(4)
    assert wait_for(actor.poll).step == 4


def test_one_who_waits_for_the_newest_gets_it_through_the_relay(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variables, "_LOOK_SECONDS", 20.0)
    evaluator = relayed.reader()
    for step in range(5):
        relayed.source.publish(step)
        version = evaluator.fetch(20.0)
        assert version is not None and version.step == step


def test_before_anything_is_published_a_relay_gives_none(relayed: Relayed) -> None:
    actor = relayed.reader()
    assert fetch(actor) is None
    wait_for(lambda: fetch(actor) or relayed.source.calls)
    assert actor.current is None


def test_publishing_to_a_relay_is_refused(relayed: Relayed) -> None:
    with pytest.raises(StatusNotOk, match="publish to the variable source"):
        relayed.reader().publish(Version(1, 1, 1, 0.0, [np.ones(3)]))


def test_a_relay_that_nobody_asks_does_not_ask_the_source(relayed: Relayed) -> None:
    relayed.source.publish(1)
    arrival(relayed.reader())
    wait_for_rounds(relayed.relay, 5)  # What the last question caused is over.
    calls = relayed.source.calls
    relayed.source.publish(2)
    wait_for_rounds(relayed.relay, 20)
    assert relayed.source.calls == calls


def serve(source: VariableSource, port: ReservedPort) -> Any:
    server = courier.Server(port=port.port)
    for name in ("place", "lend", "piece", "key"):
        server.Bind(name, getattr(source, name))
    server.Start()
    return server


@pytest.mark.parametrize("key", [(1, 90), (2, 100)], ids=["fewer steps", "another incarnation"])
@pytest.mark.parametrize("far", [True, False], ids=["far", "near"])
def test_the_last_version_is_served_until_the_source_is_back_with_another(
    key: Key, far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not far:
        monkeypatch.setattr(FarSource, "place", VariableSource.place)
    port = ReservedPort()
    program = Program("relay")
    nearby = program.add_node(
        service(lambda: VariableRelay(VariableClient(port.build(), call_seconds=0.3))),
        label="relay",
    )
    source = FarSource()
    source.publish(100)
    server = serve(source, port)
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        early = nearby.dereference()
        assert arrival(early).key == (1, 100)
        server.Stop()
        server.Join()
        source._store.close()
        for _ in range(2):
            late = nearby.dereference()
            assert arrival(late).key == (1, 100)
        source = FarSource()
        server = serve(source, port)
        source.publish(key[1], np.full(3, 2.0), incarnation=key[0])
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
        relays.append(VariableRelay(VariableClient("localhost:1", call_seconds=5)))
        return relays[-1]

    nearby = program.add_node(service(make), label="relay")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        actor = nearby.dereference()

        def is_looking() -> bool:
            fetch(actor)
            return relays[0]._source._call is not None

        wait_for(is_looking)
        began = time.monotonic()
        run.stop()
        run.wait(20)
        assert time.monotonic() - began < 3


def test_a_relay_stands_in_for_its_source_on_each_host() -> None:
    source = variable_source_node().create_handle()
    traits = contract.traits_of(variable_relay_node(source))
    assert traits.per_host and traits.stands_in_for is source.address
