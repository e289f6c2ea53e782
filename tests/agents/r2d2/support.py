"""A recurrent policy that can be followed by hand, and an actor that writes with it."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import dm_env
import numpy as np
from acme import specs

from agents.acting import EpsilonGreedyActor
from agents.agent import EnvironmentSpec, TableSpec, Variables, WriterFactory
from agents.r2d2 import items
from agents.r2d2.acting import SequenceRecorder
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.r2d2.networks import Memory
from tests.agents.episodes import NUM_ACTIONS, Step, batch, observed_value
from tests.agents.reverb_replay import Item

VECTOR = EnvironmentSpec(specs.Array((1,), np.float32), specs.DiscreteArray(NUM_ACTIONS))
FRAMES = EnvironmentSpec(specs.Array((4, 36, 36), np.uint8), specs.DiscreteArray(NUM_ACTIONS), True)

TINY = R2D2Config(
    discount=0.5,
    n_step=2,
    hidden_sizes=(4,),
    batch_size=2,
    replay_size=1000,
    min_replay_size=2,
    lstm_size=1,
    head_size=3,
    trace_length=4,
    burn_in=1,
    period=2,
    priority_epsilon=1e-9,
)
"""Traces of 4 steps, of which 3 are trained on, that begin 2 steps apart."""


class CountingPolicy:
    """Values action 0 at the observation's number; its state counts an episode's timesteps."""

    def __init__(self, num_envs: int, config: R2D2Config) -> None:
        self.num_envs = num_envs
        self.memory = Memory(num_envs, config.lstm_size)

    def __call__(self, timestep: dm_env.TimeStep, previous_actions: np.ndarray) -> np.ndarray:
        self.memory.see(timestep, previous_actions)
        self.memory.after = self.memory.before + 1
        return observed_value(timestep.observation)

    def set_variables(self, variables: Variables) -> None:
        """Has none."""


class Unpacked(NamedTuple):
    """An item of replay, taken apart."""

    version: int
    state: np.ndarray
    timesteps: np.ndarray


def taken_apart(item: Item, config: R2D2Config = TINY) -> Unpacked:
    sizes = config.trace_length, config.state_size
    (version,), (state,), (timesteps,) = items.unpack(np, item.data["row"][None], *sizes)
    return Unpacked(int(version), state, timesteps)


def table(config: R2D2Config, spec: EnvironmentSpec) -> TableSpec:
    return dataclasses.replace(R2D2(config, spec).table, min_size=1)


def make_actor(
    make_writer: WriterFactory,
    config: R2D2Config = TINY,
    spec: EnvironmentSpec = VECTOR,
    num_envs: int = 1,
) -> EpsilonGreedyActor:
    """Returns a greedy actor, which always takes action 0."""
    policy = CountingPolicy(num_envs, config)
    recorder = SequenceRecorder(config, spec, policy.memory, make_writer)
    dtype = np.dtype(np.int32)
    return EpsilonGreedyActor(policy, NUM_ACTIONS, np.zeros(num_envs), recorder, dtype, seed=0)


def play(actor: EpsilonGreedyActor, *environments: Sequence[Step]) -> None:
    """Lets the actor see environments' steps, as many as the shortest has."""
    for steps in zip(*environments):  # noqa: B905
        actor.step(batch(steps))
