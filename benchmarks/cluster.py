"""The same programs on three hosts of a Ray cluster and in processes of one machine.

    python -m benchmarks.cluster [--programs=stop,apex,r2d2,consumer_producers,d4pg]

The hosts are network namespaces of this machine, with an address and a Ray node each, so that both
share its cores. Ape-X has 16 actors; learner and replay are on the first host, actors on all.
`stop` is Ape-X that is stopped once all of its nodes run: its end is timed from there until nothing
is left. All other times are from the command to the event; Ray's nodes run before.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psutil
from absl import app, flags

from benchmarks import support
from tests import hosts

LAUNCH = (sys.executable, os.path.join(support.ROOT, "launch.py"))
AGENTS = {
    "apex": ("--agent=apex", "--num_actors=16"),
    "r2d2": ("--agent=r2d2", "--env=memory:40", "--num_actors=4"),
}
STOPPED = {"stop": (*AGENTS["apex"], "--nostop_when_solved")}
FOREIGN = {
    "consumer_producers": ("--program=benchmarks.foreign:consumer_producers",),
    "d4pg": ("--program=benchmarks.foreign:d4pg_program",),
}
PROGRAMS = flags.DEFINE_list("programs", ["stop", *AGENTS, *FOREIGN], "What to run.")

LAYOUT = """
[learner]
host = "{first}"
stop_seconds = 2.0

[replay]
host = "{first}"
"""


class Measured(NamedTuple):
    """How a run went.

    Attributes:
        status: The exit status.
        outcome: How it ended.
        running: Seconds until all nodes ran, or None if they never did at the same time.
        seconds: Seconds until its end.
        groups: Processes seen, by group and host.
    """

    status: int
    outcome: str
    running: float | None
    seconds: float
    groups: Counter[tuple[str, int]]


def main(_: Sequence[str]) -> None:
    rows, facts = [], {}
    with tempfile.TemporaryDirectory() as home, hosts.cluster(3) as network:
        support.wait_for(lambda: _is_calm(network), 120, "Ray's nodes have started")
        for name in PROGRAMS.value:
            flags_ = (STOPPED | AGENTS | FOREIGN)[name]
            local = _run(network, os.path.join(home, f"{name}-local"), ("--mode=local_mp", *flags_))
            layout = pathlib.Path(home, "layout.toml")
            text = LAYOUT.format(first=network.hosts[0].address)
            layout.write_text("" if name == "consumer_producers" else text)
            cluster = _run(
                network,
                os.path.join(home, f"{name}-cluster"),
                ("--mode=ray", f"--address={network.address}", f"--layout={layout}", *flags_),
            )
            rows += _rows(name, cluster, local)
            facts[name] = {
                "ratio": round(cluster.seconds / local.seconds, 2),
                "status": cluster.status,
                "outcome": cluster.outcome,
                "seconds": round(cluster.seconds, 1),
                "seconds_to_running": cluster.running and round(cluster.running, 1),
                "local_seconds": round(local.seconds, 1),
                "processes": {f"{g}@{h}": n for (g, h), n in sorted(cluster.groups.items())},
            }
    ratio = max(fact["ratio"] for fact in facts.values())
    support.report("cluster", ("", "three hosts", "local_mp"), rows, {"ratio": ratio, **facts})


def _run(network: hosts.Network, directory: str, more: Sequence[str]) -> Measured:
    began = time.monotonic()
    environment = {**os.environ, "HOME": os.path.dirname(directory)}  # Acme's checkpoints.
    process = network.hosts[0].popen(
        [*LAUNCH, f"--run_dir={directory}", *more],
        cwd=support.ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    running: float | None = None
    groups: Counter[tuple[str, int]] = Counter()
    while process.poll() is None:
        status = support.read_json(os.path.join(directory, "status.json"))
        states = {replica["state"] for replica in status.values()}
        if running is None and states and states <= {"running", "finished"}:
            running = time.monotonic() - began
        for group, count in _groups(network).items():
            groups[group] = max(groups[group], count)
        if time.monotonic() - began > 400:
            process.kill()
        if running is not None and os.path.basename(directory).startswith("stop-"):
            began = time.monotonic()
            process.terminate()
            process.wait(60)
            support.wait_for(lambda: not _left(network), 60, "nothing left")
        time.sleep(0.1)
    seconds = time.monotonic() - began
    result = support.read_json(os.path.join(directory, "result.json"))
    return Measured(process.returncode, result.get("outcome", "none"), running, seconds, groups)


def _left(network: hosts.Network) -> list[str]:
    """Returns the processes of runs that are there now."""
    commands = [command for host in network.hosts for command in host.commands()]
    words = ("launchgraph", "forkserver", "launch.py", "HostAgent")
    return [command for command in commands if any(word in command for word in words)]


def _groups(network: hosts.Network) -> Counter[tuple[str, int]]:
    """Returns how many replicas of each group run on each host now, by their processes' titles."""
    found: Counter[tuple[str, int]] = Counter()
    for number, host in enumerate(network.hosts, start=1):
        for title in host.commands():
            match = re.match(r"launchgraph \S+ (\S+)/\d+", title)
            if match:
                found[match[1], number] += 1
    return found


def _is_calm(network: hosts.Network) -> bool:
    """Returns whether Ray's processes have used less than half a core in the last second."""
    return _busy(network, 1.0) < 0.5


def _busy(network: hosts.Network, seconds: float) -> float:
    def used() -> float:
        total = 0.0
        for host in network.hosts:
            for process in host.processes():
                try:
                    total += sum(process.cpu_times()[:2])
                except psutil.Error:
                    continue
        return total

    before = used()
    time.sleep(seconds)
    return (used() - before) / seconds


def _rows(name: str, cluster: Measured, local: Measured) -> list[tuple[Any, ...]]:
    def row(what: str, get: Callable[[Measured], Any]) -> tuple[Any, ...]:
        return f"{name}: {what}", get(cluster), get(local)

    groups = sorted({group for group, _ in cluster.groups})
    return [
        row("outcome, exit status", lambda run: f"{run.outcome}, {run.status}"),
        row("all nodes running after, s", lambda run: run.running),
        row("end after, s", lambda run: run.seconds),
        *(
            (f"{name}: {group} on hosts 1, 2, 3", _hosts(cluster, group), _hosts(local, group))
            for group in groups
        ),
    ]


def _hosts(run: Measured, group: str) -> str:
    return ", ".join(str(run.groups[group, number]) for number in (1, 2, 3))


if __name__ == "__main__":
    app.run(main)
