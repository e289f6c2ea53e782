"""What a learner's host sends for each version of the weights that eight actors of a host read.

    python -m benchmarks.cluster_weights [--megabytes=8] [--seconds=20]

Through the relay of the actors' host, and from each actor to the source. The hosts are network
namespaces of this machine; the bytes are those that the sending host's interface counts. Two
versions a second are published, and every actor asks for newer ones 20 times a second.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import launchpad as lp
import numpy as np
from absl import app, flags

from benchmarks import support
from nodes import contract
from nodes.service import deref, node
from nodes.variable_relay import variable_relay_node
from nodes.variables import VariableClient, variable_source_node
from nodes.version import Version
from programs.program import Program
from tests import hosts

MEGABYTES = flags.DEFINE_integer("megabytes", 8, "Size of the weights.", lower_bound=1)
SECONDS = flags.DEFINE_integer("seconds", 20, "Time measured.", lower_bound=5)
READERS = 8
PERIOD_SECONDS = 0.5


class Publisher:
    """Publishes versions of weights."""

    def __init__(self, source: VariableClient, megabytes: int) -> None:
        self._source = source
        self._weights = [np.zeros(megabytes << 17, np.float64)]

    def run(self) -> None:
        runtime = contract.runtime()
        step = 0
        while not runtime.wait_for_stop(PERIOD_SECONDS):
            step += 1
            self._weights[0][:] = step
            self._source.publish(Version(1, step, step, time.time(), self._weights))
            print("published", step, time.time(), flush=True)


class Reader:
    """Asks for newer versions all the time, as an actor does."""

    def __init__(self, variables: VariableClient) -> None:
        self._variables = variables

    def run(self) -> None:
        runtime = contract.runtime()
        while not runtime.wait_for_stop(0.05):
            self._variables.request()
            version = self._variables.poll()
            if version is not None:
                assert np.all(version.values[0] == version.step)
                print("read", version.step, time.time() - version.time, flush=True)


def make_program(with_relay: bool) -> lp.Program:
    """Draws a source, its publisher and eight readers."""
    megabytes = int(os.environ["MEGABYTES"])
    program = Program("weights")
    with program.group("source"):
        source = program.add_node(variable_source_node())
    with program.group("publisher"):
        program.add_node(node(Publisher, deref(source), megabytes))
    with program.group("relay"):
        relay = program.add_node(variable_relay_node(source))
    with program.group("reader"):
        for _ in range(READERS):
            program.add_node(node(Reader, deref(relay if with_relay else source)))
    return program


def relayed() -> lp.Program:
    """The program with a relay."""
    return make_program(True)


def direct() -> lp.Program:
    """The program without one."""
    return make_program(False)


class Measured(NamedTuple):
    """What one way costs.

    Attributes:
        copies: Bytes that the source's host sent for a version, in sizes of the weights.
        versions: Versions published meanwhile.
        age: Median age at which a reader gets a version, in seconds.
        reads: Versions that readers got meanwhile, all together.
    """

    copies: float
    versions: int
    age: float
    reads: int


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as home, hosts.cluster(2) as network:
        relay = measure(network, pathlib.Path(home, "relay"), "relayed")
        each = measure(network, pathlib.Path(home, "direct"), "direct")
    support.report(
        "cluster_weights",
        ("", "relay", "each for itself"),
        [
            ("copies sent for a version", relay.copies, each.copies),
            ("versions published", relay.versions, each.versions),
            ("versions read by all readers", relay.reads, each.reads),
            ("median age when read, s", relay.age, each.age),
        ],
        {
            "ratio": round(relay.copies / each.copies, 3),
            "copies": round(relay.copies, 3),
            "copies_without_relay": round(each.copies, 3),
            "readers": READERS,
            "megabytes": MEGABYTES.value,
            "age_seconds": round(relay.age, 3),
            "age_seconds_without_relay": round(each.age, 3),
        },
    )


def measure(network: hosts.Network, directory: pathlib.Path, program: str) -> Measured:
    """Runs a program with source and publisher on the first host and readers on the second."""
    first, second = network.hosts
    layout = directory.with_suffix(".toml")
    layout.write_text(
        f'[publisher]\nplace = "pack"\nhost = "{first.address}"\n'
        f'[reader]\nhost = "{second.address}"\n'
    )
    process = first.popen(
        [
            sys.executable,
            os.path.join(support.ROOT, "launch.py"),
            "--mode=ray",
            f"--address={network.address}",
            f"--run_dir={directory}",
            f"--layout={layout}",
            f"--program=benchmarks.cluster_weights:{program}",
        ],
        cwd=support.ROOT,
        env={**os.environ, "MEGABYTES": str(MEGABYTES.value)},
        stdout=subprocess.DEVNULL,
    )
    try:
        support.wait_for(
            lambda: all(_lines(directory, f"reader-{i}", "read") for i in range(READERS)),
            120,
            "every reader has read a version",
        )
        before = _published(directory), first.bytes_sent(), _reads(directory)
        time.sleep(SECONDS.value)
        after = _published(directory), first.bytes_sent(), _reads(directory)
    finally:
        process.terminate()
        process.wait(60)
    versions = after[0] - before[0]
    copies = (after[1] - before[1]) / versions / (MEGABYTES.value << 20)
    reads = len(after[2]) - len(before[2])
    return Measured(copies, versions, float(np.median(after[2])), reads)


def _published(directory: pathlib.Path) -> int:
    return len(_lines(directory, "publisher-0", "published"))


def _reads(directory: pathlib.Path) -> list[float]:
    """Returns the ages of all versions that readers have got."""
    lines = [line for i in range(READERS) for line in _lines(directory, f"reader-{i}", "read")]
    return [float(line.split()[2]) for line in lines]


def _lines(directory: pathlib.Path, replica: str, word: str) -> list[str]:
    log = directory / "logs" / f"{replica}.log"
    text = log.read_text() if log.exists() else ""
    return [line for line in text.splitlines() if line.startswith(f"{word} ")]


if __name__ == "__main__":
    app.run(main)
