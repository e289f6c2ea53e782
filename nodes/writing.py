"""Writes steps and items to one replay server.

This speaks to Reverb's own writer below its Python layer, which costs three times what the rest
does: 39 to 43 us an item, against 11 to 13 us here.
"""

import collections
import itertools
from collections.abc import Mapping
from typing import Any, Union

import tenacity
from numpy.typing import NDArray

from agents.agent import TableSpec
from nodes import contract
from nodes.peer import PATIENCE_SECONDS
from nodes.replay_info import ask

_MAX_UNCONFIRMED_ITEMS = 100
"""Items that a writer sends ahead of the server before it waits for it. The actors of Horgan et al.
(2018, appendix D) send batches of 50."""
_FLUSH_PERIOD_ITEMS = 50
_WAIT_MILLISECONDS = 200
_SIGNATURE_MILLISECONDS = 3000


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


class ReplayWriter:
    """Writes one stream, and waits for a full replay only as long as its node runs."""

    def __init__(self, client: Any, spec: TableSpec, max_steps: int) -> None:
        """Opens the stream.

        Args:
            client: A `reverb.Client` of the server.
            spec: The table.
            max_steps: Newest steps that the history keeps.

        Raises:
            RuntimeError: The server was away for too long.
        """
        self._client = client
        self._runtime = contract.runtime()
        self._table = spec.name
        self._writer = self._open(max_steps)
        self._names = sorted(spec.item)  # the order in which Reverb flattens an item
        self._history = {name: Column(max_steps) for name in self._names}
        self._created = 0

    def append(self, step: Mapping[str, NDArray[Any]]) -> None:
        """Adds one step, copying it; each column may be left out of a step."""
        references = self._writer.Append([step.get(name) for name in self._names])
        for column, reference in zip(self._history.values(), references, strict=True):
            if reference is not None:
                column.append(reference)

    @property
    def history(self) -> Mapping[str, Column]:
        """Kept steps by column, those left out not counted; they go into `create_item`."""
        return self._history

    def create_item(self, priority: float, trajectory: Mapping[str, Any]) -> None:
        """Inserts the item `trajectory`, steps or slices of `history`, with `priority`."""
        columns = [trajectory[name] for name in self._names]
        self._writer.CreateItem(
            self._table,
            priority,
            [column if isinstance(column, list) else [column] for column in columns],
            [not isinstance(column, list) for column in columns],
        )
        self._created += 1
        if self._created % _FLUSH_PERIOD_ITEMS == 0:
            self._wait_for_server(_MAX_UNCONFIRMED_ITEMS)

    def end_episode(self) -> None:
        """Forgets `history`: no item spans what came before and what comes after."""
        if self._wait_for_server(0):
            self._writer.EndEpisode(True, None)
            for column in self._history.values():
                column.clear()

    def close(self) -> None:
        """Ends the stream; items that the server has not confirmed may be lost."""
        self._writer.Close()

    def _open(self, max_steps: int) -> Any:
        from reverb import pybind

        options = pybind.AutoTunedChunkerOptions(max_steps, 1.0)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(RuntimeError),
            stop=lambda state: (
                self._runtime.stopping or (state.seconds_since_start or 0.0) > PATIENCE_SECONDS
            ),
            wait=tenacity.wait_fixed(_WAIT_MILLISECONDS / 1000),
            before_sleep=lambda _: self._tell(),
            reraise=True,
        )
        return retrying(self._client._client.NewTrajectoryWriter, options, _SIGNATURE_MILLISECONDS)

    def _wait_for_server(self, unconfirmed: int) -> bool:
        """Waits until few enough items are on their way, and returns whether they came to be.

        A server that was started again gets those that it has not confirmed once more.
        """
        while not self._runtime.stopping:
            try:
                self._writer.Flush(unconfirmed, _WAIT_MILLISECONDS)
                return True
            except RuntimeError as error:
                if "Timeout exceeded" not in str(error):
                    raise
            self._tell()
        return False

    def _tell(self) -> None:
        """Tells what this writer waits for."""
        info = ask(self._client, self._table)
        what = "a server that does not answer" if info is None else info.describe()
        self._runtime.report_waiting(f"replay to take items: {what}")
