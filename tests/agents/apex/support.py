"""Scripted environments, and a replay that shows what an actor makes of them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

import dm_env
import numpy as np
from acme import specs

from agents import acting as acting_
from agents.agent import EnvironmentSpec, TableSpec, Variables, WriterFactory
from agents.apex import acting, items
from tests.agents.episodes import LAST, NUM_ACTIONS, Step


class ScriptedNetwork:
    """A Q-network that is a given function of the observations, and counts its calls."""

    num_envs = 0

    def __init__(self, function: Callable[[np.ndarray], np.ndarray]) -> None:
        self._function = function
        self.calls = 0

    def __call__(self, timestep: dm_env.TimeStep, previous_actions: np.ndarray) -> np.ndarray:
        self.calls += 1
        return self._function(timestep.observation).astype(np.float32)

    def set_variables(self, variables: Variables) -> None:
        raise AssertionError("a script has no variables")


VECTOR = EnvironmentSpec(specs.Array((1,), np.float32), specs.DiscreteArray(NUM_ACTIONS))
FRAMES = EnvironmentSpec(specs.Array((4, 3, 3), np.uint8), specs.DiscreteArray(NUM_ACTIONS), True)


def table(spec: EnvironmentSpec, n_step: int = 3) -> TableSpec:
    """Returns a table for the items of `make_actor`."""
    return TableSpec(
        name="windows",
        item=items.item_spec(spec, n_step),
        max_size=10_000,
        min_size=1,
        priority_exponent=0.6,
        samples_per_insert=None,
        error_buffer=None,
        bytes_per_item=1,
    )


def make_actor(
    spec: EnvironmentSpec,
    network: ScriptedNetwork,
    make_writer: WriterFactory,
    num_envs: int = 1,
    n_step: int = 3,
    reward_clip: Optional[float] = None,
    priority_epsilon: float = 0.0,
    epsilon: float = 0.0,
) -> acting_.EpsilonGreedyActor:
    """Returns an actor with a discount of 0.5."""
    windows = acting.NStepWindows(num_envs, n_step, 0.5, reward_clip, priority_epsilon)
    recorder: acting_.Recorder
    if spec.frame_stack:
        recorder = acting.FrameRecorder(windows, make_writer, num_envs, stack=4)
    else:
        size = items.observation_size(spec)
        recorder = acting.VectorRecorder(windows, make_writer, num_envs, size)
    epsilons = np.full(num_envs, epsilon)
    return acting_.EpsilonGreedyActor(
        network, NUM_ACTIONS, epsilons, recorder, np.dtype(np.int32), seed=0
    )


class Window(NamedTuple):
    """A window as the papers define it, for comparison."""

    begin: np.ndarray
    end: np.ndarray
    steps: int
    action: int
    value: float
    bootstrap: float


def windows_of(
    steps: Sequence[Step], actions: Sequence[int], n_step: int, clip: float
) -> list[Window]:
    """Returns the windows of a stream of episodes, one by one, with a discount of 0.5."""
    windows = []
    for t, step in enumerate(steps):
        if step.step_type == LAST:
            continue
        value, m = 0.0, 0
        while m < n_step and (m == 0 or steps[t + m].step_type != LAST):
            if t + m + 1 == len(steps):
                return windows
            value += 0.5**m * min(clip, max(-clip, steps[t + m + 1].reward))
            m += 1
        end = steps[t + m]
        windows.append(
            Window(step.observation, end.observation, m, actions[t], value, 0.5**m * end.discount)
        )
    return windows
