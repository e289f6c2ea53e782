"""Ctrl-C at random moments: seconds until everything is gone, against Launchpad's `local_mp`.

The moments lie between the command and some time after its nodes run. Every process that the
command ever started is watched, and its exit status must be 130. With `--kill` the launcher alone
is killed, and nothing may outlive it.

    python -m benchmarks.interrupt [--times=20] [--kill]
"""

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence

from absl import app, flags

from benchmarks import startup, support

TIMES = flags.DEFINE_integer("times", 20, "Interruptions.", lower_bound=1)
KILL = flags.DEFINE_bool("kill", False, "Kill the launcher instead.")
LATEST_SECONDS = 15.0


def interrupt_after(seconds: float, directory: str) -> float:
    """Starts a run, interrupts it, and returns the seconds until all of it is gone."""
    command = [sys.executable, "launch.py", f"--run_dir={directory}", "--nostop_when_solved"]
    with support.process_group(command) as launcher:
        time.sleep(seconds)
        family = launcher.children(recursive=True)
        began = time.monotonic()
        if KILL.value:
            launcher.kill()
        else:
            os.killpg(launcher.pid, signal.SIGINT)
        status = launcher.wait(60)
        support.wait_for(lambda: not any(map(support.is_alive, family)), 60, "gone")
        expected = -signal.SIGKILL if KILL.value else 128 + signal.SIGINT
        assert status == expected, f"status {status} after {seconds:.2f} s"
        return time.monotonic() - began


def main(_: Sequence[str]) -> None:
    moments = random.Random(0)
    with tempfile.TemporaryDirectory() as directory:
        seconds = [
            interrupt_after(moments.uniform(0.3, LATEST_SECONDS), os.path.join(directory, str(i)))
            for i in range(TIMES.value)
        ]
        launchpad = startup.measure_launchpad(directory).stop
    longest = max(seconds)
    support.report(
        "kill" if KILL.value else "interrupt",
        ("", "launchgraph", "Launchpad"),
        [
            ("longest, s", longest, launchpad),
            ("mean, s", sum(seconds) / len(seconds), ""),
        ],
        {
            "ratio": round(longest / launchpad, 3),
            "times": TIMES.value,
            "longest_seconds": round(longest, 2),
            "launchpad_seconds": round(launchpad, 2),
        },
    )


if __name__ == "__main__":
    app.run(main)
