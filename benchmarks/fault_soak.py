"""One run under faults, against itself without: what it loses and whether it goes on.

Every few seconds one random replica is killed, each group in its turn, with the launcher's restart
budget set for it. With `--freeze` a replica is stopped by SIGSTOP for 20 seconds instead.

    python -m benchmarks.fault_soak [--minutes=10] [--freeze]
"""

import collections
import dataclasses
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Optional

import psutil
from absl import app, flags

from benchmarks import support

MINUTES = flags.DEFINE_float("minutes", 10.0, "How long faults go on.", lower_bound=0.1)
FREEZE = flags.DEFINE_bool("freeze", False, "Stop replicas for a while instead of killing them.")
POLICY = flags.DEFINE_enum("policy", "restart", ["restart", "ignore"], "What a failure means.")
GROUPS = ("counter", "variables", "replay", "learner", "actor", "evaluator", "coordinator")
KILL_EVERY_SECONDS = 5.0
FROZEN_SECONDS = 20.0
STALL_SECONDS = 5.0
CALM_SECONDS = 20.0
CHECKPOINT_SECONDS = 4.0
LAYOUT = """
[{group}]
on_failure = "{policy}"
restart = {{ count = 10000, window_seconds = 60.0, backoff_seconds = 0.1 }}
"""


@dataclasses.dataclass
class Fault:
    """One fault and what came of it.

    Attributes:
        group: The group of the replica that it hit.
        at: When it began, in seconds since the epoch.
        learned_after: Seconds from its end until the learner's steps went on, or None if they did
            not before the next fault.
        reported: Whether the watchdog told of it.
        lost: Items that replay lost by it.
        allowed: Items that had come since its checkpoint.
    """

    group: str
    at: float
    learned_after: Optional[float] = None
    reported: bool = False
    lost: int = 0
    allowed: int = 0


class Soak:
    """A run that is watched and hurt."""

    def __init__(self, launcher: psutil.Process, directory: str) -> None:
        self.launcher = launcher
        self.directory = directory
        self.faults: list[Fault] = []
        self.fallen: list[str] = []
        self.evaluations: list[float] = []
        self.counts: dict[str, int] = {}
        self._inserted: list[tuple[float, float]] = []
        self._random = random.Random(0)
        self._turn: list[str] = []
        self._fault_at = 0.0

    def look(self) -> None:
        """Notes what the run says of itself."""
        now = self.snapshot()
        for name, count in now.get("counts", {}).items():
            if count < self.counts.get(name, 0):
                self.fallen.append(f"{name}: {count} after {self.counts[name]}")
            self.counts[name] = count
        inserted = now.get("gauges", {}).get("learner/0", {}).get("replay_inserted")
        if inserted is not None:
            self._inserted.append((now["time"], inserted))
        for name, replica in self.status().items():
            told = replica["stalled"] or (
                "shown no life" in (replica["error"] or "") and replica["since"] > self._fault_at
            )
            if told and self.faults and name.startswith(self.faults[-1].group):
                self.faults[-1].reported = True

    def watch(self, seconds: float) -> Optional[float]:
        """Looks for some time; returns after how many seconds the learner has gone on."""
        steps = self.counts.get("learner_steps", 0)
        began, learned = time.monotonic(), None
        while (passed := time.monotonic() - began) < seconds:
            time.sleep(0.1)
            self.look()
            if learned is None and self.counts["learner_steps"] > steps + 20:
                learned = passed
        return learned

    def hurt(self) -> None:
        """Does the next fault and sees what comes of it."""
        if not self._turn:
            self._turn = self._random.sample(GROUPS, len(GROUPS))
        group = self._turn.pop()
        name, process = self._victim(group)
        self.faults.append(Fault(group, time.time()))
        self._fault_at = time.time()
        saved_at = self.status()["replay/0"]["saved_at"]
        if FREEZE.value:
            process.send_signal(signal.SIGSTOP)
            self.watch(FROZEN_SECONDS)
            if process.is_running():
                process.send_signal(signal.SIGCONT)
        else:
            process.kill()
        self.faults[-1].learned_after = self.watch(KILL_EVERY_SECONDS)
        if group == "replay" and saved_at is not None:
            self._count_lost(self.faults[-1], saved_at)
        mean = self.snapshot().get("evaluator_return_mean")
        self.evaluations.append(mean if mean is not None else float("nan"))

    def _victim(self, group: str) -> tuple[str, psutil.Process]:
        """Returns a replica of `group` that runs, and its process."""

        def find() -> Optional[tuple[str, psutil.Process]]:
            running = {name for name, is_ in self.status().items() if is_["state"] == "running"}
            found = []
            for process in self.launcher.children(recursive=True):
                try:
                    title = re.match(r"launchgraph \S+ (\S+/\d+)", " ".join(process.cmdline()))
                except psutil.Error:
                    continue
                if title and title[1].startswith(f"{group}/") and title[1] in running:
                    found.append((title[1], process))
            return self._random.choice(found) if found else None

        result: tuple[str, psutil.Process] = support.wait_for(find, 60, f"{group} to run")
        return result

    def _count_lost(self, fault: Fault, saved_at: float) -> None:
        """Notes what replay lost; the figures are late, and so those of a moment are too low."""
        before = [inserted for at, inserted in self._inserted if at < fault.at]
        saved = [inserted for at, inserted in self._inserted if at < saved_at]
        after = [
            inserted for at, inserted in self._inserted if at > fault.at and inserted < before[-1]
        ]
        if after and saved:
            fault.lost = int(before[-1] - min(after))
            fault.allowed = int(before[-1] - saved[-1])

    def snapshot(self) -> dict[str, Any]:
        return support.read_json(os.path.join(self.directory, "counts.json"))

    def status(self) -> dict[str, Any]:
        return support.read_json(os.path.join(self.directory, "status.json"))


def main(_: Sequence[str]) -> None:
    shared_memory = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory() as home:
        directory, layout = os.path.join(home, "run"), os.path.join(home, "layout.toml")
        with open(layout, "w") as file:
            file.write("".join(LAYOUT.format(group=group, policy=POLICY.value) for group in GROUPS))
        command = [
            sys.executable,
            "launch.py",
            f"--run_dir={directory}",
            f"--layout={layout}",
            "--nostop_when_solved",
            f"--checkpoint_seconds={CHECKPOINT_SECONDS}",
            f"--stall_timeout={STALL_SECONDS}",
        ]
        with support.process_group(command) as launcher:
            soak = Soak(launcher, directory)
            support.wait_for(
                lambda: (soak.snapshot().get("evaluator_return_mean_100") or 0.0) > 0.9, 120, "0.9"
            )
            calm = _rate(soak, CALM_SECONDS)
            memory, handles = launcher.memory_info().rss, launcher.num_fds()
            began, steps = time.monotonic(), soak.counts["learner_steps"]
            while time.monotonic() < began + 60 * MINUTES.value:
                soak.hurt()
            rate = (soak.counts["learner_steps"] - steps) / (time.monotonic() - began)
            soak.watch(CALM_SECONDS)
            restarts = sum(replica["restarts"] for replica in soak.status().values())
            memory_after, handles_after = launcher.memory_info().rss, launcher.num_fds()
            family = launcher.children(recursive=True)
            subprocess.run(
                [sys.executable, "launch.py", "stop", directory], cwd=support.ROOT, check=True
            )
            status = launcher.wait(30)
            left = [process for process in family if support.is_alive(process)]
        _report(
            soak,
            {
                "ratio": round(rate / calm, 3),
                "status": status,
                "restarts_without_fault": restarts - (0 if FREEZE.value else len(soak.faults)),
                "processes_left": len(left),
                "shared_memory_left": len(set(os.listdir("/dev/shm")) - shared_memory),
                "launcher_handles": [handles, handles_after],
                "launcher_mib": [memory >> 20, memory_after >> 20],
                "learner_steps_per_second": [round(calm, 1), round(rate, 1)],
            },
        )


def _rate(soak: Soak, seconds: float) -> float:
    soak.look()
    began, steps = time.monotonic(), soak.counts["learner_steps"]
    soak.watch(seconds)
    return (soak.counts["learner_steps"] - steps) / (time.monotonic() - began)


def _report(soak: Soak, facts: dict[str, Any]) -> None:
    hits = collections.Counter(fault.group for fault in soak.faults)
    rows = []
    for group in GROUPS:
        faults = [fault for fault in soak.faults if fault.group == group]
        learned = [fault.learned_after for fault in faults if fault.learned_after is not None]
        longest = max(learned, default=float("nan"))
        reported = sum(fault.reported for fault in faults)
        rows.append((group, len(faults), len(learned), longest, reported))
    support.report(
        "freeze_soak" if FREEZE.value else "fault_soak",
        ("group", "faults", "learned on", "latest after, s", "told by the watchdog"),
        rows,
        {
            **facts,
            "fewest_hits": min(hits[group] for group in GROUPS),
            "faults": len(soak.faults),
            "learned_on_after": sum(fault.learned_after is not None for fault in soak.faults),
            "told_by_watchdog": sum(fault.reported for fault in soak.faults),
            "evaluator_lowest": round(min(soak.evaluations), 3),
            "evaluator_last": round(soak.evaluations[-1], 3),
            "counts_fallen": soak.fallen,
            "replay_lost_too_much": sum(fault.lost > fault.allowed for fault in soak.faults),
            "replay_lost": [[f.lost, f.allowed] for f in soak.faults if f.group == "replay"],
        },
    )


if __name__ == "__main__":
    app.run(main)
