"""How far ahead samples are best fetched: the defaults of `nodes.samples.Prefetch` and others.

    python -m benchmarks.replay_tuning [--seconds=5] [--rounds=2]

Batches of 512 items of 84 x 84 x 4 bytes, with new priorities, from one shard and from four, while
256 writers insert 1,100 items a second. Every setting is measured in each of the rounds, in turn.
"""

import dataclasses
import os
import tempfile
from collections.abc import Sequence

import numpy as np
from absl import app, flags

from benchmarks import support
from benchmarks.replay_load import Taken, running
from nodes.samples import DEFAULT_PREFETCH

SECONDS = flags.DEFINE_float("seconds", 5.0, "Time measured, each time.", lower_bound=1)
ROUNDS = flags.DEFINE_integer("rounds", 2, "Times that each setting is measured.", lower_bound=1)
SHARDS = (1, 4)
SETTINGS = {
    "defaults": DEFAULT_PREFETCH,
    **{
        f"{name} = {value}": dataclasses.replace(DEFAULT_PREFETCH, **{name: value})
        for name, values in {
            "workers": (1, 4),
            "in_flight": (1, 4),
            "prefetched": (1, 4),
            "ready": (2,),
        }.items()
        for value in values
    },
}


def main(_: Sequence[str]) -> None:
    rates: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as home:
        for shards in SHARDS:
            with running(shards, os.path.join(home, str(shards))) as load:
                load.write(256, 1100.0)
                for _ in range(ROUNDS.value):
                    for name, prefetch in SETTINGS.items():
                        ahead = list(dataclasses.astuple(prefetch))
                        taken = Taken(*load.learner.measure(SECONDS.value, None, ahead))
                        rates.setdefault((name, shards), []).append(taken.rate)
    medians = {key: float(np.median(found)) for key, found in rates.items()}
    best = {shards: max(medians[name, shards] for name in SETTINGS) for shards in SHARDS}
    support.report(
        "replay_tuning",
        ("", *(f"batches/s, {shards} shards" for shards in SHARDS)),
        [(name, *(medians[name, shards] for shards in SHARDS)) for name in SETTINGS],
        {
            "ratio": round(min(medians["defaults", k] / best[k] for k in SHARDS), 3),
            "batches_per_second": {
                name: [round(medians[name, shards], 1) for shards in SHARDS] for name in SETTINGS
            },
        },
    )


if __name__ == "__main__":
    app.run(main)
