"""From the command to a solved Catch: Ape-X with the defaults against Acme's DQN in one process.

    python -m benchmarks.catch

Both have solved it when 100 greedy episodes return 0.95 on average. Acme's time leaves out its
imports and its evaluation; ours is everything, from the command to the exit.
"""

import os
import tempfile
import time
from collections.abc import Sequence

from absl import app

from benchmarks import support

LONGEST_SECONDS = 300


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        ours = support.launch(os.path.join(directory, "run"))
        seconds = time.monotonic() - began
    theirs = support.run_acme_dqn("--env=catch", f"--seconds={LONGEST_SECONDS}", "--solved_at=0.95")
    rows = [
        ("solved after, s", seconds, theirs["seconds"]),
        ("environment steps", ours["environment_steps"], theirs["steps"]),
        ("return", ours["evaluator_return_mean_100"], theirs["greedy_mean"]),
    ]
    support.report(
        "catch",
        ("", "Ape-X, the command", "Acme DQN, learning alone"),
        rows,
        {
            "ratio": round(seconds / theirs["seconds"], 2),
            "outcome": ours["outcome"],
            "seconds": round(seconds, 1),
            "acme_seconds": theirs["seconds"],
            "environment_steps": ours["environment_steps"],
            "evaluator_return_mean_100": ours["evaluator_return_mean_100"],
            "seconds_to_first_learner_step": ours["seconds_to_first_learner_step"],
        },
    )


if __name__ == "__main__":
    app.run(main)
