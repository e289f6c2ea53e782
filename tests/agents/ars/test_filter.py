"""Statistics that are put together are those of a single pass."""

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.ars.filter import Moments, merge_all, normalizer


def moments_of(observations: NDArray[np.float64]) -> Moments:
    return Moments.of(observations, np.asarray(len(observations)))


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9])
@pytest.mark.parametrize("sizes", [(1,) * 200, (1, 500, 2, 0, 97), (0, 0, 300), (1000,)])
def test_merged_statistics_are_those_of_one_pass(offset: float, sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    scale = np.array([1.0, 30.0, 1000.0])
    observations = offset + scale * random.standard_normal((sum(sizes), 3))
    parts = np.split(observations, np.cumsum(sizes)[:-1])
    merged = merge_all([moments_of(part) for part in parts])
    mean, std = normalizer(merged)
    assert merged.counts == len(observations)
    np.testing.assert_allclose(mean, observations.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(std, observations.std(0, ddof=1), rtol=1e-6)


def test_sets_with_means_far_apart_are_merged_exactly() -> None:
    one, other = np.full((3, 1), 1e8) + [[0], [1], [2]], np.array([[-1e8]])
    _, std = normalizer(merge_all([moments_of(one), moments_of(other)]))
    np.testing.assert_allclose(std, np.std([1e8, 1e8 + 1, 1e8 + 2, -1e8], ddof=1), rtol=1e-12)


def test_sequences_of_different_lengths_are_taken_side_by_side() -> None:
    random = np.random.default_rng(2)
    observations = random.standard_normal((10, 3, 4))
    lengths = np.array([10, 1, 0])
    several = Moments.of(observations, lengths)
    for index, length in enumerate(lengths):
        one = moments_of(observations[:length, index]) if length else Moments.nothing(4)
        assert several.counts[index] == length
        np.testing.assert_allclose(several.mean[index], one.mean)
        np.testing.assert_allclose(several.m2[index], one.m2)


@pytest.mark.parametrize("number", [0, 1])
def test_before_two_observations_nothing_is_normalized(number: int) -> None:
    mean, std = normalizer(merge_all([Moments.nothing(2), moments_of(np.full((number, 2), 7.0))]))
    np.testing.assert_array_equal(mean, [0, 0] if number == 0 else mean)
    np.testing.assert_array_equal(std, [1, 1])


def test_a_dimension_that_does_not_move_is_divided_by_infinity() -> None:
    _, std = normalizer(moments_of(np.array([[5.0, 1.0], [5.0, 2.0]])))
    assert std[0] == np.inf and np.isfinite(std[1])
