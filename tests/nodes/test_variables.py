"""Versions of the variables travel from the learner to whoever acts."""

import numpy as np
import pytest

from launchers.run import launch
from nodes.service import Handle
from nodes.variables import Publisher, VariableClient, Version, variable_source_node
from programs.program import Program
from tests.support import wait_for


@pytest.fixture
def source() -> Handle[VariableClient]:  # type: ignore[misc]
    program = Program("variables")
    handle = program.add_node(variable_source_node(), label="variables")
    with launch(program, "local_mt") as run:
        run.wait_until_running(20)
        yield handle


def fetch(client: VariableClient) -> object:
    client.request()
    return client.poll()


def newest(source: Handle[VariableClient]) -> Version:
    client = source.dereference()
    version: Version = wait_for(lambda: fetch(client))
    return version


def test_a_client_gets_a_version_once(source: Handle[VariableClient]) -> None:
    learner, actor = source.dereference(), source.dereference()
    learner.publish(1, 3, [np.arange(4.0), np.ones((2, 2), np.float32)])
    version = wait_for(lambda: fetch(actor))
    assert version.step == 3
    np.testing.assert_array_equal(version.values[0], np.arange(4.0))
    assert version.values[1].dtype == np.float32
    actor.request()
    wait_for(lambda: actor._pending is not None and actor._pending.done())
    assert actor.poll() is None
    assert actor.current is not None and actor.current.step == 3


def test_asking_before_there_is_a_version_gives_none(source: Handle[VariableClient]) -> None:
    actor = source.dereference()
    actor.request()
    wait_for(lambda: actor._pending is not None and actor._pending.done())
    assert actor.poll() is None


def test_the_publisher_sends_the_newest_version_at_the_latest_when_it_closes(
    source: Handle[VariableClient],
) -> None:
    publisher = Publisher(source.dereference())
    for step in range(1, 50):
        publisher.offer(step, lambda step=step: [np.full(3, step)])  # type: ignore[misc]
    publisher.close()
    actor = source.dereference()
    assert wait_for(lambda: fetch(actor)).step == 49


def test_a_dead_source_makes_nobody_wait() -> None:
    actor = VariableClient("localhost:1", call_seconds=0.2)
    actor.request()
    assert actor.poll() is None


def test_a_learner_that_has_fewer_steps_is_newer_if_it_is_another_one(
    source: Handle[VariableClient],
) -> None:
    learner, actor = source.dereference(), source.dereference()
    learner.publish(7, 100, [np.full(3, 1.0)])
    assert wait_for(lambda: fetch(actor)).key == (7, 100)
    learner.publish(8, 90, [np.full(3, 2.0)])
    version = wait_for(lambda: fetch(actor))
    assert version.key == (8, 90) and version.values[0][0] == 2.0


def test_each_life_of_a_learner_is_another_one(source: Handle[VariableClient]) -> None:
    incarnations = set()
    for _ in range(2):
        publisher = Publisher(source.dereference())
        publisher.offer(5, lambda: [np.ones(1)])
        publisher.close()
        incarnations.add(newest(source).incarnation)
    assert len(incarnations) == 2


def test_a_source_that_was_started_again_gets_the_newest_version_once_more() -> None:
    program = Program("variables")
    handle = program.add_node(variable_source_node(), label="variables")
    with launch(program, "local_mp") as run:
        run.wait_until_running(60)
        publisher = Publisher(handle.dereference())
        publisher.offer(5, lambda: [np.ones(1)])
        client = handle.dereference()
        wait_for(lambda: client.published() is not None)
        key = client.published()
        run._supervisor._backend.kill("variables/0")
        wait_for(lambda: run.status["variables/0"].restarts == 1)
        wait_for(lambda: client.published() == key)
        publisher.close()
