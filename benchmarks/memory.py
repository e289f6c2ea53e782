"""What needs a memory: R2D2 on `memory:40`, and Ape-X, which has none, in the time R2D2 may take.

    python -m benchmarks.memory [--seconds=360] [--length=40]

Without a memory of its first timestep, half of all answers are right, and returns are 0 on average.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Optional

import psutil
from absl import app, flags

from benchmarks import support

SECONDS = flags.DEFINE_integer("seconds", 360, "How long a side may take.", lower_bound=10)
LENGTH = flags.DEFINE_integer("length", 40, "Steps to remember.", lower_bound=1)


def run(agent: str, directory: str) -> dict[str, Any]:
    """Runs an agent with its defaults until it has solved the task or its time is over."""
    command = [
        sys.executable,
        os.path.join(support.ROOT, "launch.py"),
        f"--agent={agent}",
        f"--env=memory:{LENGTH.value}",
        f"--run_dir={directory}",
    ]
    with support.process_group(command) as launcher:
        try:
            launcher.wait(SECONDS.value)
        except psutil.TimeoutExpired:
            launcher.send_signal(signal.SIGINT)
            launcher.wait(30)
    return support.read_json(os.path.join(directory, "result.json"))


def _ratio(r2d2: dict[str, Any], apex: dict[str, Any]) -> Optional[float]:
    """Returns R2D2's part of the time in which Ape-X did not solve the task, or None."""
    if (r2d2["outcome"], apex["outcome"]) != ("solved", "stopped"):
        return None
    return round(r2d2["wall_seconds"] / apex["wall_seconds"], 3)


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        r2d2, apex = (run(agent, os.path.join(directory, agent)) for agent in ("r2d2", "apex"))
    figures = ("wall_seconds", "environment_steps", "learner_steps", "evaluator_return_mean_100")
    support.report(
        "memory",
        (f"memory:{LENGTH.value}", "R2D2", "Ape-X"),
        [("outcome", r2d2["outcome"], apex["outcome"])]
        + [(name.replace("_", " "), r2d2[name], apex[name]) for name in figures],
        {
            "ratio": _ratio(r2d2, apex),
            **{f"r2d2_{name}": r2d2[name] for name in ("outcome", *figures)},
            **{f"apex_{name}": apex[name] for name in ("outcome", *figures)},
        },
    )


if __name__ == "__main__":
    app.run(main)
