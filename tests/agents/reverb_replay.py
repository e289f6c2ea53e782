"""A real replay server for tests of agents."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from agents.agent import TableSpec


class Item(NamedTuple):
    """An item as the server gives it out."""

    priority: float
    probability: float
    data: Mapping[str, np.ndarray]


class Replay:
    """A server with one table, which refuses items that are not as `TableSpec.item` says."""

    def __init__(self, spec: TableSpec, sampler: Any = None) -> None:
        """Starts the server; without a `sampler`, it gives each item once, in order."""
        self._name = spec.name
        self._server = reverb.Server(
            [
                reverb.Table(
                    name=spec.name,
                    sampler=sampler or reverb.selectors.Fifo(),
                    remover=reverb.selectors.Fifo(),
                    max_size=spec.max_size,
                    max_times_sampled=0 if sampler else 1,
                    rate_limiter=reverb.rate_limiters.MinSize(1),
                    signature={
                        name: tf.TensorSpec(column.shape, column.dtype)
                        for name, column in spec.item.items()
                    },
                )
            ]
        )
        self.client = reverb.Client(f"localhost:{self._server.port}")
        self._writers: list[ReverbWriter] = []

    def make_writer(self, max_steps: int) -> "ReverbWriter":
        writer = ReverbWriter(self.client.trajectory_writer(max_steps), self._name)
        self._writers.append(writer)
        return writer

    def size(self) -> int:
        """Returns the number of items, when all that were written have arrived."""
        for writer in self._writers:
            writer.flush()
        return int(self.client.server_info()[self._name].current_size)

    def sample(self, num: int) -> list[Item]:
        samples = self.client.sample(
            self._name, num, emit_timesteps=False, unpack_as_table_signature=True
        )
        return [
            Item(sample.info.priority, sample.info.probability, sample.data) for sample in samples
        ]

    def take_all(self) -> list[Item]:
        """Returns all items in the order in which they came, and removes them."""
        return self.sample(size) if (size := self.size()) else []

    def close(self) -> None:
        """Closes the writers, for which the server would wait, and then the server."""
        for writer in self._writers:
            writer.close()
        self._server.stop()


class ReverbWriter:
    """The plainest `agents.agent.Writer`: a trajectory writer that is bound to one table."""

    def __init__(self, writer: reverb.TrajectoryWriter, table: str) -> None:
        self._writer = writer
        self._table = table

    def append(self, step: Mapping[str, np.ndarray]) -> None:
        self._writer.append(step)

    @property
    def history(self) -> Mapping[str, Any]:
        return self._writer.history

    def create_item(self, priority: float, trajectory: Mapping[str, Any]) -> None:
        self._writer.create_item(self._table, priority, trajectory)

    def end_episode(self) -> None:
        self._writer.end_episode()

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
