"""From an actor's timesteps to prioritized items.

All E environments of an actor step together, so what belongs to a window is kept in ring buffers
whose slot is the same for all environments: the windows that began at call t lie in slot t mod n.

    call            t        t+1       t+2       t+3           (n = 3)
    observation     s_t      s_{t+1}   s_{t+2}   s_{t+3}
    reward                   r_{t+1}   r_{t+2}   r_{t+3}
    window of t     opens                        closes; its slot is taken by the window of t+3

A window that its episode cuts short closes with the episode's last step, with what it has.
"""

from typing import NamedTuple, Optional

import dm_env
import numpy as np
from numpy.typing import NDArray

from agents.agent import Writer, WriterFactory
from agents.apex import items

_FIRST = int(dm_env.StepType.FIRST)
_LAST = int(dm_env.StepType.LAST)


class Closed(NamedTuple):
    """Windows of equal length that close at the same call, at most one an environment.

    Attributes:
        slot: Where the windows lie.
        steps: m, their length.
        environments: int64 [K], whose windows they are; the arrays below hold all E environments.
        actions: int64 [E], the action at the window's begin.
        returns: float32 [E], sum_{k<m} gamma^k clip(r_{t+1+k}), each reward also times the
            discounts that the environment gave before it.
        bootstraps: float32 [E], gamma^m times the environment's m discounts: 0 behind a terminal
            state.
        priorities: float32 [E], |return + bootstrap * max_a Q(s_{t+m}, a) - Q(s_t, a_t)| + epsilon.
    """

    slot: int
    steps: int
    environments: NDArray[np.int64]
    actions: NDArray[np.int64]
    returns: NDArray[np.float32]
    bootstraps: NDArray[np.float32]
    priorities: NDArray[np.float32]


class NStepWindows:
    """The open n-step windows of E environments that step together."""

    def __init__(
        self,
        num_envs: int,
        n_step: int,
        discount: float,
        reward_clip: Optional[float],
        priority_epsilon: float,
    ):
        """Makes a window-less state.

        Args:
            num_envs: E.
            n_step: n.
            discount: gamma.
            reward_clip: Rewards are clipped to [-reward_clip, reward_clip], None for no clipping.
            priority_epsilon: What is added to every priority.
        """
        self.n_step = n_step
        self._clip = reward_clip
        self._epsilon = np.float32(priority_epsilon)
        self._discount = discount
        self._columns = np.arange(num_envs)
        self._open = np.zeros((n_step, num_envs), bool)
        self._actions = np.zeros((n_step, num_envs), np.int64)
        self._values = np.zeros((n_step, num_envs), np.float32)
        self._returns = np.zeros((n_step, num_envs), np.float32)
        self._products = np.ones((n_step, num_envs))
        self.slot = 0

    def close(self, timestep: dm_env.TimeStep, q_values: NDArray[np.float32]) -> list[Closed]:
        """Adds the newest rewards to all windows and returns those that end here, oldest first.

        Args:
            timestep: The newest timestep of every environment.
            q_values: float32 [E, A], the actor's values of its observations; those of a terminal
                state count for nothing.
        """
        last = timestep.step_type == _LAST
        # What a first step says of reward and discount falls on closed windows.
        self._open &= timestep.step_type != _FIRST
        reward = timestep.reward
        if self._clip is not None:
            reward = reward.clip(-self._clip, self._clip)
        self._returns += (self._products * reward).astype(np.float32)
        self._products *= self._discount * timestep.discount
        best = q_values.max(axis=1)
        closed = []
        shortest = 1 if last.any() else self.n_step
        for steps in range(self.n_step, shortest - 1, -1):
            slot = (self.slot - steps) % self.n_step
            ends = self._open[slot] if steps == self.n_step else self._open[slot] & last
            if not ends.any():
                continue
            bootstraps = self._products[slot].astype(np.float32)
            error = self._returns[slot] + bootstraps * best - self._values[slot]
            closed.append(
                Closed(
                    slot,
                    steps,
                    ends.nonzero()[0],
                    self._actions[slot],
                    self._returns[slot],
                    bootstraps,
                    np.abs(error) + self._epsilon,
                )
            )
        return closed

    def open(
        self,
        step_type: NDArray[np.int32],
        q_values: NDArray[np.float32],
        actions: NDArray[np.int64],
    ) -> None:
        """Opens a window in every environment that goes on, and moves to the next slot."""
        self._open[self.slot] = step_type != _LAST
        self._actions[self.slot] = actions
        self._values[self.slot] = q_values[self._columns, actions]
        self._returns[self.slot] = 0
        self._products[self.slot] = 1
        self.slot = (self.slot + 1) % self.n_step


class VectorRecorder:
    """Writes each window as one row that holds both of its observations."""

    def __init__(self, windows: NStepWindows, make_writer: WriterFactory, num_envs: int, size: int):
        """Makes one writer for all environments.

        Args:
            windows: The environments' windows.
            make_writer: Makes the writer.
            num_envs: E.
            size: Values in one observation.
        """
        self._windows = windows
        self._writer = make_writer(1)
        self._size = size
        self._rows = np.zeros((windows.n_step, num_envs, 2 * size + 3), np.float32)

    def record(
        self,
        timestep: dm_env.TimeStep,
        q_values: NDArray[np.float32],
        actions: NDArray[np.int64],
        version: int,
    ) -> None:
        """Writes the windows that end with this timestep and opens those that begin with it."""
        windows, writer, size = self._windows, self._writer, self._size
        observation = timestep.observation.reshape(len(actions), size)
        for closed in windows.close(timestep, q_values):
            rows = self._rows[closed.slot]
            rows[:, size : 2 * size] = observation
            rows[:, items.ACTION] = closed.actions
            rows[:, items.RETURN] = closed.returns
            rows[:, items.BOOTSTRAP] = closed.bootstraps
            priorities = closed.priorities.tolist()
            for environment in closed.environments.tolist():
                writer.append({"row": rows[environment]})
                writer.create_item(priorities[environment], {"row": writer.history["row"][-1]})
        self._rows[windows.slot, :, :size] = observation
        windows.open(timestep.step_type, q_values, actions)


class FrameRecorder:
    """Writes each frame once; a window refers to the frames of both of its observations.

    At an episode's start the first frame is written until the shortest window has its
    `stack + n` frames behind it, so that every window of every episode has the same shape.
    """

    def __init__(
        self, windows: NStepWindows, make_writer: WriterFactory, num_envs: int, stack: int
    ):
        """Makes a writer for each environment.

        Args:
            windows: The environments' windows.
            make_writer: Makes the writers.
            num_envs: E.
            stack: Frames in one observation.
        """
        self._windows = windows
        self._length = stack + windows.n_step
        # An episode's last step appends n rows, of which the first shares its step with a frame.
        self._writers = [make_writer(self._length + windows.n_step - 1) for _ in range(num_envs)]

    def record(
        self,
        timestep: dm_env.TimeStep,
        q_values: NDArray[np.float32],
        actions: NDArray[np.int64],
        version: int,
    ) -> None:
        """Writes the newest frames and the windows that end with them, and opens new windows."""
        rows: list[list[tuple[float, NDArray[np.float32]]]] = [[] for _ in self._writers]
        for closed in self._windows.close(timestep, q_values):
            for environment in closed.environments.tolist():
                row = np.array(
                    [
                        closed.steps,
                        closed.actions[environment],
                        closed.returns[environment],
                        closed.bootstraps[environment],
                    ],
                    np.float32,
                )
                rows[environment].append((float(closed.priorities[environment]), row))
        for environment, writer in enumerate(self._writers):
            frame = timestep.observation[environment, -1]
            if timestep.step_type[environment] == _FIRST:
                writer.end_episode()
                for _ in range(self._length - 1):
                    writer.append({"frame": frame})
            elif rows[environment]:
                self._write(writer, frame, rows[environment])
            else:
                writer.append({"frame": frame})
        self._windows.open(timestep.step_type, q_values, actions)

    def _write(
        self,
        writer: Writer,
        frame: NDArray[np.uint8],
        rows: list[tuple[float, NDArray[np.float32]]],
    ) -> None:
        """Writes a frame and the windows that end with it."""
        for behind, (priority, row) in enumerate(rows):
            writer.append({"row": row} if behind else {"frame": frame, "row": row})
            frames = writer.history["frame"][-self._length - behind : -behind or None]
            writer.create_item(priority, {"frame": frames, "row": writer.history["row"][-1]})
