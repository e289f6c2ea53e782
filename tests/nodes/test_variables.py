"""Versions of the variables travel from the learner to whoever acts."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from launchers.run import launch
from nodes import variables
from nodes.publisher import Publisher
from nodes.service import Handle, ServiceNode
from nodes.shared_versions import Place
from nodes.variables import VariableClient, VariableSource, variable_source_node
from nodes.version import Version, empty_block, pack, packed_size
from programs.program import Program
from tests.support import wait_for


class FarSource(VariableSource):
    """A source whose memory nobody shares."""

    def place(self) -> Place:
        return super().place()._replace(host="another")


@pytest.fixture(params=["near", "far"])
def source(request: pytest.FixtureRequest) -> Iterator[Handle[VariableClient]]:
    node = variable_source_node()
    if request.param == "far":
        node = ServiceNode(FarSource, client_type=VariableClient, make_client=VariableClient)
    program = Program("variables")
    handle = program.add_node(node, label="variables")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        yield handle


def version(incarnation: int, step: int, *values: Any) -> Version:
    return Version(incarnation, step, step, 0.0, values or [np.full(3, step)])


def fetch(client: VariableClient) -> object:
    client.request()
    return client.poll()


def newest(source: Handle[VariableClient]) -> Version:
    client = source.dereference()
    found: Version = wait_for(lambda: fetch(client))
    return found


def ask_and_wait(client: VariableClient) -> None:
    client.request()
    if client._call is not None:
        client._call.exception(timeout=20)


def test_a_client_gets_a_version_once(source: Handle[VariableClient]) -> None:
    learner, actor = source.dereference(), source.dereference()
    learner.publish(version(1, 3, np.arange(4.0), np.ones((2, 2), np.float32)))
    found = wait_for(lambda: fetch(actor))
    assert found.key == (1, 3)
    np.testing.assert_array_equal(found.values[0], np.arange(4.0))
    assert found.values[1].dtype == np.float32
    ask_and_wait(actor)
    assert actor.poll() is None
    assert actor.current is not None and actor.current.step == 3


def test_a_version_is_taken_only_when_it_was_asked_for(source: Handle[VariableClient]) -> None:
    learner, actor = source.dereference(), source.dereference()
    learner.publish(version(1, 1))
    wait_for(lambda: fetch(actor))
    learner.publish(version(1, 2))
    assert actor.poll() is None
    ask_and_wait(actor)
    assert actor.poll() is not None


def test_asking_before_there_is_a_version_gives_none(source: Handle[VariableClient]) -> None:
    actor = source.dereference()
    ask_and_wait(actor)
    assert actor.poll() is None


def test_versions_of_any_size_come_whole(
    source: Handle[VariableClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variables, "PIECE_BYTES", 1000)
    learner, actor = source.dereference(), source.dereference()
    for step, size in enumerate([1, 119, 120, 12345, 10]):
        learner.publish(version(1, step, np.arange(size), np.full(size, step, np.float32)))
        found = wait_for(lambda: fetch(actor))
        assert found.step == step
        np.testing.assert_array_equal(found.values[0], np.arange(size))
        np.testing.assert_array_equal(found.values[1], np.full(size, step))


def test_the_publisher_sends_the_newest_version_at_the_latest_when_it_closes(
    source: Handle[VariableClient],
) -> None:
    publisher = Publisher(source.dereference())
    weights = np.zeros(1000)
    for step in range(1, 50):
        weights[:] = step
        publisher.offer(step, lambda: [weights])
    weights[:] = -1
    publisher.close()
    found = newest(source)
    assert (found.step, found.number) == (49, 49)
    assert (found.values[0] == 49).all()


class _SlowClient:
    """Keeps what is published; publishing takes until it is let go."""

    def __init__(self) -> None:
        self.go_on = threading.Semaphore(0)
        self.published: list[int] = []

    def publish(self, version: Version) -> None:
        self.go_on.acquire()
        assert (version.values[0] == version.step).all()
        self.published.append(version.step)

    def has(self, version: Version) -> bool:
        return True


def test_copies_are_not_mixed_and_only_the_newest_waits() -> None:
    client: Any = _SlowClient()
    publisher = Publisher(client)
    memory = set()
    for step in range(20):
        publisher.offer(step, lambda step=step: [np.full(100, step)])  # type: ignore[misc]
        assert publisher._waiting is None or publisher._waiting.step == step
        if publisher._waiting is not None:
            memory.add(publisher._waiting.values[0].ctypes.data)
        if step % 5 == 4:
            done = len(client.published)
            client.go_on.release()
            wait_for(lambda done=done: len(client.published) > done)  # type: ignore[misc]
    client.go_on.release(20)
    publisher.close()
    assert client.published[-1] == 19
    assert len(memory) <= 3


def test_a_dead_source_makes_nobody_wait() -> None:
    actor = VariableClient("localhost:1", call_seconds=0.2)
    actor.request()
    assert actor.poll() is None


def test_a_learner_that_has_fewer_steps_is_newer_if_it_is_another_one(
    source: Handle[VariableClient],
) -> None:
    learner, actor = source.dereference(), source.dereference()
    learner.publish(version(7, 100))
    assert wait_for(lambda: fetch(actor)).key == (7, 100)
    learner.publish(version(8, 90))
    assert wait_for(lambda: fetch(actor)).key == (8, 90)


def test_a_version_knows_how_many_newer_ones_there_are() -> None:
    program = Program("variables")
    handle = program.add_node(variable_source_node(), label="variables")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        learner, actor = handle.dereference(), handle.dereference()
        learner.publish(version(1, 1))
        wait_for(lambda: fetch(actor))
        assert actor.versions_behind == 0
        for step in range(2, 6):
            learner.publish(version(1, step))
        assert actor.versions_behind == 4
        learner.publish(version(2, 50))
        assert actor.versions_behind == 0  # They are of another life, and cannot be counted.


def test_each_life_of_a_learner_is_another_one(source: Handle[VariableClient]) -> None:
    incarnations = set()
    for _ in range(2):
        publisher = Publisher(source.dereference())
        publisher.offer(5, lambda: [np.ones(1)])
        publisher.close()
        incarnations.add(newest(source).incarnation)
    assert len(incarnations) == 2


def test_a_piece_out_of_turn_makes_the_sender_begin_anew() -> None:
    source = VariableSource()
    pieces: Sequence[np.ndarray[Any, Any]] = np.split(np.zeros(300, np.uint8), 3)
    assert not source.receive((1, 1), 300, 100, pieces[1])
    assert source.receive((1, 1), 300, 0, pieces[0])
    assert not source.receive((1, 1), 300, 200, pieces[2])
    assert not source.receive((1, 2), 300, 100, pieces[1])
    assert source.receive((1, 1), 300, 100, pieces[1])
    assert not source.receive((1, 1), 300, 100, pieces[1])  # A call whose answer was lost.
    assert source.key() is None


def test_a_last_piece_that_comes_twice_changes_nothing() -> None:
    source = VariableSource()
    block = empty_block(packed_size(version(1, 1)))
    pack(version(1, 1), block)
    half = block.size // 2
    assert source.receive((1, 1), block.size, 0, block[:half])
    for _ in range(2):
        assert source.receive((1, 1), block.size, half, block[half:])
        assert source.key() == (1, 1)


def test_a_source_that_was_started_again_gets_the_newest_version_once_more() -> None:
    program = Program("variables")
    handle = program.add_node(variable_source_node(), label="variables")
    with launch(program, "local_mp") as run:
        run.wait_until_running(60)
        publisher = Publisher(handle.dereference())
        publisher.offer(5, lambda: [np.ones(1)])
        early = handle.dereference()
        first: Version = wait_for(lambda: fetch(early))
        run._supervisor._backend.kill("variables/0")
        wait_for(lambda: run.status["variables/0"].restarts == 1)
        assert early.poll() is None and early.current is first
        late = handle.dereference()
        assert wait_for(lambda: fetch(late)).key == first.key
        publisher.offer(6, lambda: [np.full(1, 6.0)])
        for actor in early, late:
            assert wait_for(lambda actor=actor: fetch(actor)).step == 6  # type: ignore[misc]
        publisher.close()
        assert (first.values[0] == 1).all()


def test_versions_that_were_given_out_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for piece_bytes in (1 << 20, 64):
        monkeypatch.setattr(variables, "PIECE_BYTES", piece_bytes)
        source = VariableSource()
        for step in range(50):
            source._writer.write(version(1, step, np.full(100, step)))
            loan = source.lend(None)
            assert loan is not None
            assert loan.size <= piece_bytes or source.piece(loan.key, piece_bytes) is not None
        assert len(source.place().buffers) <= 6


def test_a_publisher_that_has_ended_publishes_nothing_more() -> None:
    client: Any = _SlowClient()
    publisher = Publisher(client)
    publisher.offer(0, lambda: [np.zeros(100)])
    wait_for(lambda: publisher._waiting is None)
    publisher.offer(1, lambda: [np.ones(100)])
    publisher.close()  # The first is still on its way.
    client.go_on.release(10)
    publisher._thread.join(20)
    assert client.published == [0]


class Gated(FarSource):
    """A source that knows its newest version, and takes its time to give it out."""

    opened = threading.Event()

    def lend(self, known: Any) -> Any:
        assert self.opened.wait(30)
        return super().lend(known)


def test_who_asks_for_the_newest_waits_until_it_is_there_or_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(variables, "_CALL_SECONDS", 0.05)  # It may take longer than a call.
    node = ServiceNode[VariableClient](
        Gated, client_type=VariableClient, make_client=VariableClient
    )
    program = Program("variables")
    handle = program.add_node(node, label="variables")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        client = handle.dereference()
        assert client.newest() is None
        client.publish(version(1, 3))
        found: list[Any] = []
        asks = threading.Thread(target=lambda: found.append(client.newest()), daemon=True)
        asks.start()
        asks.join(0.3)
        assert not found
        Gated.opened.set()
        asks.join(20)
        assert found[0].key == (1, 3)
        assert client.newest() is client.current
