"""What an update does with an iteration's returns."""

import dataclasses

import numpy as np
import pytest

from agents.ars import noise
from agents.ars.filter import Moments
from agents.ars.policy import LinearPolicies
from agents.ars.search import step, top_directions
from agents.search_agent import RolloutResults
from tests.agents.ars.support import SMALL, agent_of, loop, noise_of, play, reference

PENDULUM = "gym:Pendulum-v1"


def test_exactly_b_directions_are_used_also_where_many_are_equal() -> None:
    equal = np.ones(6)
    np.testing.assert_array_equal(top_directions(equal, equal, 4), [0, 1, 2, 3])
    plus, minus = np.array([1.0, 5, 2, 5, 0]), np.array([5.0, 0, 2, 1, 9])
    np.testing.assert_array_equal(top_directions(plus, minus, 1), [4])
    np.testing.assert_array_equal(top_directions(plus, minus, 3), [0, 1, 4])
    np.testing.assert_array_equal(top_directions(plus, minus, 5), range(5))


def test_a_step_is_what_the_paper_says() -> None:
    directions = [np.array([[1.0, 0.0]], np.float32), np.array([[0.0, 2.0]], np.float32)]
    # The returns 3, 1, 1, 3 have a standard deviation of 1.
    change = step(np.array([3.0, 1.0]), np.array([1.0, 3.0]), directions, 0.5)
    np.testing.assert_allclose(change, [[0.5 / 2 * 2, -0.5 / 2 * 4]])


def test_where_all_returns_are_equal_the_weights_stay() -> None:
    directions = [np.ones((1, 2), np.float32)] * 3
    np.testing.assert_array_equal(step(np.full(3, 0.1), np.full(3, 0.1), directions, 1.0), [[0, 0]])


def test_equal_returns_take_an_iteration_but_change_nothing() -> None:
    agent = agent_of("catch")
    search = agent.make_search(noise_of(agent, 0), 0)
    results = [
        RolloutResults(
            np.full(n, 7.0), np.full(n, 3), np.zeros(n, int), np.zeros((n, 50)), np.zeros((n, 50))
        )
        for n in map(agent.rollouts_in, range(agent.num_tasks))
    ]
    assert search.update(results)["return_std"] == 0
    assert search.iteration == 1 and search.environment_steps == 30 and search.rollouts == 10
    assert not search.variables()[0].any()


def test_the_reward_shift_is_taken_from_each_step_while_learning() -> None:
    agent = agent_of(
        "catch", dataclasses.replace(SMALL, reward_shift=2.0, normalize_observations=False)
    )
    search = agent.make_search(noise_of(agent, 0), 0)
    returns, steps = 2.0 * np.arange(10), np.arange(10)
    nothing = Moments.nothing(10, 50)
    metrics = search.update([RolloutResults(returns, steps, *nothing)])
    assert metrics["return_std"] == 0 and metrics["return_mean"] == 9


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"normalize_observations": False, "top_directions": 5},
        {"normalize_observations": False},
        {"top_directions": 5, "reward_shift": 1.0},
    ],
    ids=["V2-t", "V1", "V1-t", "V2"],
)
def test_updates_are_those_of_the_algorithm_written_plainly(changes: dict[str, object]) -> None:
    config = dataclasses.replace(SMALL, **changes)
    agent = agent_of(PENDULUM, config)
    found = [variables[0] for variables in loop(agent, PENDULUM, 3, seed=5)]
    expected = reference(agent, "Pendulum-v1", 3, seed=5)
    for before, after, old, new in zip(
        found[:-1], found[1:], expected[:-1], expected[1:], strict=True
    ):
        np.testing.assert_allclose(after - before, new - old, rtol=1e-5)
    assert np.abs(found[-1]).max() > 1e-2


def test_a_search_goes_on_from_its_state_as_if_nothing_had_been() -> None:
    agent = agent_of("catch")
    expected = loop(agent, "catch", 4, seed=1)
    first = agent.make_search(noise_of(agent, 1), 1)
    first.take_up(expected[2])
    second = agent.make_search(noise_of(agent, 1), 1)
    second.restore(first.state())
    for _ in range(2):
        second.update([play(agent, "catch", second, t, 1) for t in range(agent.num_tasks)])
    for array, wanted in zip(second.variables(), expected[4], strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_the_state_of_another_search_is_refused() -> None:
    agent, other = agent_of("catch"), agent_of(PENDULUM)
    search = agent.make_search(noise_of(agent, 0), 0)
    with pytest.raises(ValueError, match=r"\[1, 3\] are not those of this search, \[3, 50\]"):
        search.restore(other.make_search(noise_of(other, 0), 0).state())
    with pytest.raises(ValueError, match="this has step"):
        search.restore({"step": np.zeros(1)})


def test_rollouts_end_at_their_limit_and_only_their_own_steps_count() -> None:
    agent = agent_of("gym:CartPole-v1", dataclasses.replace(SMALL, episode_limit=15))
    search = agent.make_search(noise_of(agent, 3), 3)
    results = play(agent, "gym:CartPole-v1", search, 0, 3)
    np.testing.assert_array_equal(results.returns, results.steps)  # A reward of 1 a step.
    np.testing.assert_array_equal(results.counts, results.steps)  # One is seen before each.
    assert results.steps.max() <= 15 and results.steps.min() < 15


def test_offsets_cover_the_table_and_depend_on_seed_and_iteration() -> None:
    found = noise.offsets(0, 0, 1000, 12, 10)
    assert set(found) == {0, 1, 2}
    big = [noise.offsets(seed, k, 50, 10**6, 10).tolist() for seed in (0, 1) for k in (0, 1)]
    assert len({tuple(offsets) for offsets in big}) == 4
    assert big[0] == noise.offsets(0, 0, 50, 10**6, 10).tolist()


def test_continuous_actions_are_clipped_and_discrete_ones_are_the_largest() -> None:
    pendulum, catch = agent_of(PENDULUM).spec, agent_of("catch").spec
    weights = np.array([[[9.0, 0, 0]], [[0, 1.0, 0]], [[0, 0, -9.0]]])
    policies = LinearPolicies(pendulum, weights, np.zeros(3), np.ones(3))
    actions = policies.actions(np.ones((3, 3), np.float32))
    np.testing.assert_array_equal(actions, np.array([[2], [1], [-2]], np.float32))
    assert actions.dtype == np.float32
    choices = np.zeros((2, 3, 50))
    choices[1, 2, 7] = 1.0
    observation = np.zeros((2, 10, 5), np.float32)
    observation[:, 1, 2] = 1.0  # Number 7 of those in a row.
    policies = LinearPolicies(catch, choices, np.zeros(50), np.ones(50))
    np.testing.assert_array_equal(policies.actions(observation), [0, 2])


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_weights_that_overflow_are_told_with_what_to_make_smaller() -> None:
    agent = agent_of("catch", dataclasses.replace(SMALL, step_size=1.7e308))
    search = agent.make_search(noise_of(agent, 0), 0)
    nothing = Moments.nothing(10, 50)
    returns = np.arange(10.0)
    with pytest.raises(FloatingPointError, match="are not finite: make step_size"):
        for _ in range(20):
            search.update([RolloutResults(returns, np.ones(10, int), *nothing)])
    agent = agent_of("catch", dataclasses.replace(SMALL, noise_std=1e308))
    table = 10 * noise_of(agent, 0)
    with pytest.raises(FloatingPointError, match="iteration 0 tries are not finite"):
        agent.make_rollouts(table, agent.make_search(table, 0).variables(), 0, 0)


def test_every_task_of_every_iteration_has_environments_of_its_own() -> None:
    seeds = {
        noise.environment_seed(seed, iteration, task)
        for seed in range(3)
        for iteration in range(4)
        for task in range(5)
    }
    assert len(seeds) == 60 and all(0 <= seed < 2**31 for seed in seeds)
