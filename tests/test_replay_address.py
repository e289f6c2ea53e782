"""`launch.py replay`, and runs whose replay servers stand already."""

import contextlib
import pathlib
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psutil
import pytest
import reverb

from agents.agent import TableSpec
from command import assembly, resumption
from command.settings import Settings
from launchers import isolation
from launchers.directory import RunDirectory
from nodes.replay_server import make_table
from nodes.standing_replay import servers_at
from programs import replay_alone
from tests.balancer import balanced, needs_haproxy, unused_port
from tests.command_line import QUICK, launch, launched, result_of, started
from usage import UsageError

FIELDS = [flag for flag in QUICK if flag.startswith("--config.")]


def table_of(*flags: str) -> TableSpec:
    """Returns the table that Ape-X has for Catch in one of two servers."""
    _, values = assembly.read([])
    agent, _, _ = assembly.make_agent(Settings(), values, flags)
    return replay_alone.table_of(agent, 2)


def inserted(address: str) -> int:
    (server,) = servers_at(address)
    count: int = server.tables["windows"].rate_limiter_info.insert_stats.completed
    return count


def sampled(address: str) -> int:
    (server,) = servers_at(address)
    count: int = server.tables["windows"].rate_limiter_info.sample_stats.completed
    return count


@pytest.mark.parametrize(
    "value, said",
    [
        ("localhost", "wants host:port of each server, with commas between them, got 'localhost'."),
        ("", "with commas between them, got ''."),
        ("a:1,", "with commas between them, got ''."),
        (":8000", "got ':8000'."),
        ("http://a:8000", "got 'http://a:8000'."),
        ("a:0", "--replay_address wants a port from 1 to 65535, got 0."),
        ("a:65536", "a port from 1 to 65535, got 65536."),
        ("a:1, b:2, a:1", "--replay_address has a:1 twice: give each server once."),
    ],
)
def test_addresses_that_are_none_are_refused(value: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        assembly.read([f"--replay_address={value}"])
    assert said in str(raised.value)


@pytest.mark.parametrize("value", ["a:1", "10.0.0.1:8000, b-c.d_e:65535", "[::1]:8000"])
def test_addresses_are_of_hosts_and_ports(value: str) -> None:
    settings, _ = assembly.read([f"--replay_address={value}"])
    assert settings.replay_addresses == tuple(value.split(", "))


NOWHERE = "localhost:1"
BAD_INPUT = {
    # It takes longer than all others, so it is the first.
    "nobody": (
        [f"--replay_address={NOWHERE}"],
        f"No Reverb server answers at {NOWHERE} within 5 s",
    ),
    "malformed": (["--replay_address=here"], "--replay_address wants host:port"),
    "shards": (
        [f"--replay_address={NOWHERE}", "--replay_shards=1"],
        "--replay_shards means nothing with --replay_address",
    ),
    "program": (
        [f"--replay_address={NOWHERE}", "--program=os:getcwd"],
        "--replay_address is for --agent",
    ),
    "no port": (["replay"], "wants the port to serve: launch.py replay --port=N."),
    "port 0": (["replay", "--port=0"], "--port wants a port from 1 to 65535, got 0."),
    "port": (["replay", "--port=65536"], "--port wants a port from 1 to 65535, got 65536."),
    "of": (["replay", "--port=1", "--shards=0"], "--shards must lie between 1 and 10000, got 0."),
    "flag": (["replay", "--prot=1"], "Unknown flag 'prot': did you mean port"),
    "size": (["replay", "--port=1", "--config.replay_size=2000000000000"], "GiB are free"),
}


@pytest.fixture(scope="module")
def run_bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Returns what came of each bad input."""
    with launched(
        {name: (tmp_path_factory.mktemp("bad"), BAD_INPUT[name][0]) for name in BAD_INPUT}
    ) as end:
        yield end


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_told_in_one_sentence_and_starts_nothing(
    name: str, run_bad: Callable[[str], Any]
) -> None:
    directory, run = run_bad(name)
    assert (run.returncode, run.stdout) == (2, "")
    assert BAD_INPUT[name][1] in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert list(directory.iterdir()) == []


def test_the_verbs_help_lists_its_flags_and_the_agents_configuration(
    tmp_path: pathlib.Path,
) -> None:
    run = launch(tmp_path, "replay", "--help", "--agent=r2d2")
    assert run.returncode == 0
    assert "--port" in run.stdout and "--config.trace_length" in run.stdout
    assert "--num_actors" not in run.stdout


@pytest.mark.parametrize(
    "given, addresses, shards",
    [
        ((), ("a:1", "b:1"), 1),
        (("--replay_address=c:1",), ("c:1",), 1),
        (("--replay_address=none",), (), 1),
    ],
    ids=["stay", "move", "own"],
)
def test_a_resumed_runs_servers_stay_or_move(
    given: tuple[str, ...], addresses: tuple[str, ...], shards: int, tmp_path: pathlib.Path
) -> None:
    assert resumed(["--replay_address=a:1,b:1"], given, tmp_path) == (addresses, shards)


def test_a_run_with_shards_of_its_own_can_go_on_with_standing_ones(tmp_path: pathlib.Path) -> None:
    assert resumed(["--replay_shards=2"], ("--replay_address=a:1",), tmp_path) == (("a:1",), 1)


def resumed(
    before: Sequence[str], given: Sequence[str], tmp_path: pathlib.Path
) -> tuple[Sequence[str], int]:
    settings, _ = assembly.read(before)
    _, values = assembly.read(before)
    _, config, _ = assembly.make_agent(settings, values, before)
    directory = RunDirectory(str(tmp_path / "r"))
    described = assembly.Assembly("r", settings, config, None, lambda: None, ()).describe()
    directory.write("config.json", described)
    now = [f"--resume={tmp_path / 'r'}", *given]
    _, values = assembly.read(now)
    merged = resumption.arguments(str(tmp_path / "r"), values, now)
    settings, values = assembly.read(merged)
    assert values["replay_shards"].present == (settings.replay_address is None)
    return settings.replay_addresses, settings.replay_shards


@contextlib.contextmanager
def replay(directory: pathlib.Path, *ports: int) -> Iterator[list[psutil.Popen]]:
    """Runs `launch.py replay` on each port, as one of two shards, until all serve."""
    with contextlib.ExitStack() as stack:
        servers = []
        for port in ports:
            arguments = ("replay", f"--port={port}", "--shards=2", *FIELDS)
            server = started(directory, *arguments, stdout=subprocess.PIPE)
            servers.append(stack.enter_context(server))
        for process, port in zip(servers, ports, strict=True):
            assert process.stdout is not None
            said = [process.stdout.readline()]
            if "can be reached from wherever this machine can" in said[0]:
                said.append(process.stdout.readline())
            assert said[-1] == f"table 'windows' of apex for catch is served on port {port}\n"
        yield servers


def test_runs_use_servers_that_stand_already(tmp_path: pathlib.Path) -> None:
    ports = [unused_port(), unused_port()]
    first, second = (f"localhost:{port}" for port in ports)
    with replay(tmp_path, *ports) as servers:
        flags = ["--nostop_when_solved", "--run_dir=r", "--mode=local_mt", *QUICK]
        run = launch(tmp_path, f"--replay_address={first},{second}", "--max_steps=2000", *flags)
        assert run.returncode == 0, run.stdout + run.stderr
        opened = "as replay at" in run.stdout.splitlines()[0]
        assert opened != isolation.has_loopback_only()
        result = result_of(tmp_path / "r")
        assert result["outcome"] == "finished" and "replay" not in result["restarts"]
        assert result["trained_samples"] == 32 * result["learner_steps"] > 0
        before = [inserted(first), inserted(second)]
        assert min(before) >= 32
        assert not list(tmp_path.glob("r/checkpoints/replay*"))

        steps = result["environment_steps"] + 2000
        again = launch(
            tmp_path, "--resume=r", f"--replay_address={second},{first}", f"--max_steps={steps}"
        )
        assert again.returncode == 0, again.stdout + again.stderr
        assert result_of(tmp_path / "r")["learner_steps"] > result["learner_steps"]
        assert inserted(first) > before[0] and inserted(second) > before[1]

        servers[0].send_signal(signal.SIGINT)
        servers[1].send_signal(signal.SIGTERM)
        assert [server.wait(20) for server in servers] == [130, 143]
    assert {path.name for path in tmp_path.iterdir()} == {"r"}


@pytest.fixture
def shards() -> Iterator[list[reverb.Server]]:
    """Two servers of what Ape-X without priorities needs for Catch."""
    table = table_of(*FIELDS, "--config.priority_exponent=0")
    servers = [reverb.Server([make_table(table)]) for _ in range(2)]
    yield servers
    for server in servers:
        server.stop()


@needs_haproxy
def test_a_run_without_priorities_learns_through_a_load_balancer(
    shards: list[reverb.Server], tmp_path: pathlib.Path
) -> None:
    with balanced([shard.port for shard in shards], tmp_path) as address:
        flags = [f"--replay_address={address}", "--mode=local_mt", *QUICK]
        refused = launch(tmp_path, *flags)
        assert refused.returncode == 2 and not (tmp_path / "runs").exists()
        assert f"Several servers answer at {address}, as behind a load balancer" in refused.stderr
        assert refused.stderr.count("\n") == 1

        run = launch(
            tmp_path,
            *flags,
            "--config.priority_exponent=0",
            "--max_steps=2000",
            "--nostop_when_solved",
            "--run_dir=r",
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert result_of(tmp_path / "r")["outcome"] == "finished"
        assert result_of(tmp_path / "r")["learner_steps"] > 0
    direct = [f"localhost:{shard.port}" for shard in shards]
    assert all(inserted(address) and sampled(address) for address in direct)


@needs_haproxy
@pytest.mark.parametrize("tcp", [False, True], ids=["streams", "connections"])
def test_a_load_balancer_shows_all_its_servers(
    tcp: bool, shards: list[reverb.Server], tmp_path: pathlib.Path
) -> None:
    with balanced([shard.port for shard in shards], tmp_path, tcp) as address:
        behind = {server.identity for server in servers_at(address)}
    direct = {servers_at(f"localhost:{shard.port}")[0].identity for shard in shards}
    assert behind == direct and len(direct) == 2
