import dm_env
import numpy as np
import pytest

from agents.acting import EpsilonGreedyActor
from tests.agents.apex.support import VECTOR, ScriptedNetwork, make_actor, table, windows_of
from tests.agents.episodes import FIRST, LAST, MID, Step, batch, episode, numbers, observed_value


def play(make_replay, steps, **options):
    """Plays one environment's steps and returns the rows and the priorities of the items."""
    replay = make_replay(table(VECTOR, options.get("n_step", 3)))
    network = ScriptedNetwork(observed_value)
    actor = make_actor(VECTOR, network, replay.make_writer, **options)
    for step in steps:
        actor.step(batch([step]))
    taken = replay.take_all()
    return [item.data["row"].tolist() for item in taken], [item.priority for item in taken]


def test_every_step_of_an_episode_begins_one_window_of_clipped_rewards_and_ends_bootstrap_nothing(
    make_replay,
):
    steps = episode(numbers(0, 1, 2, 3, 4, 5), [1, 2, -3, 0.5, 1], terminal=True)
    rows, _ = play(make_replay, steps, reward_clip=1.0)
    # Columns: s_t, s_{t+m}, a_t, R, gamma^m or 0.
    assert rows == [
        [0, 3, 0, 1 + 0.5 * 1 + 0.25 * -1, 0.125],
        [1, 4, 0, 1 + 0.5 * -1 + 0.25 * 0.5, 0.125],
        [2, 5, 0, -1 + 0.5 * 0.5 + 0.25 * 1, 0],
        [3, 5, 0, 0.5 + 0.5 * 1, 0],
        [4, 5, 0, 1, 0],
    ]


def test_rewards_are_left_alone_where_no_clip_is_given(make_replay):
    rows, _ = play(make_replay, episode(numbers(0, 1, 2), [4, -6], terminal=True))
    assert [row[3] for row in rows] == [4 + 0.5 * -6, -6]


def test_the_windows_at_a_time_limit_bootstrap_from_the_last_state_by_their_own_length(make_replay):
    steps = episode(numbers(0, 1, 2, 3, 4), [1, 1, 1, 1], terminal=False)
    rows, _ = play(make_replay, steps)
    assert rows == [
        [0, 3, 0, 1.75, 0.125],
        [1, 4, 0, 1.75, 0.125],
        [2, 4, 0, 1.5, 0.25],
        [3, 4, 0, 1.0, 0.5],
    ]


def test_an_episode_shorter_than_n_has_only_short_windows_and_the_next_begins_afresh(make_replay):
    steps = episode(numbers(0, 1), [7], terminal=False) + episode(
        numbers(10, 11, 12), [1, 2], terminal=True
    )
    rows, _ = play(make_replay, steps)
    assert rows == [[0, 1, 0, 7, 0.5], [10, 12, 0, 2, 0], [11, 12, 0, 2, 0]]


def test_an_episode_that_breaks_off_without_a_last_step_leaves_its_open_windows_out(make_replay):
    steps = episode(numbers(0, 1, 2), [1, 1], terminal=True)[:2] + episode(
        numbers(5, 6), [1], terminal=True
    )
    rows, _ = play(make_replay, steps)
    assert rows == [[5, 6, 0, 1, 0]]


def test_priorities_are_the_td_errors_of_the_actors_own_values(make_replay):
    steps = episode(numbers(0, 1, 2, 3, 4, 5), [1, 2, -3, 0.5, 1], terminal=False)
    _, priorities = play(make_replay, steps, reward_clip=1.0)
    # |R + gamma^m * max_a Q(s_{t+m}, a) - Q(s_t, a_t)| where the best action of state s is worth s.
    assert priorities == [
        abs(1.25 + 0.125 * 3 - 0),
        abs(0.625 + 0.125 * 4 - 1),
        abs(-0.5 + 0.125 * 5 - 2),
        abs(1.0 + 0.25 * 5 - 3),
        abs(1.0 + 0.5 * 5 - 4),
    ]


def test_the_priority_at_a_terminal_state_has_no_bootstrap(make_replay):
    _, priorities = play(make_replay, episode(numbers(3, 100), [1], terminal=True))
    assert priorities == [abs(1 - 3)]


def test_a_window_without_an_error_keeps_the_floor_as_its_priority(make_replay):
    _, priorities = play(
        make_replay, episode(numbers(1, 7), [1], terminal=True), priority_epsilon=0.125
    )
    assert priorities == [0.125]


def test_priorities_value_the_action_taken_and_bootstrap_from_the_best_one(make_replay):
    steps = episode(numbers(*range(20)), [0] * 19, terminal=False)
    rows, priorities = play(make_replay, steps, epsilon=1.0, n_step=1)
    assert {row[2] for row in rows} == {0, 1, 2}
    # Action a of state s is worth s - a.
    expected = [abs(0.5 * row[1] - (row[0] - row[2])) for row in rows]
    assert priorities == expected


def random_streams(rng, num_envs, length):
    """Returns a stream of random episodes for each environment; observations tell all apart."""
    streams = []
    for environment in range(num_envs):
        stream = []
        while len(stream) < length:
            steps = int(rng.integers(1, 8))
            name = 1000 * environment + len(stream)
            stream += episode(
                numbers(*range(name, name + steps + 1)),
                rng.normal(size=steps),
                terminal=bool(rng.integers(2)),
            )
        streams.append(stream[:length])
    return streams


@pytest.mark.parametrize("n_step", [1, 2, 5])
def test_environments_that_step_together_have_the_windows_that_each_has_alone(make_replay, n_step):
    rng = np.random.default_rng(n_step)
    streams = random_streams(rng, num_envs=4, length=60)
    replay = make_replay(table(VECTOR, n_step))
    actor = make_actor(
        VECTOR,
        ScriptedNetwork(observed_value),
        replay.make_writer,
        num_envs=4,
        n_step=n_step,
        reward_clip=1.0,
        epsilon=0.5,
    )
    actions = np.array([actor.step(batch(steps)) for steps in zip(*streams, strict=True)])
    expected = []
    for environment, stream in enumerate(streams):
        for window in windows_of(stream, actions[:, environment], n_step, clip=1.0):
            expected.append(
                [*window.begin, *window.end, window.action, window.value, window.bootstrap]
            )
    rows = [item.data["row"].tolist() for item in replay.take_all()]
    np.testing.assert_allclose(sorted(rows), sorted(expected), atol=1e-6)


def test_one_forward_pass_serves_all_environments_of_a_step(make_replay):
    network = ScriptedNetwork(observed_value)
    actor = make_actor(VECTOR, network, make_replay(table(VECTOR)).make_writer, num_envs=3)
    observations = numbers(1, 2, 3)
    actor.step(batch([Step(FIRST, 0, 1, observation) for observation in observations]))
    assert network.calls == 1
    actor.step(batch([Step(kind, 0, 1, observations[0]) for kind in (MID, LAST, MID)]))
    assert network.calls == 2


def test_no_forward_pass_is_made_where_every_state_is_terminal(make_replay):
    network = ScriptedNetwork(observed_value)
    actor = make_actor(VECTOR, network, make_replay(table(VECTOR)).make_writer, num_envs=2)
    terminal, truncated = (Step(LAST, 1, discount, np.zeros(1)) for discount in (0, 1))
    actor.step(batch([terminal, terminal]))
    assert network.calls == 0
    actor.step(batch([terminal, truncated]))
    assert network.calls == 1


def test_actions_have_the_environments_dtype(make_replay):
    actor = make_actor(
        VECTOR, ScriptedNetwork(observed_value), make_replay(table(VECTOR)).make_writer
    )
    actions = actor.step(batch([Step(FIRST, 0, 1, np.zeros(1))]))
    assert actions.dtype == np.int32 and actions.shape == (1,)


def test_an_actor_without_a_recorder_acts_by_the_network():
    network = ScriptedNetwork(lambda observation: np.array([[0, 1, 0], [0, 0, 1]]))
    actor = EpsilonGreedyActor(network, 3, np.zeros(2), None, np.dtype(np.int64), seed=0)
    timestep = dm_env.TimeStep(
        np.array([FIRST, FIRST], np.int32),
        np.zeros(2, np.float32),
        np.ones(2, np.float32),
        np.zeros((2, 1), np.float32),
    )
    np.testing.assert_array_equal(actor.step(timestep), [1, 2])
