"""What the tests of nodes share."""

from collections.abc import Iterator

import pytest
import reverb


@pytest.fixture
def servers() -> Iterator[list[reverb.Server]]:
    """Servers that are stopped at the end."""
    started: list[reverb.Server] = []
    yield started
    for server in started:
        server.stop()
