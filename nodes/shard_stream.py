"""A stream of steps and items to one replay server.

This speaks to Reverb's own writer below its Python layer, which costs three times what the rest
does: 39 to 43 us an item, against 11 to 13 us here.
"""

import collections
import itertools
from collections.abc import Mapping
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from agents.agent import TableSpec
from nodes.origins import ORIGIN

SIGNATURE_MILLISECONDS = 3000
"""How long opening a stream waits for the server to say how its table looks."""


class Column:
    """The newest steps of one column; what it gives out goes into an item."""

    def __init__(self, max_steps: int) -> None:
        self._steps: collections.deque[Any] = collections.deque(maxlen=max_steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, key: Union[int, slice]) -> Any:
        """Returns one step, which an item holds without a time dimension, or a list of steps."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self._steps))
            return list(itertools.islice(self._steps, start, stop, step))
        return self._steps[key]

    def append(self, reference: Any) -> None:
        """Adds the reference of a step that was written."""
        self._steps.append(reference)

    def clear(self) -> None:
        """Forgets all steps."""
        self._steps.clear()


class ShardStream:
    """Writes one trajectory after the other to one shard.

    Attributes:
        history: Kept steps by column, those left out of a step not counted.
        is_ending: Whether a trajectory is over that the server has not confirmed.
    """

    def __init__(self, client: Any, spec: TableSpec, max_steps: int) -> None:
        """Opens the stream.

        Args:
            client: A `reverb.Client` of the server.
            spec: The table.
            max_steps: Newest steps that the history keeps.

        Raises:
            RuntimeError: The server is away.
        """
        from reverb import pybind

        self._table = spec.name
        self._names = sorted(spec.item)  # the order in which Reverb flattens an item
        self._writer = client._client.NewTrajectoryWriter(
            pybind.AutoTunedChunkerOptions(max_steps, 1.0), SIGNATURE_MILLISECONDS
        )
        self.history = {name: Column(max_steps) for name in self._names if name != ORIGIN}
        self.is_ending = False
        self._origin = Column(1)
        self._written_origin: Any = None

    def append(self, step: Mapping[str, NDArray[Any]]) -> None:
        """Adds one step, copying it; each column may be left out of a step."""
        references = self._writer.Append([step.get(name) for name in self._names])
        for name, reference in zip(self._names, references, strict=True):
            if reference is not None:
                self.history[name].append(reference)

    def create_item(
        self, priority: float, trajectory: Mapping[str, Any], origin: NDArray[np.int64]
    ) -> None:
        """Inserts an item.

        Args:
            priority: Its priority.
            trajectory: Steps or slices of `history`, by column.
            origin: int64 [4]; items that come one after the other share what is the same object.
        """
        if self._written_origin is not origin:
            values = [origin if name == ORIGIN else None for name in self._names]
            self._origin.append(self._writer.Append(values)[self._names.index(ORIGIN)])
            self._written_origin = origin
        columns = [self._origin[-1] if name == ORIGIN else trajectory[name] for name in self._names]
        self._writer.CreateItem(
            self._table,
            priority,
            [column if isinstance(column, list) else [column] for column in columns],
            [not isinstance(column, list) for column in columns],
        )

    def flush(self, unconfirmed: int, milliseconds: int) -> bool:
        """Waits until few enough items are on their way, and returns whether they came to be.

        A server that was started again gets those that it has not confirmed once more.
        """
        try:
            self._writer.Flush(unconfirmed, milliseconds)
        except RuntimeError as error:
            if "Timeout exceeded" not in str(error):
                raise
            return False
        return True

    def end(self, milliseconds: int) -> bool:
        """Ends the trajectory once the server has confirmed it, and returns whether it has."""
        self.is_ending = not self.flush(0, milliseconds)
        if not self.is_ending:
            self._writer.EndEpisode(True, None)
            self.forget()
        return not self.is_ending

    def leave(self) -> None:
        """Breaks the trajectory off; it is ended when the shard has confirmed it."""
        self.is_ending = True

    def forget(self) -> None:
        """Lets no later item refer to the steps so far."""
        for column in (*self.history.values(), self._origin):
            column.clear()
        self._written_origin = None

    def close(self) -> None:
        """Ends the stream; items that the server has not confirmed may be lost."""
        self._writer.Close()
