"""The replay server's node. Importing this module loads Reverb and TensorFlow."""

import tempfile
from collections.abc import Sequence
from typing import Any

import launchpad as lp
import reverb
import tensorflow as tf

from agents.agent import TableSpec
from nodes import contract


class ReplayServerNode(lp.ReverbNode):
    """A `lp.ReverbNode` that closes its server when it is asked to stop."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        super().__init__(self._tables)

    def run(self) -> None:
        """Serves until the program stops."""
        runtime = contract.runtime()
        with tempfile.TemporaryDirectory() as unused:  # Else the server makes one that stays.
            server = reverb.Server(
                tables=self._priority_tables_fn(),
                port=lp.get_port_from_address(self._address.resolve()),
                checkpointer=reverb.checkpointers.DefaultCheckpointer(unused),
            )
            try:
                runtime.wait_for_stop()
            finally:
                server.stop()

    def _tables(self) -> Sequence[Any]:
        return [make_table(self._spec)]


def make_table(spec: TableSpec) -> Any:
    """Returns the Reverb table that `spec` describes, evicting the oldest item when it is full."""
    if spec.samples_per_insert is None:
        limiter = reverb.rate_limiters.MinSize(spec.min_size)
    else:
        limiter = reverb.rate_limiters.SampleToInsertRatio(
            samples_per_insert=spec.samples_per_insert,
            min_size_to_sample=spec.min_size,
            error_buffer=spec.error_buffer,
        )
    return reverb.Table(
        name=spec.name,
        sampler=reverb.selectors.Prioritized(spec.priority_exponent),
        remover=reverb.selectors.Fifo(),
        max_size=spec.max_size,
        rate_limiter=limiter,
        signature={
            name: tf.TensorSpec(column.shape, tf.as_dtype(column.dtype), name)
            for name, column in spec.item.items()
        },
    )
