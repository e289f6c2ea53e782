"""Hosts that are lost in the midst of a run: what it costs, against the same run left alone.

    python -m benchmarks.cluster_faults [--faults=kill,cut,blip]

Ape-X on Catch with six actors on three hosts, which are network namespaces of this machine. `kill`
ends all processes of the third host, `cut` takes its link down for good, `blip` for 20 seconds.
The learner's rate after the fault is compared with that before it; the run then goes on to its
limit of environment steps.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks import support
from tests import hosts

MAX_STEPS = flags.DEFINE_integer("max_steps", 500_000, "Environment steps of each run.")
FAULTS = flags.DEFINE_list("faults", ["kill", "cut", "blip"], "Which.")
CALM_SECONDS = 15.0
BLIP_SECONDS = 20.0


class Measured(NamedTuple):
    """What became of a run.

    Attributes:
        noticed: Seconds from the fault until the host counted as lost, or None.
        again: Seconds until all its actors ran elsewhere, or None.
        before: Learner steps a second before the fault.
        after: Likewise, after it was noticed, or the link was back for 10 s.
        restarts: Times that nodes were started again.
        steps_fell: Whether a count ever fell.
        outcome: How the run ended.
        status: Its exit status.
    """

    noticed: float | None
    again: float | None
    before: float
    after: float
    restarts: int
    steps_fell: bool
    outcome: str
    status: int


class _Run:
    """A run and what its files say."""

    def __init__(self, network: hosts.Network, directory: str) -> None:
        self._directory = directory
        self._highest = 0
        self.fell = False
        self.process = network.hosts[0].popen(
            [
                sys.executable,
                os.path.join(support.ROOT, "launch.py"),
                "--mode=ray",
                f"--address={network.address}",
                f"--run_dir={directory}",
                "--num_actors=6",
                "--nostop_when_solved",
                f"--max_steps={MAX_STEPS.value}",
            ],
            cwd=support.ROOT,
            stdout=subprocess.DEVNULL,
        )

    def status(self) -> dict[str, Any]:
        """Returns every replica's status."""
        return support.read_json(os.path.join(self._directory, "status.json"))

    def result(self) -> dict[str, Any]:
        """Returns how the run ended."""
        return support.read_json(os.path.join(self._directory, "result.json"))

    def learner_steps(self) -> int:
        """Returns the count, and notes whether it has fallen."""
        counts = support.read_json(os.path.join(self._directory, "counts.json")).get("counts", {})
        steps: int = counts.get("learner_steps", 0)
        self.fell |= bool(counts) and steps < self._highest
        self._highest = max(self._highest, steps)
        return steps

    def rate(self) -> float:
        """Returns learner steps a second over the next while."""
        began, before = time.monotonic(), self.learner_steps()
        time.sleep(CALM_SECONDS)
        return (self.learner_steps() - before) / (time.monotonic() - began)

    def all_running(self) -> bool:
        """Returns whether all run but those that were left out."""
        states = {replica["state"] for replica in self.status().values()}
        return "running" in states and states <= {"running", "stopped"}


def measure(fault: str, directory: str) -> Measured:
    """Has a run meet with a fault."""
    with hosts.cluster(3) as network:
        run = _Run(network, directory)
        support.wait_for(run.all_running, 120, "all nodes running")
        support.wait_for(lambda: run.learner_steps() > 100, 60, "learning")
        before = run.rate()
        victim = network.hosts[2]
        began = time.monotonic()

        def seconds_until(condition: Callable[[], Any], seconds: float) -> float | None:
            try:
                support.wait_for(condition, seconds, "")
            except TimeoutError:
                return None
            return time.monotonic() - began

        noticed = again = None
        if fault == "blip":
            victim.cut()
            time.sleep(BLIP_SECONDS)
            victim.mend()
            time.sleep(10.0)
        else:
            victim.kill() if fault == "kill" else victim.cut()

            def lost() -> bool:
                errors = [replica["error"] or "" for replica in run.status().values()]
                return any(f"{victim.address} was lost" in error for error in errors)

            noticed = seconds_until(lost, 90)
            again = seconds_until(
                lambda: (
                    run.all_running()
                    and not any(
                        replica["host"] == victim.address and replica["state"] == "running"
                        for replica in run.status().values()
                    )
                ),
                90,
            )
        after = run.rate()
        restarts = sum(replica["restarts"] for replica in run.status().values())
        status = run.process.wait(600)
        outcome = run.result().get("outcome", "none")
        return Measured(noticed, again, before, after, restarts, run.fell, outcome, status)


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as home:
        runs = {fault: measure(fault, os.path.join(home, fault)) for fault in FAULTS.value}
    names = ("noticed after, s", "all elsewhere after, s", "learner steps/s before", "and after")
    names += ("restarts", "a count fell", "outcome", "exit status")
    rows = [
        (name, *values)
        for name, values in zip(names, zip(*runs.values(), strict=True), strict=True)
    ]
    support.report(
        "cluster_faults",
        ("", *runs),
        rows,
        {
            "ratio": round(min(run.after / run.before for run in runs.values()), 3),
            **{fault: run._asdict() for fault, run in runs.items()},
        },
    )


if __name__ == "__main__":
    app.run(main)
