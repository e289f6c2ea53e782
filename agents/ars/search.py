"""The search: how an iteration's returns become a better policy (Mania et al. 2018, alg. 2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.agent import EnvironmentSpec, Variables
from agents.ars import noise as noise_
from agents.ars import variables as variables_
from agents.ars.config import ArsConfig
from agents.ars.filter import Moments, merge_all
from agents.ars.policy import shape_of
from agents.ars.variables import Found
from agents.search_agent import RolloutResults

_NAMES = ("weights", "count", "mean", "m2", "progress")
"""What each of the variables is called in a checkpoint."""


def top_directions(
    plus: NDArray[np.float64], minus: NDArray[np.float64], number: int
) -> NDArray[np.int64]:
    """Returns exactly `number` directions, in ascending order: those with the best rollouts.

    What counts is the higher of a direction's two returns; of directions that are equal, those
    that come first are taken.

    Args:
        plus: Returns along each direction, [N].
        minus: Returns along its opposite, [N].
        number: b, how many are used.
    """
    order = np.argsort(-np.maximum(plus, minus), kind="stable")
    return np.sort(order[:number])


def step(
    plus: NDArray[np.float64],
    minus: NDArray[np.float64],
    directions: Sequence[NDArray[np.float32]],
    step_size: float,
) -> NDArray[np.float64]:
    """Returns what is added to the weights: alpha / (b sigma_R) sum_k (r+_k - r-_k) delta_k.

    sigma_R is the standard deviation of the 2b returns, with 2b in its denominator. Where it is 0,
    as all returns are equal, there is nothing to go by and the weights stay as they are.

    Args:
        plus: Returns along each direction that is used, [b].
        minus: Returns along its opposite, [b].
        directions: delta_k, float32 [P, O] each, of unit variance: `noise_std` is not in them.
        step_size: alpha.
    """
    total = np.zeros(directions[0].shape)
    deviation = np.std([plus, minus])
    if deviation > 0:
        for difference, direction in zip(plus - minus, directions, strict=True):
            total += difference * direction.astype(np.float64)
        total *= step_size / (len(directions) * deviation)
    return total


class LinearSearch:
    """Looks for a linear policy; an `agents.search_agent.Search`."""

    def __init__(
        self, config: ArsConfig, spec: EnvironmentSpec, noise: NDArray[np.float32], seed: int
    ) -> None:
        """Begins a search, with weights of 0 as in the paper.

        Args:
            config: The configuration.
            spec: What there is to observe and to do.
            noise: The table of noise.
            seed: Says which directions are tried.
        """
        self._config = config
        self._noise = noise
        self._seed = seed
        shape = shape_of(spec)
        self._found = Found(np.zeros(shape), Moments.nothing(shape[1]), 0, 0)

    @property
    def iteration(self) -> int:
        """Updates that were made."""
        return self._found.iteration

    @property
    def environment_steps(self) -> int:
        """Steps of all rollouts that the updates used."""
        return self._found.environment_steps

    @property
    def rollouts(self) -> int:
        """Rollouts that the updates used."""
        return self._found.iteration * self._config.num_rollouts

    def update(self, results: Sequence[RolloutResults]) -> Mapping[str, float]:
        """Makes an update.

        Args:
            results: Those of all of the iteration's tasks, in their order.

        Returns:
            Scalars of the iteration by name.

        Raises:
            FloatingPointError: The new weights are not finite; nothing has changed.
        """
        config, found = self._config, self._found
        returns = np.concatenate([result.returns for result in results])
        steps = np.concatenate([result.steps for result in results])
        plus, minus = (returns - config.reward_shift * steps).reshape(-1, 2).T
        used = top_directions(plus, minus, config.top_directions)
        offsets = noise_.offsets(
            self._seed,
            found.iteration,
            config.num_directions,
            len(self._noise),
            found.weights.size,
        )
        directions = [
            noise_.direction(self._noise, offsets[index], found.weights.shape) for index in used
        ]
        change = step(plus[used], minus[used], directions, config.step_size)
        weights = found.weights + change
        if not np.isfinite(weights).all():
            raise FloatingPointError(
                f"the weights of iteration {found.iteration + 1} are not finite: make step_size "
                f"({config.step_size:g}) smaller"
            )
        self._found = Found(
            weights,
            merge_all([found.moments, *_rollouts(results)]),
            found.iteration + 1,
            found.environment_steps + int(steps.sum()),
        )
        return {
            "return_mean": float(returns.mean()),
            "return_max": float(returns.max()),
            "return_std": float(np.std([plus[used], minus[used]])),
            "step_norm": float(np.linalg.norm(change)),
            "weights_norm": float(np.linalg.norm(self._found.weights)),
            "rollout_steps_mean": float(steps.mean()),
        }

    def variables(self) -> Variables:
        """Returns all that the next iteration depends on; the arrays are only read."""
        return variables_.pack(self._found)

    def take_up(self, variables: Variables) -> None:
        """Goes on with what `variables` returned.

        Raises:
            ValueError: They are those of another kind of search.
        """
        found = variables_.unpack([np.array(array) for array in variables])
        if found.weights.shape != self._found.weights.shape:
            raise ValueError(
                f"weights {list(found.weights.shape)} are not those of this search, "
                f"{list(self._found.weights.shape)}"
            )
        self._found = found

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Copies all that the next iteration depends on, by name."""
        arrays = map(np.array, self.variables())
        return dict(zip(_NAMES, arrays, strict=True))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Takes up what `state` returned, perhaps in another process.

        Raises:
            ValueError: It is the state of another kind of search.
        """
        if state.keys() != {*_NAMES}:
            raise ValueError(f"a search has {', '.join(_NAMES)}, this has {', '.join(state)}")
        self.take_up([state[name] for name in _NAMES])


def _rollouts(results: Sequence[RolloutResults]) -> list[Moments]:
    """Returns the statistics of each rollout, in their order."""
    return [
        Moments(*one)
        for result in results
        for one in zip(result.counts, result.means, result.m2s, strict=True)
    ]
