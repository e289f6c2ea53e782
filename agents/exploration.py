"""Exploration that every value-based agent shares: one epsilon for each environment."""

import numpy as np
from numpy.typing import NDArray


def epsilon_ladder(num: int, base: float = 0.4, alpha: float = 7.0) -> NDArray[np.float64]:
    """Returns the exploration rate of each of `num` environments, from most to least random.

        epsilon_i = base ** (1 + alpha * i / (num - 1)),    i = 0 ... num - 1

    (Horgan et al. 2018, Atari experiments, whose base and alpha are the defaults here). A single
    environment gets `base`.

    Args:
        num: N, the environments of all actors together, at least 1.
        base: The largest rate, between 0 and 1.
        alpha: How far the smallest rate lies below it: it is `base ** (1 + alpha)`.

    Returns:
        float64 [N].

    Raises:
        ValueError: `num` is smaller than 1.
    """
    if num < 1:
        raise ValueError(f"A ladder needs at least one environment, got {num}.")
    return np.asarray(base ** (1.0 + alpha * np.arange(num) / max(1, num - 1)))


def epsilon_greedy(
    rng: np.random.Generator, q_values: NDArray[np.float32], epsilons: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Chooses an action for each of E environments.

    With probability epsilon the action is drawn uniformly from all A actions, otherwise it is the
    one with the largest value, and the first of these where several are equal.

    Args:
        rng: Where the randomness comes from; the same numbers are drawn whatever the values are.
        q_values: float [E, A].
        epsilons: float [E].

    Returns:
        int64 [E].
    """
    num_envs, num_actions = q_values.shape
    explores = rng.random(num_envs) < epsilons
    return np.where(explores, rng.integers(num_actions, size=num_envs), q_values.argmax(axis=1))
