import numpy as np
import tensorflow as tf

from agents.apex import items, learning
from tests.agents.apex.support import FRAMES, ScriptedNetwork, make_actor, table, windows_of
from tests.agents.episodes import batch, episode, observed_value

# Lengths around the window (3) and the stack (4), each ending in both ways.
LENGTHS = [1, 2, 3, 4, 5, 9]


def frame_episode(rng, length, terminal):
    """Returns an episode of stacks of random frames, which all begin with four times the first."""
    frames = rng.integers(256, size=(length + 1, 3, 3)).astype(np.uint8)
    padded = np.concatenate([frames[:1]] * 3 + [frames])
    stacks = [padded[t : t + 4] for t in range(length + 1)]
    return episode(stacks, rng.normal(size=length), terminal)


def frame_stream(rng, lengths):
    """Returns episodes of these lengths, each once with a terminal state and once without."""
    return [
        step
        for length in lengths
        for terminal in (True, False)
        for step in frame_episode(rng, length, terminal)
    ]


def test_stacks_come_out_of_replay_as_they_were_observed(make_replay):
    rng = np.random.default_rng(0)
    streams = [frame_stream(rng, LENGTHS), frame_stream(rng, LENGTHS[::-1])]
    replay = make_replay(table(FRAMES))
    actor = make_actor(
        FRAMES,
        ScriptedNetwork(observed_value),
        replay.make_writer,
        num_envs=2,
        reward_clip=1.0,
        epsilon=0.5,
    )
    actions = np.array([actor.step(batch(steps)) for steps in zip(*streams, strict=True)])
    taken = replay.take_all()
    data = {
        name: tf.constant(np.stack([item.data[name] for item in taken]))
        for name in ("frame", "row")
    }
    begins, ends = (stacks.numpy() for stacks in learning.observations(data, FRAMES, n_step=3))
    rebuilt = {
        begin.tobytes(): (end.tobytes(), row)
        for begin, end, row in zip(begins, ends, data["row"].numpy(), strict=True)
    }
    expected = [
        window
        for environment, stream in enumerate(streams)
        for window in windows_of(stream, actions[:, environment], 3, clip=1.0)
    ]
    assert len(rebuilt) == len(taken) == len(expected) == 2 * 2 * sum(LENGTHS)
    for window in expected:
        end, row = rebuilt[window.begin.tobytes()]
        assert end == window.end.tobytes()
        np.testing.assert_allclose(
            row, [window.steps, window.action, window.value, window.bootstrap], atol=1e-6
        )


def test_priorities_of_frames_are_td_errors_too(make_replay):
    stacks = [np.full((4, 3, 3), value, np.uint8) for value in (1, 2, 3)]
    replay = make_replay(table(FRAMES))
    actor = make_actor(FRAMES, ScriptedNetwork(observed_value), replay.make_writer)
    for step in episode(stacks, [1, 4], terminal=False):
        actor.step(batch([step]))
    # A stack of value s is worth s: |1 + 4 / 2 + 3 / 4 - 1| and |4 + 3 / 2 - 2|.
    assert [item.priority for item in replay.take_all()] == [2.75, 3.5]


def test_a_frame_is_written_once_but_for_the_first_of_an_episode(make_replay):
    replay = make_replay(table(FRAMES))
    written = []

    def make_writer(max_steps):
        writer = replay.make_writer(max_steps)
        append = writer.append

        def counting_append(step):
            written.extend(step.keys() & {"frame"})
            append(step)

        writer.append = counting_append
        return writer

    actor = make_actor(FRAMES, ScriptedNetwork(observed_value), make_writer)
    for step in frame_episode(np.random.default_rng(0), 50, terminal=False):
        actor.step(batch([step]))
    assert replay.size() == 50
    assert len(written) == 50 + 6


def test_items_of_frames_are_declared_as_the_server_takes_them(make_replay):
    declared = items.item_spec(FRAMES, n_step=5)
    assert declared["frame"].shape == (9, 3, 3) and declared["frame"].dtype == np.uint8
    replay = make_replay(table(FRAMES, n_step=5))
    actor = make_actor(FRAMES, ScriptedNetwork(observed_value), replay.make_writer, n_step=5)
    for step in frame_episode(np.random.default_rng(0), 7, terminal=True):
        actor.step(batch([step]))
    data = replay.take_all()[0].data
    assert {name: column.shape for name, column in data.items()} == {
        name: column.shape for name, column in declared.items()
    }
