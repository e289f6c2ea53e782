"""In what proportion samples are drawn from the shards of a replay.

One big table would draw item i with P(i) = p_i^alpha / M, where M is the sum of all p_j^alpha, its
mass. A shard s with the mass M_s draws its items with p_i^alpha / M_s; so where each draw takes
its shard with M_s / M, an item is drawn as it would be from the one table.
"""

from collections.abc import Mapping

import numpy as np


def mass(priority: float, probability: float, exponent: float) -> float:
    """Returns a table's mass, from one sample out of it: p^alpha / P."""
    return float(priority**exponent / probability) if probability > 0 else 0.0


def shares(masses: Mapping[int, float]) -> dict[int, float]:
    """Returns the probability with which a draw takes each shard; where no mass is, all alike."""
    total = sum(masses.values())
    if total <= 0:
        return dict.fromkeys(masses, 1 / len(masses))
    return {shard: mass / total for shard, mass in masses.items()}


def draw(rng: np.random.Generator, number: int, masses: Mapping[int, float]) -> dict[int, int]:
    """Draws `number` times by mass, and returns how often each shard was drawn, if it was."""
    chosen = shares(masses)
    counts = rng.multinomial(number, list(chosen.values())).tolist()
    return {shard: count for shard, count in zip(chosen, counts, strict=True) if count}
