"""What batches tell of the weights behind them, and of priorities in replay."""

from typing import Any

import numpy as np
import pytest

from agents.agent import Sample
from nodes.batch_stats import BatchStats
from nodes.origins import Origins
from nodes.sampling import Batch

INCARNATION, NUMBER = 7, 20
NOW = 1000.0


def batch(incarnation: Any, number: Any, priorities: Any, probability: Any) -> Batch:
    size = len(priorities)
    published = np.full(size, int((NOW - 3) * 1e9), np.int64)
    origins = Origins(np.array(incarnation), np.array(number), published, published)
    sample = Sample(np.array(probability), np.full(size, 10), {})
    keys, shards = np.zeros(size, np.uint64), np.zeros(size, np.int32)
    return Batch(sample, keys, np.array(priorities, np.float64), shards, origins)


@pytest.fixture
def stats(monkeypatch: pytest.MonkeyPatch) -> BatchStats:
    monkeypatch.setattr("nodes.batch_stats.time.time", lambda: NOW)
    return BatchStats()


def gauges(stats: BatchStats) -> dict[str, float]:
    return stats.gauges(INCARNATION, NUMBER)


def test_ages_are_in_seconds_and_in_versions_of_the_same_learner(stats: BatchStats) -> None:
    stats.add(batch([7, 7, 6, 0], [18, 20, 99, 0], np.ones(4), np.full(4, 0.1)))
    found = gauges(stats)
    assert found["weight_age_seconds_p50"] == pytest.approx(3.0)
    assert (found["weight_age_versions_p10"], found["weight_age_versions_max"]) == (0, 2)


def test_priorities_are_those_of_replay_not_of_the_samples(stats: BatchStats) -> None:
    # Of ten items one has the priority 9 and was drawn as often as the nine of priority 1 together.
    priorities = np.repeat([9.0, 1.0], 9)
    stats.add(batch(np.full(18, 7), np.full(18, 20), priorities, priorities / 18))
    found = gauges(stats)
    assert found["priority_share_from_1"] == pytest.approx(1.0)
    assert (found["priority_p50"], found["priority_p90"], found["priority_max"]) == (1, 1, 9)
    stats.add(batch(np.full(18, 7), np.full(18, 20), priorities / 5, priorities / 18))
    found = gauges(stats)
    assert found["priority_share_from_0.1"] == pytest.approx(0.9)
    assert found["priority_share_from_1"] == pytest.approx(0.1)


def test_where_there_was_no_batch_there_is_nothing_to_say(stats: BatchStats) -> None:
    assert gauges(stats) == {}
    stats.add(batch([7], [20], [1.0], [0.1]))
    assert gauges(stats)
    assert gauges(stats) == {}
