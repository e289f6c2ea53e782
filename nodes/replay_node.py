"""The node of a replay server. It loads Reverb and TensorFlow where it runs."""

import launchpad as lp

from agents.agent import TableSpec
from nodes.checkpoints import Schedule


class ReplayServerNode(lp.PyNode):
    """A node with a Reverb server that saves checkpoints, and closes when it is asked to stop.

    Attributes:
        reverb_address: Where the server will be.
        parts_address: Where its `nodes.part_server` will be.
    """

    def __init__(self, spec: TableSpec, schedule: Schedule, phase: float) -> None:
        """Initializes the node.

        Args:
            spec: The table.
            schedule: When checkpoints are saved.
            phase: When the first is due, as a part of the schedule's period.
        """
        super().__init__(self.run)
        self._spec = spec
        self._schedule = schedule
        self._phase = phase
        self.reverb_address = lp.Address("reverb")
        self.parts_address = lp.Address("parts")
        for address in (self.reverb_address, self.parts_address):
            self.allocate_address(address)

    def run(self) -> None:
        """Serves until the program stops."""
        from nodes import replay_server

        replay_server.serve(
            self._spec,
            self._schedule,
            self._phase,
            self.reverb_address.resolve(),
            self.parts_address.resolve(),
        )
