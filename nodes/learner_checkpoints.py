"""The learner's checkpoints: it stands still only while its state is copied."""

import os
import time
from collections.abc import Mapping
from concurrent import futures
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from agents.agent import Saved
from nodes import contract
from nodes.checkpoints import Checkpoints, Schedule

_FILE = "learner.npz"
_NODE_STEPS = "node/steps"
"""Learner steps; the other arrays are the learner's own, under `learner/`."""
_OWN = "learner/"


class LearnerCheckpoints:
    """Saves a learner's state from a thread of its own, and takes it up."""

    def __init__(self, learner: Saved, runtime: contract.Runtime, schedule: Schedule) -> None:
        """Initializes the checkpoints.

        Args:
            learner: Whose state is saved.
            runtime: The learner's node's.
            schedule: When to save.
        """
        self._learner = learner
        self._checkpoints = Checkpoints(runtime, schedule)
        self._writer = futures.ThreadPoolExecutor(1, "checkpoints")
        self._writing: Optional[futures.Future[None]] = None

    def restore(self) -> int:
        """Takes up the newest checkpoint that is whole; returns the learner steps in it, or 0."""
        return self._checkpoints.restore(self._read) or 0

    def save_if_due(self, step: int) -> None:
        """Begins to save if it is time to, and the save before is done."""
        if not self._checkpoints.due or (self._writing is not None and not self._writing.done()):
            return
        self._collect()
        began = time.monotonic()
        state = self._copy(step)
        pause = time.monotonic() - began
        self._writing = self._writer.submit(self._save, state, pause)

    def save(self, step: int) -> None:
        """Saves, and waits until it is done."""
        self._collect()
        self._save(self._copy(step), 0.0)
        self._writer.shutdown()

    def _collect(self) -> None:
        """Waits for the save before, and raises what it raised."""
        if self._writing is not None:
            self._writing.result()

    def _copy(self, step: int) -> dict[str, NDArray[Any]]:
        state = {f"{_OWN}{name}": array for name, array in self._learner.state().items()}
        return {_NODE_STEPS: np.array(step), **state}

    def _save(self, state: Mapping[str, NDArray[Any]], pause: float) -> None:
        def write(path: str) -> float:
            np.savez(os.path.join(path, _FILE), **state)
            return pause

        self._checkpoints.save(write)

    def _read(self, path: str) -> int:
        with np.load(os.path.join(path, _FILE)) as arrays:
            state = {
                name.removeprefix(_OWN): arrays[name] for name in arrays if name != _NODE_STEPS
            }
            self._learner.restore(state)
            return int(arrays[_NODE_STEPS])
