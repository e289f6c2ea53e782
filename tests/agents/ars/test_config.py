"""The configuration of ARS."""

import dataclasses
from typing import Any

import pytest
from acme import specs

from agents.agent import EnvironmentSpec
from agents.ars.agent import Ars
from agents.ars.config import ArsConfig
from usage import UsageError


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"top_directions": 33}, r"top_directions must lie between 1 and num_directions \(32\)"),
        ({"top_directions": 0}, "top_directions must lie between 1"),
        ({"num_directions": 0}, "num_directions must be greater than 0, got 0"),
        ({"step_size": 0.0}, "step_size must be greater than 0"),
        ({"noise_std": float("nan")}, "noise_std must be a finite number, got nan"),
        ({"episode_limit": 0}, "episode_limit must be greater than 0"),
        ({"rollouts_per_task": -1}, "rollouts_per_task must be greater than 0"),
    ],
)
def test_a_field_out_of_its_range_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(ArsConfig.small(), **fields)


def test_every_rollout_is_in_one_task() -> None:
    config = dataclasses.replace(
        ArsConfig.small(), num_directions=5, top_directions=5, rollouts_per_task=4
    )
    assert [list(config.rollouts_of(task)) for task in range(config.num_tasks)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


def test_a_table_smaller_than_a_policy_is_refused() -> None:
    spec = EnvironmentSpec(specs.Array((10, 5), float), specs.DiscreteArray(3))
    config = dataclasses.replace(ArsConfig.small(), noise_table_size=149)
    with pytest.raises(UsageError, match="noise_table_size must be at least 150, .* got 149"):
        Ars(config, spec)
    Ars(dataclasses.replace(config, noise_table_size=150), spec)


def test_an_environment_with_nothing_to_observe_is_refused() -> None:
    spec = EnvironmentSpec(specs.Array((0,), float), specs.DiscreteArray(3))
    with pytest.raises(UsageError, match="something to observe"):
        Ars(ArsConfig.small(), spec)
