"""Sampling while a replay of 1 GB in 4 shards is saved, against sampling while it is not.

An actor for each shard inserts and one learner samples without pause, all in processes. The shards
save in turn, one beginning as soon as the one before is done, all the time.

    python -m benchmarks.replay_checkpoint [--megabytes=1000] [--shards=4]
"""

import os
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import app, flags
from acme import specs

from agents.agent import TableSpec
from benchmarks import support
from launchers.run import launch
from nodes import contract
from nodes.checkpoints import Schedule
from nodes.replay import ReplayClient, replay_shards
from nodes.service import deref, node
from programs.program import Program

MEGABYTES = flags.DEFINE_integer("megabytes", 1000, "Size of the replay.", lower_bound=1)
SHARDS = flags.DEFINE_integer("shards", 4, "Shards of the replay.", lower_bound=1)
ITEM_BYTES = 20_000
BATCH_SIZE = 64
ITEMS_PER_SECOND = 50.0
"""Of each actor, once replay is full."""
SECONDS = 20.0
PERIOD_SECONDS = 2.0


class Inserter:
    """Inserts items that do not compress, as an actor would."""

    def __init__(self, replay: ReplayClient, shard: int, items_to_fill: int) -> None:
        self._runtime = contract.runtime()
        self._writer = replay.writer(shard, 1)
        self._items_to_fill = items_to_fill

    def run(self) -> None:
        """Fills its shard as fast as it can and then goes on at its rate."""
        random = np.random.default_rng(0)
        inserted = 0
        while not self._runtime.stopping:
            row = random.integers(256, size=ITEM_BYTES, dtype=np.uint8)
            self._writer.append({"row": row})
            self._writer.create_item(1.0, {"row": self._writer.history["row"][-1]})
            inserted += 1
            full = inserted > self._items_to_fill
            if full and self._runtime.wait_for_stop(1.0 / ITEMS_PER_SECOND):
                break
        self._writer.close()


class Learner:
    """Samples without pause, and counts."""

    def __init__(self, replay: ReplayClient) -> None:
        self._runtime = contract.runtime()
        self._sampler = replay.sampler(BATCH_SIZE)
        self._batches = 0
        self._longest = 0.0

    def take(self) -> tuple[int, float]:
        """Returns the batches so far, and the longest wait for one since the last call."""
        longest, self._longest = self._longest, 0.0
        return self._batches, longest

    def run(self) -> None:
        """Samples until the program stops."""
        began = time.monotonic()
        while not self._runtime.stopping:
            if self._sampler.next() is not None:
                now = time.monotonic()
                self._longest = max(self._longest, now - began)
                began = now
                self._batches += 1
        self._sampler.close()


class Measured(NamedTuple):
    """What one run showed.

    Attributes:
        samples_per_second: What the learner took.
        longest_wait: Its longest wait for a batch, in seconds.
        saves: Checkpoints saved meanwhile.
        longest_pause: The longest time in which a shard answered nobody, in seconds.
    """

    samples_per_second: float
    longest_wait: float
    saves: int
    longest_pause: float


def measure(schedule: Schedule, directory: str) -> Measured:
    """Fills a replay and samples from it."""
    items = MEGABYTES.value * 1_000_000 // ITEM_BYTES
    table = TableSpec(
        name="items",
        item={"row": specs.Array((ITEM_BYTES,), np.uint8)},
        max_size=items,
        min_size=BATCH_SIZE,
        priority_exponent=0.6,
        samples_per_insert=None,
        error_buffer=None,
        bytes_per_item=ITEM_BYTES,
    )
    shards = SHARDS.value
    program = Program("replay_checkpoint")
    nodes, replay = replay_shards(table, shards, schedule)
    for shard in nodes:
        program.add_node(shard, label="replay")
    learner = program.add_node(node(Learner, deref(replay)), label="learner")
    for number in range(shards):
        program.add_node(node(Inserter, deref(replay), number, items // shards), label="actor")
    with launch(program, "local_mp", run_directory=directory) as run:
        run.wait_until_running(60)
        client = replay.dereference()
        support.wait_for(lambda: client.info().size >= items, 300, "replay is full")
        service = learner.dereference()

        def saved() -> int:
            home = os.path.join(directory, "checkpoints")
            newest = [
                max((int(name) for name in os.listdir(path) if name.isdecimal()), default=0)
                for path in (os.path.join(home, name) for name in os.listdir(home))
                if os.path.isdir(path)
            ]
            return sum(newest)

        before, began = service.take()[0], time.monotonic()
        saves = saved()
        time.sleep(SECONDS)
        after, longest_wait = service.take()
        seconds = time.monotonic() - began
        saves = saved() - saves
        pauses = [status.longest_pause_seconds for status in run.status.values()]
        rate = (after - before) * BATCH_SIZE / seconds
        return Measured(rate, longest_wait, saves, max(pauses))


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as home:
        calm = measure(Schedule(1e6, 1), os.path.join(home, "calm"))
        saving = measure(Schedule(PERIOD_SECONDS, 1), os.path.join(home, "saving"))
    support.report(
        "replay_checkpoint",
        ("", "saving", "not saving"),
        [
            ("samples/s", saving.samples_per_second, calm.samples_per_second),
            ("longest wait for a batch, s", saving.longest_wait, calm.longest_wait),
            ("checkpoints of a shard", saving.saves, calm.saves),
            ("longest pause of a shard, s", saving.longest_pause, ""),
        ],
        {
            "ratio": round(saving.samples_per_second / calm.samples_per_second, 3),
            "megabytes": MEGABYTES.value,
            "shards": SHARDS.value,
            "saves": saving.saves,
            "longest_pause_seconds": round(saving.longest_pause, 3),
            "longest_wait_seconds": round(saving.longest_wait, 3),
        },
    )


if __name__ == "__main__":
    app.run(main)
