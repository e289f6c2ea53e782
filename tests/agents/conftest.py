"""What tests of agents share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agents.agent import TableSpec
from tests.agents.reverb_replay import Replay


@pytest.fixture
def make_replay() -> Iterator[Callable[..., Replay]]:
    """Makes replays that end with the test."""
    replays = []

    def make(spec: TableSpec, sampler: Any = None) -> Replay:
        replays.append(Replay(spec, sampler))
        return replays[-1]

    yield make
    for replay in replays:
        replay.close()
