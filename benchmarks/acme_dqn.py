"""Acme's single-process DQN on the network and environment of ours; one line of JSON at the end.

python -m benchmarks.acme_dqn --env=catch --seconds=40 [--solved_at=0.95]
"""

import json
import time
from collections.abc import Sequence

import acme
import dm_env
import gymnasium
import numpy as np
import tensorflow as tf
from absl import app, flags
from acme import specs
from acme.agents.tf import dqn
from acme.utils import loggers
from bsuite.environments import catch
from dm_env import specs as dm_specs

from agents.agent import EnvironmentSpec
from agents.apex.networks import DuelingNetwork

ENV = flags.DEFINE_enum("env", "catch", ["catch", "gym:CartPole-v1"], "The environment.")
SECONDS = flags.DEFINE_float("seconds", 40, "Longest time.")
SOLVED_AT = flags.DEFINE_float("solved_at", None, "Mean of 100 greedy episodes that ends it.")
SAMPLES_PER_INSERT = flags.DEFINE_float("samples_per_insert", 8, "Samples an inserted item.")
EVALUATION_PERIOD_SECONDS = 2.0


class CartPole(dm_env.Environment):
    """gymnasium's CartPole as a dm_env environment."""

    def __init__(self, seed: int) -> None:
        self._environment = gymnasium.make("CartPole-v1")
        self._environment.reset(seed=seed)

    def observation_spec(self) -> dm_specs.Array:
        return dm_specs.Array((4,), np.float32)

    def action_spec(self) -> dm_specs.DiscreteArray:
        return dm_specs.DiscreteArray(2)

    def reset(self) -> dm_env.TimeStep:
        return dm_env.restart(self._environment.reset()[0])

    def step(self, action: int) -> dm_env.TimeStep:
        observation, reward, terminated, truncated, _ = self._environment.step(int(action))
        make = dm_env.transition
        if terminated:
            make = dm_env.termination
        elif truncated:
            make = dm_env.truncation
        return make(np.float32(reward), observation)


def make_environment(seed: int) -> dm_env.Environment:
    environment = catch.Catch(seed=seed) if ENV.value == "catch" else CartPole(seed)
    return acme.wrappers.SinglePrecisionWrapper(environment)


def greedy_mean(network: DuelingNetwork, environment: dm_env.Environment) -> float:
    values_of = tf.function(network)
    returns = []
    for _ in range(100):
        timestep, total = environment.reset(), 0.0
        while not timestep.last():
            values = values_of(timestep.observation[None]).numpy()
            timestep = environment.step(int(values.argmax()))
            total += timestep.reward
        returns.append(total)
    return float(np.mean(returns))


def main(_: Sequence[str]) -> None:
    environment, evaluation = make_environment(0), make_environment(1)
    spec = specs.make_environment_spec(environment)
    network = DuelingNetwork(EnvironmentSpec(spec.observations, spec.actions), (64, 64), 0)
    agent = dqn.DQN(
        spec,
        network,
        batch_size=256,
        samples_per_insert=SAMPLES_PER_INSERT.value,
        n_step=5,
        checkpoint=False,
        logger=loggers.NoOpLogger(),
    )
    loop = acme.EnvironmentLoop(environment, agent, logger=loggers.NoOpLogger())
    while agent._num_observations <= agent._min_observations:
        loop.run_episode()
    steps, evaluating, next_evaluation = 0, 0.0, EVALUATION_PERIOD_SECONDS
    began, mean = time.monotonic(), None
    while (spent := time.monotonic() - began - evaluating) < SECONDS.value:
        steps += loop.run_episode()["episode_length"]
        if SOLVED_AT.value is not None and spent > next_evaluation:
            next_evaluation = spent + EVALUATION_PERIOD_SECONDS
            paused = time.monotonic()
            mean = greedy_mean(network, evaluation)
            evaluating += time.monotonic() - paused
            if mean >= SOLVED_AT.value:
                break
    print(
        json.dumps(
            {
                "seconds": round(spent, 2),
                "steps": steps,
                "steps_per_second": round(steps / spent, 1),
                "samples_per_second": round(steps * SAMPLES_PER_INSERT.value / spent, 1),
                "greedy_mean": mean,
            }
        )
    )


if __name__ == "__main__":
    app.run(main)
