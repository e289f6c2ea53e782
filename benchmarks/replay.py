"""A learner beside many writers on one replay: does it get what it wants?

    python -m benchmarks.replay [--seconds=15] [--plot=docs/replay_growth.png]

The learner takes batches of 512 items of 84 x 84 x 4 bytes of noise, and gives each item a new
priority. First it is alone and takes all that it gets. Then it wants half of that, while 256
writers in 8 processes insert 1,100 items a second; with one shard and with four. The same with
Acme's way: its dataset with its defaults, and a step that waits for `mutate_priorities`. Then one
of four shards is killed and comes back. Last, the number of writers grows, each of which inserts
some 4 items a second, and the learner takes all that it gets.
"""

import os
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks import support
from benchmarks.replay_load import BATCH_SIZE, ITEMS, Load, Taken, running

SECONDS = flags.DEFINE_float("seconds", 15.0, "Time measured, each time.", lower_bound=2)
PLOT = flags.DEFINE_string("plot", None, "File for the plot of the growth.")
WRITERS = 256
ITEMS_PER_SECOND = 1_100.0
GROWTH = (1, 4, 16, 64, 256)


class Paced(NamedTuple):
    """A learner that wants half of what it gets alone, beside the writers.

    Attributes:
        wanted: Batches a second.
        taken: What it got.
        inserts: Items inserted a second meanwhile.
    """

    wanted: float
    taken: Taken
    inserts: float

    @property
    def share(self) -> float:
        """How much of what it wants it got."""
        return self.taken.rate / self.wanted

    def row(self, name: str) -> tuple[Any, ...]:
        """Returns the table's row."""
        taken = self.taken
        return (
            name,
            self.wanted,
            taken.rate,
            self.share,
            1e3 * taken.median_wait,
            1e3 * taken.longest_waits,
            self.inserts,
        )


def taken_by(learner: Any, rate: Any = None) -> Taken:
    """Lets a learner take batches, `rate` a second or all that it gets."""
    return Taken(*learner.measure(SECONDS.value, rate))


def paced(load: Load, learner: Any, wanted: float) -> Paced:
    """Lets a learner take batches at the rate that it wants, and counts what is inserted."""
    before, began = load.replay.info().inserted, time.monotonic()
    taken = taken_by(learner, wanted)
    inserts = (load.replay.info().inserted - before) / (time.monotonic() - began)
    return Paced(wanted, taken, inserts)


class Growth(NamedTuple):
    """What the learner gets, and what writers cost.

    Attributes:
        writers: Writers.
        taken: What it got of all that there was.
        memory: Bytes that a writer takes in its own process, more than none.
    """

    writers: int
    taken: Taken
    memory: float


def grow(load: Load) -> list[Growth]:
    """Measures with more and more writers."""
    base = load.memory()
    found = []
    for writers in GROWTH:
        load.write(writers, ITEMS_PER_SECOND * writers / WRITERS)
        taken = taken_by(load.learner)
        found.append(Growth(writers, taken, (load.memory() - base) / writers))
    return found


class Loss(NamedTuple):
    """What the loss of one of several shards costs.

    Attributes:
        taken: What the learner got, from before the shard was killed until it was back.
        away: Seconds until the shard served again.
        items: Items that were lost with it.
        others: Items that the others took a second while it was away.
    """

    taken: Taken
    away: float
    items: int
    others: float


def lose_a_shard(load: Load, wanted: float) -> Loss:
    """Kills a shard while the learner and the writers work."""
    found: list[Taken] = []
    thread = threading.Thread(target=lambda: found.append(taken_by(load.learner, wanted)))
    thread.start()
    time.sleep(SECONDS.value / 4)
    before = load.replay.info().shards
    load.run._supervisor._backend.kill("replay/1")
    began = time.monotonic()

    def is_back() -> bool:
        shard = load.replay.info().shards[1]
        return shard is not None and shard.inserted < before[1].inserted

    support.wait_for(is_back, 60, "the shard is back")
    away = time.monotonic() - began
    after = load.replay.info().shards
    thread.join()
    others = sum(after[i].inserted - before[i].inserted for i in (0, 2, 3)) / away
    return Loss(found[0], away, before[1].size, others)


def plot(growth: Sequence[Growth], path: str) -> None:
    """Draws the learner's rate over the number of writers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([g.writers for g in growth], [g.taken.rate for g in growth], marker="o")
    axes.set_xscale("log", base=4)
    axes.set_xticks([g.writers for g in growth], [str(g.writers) for g in growth])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("writers, 4.3 items a second each")
    axes.set_ylabel(f"batches of {BATCH_SIZE} a second")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main(_: Sequence[str]) -> None:
    rows, shares = [], {}
    with tempfile.TemporaryDirectory() as home:
        with running(1, os.path.join(home, "one")) as load:
            alone = taken_by(load.learner)
            acme_alone = taken_by(load.acme)
            load.write(WRITERS, ITEMS_PER_SECOND)
            one = paced(load, load.learner, alone.rate / 2)
            acme = paced(load, load.acme, alone.rate / 2)
            flat_out, acme_flat_out = taken_by(load.learner), taken_by(load.acme)
            rows += [one.row("1 shard"), acme.row("1 shard, Acme's way")]
            shares[1] = one.share
        with running(1, os.path.join(home, "growth")) as load:
            growth = grow(load)
        with running(4, os.path.join(home, "four")) as load:
            four_alone = taken_by(load.learner)
            load.write(WRITERS, ITEMS_PER_SECOND)
            four = paced(load, load.learner, four_alone.rate / 2)
            rows.append(four.row("4 shards"))
            shares[4] = four.share
            loss = lose_a_shard(load, four_alone.rate / 2)
    if PLOT.value:
        plot(growth, PLOT.value)
    applied, late, dropped = loss.taken.counts
    support.report(
        "replay: 256 writers",
        ("", "wants, batches/s", "gets", "share", "p50 wait, ms", "p99 wait, ms", "inserts/s"),
        [
            (
                "1 shard, alone",
                "all",
                alone.rate,
                "",
                1e3 * alone.median_wait,
                1e3 * alone.longest_waits,
                0,
            ),
            (
                "1 shard, alone, Acme's way",
                "all",
                acme_alone.rate,
                "",
                1e3 * acme_alone.median_wait,
                1e3 * acme_alone.longest_waits,
                0,
            ),
            (
                "4 shards, alone",
                "all",
                four_alone.rate,
                "",
                1e3 * four_alone.median_wait,
                1e3 * four_alone.longest_waits,
                0,
            ),
            *rows,
            (
                "1 shard, 256 writers",
                "all",
                flat_out.rate,
                "",
                1e3 * flat_out.median_wait,
                1e3 * flat_out.longest_waits,
                ITEMS_PER_SECOND,
            ),
            (
                "1 shard, 256 writers, Acme's way",
                "all",
                acme_flat_out.rate,
                "",
                1e3 * acme_flat_out.median_wait,
                1e3 * acme_flat_out.longest_waits,
                ITEMS_PER_SECOND,
            ),
        ],
        {"shards": [1, 4], "items": ITEMS},
    )
    support.report(
        "replay: growth",
        ("writers", "batches/s", "p50 wait, ms", "p99 wait, ms", "MiB a writer"),
        [
            (
                g.writers,
                g.taken.rate,
                1e3 * g.taken.median_wait,
                1e3 * g.taken.longest_waits,
                g.memory / 2**20,
            )
            for g in growth
        ],
        {},
    )
    support.report(
        "replay",
        ("a shard of four killed", ""),
        [
            ("back after, s", loss.away),
            ("learner's rate, of what it wants", loss.taken.rate / (four_alone.rate / 2)),
            ("longest wait for a batch, s", loss.taken.longest_wait),
            ("other shards' inserts/s meanwhile", loss.others),
            ("items lost", loss.items),
            ("priorities applied", applied),
            ("late", late),
            ("dropped", dropped),
        ],
        {
            "ratio": round(flat_out.rate / acme_flat_out.rate, 3),
            "ratio_at_the_wanted_rate": round(one.taken.rate / acme.taken.rate, 3),
            "share": {str(k): round(share, 3) for k, share in shares.items()},
            "p50_wait_ms": [round(1e3 * p.taken.median_wait, 2) for p in (one, four)],
            "p99_wait_ms": [round(1e3 * p.taken.longest_waits, 2) for p in (one, four)],
            "inserts_per_second": [round(p.inserts) for p in (one, four)],
            "longest_wait_with_a_shard_killed_s": round(loss.taken.longest_wait, 3),
            "growth": {g.writers: round(g.taken.rate, 2) for g in growth},
            "mib_per_writer": round(growth[-1].memory / 2**20, 2),
        },
    )


if __name__ == "__main__":
    app.run(main)
