"""The table of noise: made once on each host, and mapped by all who read it there."""

import time

import numpy as np

from agents.search_agent import SearchAgent
from nodes import contract
from nodes.service import ServiceNode
from nodes.shared_versions import Writer
from nodes.variables import VariableClient, VersionServer
from nodes.version import Version, pack, packed_size, unpack

_STOP_SECONDS = 1.0


class NoiseTable(VersionServer):
    """Has the table as a version's only array, float32, in memory that this host's readers map.

    One that is started again makes the same table; who has the old one mapped keeps it.
    """

    def __init__(self, agent: SearchAgent, seed: int) -> None:
        """Initializes the node; the table is made when it runs.

        Args:
            agent: Says how large the table is, and fills it.
            seed: Says with what.
        """
        super().__init__()
        self._runtime = contract.runtime()
        self._agent = agent
        self._seed = seed

    def run(self) -> None:
        """Makes the table, and serves it until the program stops."""
        try:
            self._make()
            while not self._runtime.wait_for_stop(_STOP_SECONDS):
                pass
        finally:
            self._store.close()

    def _make(self) -> None:
        """Fills the table where it is read: there is no second one, not even for a moment."""
        writer = Writer(self._store.place(), self._store.add_buffer)
        zeros = np.broadcast_to(np.float32(0.0), (self._agent.noise_size,))
        version = Version(time.time_ns(), 0, 1, time.time(), [zeros])
        buffer = writer.take_buffer(packed_size(version))
        pack(version, buffer.memory())
        made = unpack(buffer.memory())
        assert made is not None
        self._agent.fill_noise(made.values[0], self._seed)
        writer.publish(version, buffer)


def noise_node(agent: SearchAgent, seed: int) -> ServiceNode[VariableClient]:
    """Returns the node that has the table of noise, on each host with readers; see `NoiseTable`."""
    return ServiceNode(
        NoiseTable,
        agent,
        seed,
        client_type=VariableClient,
        make_client=VariableClient,
        traits=contract.Traits(on_failure="restart", endless=True, dispensable=True, per_host=True),
    )
