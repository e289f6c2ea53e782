"""Programs on the hosts of a Ray cluster: two network namespaces with an address each."""

import ast
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests import hosts
from tests.support import wait_for

ROOT = pathlib.Path(__file__).parent.parent.parent
LAUNCH = [sys.executable, str(ROOT / "launch.py")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[hosts.Network]:
    """Two hosts with two CPUs and two GPUs each, as Ray believes."""
    try:
        with hosts.cluster(2, cpus=2, gpus=2) as network:
            yield network
    except hosts.Unavailable as reason:
        pytest.skip(str(reason))


def start(
    cluster: hosts.Network, directory: pathlib.Path, *flags: str, **options: Any
) -> "subprocess.Popen[str]":
    """Starts a run from the first host."""
    command = [*LAUNCH, "--mode=ray", f"--address={cluster.address}", "--run_dir=run", *flags]
    return cluster.hosts[0].popen(command, cwd=directory, text=True, **options)


def run(
    cluster: hosts.Network, directory: pathlib.Path, *flags: str, **options: Any
) -> tuple[int, str]:
    """Runs to the end; returns the status and all that was printed."""
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = start(cluster, directory, *flags, **options)
    output, _ = process.communicate(timeout=100)
    return process.returncode, output


def status(directory: pathlib.Path) -> dict[str, Any]:
    file = directory / "run/status.json"
    return json.loads(file.read_text()) if file.exists() else {}


def all_running(directory: pathlib.Path) -> bool:
    states = {replica["state"] for replica in status(directory).values()}
    return states == {"running"}


def write_program(directory: pathlib.Path, body: str) -> None:
    """Writes a module `mine` with a function `program` that returns `lp.Program("mine")`."""
    text = "import os, time\nimport launchpad as lp\n\n" + textwrap.dedent(body)
    (directory / "mine.py").write_text(text)


def forked_on(host: hosts.Host) -> bool:
    """Returns whether a fork server runs on `host`."""
    return any("forkserver" in command for command in host.commands())


def replicas_on(host: hosts.Host) -> set[str]:
    """Returns the replicas whose processes run on `host`, by their titles."""
    titles = host.commands()
    return {title.split()[-1] for title in titles if title.startswith("launchgraph ")}


MOVING = """
    class Server:
        def greet(self):
            return "hello"


    class Client:
        def __init__(self, server):
            self._server = server

        def run(self):
            while not lp.wait_for_stop(0.05):
                print(self._server.greet(), flush=True)


    def program():
        program = lp.Program("mine")
        server = program.add_node(lp.CourierNode(Server), label="server")
        program.add_node(lp.CourierNode(Client, server), label="client")
        return program
"""


def test_apex_learns_with_actors_on_both_hosts_and_the_rest_on_the_first(
    cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    process = start(cluster, tmp_path, "--num_actors=4")
    wait_for(lambda: all_running(tmp_path), 60)
    first, second = map(replicas_on, cluster.hosts)
    assert second == {"actor/0", "actor/2", "relay/0"} or second == {
        "actor/1",
        "actor/3",
        "relay/0",
    }
    assert first == set(status(tmp_path)) - second
    assert process.wait(60) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["outcome"] == "solved" and result["evaluator_return_mean_100"] >= 0.95
    logs = {path.name for path in (tmp_path / "run/logs").iterdir()}
    assert logs >= {f"{name.replace('/', '-')}.log" for name in first | second}
    assert not replicas_on(cluster.hosts[0]) | replicas_on(cluster.hosts[1])


REPORTING = """
    class Reporter:
        def __init__(self, name):
            self.name = name

        def run(self):
            here = {"gpus": os.environ["CUDA_VISIBLE_DEVICES"], "word": os.environ.get("WORD")}
            print("REPORT", here, flush=True)

    def program():
        program = lp.Program("mine")
        with program.group("sharing"):
            for _ in range(2):
                program.add_node(lp.CourierNode(Reporter, "sharing"))
        program.add_node(lp.CourierNode(Reporter, "whole"), label="whole")
        program.add_node(lp.CourierNode(Reporter, "none"), label="none")
        return program
"""


def test_replicas_get_their_gpus_and_their_environment_and_code_travels(
    cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    write_program(tmp_path, REPORTING)
    hidden = tmp_path / "code"
    hidden.mkdir()
    (tmp_path / "mine.py").rename(hidden / "mine.py")
    other = cluster.hosts[1]
    other.run(["mount", "-t", "tmpfs", "tmpfs", str(hidden)])  # There the code is not.
    (tmp_path / "layout.toml").write_text(
        f"""
        [sharing]
        gpus = 0.5
        host = "{other.address}"

        [whole]
        gpus = 1
        host = "{other.address}"
        env = {{ WORD = "hello" }}
        """
    )
    process = cluster.hosts[0].popen(
        [
            *LAUNCH,
            "--mode=ray",
            f"--address={cluster.address}",
            f"--run_dir={tmp_path / 'run'}",
            "--program=mine:program",
            "--layout=../layout.toml",
        ],
        cwd=hidden,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    logs = {p.stem: p.read_text() for p in (tmp_path / "run/logs").glob("*-?.log")}
    told = {name: ast.literal_eval(log.partition("REPORT ")[2]) for name, log in logs.items()}
    assert told["sharing-0"] == told["sharing-1"] == {"gpus": "0", "word": None}
    assert told["whole-0"] == {"gpus": "1", "word": "hello"}
    assert told["none-0"] == {"gpus": "", "word": None}


@pytest.mark.parametrize(
    "layout, said",
    [
        ("[client]\nhost = '10.9.9.9'", "wants client on '10.9.9.9', but there is only 10.77.0.1"),
        ("[client]\ncpus = 7", "wants 7 CPUs for client/0: there is no room on 10.77.0.1 with 2"),
    ],
    ids=["no such host", "too many CPUs"],
)
def test_what_the_cluster_does_not_have_is_told_before_anything_starts(
    layout: str, said: str, cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    write_program(tmp_path, MOVING)
    (tmp_path / "layout.toml").write_text(layout)
    code, output = run(cluster, tmp_path, "--layout=layout.toml", "--program=mine:program")
    assert code == 2 and said in " ".join(output.split()) and "Traceback" not in output
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_is_not_there_is_told(
    cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    write_program(tmp_path, MOVING)
    code, output = run(cluster, tmp_path, "--address=10.77.0.1:1", "--program=mine:program")
    assert code == 2 and "No Ray cluster answers at '10.77.0.1:1'" in " ".join(output.split())


def test_a_host_that_does_not_see_the_run_directory_is_told(
    cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    cluster.hosts[1].run(["mount", "-t", "tmpfs", "tmpfs", str(hidden)])
    write_program(hidden, MOVING)
    code, output = run(cluster, hidden, "--program=mine:program")
    assert code == 2
    assert "Host 10.77.0.2 does not see the run directory" in " ".join(output.split())


def test_hosts_that_have_another_version_of_something_are_told(
    cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    info = tmp_path / "path/dm_env-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dm-env\nVersion: 9.9\n")
    write_program(tmp_path, MOVING)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "path")}
    code, output = run(cluster, tmp_path, "--program=mine:program", env=environment)
    assert code == 2
    assert re.search(r"Host 10.77.0.[12] has dm-env [\d.]+ instead of 9.9: install", output)


def test_without_an_address_a_cluster_of_this_machine_begins_and_ends_with_the_run(
    tmp_path: pathlib.Path,
) -> None:
    write_program(tmp_path, REPORTING)
    command = [*LAUNCH, "--mode=ray", "--run_dir=run", "--program=mine:program"]
    launcher = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_for(lambda: status(tmp_path), 60)
    family = psutil.Process(launcher.pid).children(recursive=True)
    assert launcher.wait(60) == 0
    assert {replica["state"] for replica in status(tmp_path).values()} == {"finished"}
    wait_for(lambda: not any(process.is_running() for process in family))


def test_without_ray_one_sentence_says_what_to_install(
    cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    tried = subprocess.run(
        [*LAUNCH, "--mode=ray"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert tried.returncode == 2 and "pip install 'launchgraph[cluster]'" in tried.stderr
    assert "Traceback" not in tried.stderr


def test_an_interrupt_while_hosts_prepare_ends_it_at_once(
    cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    process = start(cluster, tmp_path)
    logs = tmp_path / "run/logs"
    wait_for(lambda: [*logs.glob("forkserver-*")] if logs.exists() else None, 60)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert time.monotonic() - began < 8
    wait_for(lambda: not any(map(forked_on, cluster.hosts)))


def test_nothing_outlives_a_launcher_that_is_killed(
    cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    write_program(tmp_path, MOVING)
    process = start(cluster, tmp_path, "--program=mine:program")
    wait_for(lambda: all_running(tmp_path), 60)
    process.kill()
    wait_for(lambda: not any(replicas_on(host) or forked_on(host) for host in cluster.hosts))


@pytest.mark.timeout(240)
def test_what_ran_on_a_lost_host_goes_on_elsewhere_and_its_holders_find_it(
    cluster: hosts.Network, tmp_path: pathlib.Path
) -> None:
    """Two runs at once lose the second host: it comes last, for that is gone then."""
    first, second = (host.address for host in cluster.hosts)
    agents, moving = tmp_path / "agents", tmp_path / "moving"
    for directory in (agents, moving):
        directory.mkdir()
    (agents / "layout.toml").write_text(
        f"""
        [learner]
        host = "{second}"

        [replay]
        place = "one_per_host"
        """
    )
    write_program(moving, MOVING)
    (moving / "layout.toml").write_text(
        f"""
        [server]
        host = "{second}"
        on_failure = "restart"

        [client]
        host = "{first}"
        """
    )
    options = ("--replay_shards=2", "--nostop_when_solved", "--checkpoint_seconds=1")
    runs = [
        start(cluster, agents, "--layout=layout.toml", *options),
        start(cluster, moving, "--layout=layout.toml", "--program=mine:program"),
    ]
    wait_for(lambda: all_running(agents) and all_running(moving), 90)
    on_second = {name for name, it in status(agents).items() if it["host"] == second}
    assert on_second >= {"learner/0", "replay/1", "relay/0"}

    def learner_steps() -> int:
        file = agents / "run/counts.json"
        counts = json.loads(file.read_text())["counts"] if file.exists() else {}
        return counts.get("learner_steps", 0)

    wait_for(lambda: learner_steps() > 100, 60)
    wait_for(lambda: status(agents)["learner/0"]["saved_at"])
    greetings = (moving / "run/logs/client-0.log").read_text().count("hello")
    before = learner_steps()
    cluster.hosts[1].kill()

    def all_on_first(directory: pathlib.Path) -> bool:
        replicas = {n: it for n, it in status(directory).items() if n != "relay/0"}
        return all((it["host"], it["state"]) == (first, "running") for it in replicas.values())

    wait_for(lambda: all_on_first(agents) and all_on_first(moving), 60)
    assert "Its host 10.77.0.2 was lost" in status(agents)["learner/0"]["error"]
    assert status(moving)["client/0"]["error"] == "server/0 has another address now"
    assert learner_steps() >= before
    learner = (agents / "run/logs/learner-0.log").read_text()
    assert re.search(r"Checkpoint \d+ was restored", learner)
    steps = learner_steps()
    wait_for(lambda: learner_steps() > steps + 50, 60)
    log = moving / "run/logs/client-0.log"
    wait_for(lambda: log.read_text().count("hello") > greetings + 10)
    for process in runs:
        process.terminate()
    assert [process.wait(20) for process in runs] == [143, 143]
    assert not replicas_on(cluster.hosts[0])
