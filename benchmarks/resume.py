"""Runs whose launcher is killed at a random moment and that are then resumed until they are solved.

Against the same run left alone: environment steps until Catch is solved, killed ones in all lives.

    python -m benchmarks.resume [--times=20]
"""

import dataclasses
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Optional

import numpy as np
from absl import app, flags

from benchmarks import support

TIMES = flags.DEFINE_integer("times", 20, "Runs that are killed.", lower_bound=1)
PERIOD_SECONDS = 1.0
SLACK_SECONDS = 1.0
"""How long a checkpoint that is due may take on cores that are busy."""
EARLIEST, LATEST = 2.0, 14.0


@dataclasses.dataclass
class Resumed:
    """A run that was killed and resumed.

    Attributes:
        age: Seconds from the learner's newest checkpoint to the kill, or None where there was none.
        learned_for: Seconds that the learner had been stepping by then.
        counted: Learner steps that were counted by then.
        saved: Learner steps in that checkpoint.
        restored: Whether the second life's learner took it up.
        steps: Environment steps of both lives.
        solved: Whether the second life solved the environment.
        fallen: Whether a count fell.
    """

    age: Optional[float]
    learned_for: float
    counted: int
    saved: int
    restored: bool
    steps: int
    solved: bool
    fallen: bool


def kill_and_resume(seconds: float, directory: str, seed: int) -> Resumed:
    """Kills a run's launcher after some seconds, and resumes the run until it is solved."""
    flags_ = [f"--checkpoint_seconds={PERIOD_SECONDS}", f"--seed={seed}", "--nostop_when_solved"]
    with support.process_group(
        [sys.executable, "launch.py", f"--run_dir={directory}", *flags_]
    ) as launcher:
        time.sleep(seconds)
        launcher.kill()
        killed_at = time.time()
        launcher.wait(10)
    before = support.read_json(os.path.join(directory, "counts.json"))
    newest = _newest(directory)
    subprocess.run(
        [sys.executable, "launch.py", f"--resume={directory}", "--stop_when_solved"],
        cwd=support.ROOT,
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    result = support.read_json(os.path.join(directory, "result.json"))
    since = before.get("learning_since")
    counts = before.get("counts", {})
    return Resumed(
        age=newest and killed_at - newest[0],
        learned_for=killed_at - since["time"] if since else 0.0,
        counted=counts.get("learner_steps", 0),
        saved=newest[1] if newest else 0,
        restored="was restored." in _log(directory),
        steps=result["environment_steps"],
        solved=result["outcome"] == "solved" and result["lives"] == 2,
        fallen=any(result.get(name, count) < count for name, count in counts.items()),
    )


def _log(directory: str) -> str:
    with open(os.path.join(directory, "logs", "learner-0.log")) as file:
        return file.read()


def _newest(directory: str) -> Optional[tuple[float, int]]:
    """Returns when the learner's newest checkpoint was saved, and after how many steps."""
    home = os.path.join(directory, "checkpoints", "learner-0")
    names = [name for name in os.listdir(home) if name.isdecimal()] if os.path.isdir(home) else []
    if not names:
        return None
    path = os.path.join(home, max(names))
    with np.load(os.path.join(path, "learner.npz")) as arrays:
        return os.path.getmtime(path), int(arrays["node/steps"])


def main(_: Sequence[str]) -> None:
    moments = random.Random(0)
    resumed = []
    with tempfile.TemporaryDirectory() as home:
        alone = support.launch(os.path.join(home, "alone"))
        for number in range(TIMES.value):
            path = os.path.join(home, str(number))
            once = kill_and_resume(moments.uniform(EARLIEST, LATEST), path, number)
            resumed.append(once)
            print(once, flush=True)
    # One that has learned for longer than the schedule must have a checkpoint that is younger.
    due = [once for once in resumed if once.learned_for > PERIOD_SECONDS + SLACK_SECONDS]
    ages = [once.age for once in due if once.age is not None and once.restored]
    steps = sorted(once.steps for once in resumed)[len(resumed) // 2]
    support.report(
        "resume",
        ("", "killed and resumed", "left alone"),
        [
            ("solved", sum(once.solved for once in resumed), int(alone["outcome"] == "solved")),
            ("environment steps (median)", steps, alone["environment_steps"]),
            ("oldest checkpoint, s", max(ages, default=float("nan")), ""),
        ],
        {
            "ratio": round(steps / alone["environment_steps"], 2),
            "times": len(resumed),
            "solved": sum(once.solved for once in resumed),
            "counts_fallen": sum(once.fallen for once in resumed),
            "killed_while_learning": len(due),
            "of_these_not_restored": len(due) - len(ages),
            "oldest_checkpoint_seconds": round(max(ages, default=float("nan")), 2),
            "schedule_seconds": PERIOD_SECONDS,
        },
    )


if __name__ == "__main__":
    app.run(main)
