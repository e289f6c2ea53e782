"""Statistics of observations: how they are taken, put together and used."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_SMALLEST_STD = 1e-7
"""Below it a dimension has not moved (as in the reference code)."""


class Moments(NamedTuple):
    """Statistics of observations of O numbers, of one set or, with leading dimensions, of several.

    Attributes:
        counts: int64 [...], how many observations there were.
        mean: float64 [..., O], their mean.
        m2: float64 [..., O], the sum of the squares of what they differ from it.
    """

    counts: NDArray[np.int64]
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]

    @classmethod
    def nothing(cls, *shape: int) -> "Moments":
        """Returns the statistics of no observations, shaped [..., O]."""
        return cls(np.zeros(shape[:-1], np.int64), np.zeros(shape), np.zeros(shape))

    @classmethod
    def of(cls, observations: NDArray[Any], lengths: NDArray[np.int64]) -> "Moments":
        """Takes the statistics of several sequences at once.

        Args:
            observations: [T, ..., O].
            lengths: int64 [...], how many of each sequence's T observations count, from the first.
        """
        steps = np.arange(len(observations)).reshape(-1, *(1 for _ in lengths.shape))
        is_one = (steps < lengths)[..., np.newaxis]
        number = np.maximum(lengths, 1)[..., np.newaxis]
        mean = np.sum(observations, axis=0, dtype=np.float64, where=is_one) / number
        m2 = np.sum(np.square(observations - mean), axis=0, where=is_one)
        return cls(lengths.astype(np.int64), mean, m2)


def merge(first: Moments, second: Moments) -> Moments:
    """Returns the statistics of two sets of observations together.

    That is exact, up to rounding, also where their means are far from 0 or from each other: see
    Chan, Golub & LeVeque, Updating formulae and a pairwise algorithm for computing sample
    variances, 1979, eq. 2.1.
    """
    counts = first.counts + second.counts
    share = (second.counts / np.maximum(counts, 1))[..., np.newaxis]
    apart = second.mean - first.mean
    mean = first.mean + apart * share
    m2 = first.m2 + second.m2 + np.square(apart) * share * first.counts[..., np.newaxis]
    return Moments(counts, mean, m2)


def merge_all(sets: Sequence[Moments]) -> Moments:
    """Returns the statistics of several sets together, merged in their order."""
    merged = sets[0]
    for other in sets[1:]:
        merged = merge(merged, other)
    return merged


def normalizer(moments: Moments) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns what a policy takes from an observation, and by what it then divides, float64 [O].

    That is the mean and the standard deviation, with n - 1 in its denominator as in the reference
    code; before there were two observations it is 0 and 1. A dimension that has not moved says
    nothing, and is divided by infinity.
    """
    if moments.counts < 2:
        return np.zeros_like(moments.mean), np.ones_like(moments.mean)
    std = np.sqrt(moments.m2 / (moments.counts - 1))
    return moments.mean, np.where(std < _SMALLEST_STD, np.inf, std)
