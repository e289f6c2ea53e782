"""How fast a graph of 16 actors runs, what an actor costs, and how fast all is gone.

This launcher against Launchpad's own `local_mp`, with the same program: Ape-X on Catch. A node is
running once it is constructed and serves, an actor once it has taken a step. Times are from the
command to the event.

    python -m benchmarks.startup [--actors=16]
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import psutil
from absl import app, flags

from benchmarks import support

ACTORS = flags.DEFINE_integer("actors", 16, "Actors of the program.", lower_bound=1)

LAUNCHPAD = """
import sys, time
import launchpad as lp
from agents.agent import EnvironmentSpec
from agents.apex.agent import ApeX
from environments import registry
from programs.replay_program import ReplayOptions, make_program

if __name__ == "__main__":
    environment = registry.load("catch")
    spec = EnvironmentSpec(environment.observations, environment.actions)
    agent = ApeX(ApeX.presets()["small"], spec)
    options = ReplayOptions(num_actors=int(sys.argv[1]))
    program = make_program("launchpad", agent, environment.make, options)
    counter = program.groups["counter"][0].create_handle()
    manager = lp.launch(program, "local_mp", terminal="current_terminal")
    client = counter.dereference()
    while sum(name.startswith("actor/") for name in client.snapshot()["gauges"]) < int(sys.argv[1]):
        time.sleep(0.05)
    open(sys.argv[2], "w").close()
    manager.wait()
"""


class Figures(NamedTuple):
    """What one launcher reached.

    Attributes:
        running: Seconds from the command until all nodes run.
        actor_mib: Private memory of an actor's process, in MiB, the median of all actors.
        stop: Seconds from the request to stop until the last process is gone.
    """

    running: float
    actor_mib: float
    stop: float


def measure(
    command: Sequence[str],
    is_running: Callable[[], bool],
    is_actor: Callable[[psutil.Process], bool],
    stop_signal: signal.Signals,
) -> Figures:
    """Starts a command, waits until its nodes run, looks at its actors, and stops it."""
    with support.process_group(command) as launcher:
        began = time.monotonic()
        support.wait_for(is_running, 300, "all nodes running")
        running = time.monotonic() - began
        family = launcher.children(recursive=True)
        private = [process.memory_full_info().uss for process in family if is_actor(process)]
        assert len(private) == ACTORS.value
        began = time.monotonic()
        launcher.send_signal(stop_signal)
        launcher.wait(60)
        support.wait_for(lambda: not any(map(support.is_alive, family)), 60, "gone")
        stop = time.monotonic() - began
    return Figures(running, statistics.median(private) / 2**20, stop)


def measure_ours(directory: str) -> Figures:
    run = os.path.join(directory, "run")
    flags_ = [f"--num_actors={ACTORS.value}", f"--run_dir={run}", "--nostop_when_solved"]

    def is_running() -> bool:
        states = support.read_json(os.path.join(run, "status.json")).values()
        return bool(states) and all(status["state"] == "running" for status in states)

    return measure(
        [sys.executable, "launch.py", *flags_],
        is_running,
        lambda process: " actor/" in " ".join(process.cmdline()),
        signal.SIGINT,
    )


def measure_launchpad(directory: str) -> Figures:
    script, ready = os.path.join(directory, "script.py"), os.path.join(directory, "ready")
    with open(script, "w") as file:
        file.write(LAUNCHPAD)
    os.environ["PYTHONPATH"] = support.ROOT

    return measure(
        [sys.executable, script, str(ACTORS.value), ready],
        lambda: os.path.exists(ready),
        _holds_actor,
        signal.SIGTERM,
    )


def _holds_actor(process: psutil.Process) -> bool:
    """Whether a process of Launchpad's runs an actor: each group has a data file of its own."""
    command = process.cmdline()
    if "--data_file" not in command or "python" not in command[0]:
        return False
    with open(command[command.index("--data_file") + 1], "rb") as file:
        return b"ActorService" in file.read()


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ours, launchpad = measure_ours(directory), measure_launchpad(directory)
        first = support.launch(os.path.join(directory, "first"))["seconds_to_first_learner_step"]
    report = {
        "actors": ACTORS.value,
        "ratio": round(ours.running / launchpad.running, 3),
        "seconds_to_all_running": round(ours.running, 2),
        "launchpad_seconds_to_all_running": round(launchpad.running, 2),
        "actor_private_mib": round(ours.actor_mib, 1),
        "launchpad_actor_private_mib": round(launchpad.actor_mib, 1),
        "seconds_to_stop": round(ours.stop, 2),
        "launchpad_seconds_to_stop": round(launchpad.stop, 2),
        "seconds_to_first_learner_step_4_actors": first,
    }
    rows = [
        ("all nodes running, s", ours.running, launchpad.running),
        ("private memory of an actor, MiB", ours.actor_mib, launchpad.actor_mib),
        ("stopped, s", ours.stop, launchpad.stop),
        ("first learner step, 4 actors, s", first, ""),
    ]
    support.report("startup", ("", "launchgraph", "Launchpad"), rows, report)


if __name__ == "__main__":
    app.run(main)
