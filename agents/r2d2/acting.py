"""From an actor's timesteps to prioritized sequences; `items` draws what they look like.

Each environment has one sequence under construction, an array of T + 1 rows; each timestep fills
the next row. A full one is written, and its rows move up by `period`: what is left begins the next
sequence. The end of an episode writes what there is to be trained on.
"""

import dm_env
import numpy as np
from numpy.typing import NDArray

from agents.agent import EnvironmentSpec, WriterFactory
from agents.r2d2 import items, values
from agents.r2d2.config import R2D2Config
from agents.r2d2.networks import Memory

_FIRST = int(dm_env.StepType.FIRST)
_LAST = int(dm_env.StepType.LAST)


class SequenceRecorder:
    """Writes overlapping sequences; implements `agents.acting.Recorder`."""

    def __init__(
        self, config: R2D2Config, spec: EnvironmentSpec, memory: Memory, make_writer: WriterFactory
    ) -> None:
        """Makes one writer for all environments, or one for each where there are frames.

        Args:
            config: R2D2's configuration.
            spec: The environment's specs.
            memory: The memory of the actor's policy.
            make_writer: Makes the writers.
        """
        self._config = config
        self._memory = memory
        self._environments = np.arange(len(memory.before))
        num_envs, length = len(memory.before), config.trace_length + 1
        self._stack = spec.observations.shape[0] if spec.frame_stack else 0
        width = items.OBSERVATION + items.observation_size(spec)
        self._actions = np.zeros(num_envs, np.int64)
        self._version = 0
        self._newest = np.zeros(num_envs, np.int64)  # row of the newest timestep
        self._rows = np.zeros((num_envs, length, width), np.float32)
        self._states = np.zeros((num_envs, length, config.state_size), np.float32)
        self._versions = np.zeros((num_envs, length), np.int64)
        self._taken = np.zeros((num_envs, length), np.float32)
        self._best = np.zeros((num_envs, length), np.float32)
        if self._stack:
            self._num_frames = self._stack + config.trace_length
            self._no_frame = np.zeros(spec.observations.shape[1:], np.uint8)
            self._writers = [make_writer(self._num_frames) for _ in range(num_envs)]
        else:
            self._writers = [make_writer(1)] * num_envs

    def record(
        self,
        timestep: dm_env.TimeStep,
        q_values: NDArray[np.float32],
        actions: NDArray[np.int64],
        version: int,
    ) -> None:
        """Adds the newest timestep of every environment and writes the sequences that end."""
        first, last = timestep.step_type == _FIRST, timestep.step_type == _LAST
        self._finish_steps(timestep, np.flatnonzero(~first))
        for environment in np.flatnonzero(first).tolist():
            self._begin_episode(environment, timestep, version)
        self._newest += 1
        where = self._environments, self._newest
        self._rows[where + (items.PREVIOUS_ACTION,)] = np.where(first, -1, self._actions)
        self._rows[where + (items.PREVIOUS_REWARD,)] = np.where(first, 0, timestep.reward)
        self._rows[where + (items.ACTION,)] = actions
        self._states[where] = self._memory.before
        self._versions[where] = np.where(first, version, self._version)
        self._actions, self._version = actions, version
        self._taken[where] = q_values[self._environments, actions]
        self._best[where] = q_values.max(axis=1)
        if not self._stack:
            observation = timestep.observation.reshape(len(actions), -1)
            self._rows[self._environments, self._newest, items.OBSERVATION :] = observation
        full = self._newest == self._config.trace_length
        ends = full | last & (self._newest > self._config.burn_in)
        if self._stack:
            for environment in np.flatnonzero(~ends).tolist():
                frame = timestep.observation[environment, -1]
                self._writers[environment].append({"frame": frame})
        if ends.any():
            self._write(timestep, np.flatnonzero(ends))
            for environment in np.flatnonzero(full & ~last).tolist():
                self._move_up(environment)

    def _finish_steps(self, timestep: dm_env.TimeStep, environments: NDArray[np.int64]) -> None:
        """Writes down what came of the steps before the newest timestep."""
        where = environments, self._newest[environments]
        reward, clip = timestep.reward[environments], self._config.reward_clip
        self._rows[where + (items.REWARD,)] = reward if clip is None else reward.clip(-clip, clip)
        self._rows[where + (items.DISCOUNT,)] = timestep.discount[environments]
        self._rows[where + (items.REAL,)] = 1

    def _begin_episode(self, environment: int, timestep: dm_env.TimeStep, version: int) -> None:
        """Puts the burn-in's padding before the episode's first timestep, which is the next row."""
        for array in self._arrays():
            array[environment] = 0
        self._versions[environment] = version
        self._newest[environment] = self._config.burn_in - 1
        if self._stack:
            self._writers[environment].end_episode()
            frame = timestep.observation[environment, -1]
            for _ in range(self._stack - 1 + self._config.burn_in):
                self._writers[environment].append({"frame": frame})

    def _move_up(self, environment: int) -> None:
        """Makes the begin of the next sequence out of the end of the one just written."""
        period = self._config.period
        for array in self._arrays():
            array[environment, :-period] = array[environment, period:]
            array[environment, -period:] = 0
        self._newest[environment] -= period

    def _arrays(self) -> tuple[NDArray[np.generic], ...]:
        return self._rows, self._states, self._versions, self._taken, self._best

    def _write(self, timestep: dm_env.TimeStep, ends: NDArray[np.int64]) -> None:
        """Writes the sequences of the environments `ends`."""
        priorities = self._priorities(ends).tolist()
        for environment, priority in zip(ends.tolist(), priorities, strict=True):
            writer = self._writers[environment]
            row = items.pack(
                self._versions[environment, 0],
                self._states[environment, 0],
                self._rows[environment],
            )
            columns = {"row": row}
            if self._stack:
                padding = self._config.trace_length - int(self._newest[environment])
                frames = [timestep.observation[environment, -1], *[self._no_frame] * padding]
                for frame in frames[:-1]:
                    writer.append({"frame": frame})
                columns["frame"] = frames[-1]
            writer.append(columns)
            item = {name: writer.history[name][-1] for name in columns}
            if self._stack:
                item["frame"] = writer.history["frame"][-self._num_frames :]
            writer.create_item(priority, item)

    def _priorities(self, ends: NDArray[np.int64]) -> NDArray[np.float32]:
        """Computes the sequences' priorities from the values that were acted on, float32 [K]."""
        config, trained = self._config, slice(self._config.burn_in, self._config.trace_length)
        rows = self._rows[ends, trained].swapaxes(0, 1)
        real = rows[..., items.REAL]
        targets = values.n_step_targets(
            np,
            rows[..., items.REWARD],
            rows[..., items.DISCOUNT] * np.float32(config.discount),
            values.unscale(self._best[ends, config.burn_in :].T),
            real,
            config.n_step,
        )
        error = values.rescale(targets) - self._taken[ends, trained].T
        priorities = values.sequence_priority(np, error, real, config.max_priority_weight)
        return np.asarray(priorities + np.float32(config.priority_epsilon))
