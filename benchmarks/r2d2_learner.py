"""R2D2's learner against Acme's, with the same network, batch, sequences and machine.

    python -m benchmarks.r2d2_learner [--network=small|paper] [--rounds=8]

First both learn the same batch again and again; then both sample from a replay server of their own
and write priorities back, each in its own way. Ours masks padding and both rescale values. The two
take turns, and a side's speed is the median of its turns.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from absl import flags

from agents.agent import EnvironmentSpec, Sample, TableSpec
from agents.r2d2 import items
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from benchmarks import support

NETWORK = flags.DEFINE_enum("network", "small", ("small", "paper"), "Preset and its observations.")
BATCH_SIZE = flags.DEFINE_integer("batch_size", None, "Sequences (default 64, paper 8).")
ROUNDS = flags.DEFINE_integer("rounds", 8, "Turns of each side.", lower_bound=1)
TURN_SECONDS = 2.0


def specification() -> tuple[R2D2Config, EnvironmentSpec]:
    """Returns the configuration and the environment's specs."""
    from acme import specs

    if NETWORK.value == "paper":
        spec = EnvironmentSpec(
            specs.Array((4, 84, 84), np.uint8), specs.DiscreteArray(6), frame_stack=True
        )
        config = dataclasses.replace(R2D2Config.paper(), batch_size=BATCH_SIZE.value or 8)
    else:
        spec = EnvironmentSpec(specs.Array((8,), np.float32), specs.DiscreteArray(3))
        config = dataclasses.replace(R2D2Config.small(), batch_size=BATCH_SIZE.value or 64)
    return dataclasses.replace(config, samples_per_insert=None, error_buffer=None), spec


def make_columns(
    config: R2D2Config, spec: EnvironmentSpec, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Returns a random sequence of T + 1 timesteps in the midst of an episode."""
    length = config.trace_length + 1
    actions = rng.integers(spec.actions.num_values, size=length + 1)
    rewards = rng.normal(size=length + 1)
    columns = {
        "previous_action": actions[:-1],
        "previous_reward": rewards[:-1],
        "action": actions[1:],
        "reward": rewards[1:],
        "discount": np.ones(length),
    }
    if spec.frame_stack:
        stack, height, width = spec.observations.shape
        columns["frame"] = rng.integers(
            256, size=(stack + config.trace_length, height, width), dtype=np.uint8
        )
        stacks = [columns["frame"][begin : begin + length] for begin in range(stack)]
        columns["observation"] = np.stack(stacks, axis=-1)
    else:
        columns["observation"] = rng.normal(size=(length, *spec.observations.shape)).astype(
            np.float32
        )
    return columns


def our_item(
    columns: Mapping[str, np.ndarray], config: R2D2Config, spec: EnvironmentSpec
) -> dict[str, np.ndarray]:
    """Returns the sequence in the form that our actors write."""
    length = config.trace_length + 1
    step = np.zeros((length, items.OBSERVATION + items.observation_size(spec)), np.float32)
    for name in ("previous_action", "previous_reward", "action", "reward", "discount"):
        step[:, getattr(items, name.upper())] = columns[name]
    step[:-1, items.REAL] = 1
    if not spec.frame_stack:
        step[:, items.OBSERVATION :] = columns["observation"].reshape(length, -1)
    item = {"row": items.pack(0, np.zeros(config.state_size, np.float32), step)}
    return {**item, "frame": columns["frame"]} if spec.frame_stack else item


def serve(make_table: Callable[..., Any], arguments: tuple[Any, ...], pipe: Any) -> None:
    """Runs a replay server until the pipe closes."""
    import reverb

    server = reverb.Server([make_table(*arguments)])
    pipe.send(server.port)
    with contextlib.suppress(EOFError):
        pipe.recv()
    server.stop()


@contextlib.contextmanager
def replay_server(make_table: Callable[..., Any], *arguments: Any) -> Iterator[str]:
    """Yields the address of a replay server in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(make_table, arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield f"localhost:{ours.recv()}"
    finally:
        ours.close()
        process.join(10)


def our_table(table: TableSpec) -> Any:
    from nodes.replay_server import make_table

    return make_table(table)


def insert(address: str, table: str, sequences: list[Any]) -> None:
    """Inserts each of `sequences` as an item of one step."""
    import reverb
    import tree

    client = reverb.Client(address)
    with client.trajectory_writer(1) as writer:
        for sequence in sequences:
            writer.append(sequence)
            trajectory = tree.map_structure(lambda column: column[-1], writer.history)
            writer.create_item(table, 1.0, trajectory)
            writer.flush(20)


def compare(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Returns both sides' steps a second."""
    ours(), theirs()
    speeds: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(ROUNDS.value):
        for side, step in enumerate((ours, theirs)):
            began, steps = time.monotonic(), 0
            while steps == 0 or time.monotonic() - began < TURN_SECONDS:
                step()
                steps += 1
            speeds[side].append(steps / (time.monotonic() - began))
    return statistics.median(speeds[0]), statistics.median(speeds[1])


def main() -> None:
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as launch.py sets it
    import tensorflow as tf

    from benchmarks import acme_r2d2
    from nodes.replay import ReplayClient

    config, spec = specification()
    num_items = 4 * config.batch_size
    agent = R2D2(dataclasses.replace(config, min_replay_size=num_items), spec)
    rng = np.random.default_rng(0)
    columns = [make_columns(config, spec, rng) for _ in range(num_items)]
    mine = [our_item(sequence, config, spec) for sequence in columns]
    acmes = [acme_r2d2.item_of(sequence, config) for sequence in columns]

    batch = slice(config.batch_size)
    data = {name: tf.constant(np.stack([item[name] for item in mine[batch]])) for name in mine[0]}
    probability = tf.fill([config.batch_size], tf.constant(0.1, tf.float64))
    sample = Sample(probability, tf.fill([config.batch_size], tf.constant(10, tf.int64)), data)
    learner = agent.make_learner(0)
    constant = acme_r2d2.constant_dataset(acmes[batch])
    acme_learner = acme_r2d2.make_learner(config, spec, constant, None)
    compute = compare(lambda: learner.step(sample), acme_learner.step)

    with (
        replay_server(our_table, agent.table) as address,
        replay_server(acme_r2d2.make_table, config, spec, num_items) as acme_address,
    ):
        insert(address, agent.table.name, mine)
        insert(acme_address, "priority_table", acmes)
        replay = ReplayClient([address], agent.table)
        sampler, updater = replay.sampler(config.batch_size), replay.priority_updater()

        def step_with_replay() -> None:
            while (batch := sampler.next()) is None:
                pass
            result = learner.step(batch.sample)
            updater.update(batch.keys, result.priorities, batch.shards)

        dataset = acme_r2d2.replay_dataset(acme_address, config.batch_size)
        acme_learner = acme_r2d2.make_learner(config, spec, dataset, acme_address)
        replayed = compare(step_with_replay, acme_learner.step)
        sampler.close()
        updater.close()
    support.report(
        "r2d2_learner",
        (f"learner steps/s, {NETWORK.value}", "ours", "Acme's", "ratio"),
        [
            ("compute alone", *compute, compute[0] / compute[1]),
            ("with sampling and priorities", *replayed, replayed[0] / replayed[1]),
        ],
        {
            "ratio": round(replayed[0] / replayed[1], 2),
            "compute_ratio": round(compute[0] / compute[1], 2),
            "network": NETWORK.value,
            "batch_size": config.batch_size,
            "trace_length": config.trace_length,
            "burn_in": config.burn_in,
        },
    )


if __name__ == "__main__":
    flags.FLAGS(sys.argv)  # Under `app.run`, TensorFlow does not find its own functions here.
    main()
