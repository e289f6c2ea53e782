"""The sequences that an actor writes, read back from a real replay."""

import dataclasses

import numpy as np
import pytest

from agents.r2d2 import items, values
from tests.agents.episodes import FIRST, episode, numbers
from tests.agents.r2d2.support import (
    FRAMES,
    TINY,
    VECTOR,
    make_actor,
    play,
    table,
    taken_apart,
)

COLUMNS = [
    items.OBSERVATION,
    items.PREVIOUS_ACTION,
    items.PREVIOUS_REWARD,
    items.ACTION,
    items.REWARD,
    items.DISCOUNT,
    items.REAL,
]
NOTHING = [0, 0, 0, 0, 0, 0, 0]


def written(make_replay, *episodes, config=TINY):
    """Plays episodes of one environment and returns what is in replay then."""
    replay = make_replay(table(config, VECTOR))
    play(make_actor(replay.make_writer, config), [step for steps in episodes for step in steps])
    return replay.take_all()


def sequences(make_replay, *episodes, config=TINY):
    """Returns the timesteps of what `written` returns."""
    taken = written(make_replay, *episodes, config=config)
    return [taken_apart(item, config).timesteps for item in taken]


def rows(timesteps):
    return timesteps[:, COLUMNS].tolist()


def observed(timesteps):
    """Returns a sequence's observations and which of its timesteps are real."""
    return timesteps[:, items.OBSERVATION].tolist(), timesteps[:, items.REAL].tolist()


def test_an_episode_shorter_than_a_trace_makes_one_padded_sequence(make_replay):
    # Action 0 is always the best, and nothing leads to an episode's first timestep.
    (item,) = sequences(make_replay, episode(numbers(7, 8, 9), [1, 2], terminal=True))
    assert rows(item) == [
        NOTHING,
        [7, -1, 0, 0, 1, 1, 1],
        [8, 0, 1, 0, 2, 0, 1],
        [9, 0, 2, 0, 0, 0, 0],
        NOTHING,
    ]


def test_a_truncated_episode_keeps_what_its_last_state_needs_for_a_value(make_replay):
    (item,) = sequences(make_replay, episode(numbers(7, 8, 9), [1, 2], terminal=False))
    assert rows(item)[2:] == [[8, 0, 1, 0, 2, 1, 1], [9, 0, 2, 0, 0, 0, 0], NOTHING]


def test_an_episode_as_long_as_the_trained_part_makes_one_whole_sequence(make_replay):
    items_ = sequences(make_replay, episode(numbers(1, 2, 3, 4), [0] * 3, terminal=True))
    assert [observed(item) for item in items_] == [([0, 1, 2, 3, 4], [0, 1, 1, 1, 0])]


def test_a_longer_episode_makes_overlapping_sequences_and_a_padded_one(make_replay):
    items_ = sequences(make_replay, episode(numbers(*range(1, 8)), [0] * 6, terminal=True))
    assert [observed(item) for item in items_] == [
        ([0, 1, 2, 3, 4], [0, 1, 1, 1, 0]),
        ([2, 3, 4, 5, 6], [1, 1, 1, 1, 0]),
        ([4, 5, 6, 7, 0], [1, 1, 1, 0, 0]),
    ]


def test_an_episode_that_ends_with_a_full_sequence_makes_no_other(make_replay):
    items_ = sequences(make_replay, episode(numbers(*range(1, 7)), [0] * 5, terminal=True))
    assert [observed(item) for item in items_] == [
        ([0, 1, 2, 3, 4], [0, 1, 1, 1, 0]),
        ([2, 3, 4, 5, 6], [1, 1, 1, 1, 0]),
    ]


def test_sequences_never_cross_episodes(make_replay):
    first = episode(numbers(1, 2, 3, 4, 5), [0] * 4, terminal=True)
    second = episode(numbers(11, 12, 13, 14), [0] * 3, terminal=False)
    items_ = sequences(make_replay, first, second)
    assert [observed(item)[0] for item in items_] == [
        [0, 1, 2, 3, 4],
        [2, 3, 4, 5, 0],
        [0, 11, 12, 13, 14],
    ]


@pytest.mark.parametrize("burn_in, trace_length, period", [(0, 3, 1), (2, 5, 1), (3, 6, 3)])
@pytest.mark.parametrize("length", range(1, 12))
def test_every_step_is_trained_on_and_none_beyond_the_episode(
    make_replay, burn_in, trace_length, period, length
):
    config = dataclasses.replace(
        TINY, burn_in=burn_in, trace_length=trace_length, period=period, n_step=1
    )
    steps = episode(numbers(*range(1, length + 2)), [0] * length, terminal=True)
    trained = set()
    for item in sequences(make_replay, steps, config=config):
        observations, real = observed(item)
        trained |= {
            observation
            for observation, is_real in zip(
                observations[burn_in:trace_length], real[burn_in:trace_length], strict=True
            )
            if is_real
        }
    assert trained == set(range(1, length + 1))


def test_a_period_longer_than_the_trained_part_writes_no_sequence_without_a_step_to_train(
    make_replay,
):
    config = dataclasses.replace(TINY, burn_in=2, trace_length=4, period=4)
    items_ = sequences(
        make_replay, episode(numbers(1, 2, 3, 4), [0] * 3, terminal=True), config=config
    )
    assert [observed(item) for item in items_] == [([0, 0, 1, 2, 3], [0, 0, 1, 1, 0])]


def test_a_sequence_carries_the_state_before_its_first_timestep_and_its_version(make_replay):
    replay = make_replay(table(TINY, VECTOR))
    actor = make_actor(replay.make_writer)
    steps = episode(numbers(*range(1, 9)), [0] * 7, terminal=True)
    actor.set_variables([], 10)
    play(actor, steps[:2])
    actor.set_variables([], 20)
    play(actor, steps[2:])
    taken = [taken_apart(item) for item in replay.take_all()]
    # The first begins before its episode, the others at the episode's timesteps 1 and 3.
    assert [sequence.state.tolist() for sequence in taken] == [[0, 0], [1, 1], [3, 3]]
    assert [sequence.version for sequence in taken] == [10, 10, 20]


def test_a_version_is_that_of_the_variables_which_computed_the_state(make_replay):
    replay = make_replay(table(TINY, VECTOR))
    actor = make_actor(replay.make_writer)
    steps = episode(numbers(*range(1, 9)), [0] * 7, terminal=True)
    for version, step in enumerate(steps, start=100):  # newer ones for every timestep
        actor.set_variables([], version)
        play(actor, [step])
    # The states before timesteps 1 and 3 were computed in timesteps 0 and 2.
    assert [taken_apart(item).version for item in replay.take_all()] == [100, 100, 102]


def test_each_environment_has_a_state_and_a_sequence_of_its_own(make_replay):
    replay = make_replay(table(TINY, VECTOR))
    actor = make_actor(replay.make_writer, num_envs=2)
    short = episode(numbers(1, 2), [0], terminal=True) * 4
    long = episode(numbers(*range(11, 18)), [0] * 6, terminal=False)
    play(actor, short, long)
    taken = [taken_apart(item) for item in replay.take_all()]
    found = {tuple(observed(sequence.timesteps)[0]): sequence.state[0] for sequence in taken}
    assert found == {
        (0, 1, 2, 0, 0): 0,
        (0, 11, 12, 13, 14): 0,
        (12, 13, 14, 15, 16): 1,
        (14, 15, 16, 17, 0): 3,
    }


def test_priorities_are_the_actors_own_errors_over_the_trained_part(make_replay):
    # Q(s, 0) is the observation; 2 steps, a discount of 0.5, and an end cut short by time.
    (item,) = written(make_replay, episode(numbers(1, 2, 3), [4, 8], terminal=False))
    value = values.unscale(np.float32(3))
    targets = [4 + 8 / 2 + value / 4, 8 + value / 2]
    errors = np.abs(values.rescale(np.float32(targets)) - [1, 2])
    assert item.priority == pytest.approx(0.9 * errors.max() + 0.1 * errors.mean(), rel=1e-5)


def test_a_terminal_state_counts_for_nothing_in_a_priority(make_replay):
    (item,) = written(make_replay, episode(numbers(1, 2, 300), [4, 8], terminal=True))
    errors = np.abs(values.rescale(np.float32([4 + 8 / 2, 8])) - [1, 2])
    assert item.priority == pytest.approx(0.9 * errors.max() + 0.1 * errors.mean(), rel=1e-5)


def test_steps_that_are_burnt_in_and_padding_do_not_count_in_a_priority(make_replay):
    # Of the second sequence only the last step is new; the values before it are right.
    config = dataclasses.replace(TINY, n_step=1, discount=0.0, trace_length=3, period=2)
    steps = episode(numbers(100, 50, 0, 0), [0, 0, 0], terminal=True)
    first, second = written(make_replay, steps, config=config)
    assert first.priority == pytest.approx(0.9 * 100 + 0.1 * 75, rel=1e-5)
    assert second.priority == pytest.approx(config.priority_epsilon, abs=1e-6)


def test_rewards_are_clipped_where_the_configuration_says_so(make_replay):
    config = dataclasses.replace(TINY, reward_clip=1.0)
    steps = episode(numbers(1, 2, 3), [5, -0.5], terminal=True)
    (item,) = written(make_replay, steps, config=config)
    timesteps = taken_apart(item).timesteps
    assert timesteps[:, items.REWARD].tolist() == [0, 1, -0.5, 0, 0]
    assert timesteps[:, items.PREVIOUS_REWARD].tolist() == [0, 0, 5, -0.5, 0]
    errors = np.abs(values.rescale(np.float32([1 - 0.5 / 2, -0.5])) - [1, 2])
    assert item.priority == pytest.approx(0.9 * errors.max() + 0.1 * errors.mean(), rel=1e-5)


def frames(*numbers_):
    """Stacks as an environment gives them: the newest frame last, the first one repeated."""
    stacks = []
    for t in range(len(numbers_)):
        newest = [numbers_[max(0, t - back)] for back in (3, 2, 1, 0)]
        stacks.append(np.stack([np.full((36, 36), number, np.uint8) for number in newest]))
    return stacks


@pytest.mark.parametrize(
    "burn_in, trace_length, period", [(1, 4, 2), (0, 3, 1), (2, 4, 4)], ids=str
)
def test_stacks_of_frames_can_be_made_again_from_frames_stored_once(
    make_replay, burn_in, trace_length, period
):
    config = dataclasses.replace(
        TINY, burn_in=burn_in, trace_length=trace_length, period=period, n_step=1
    )
    replay = make_replay(table(config, FRAMES))
    numbers_ = [range(1, 8), range(11, 14), range(21, 31)], [range(101, 106), range(111, 127)]
    stacks = {stack[-1, 0, 0]: stack for group in numbers_ for e in group for stack in frames(*e)}
    played = [
        [step for e in group for step in episode(frames(*e), [0] * (len(e) - 1), terminal=True)]
        for group in numbers_
    ]
    # The newest frame names a timestep, and the previous reward says it again in the row.
    for steps in played:
        for t, step in enumerate(steps):
            if step.step_type != FIRST:
                steps[t] = step._replace(reward=float(step.observation[-1, 0, 0]))
    play(make_actor(replay.make_writer, config, FRAMES, num_envs=2), *played)
    seen = set()
    for item in replay.take_all():
        for row, timestep in enumerate(taken_apart(item, config).timesteps):
            name = int(timestep[items.PREVIOUS_REWARD])
            if name:
                np.testing.assert_array_equal(item.data["frame"][row : row + 4], stacks[name])
                seen.add(name)
    assert len(seen) > 15 and {7, 105} <= seen if period < 4 else seen
