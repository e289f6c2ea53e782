"""Settings of all tests."""

import os

import pytest

from launchers.child import QUICK_RECONNECT
from launchers.fork_server import ForkServer

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault(*QUICK_RECONNECT)  # As in the processes of replicas.
HEAVY = (
    "acme.agents.tf.d4pg",
    "agents.apex.acting",
    "agents.apex.learning",
    "nodes.replay_server",
    "tests.support",
)


@pytest.fixture(scope="session", autouse=True)
def fork_server() -> None:
    """Starts loading what processes will need, while the first tests run."""
    ForkServer.prepare(HEAVY)
