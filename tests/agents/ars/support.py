"""Searches without a program, for tests: our pieces in a loop, and the algorithm written plainly.

What is recorded of a search are the variables that each iteration begins with.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Any, Optional

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agents.agent import EnvironmentSpec
from agents.ars import noise
from agents.ars.agent import Ars
from agents.ars.config import ArsConfig
from agents.ars.search import LinearSearch
from agents.search_agent import RolloutResults, Search
from environments import registry

SMALL = dataclasses.replace(
    ArsConfig.small(),
    num_directions=5,
    top_directions=3,
    rollouts_per_task=4,
    noise_table_size=5000,
    episode_limit=40,
)


def agent_of(env: str, config: ArsConfig = SMALL, agent_class: type[Ars] = Ars, *more: Any) -> Ars:
    environment = registry.load(env)
    spec = EnvironmentSpec(environment.observations, environment.actions)
    return agent_class(config, spec, *more)


def noise_of(agent: Ars, seed: int) -> NDArray[np.float32]:
    """Returns the table of noise, which is not to be changed."""
    return _table(agent.noise_size, seed)


@functools.cache
def _table(size: int, seed: int) -> NDArray[np.float32]:
    table = np.empty(size, np.float32)
    noise.fill(table, seed)
    return table


def play(agent: Ars, env: str, search: Search, task: int, seed: int) -> RolloutResults:
    """Makes a task's rollouts."""
    rollouts = agent.make_rollouts(noise_of(agent, seed), search.variables(), task, seed)
    environments = registry.load(env).make(rollouts.num_envs, rollouts.environment_seed)
    timestep = environments.reset()
    while (actions := rollouts.step(timestep)) is not None:
        timestep = environments.step(actions)
    environments.close()
    return rollouts.results()


def loop(
    agent: Ars,
    env: str,
    iterations: int,
    seed: int,
    begin: Optional[Sequence[NDArray[Any]]] = None,
) -> list[Sequence[NDArray[Any]]]:
    """Returns what each iteration begins with, and what the last ends with.

    Args:
        agent: Says how to search.
        env: Where.
        iterations: How many are made.
        seed: The search's seed.
        begin: What the first begins with, if that is not the first of all.
    """
    search = agent.make_search(noise_of(agent, seed), seed)
    if begin is not None:
        search.take_up(begin)
    found = [search.variables()]
    for _ in range(iterations):
        search.update([play(agent, env, search, task, seed) for task in range(agent.num_tasks)])
        found.append(search.variables())
    return found


def reference(agent: Ars, name: str, iterations: int, seed: int) -> list[NDArray[np.float64]]:
    """Returns the weights of a search written as the paper states it, for continuous actions.

    One rollout after the other, statistics of all observations at once, and no normalization
    before there were any.
    """
    config, table = agent.config, noise_of(agent, seed)
    environment: Any = gymnasium.make(name)
    rows, columns = environment.action_space.shape[0], environment.observation_space.shape[0]
    weights, seen = np.zeros((rows, columns)), []
    found = [weights]
    for iteration in range(iterations):
        mean = np.mean(seen, axis=0) if seen else np.zeros(columns)
        std = np.std(seen, axis=0, ddof=1) if seen else np.ones(columns)
        if not config.normalize_observations:
            mean, std = np.zeros(columns), np.ones(columns)
        begins = noise.offsets(
            seed, iteration, config.num_directions, len(table), weights.size
        ).tolist()
        deltas = [table[i : i + weights.size].reshape(weights.shape).astype(float) for i in begins]
        now, returns = [], np.zeros((config.num_directions, 2))
        for number in range(2 * config.num_directions):
            direction, sign = divmod(number, 2)
            task, place = divmod(number, config.rollouts_per_task)
            seeds = registry.member_seeds(noise.environment_seed(seed, iteration, task), place + 1)
            policy = weights + (-1) ** sign * config.noise_std * deltas[direction]
            observation, _ = environment.reset(seed=seeds[-1])
            for _ in range(config.episode_limit or 10**9):
                now.append(observation.astype(float))
                action = policy @ ((observation - mean) / std)
                space = environment.action_space
                action = np.clip(action, space.low, space.high).astype(np.float32)
                observation, reward, ended, cut, _ = environment.step(action)
                returns[direction, sign] += np.float32(reward) - config.reward_shift
                if ended or cut:
                    break
        seen += now
        best = sorted(range(len(deltas)), key=lambda i: -max(returns[i]))[: config.top_directions]
        total = sum((returns[i][0] - returns[i][1]) * deltas[i] for i in best)
        weights = weights + config.step_size / (len(best) * returns[best].std()) * total
        found.append(weights)
    return found


@dataclasses.dataclass(frozen=True)
class Recorded(Ars):
    """ARS whose search writes down the variables that it has after each update."""

    directory: str = ""

    def make_search(self, noise: NDArray[np.float32], seed: int) -> Search:
        return _RecordedSearch(self, noise, seed)


class _RecordedSearch(LinearSearch):
    def __init__(self, agent: Recorded, noise: NDArray[np.float32], seed: int) -> None:
        super().__init__(agent.config, agent.spec, noise, seed)
        self._directory = pathlib.Path(agent.directory)

    def update(self, results: Sequence[RolloutResults]) -> Any:
        metrics = super().update(results)
        known = len(list(self._directory.glob(f"{self.iteration:06}-*")))
        path = self._directory / f"{self.iteration:06}-{known}.npz"
        np.savez(path.with_suffix(".new.npz"), *self.variables())
        path.with_suffix(".new.npz").rename(path)
        return metrics


def updates(directory: pathlib.Path) -> int:
    """Returns how many updates were recorded, one made again counted once."""
    return max((int(path.name[:6]) for path in directory.glob("*-?.npz")), default=0)


def recorded(directory: pathlib.Path, update: int) -> list[list[NDArray[Any]]]:
    """Returns the variables after an update, as often as it was made."""
    found = []
    for path in directory.glob(f"{update:06}-?.npz"):
        with np.load(path) as arrays:
            found.append([arrays[name] for name in arrays])
    return found


def check_recorded(
    directory: pathlib.Path, expected: Sequence[Sequence[NDArray[Any]]], first: int = 0
) -> None:
    """Checks that after the update `first` all expected ones are there, to the last bit."""
    for update, wanted in enumerate(expected[1:], first + 1):
        found = recorded(directory, update)
        assert found, f"update {update} was not made"
        for variables in found:
            for array, array_wanted in zip(variables, wanted, strict=True):
                np.testing.assert_array_equal(array, array_wanted)
