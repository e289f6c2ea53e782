"""The hosts for tests of a cluster: they are apart, can be cut off, and leave nothing behind."""

import contextlib
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests import hosts
from tests.support import wait_for

ROOT = pathlib.Path(__file__).parent.parent
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 7000)) as server:
    print("listens", flush=True)
    while True:
        connection, (address, _) = server.accept()
        with connection:
            connection.sendall(address.encode())
            while connection.recv(1 << 16):
                pass
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000), float(sys.argv[3])) as connection:
    print(connection.recv(100).decode())
    connection.sendall(bytes(int(sys.argv[2])))
"""
SLEEPER = """
import ctypes, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{more}
print("sleeps", flush=True)
signal.pause()
"""
OWN_NETWORK = "assert ctypes.CDLL(None).unshare(0x40000000) == 0  # CLONE_NEWNET"
OPENED = """
import sys
from tests import hosts
with hosts.network(2) as network:
    sleeper = network.hosts[1].popen([sys.executable, "-c", sys.argv[1]], stdout=sys.stdout)
    holder = network.hosts[0]._switch
    print(holder, network.hosts[0]._keeper, sleeper.pid, flush=True)
    sleeper.wait()
"""


@contextlib.contextmanager
def skipping() -> Iterator[None]:
    """Skips a test whose hosts this machine cannot have."""
    try:
        yield
    except hosts.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def network() -> Iterator[hosts.Network]:
    """Two hosts."""
    with skipping(), hosts.network(2) as made:
        yield made


def serve(host: hosts.Host) -> None:
    """Starts a server on a host, which answers who calls."""
    command = [sys.executable, "-c", SERVER, host.address]
    server = host.popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout and server.stdout.readline() == "listens\n"


def call(host: hosts.Host, server: hosts.Host, size: int = 0, seconds: float = 20.0) -> str | None:
    """Sends so many bytes from one host to another; returns as whom, None if it did not answer."""
    command = [sys.executable, "-c", CLIENT, server.address, str(size), str(seconds)]
    result = host.run(command, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def sleep(host: hosts.Host, more: str = "") -> int:
    """Starts a process on a host that only SIGKILL ends, and returns its id."""
    command = [sys.executable, "-c", SLEEPER.format(more=more)]
    sleeper = host.popen(command, stdout=subprocess.PIPE, text=True)
    assert sleeper.stdout and sleeper.stdout.readline() == "sleeps\n"
    return sleeper.pid


def runs(pid: int) -> bool:
    """Returns whether a process is there and has not ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def pids(host: hosts.Host) -> set[int]:
    """Returns the ids of a host's processes."""
    return {process.pid for process in host.processes()}


def test_hosts_reach_each_other_until_one_is_cut_off(network: hosts.Network) -> None:
    first, second = network.hosts
    assert network.address == "10.77.0.1:6379"
    serve(second)
    assert call(first, second) == first.address == "10.77.0.1"
    second.cut()
    assert call(first, second, seconds=0.3) is None
    assert call(second, second) == second.address == "10.77.0.2"
    second.mend()
    assert wait_for(lambda: call(first, second, seconds=1)) == first.address


def test_a_host_counts_what_it_sends_and_receives(network: hosts.Network) -> None:
    first, second = network.hosts
    serve(second)
    sent, received = first.bytes_sent(), second.bytes_received()
    assert call(first, second, 1_000_000)
    assert first.bytes_sent() - sent > 1_000_000
    assert second.bytes_received() - received > 1_000_000
    assert second.bytes_sent() < 1_000_000
    sent = second.bytes_sent()
    assert call(second, second, 1_000_000)
    assert second.bytes_sent() - sent < 100_000, "its loopback was counted"


def test_a_command_runs_in_its_directory_and_must_succeed(
    network: hosts.Network, tmp_path: pathlib.Path
) -> None:
    host = network.hosts[0]
    assert host.run(["pwd"]).stdout.strip() == str(pathlib.Path.cwd())
    assert host.run(["pwd"], cwd=tmp_path).stdout.strip() == str(tmp_path)
    assert host.run(["env"], env={"ONLY": "this"}).stdout.strip() == "ONLY=this"
    with pytest.raises(subprocess.CalledProcessError):
        host.run(["false"])
    host.run(["touch", "/dev/shm/of_one_host"])
    assert not pathlib.Path("/dev/shm/of_one_host").exists()
    assert "of_one_host" not in network.hosts[1].run(["ls", "/dev/shm"]).stdout


def test_a_host_is_killed_alone(network: hosts.Network) -> None:
    first, second = network.hosts
    with hosts.network(2) as other:
        others = {host.address: sleep(host) for host in (second, *other.hosts)}
        killed = {sleep(first), sleep(first, OWN_NETWORK)}
        assert pids(first) == killed
        first.kill()
        assert not pids(first)
        assert not any(runs(pid) for pid in killed)
        assert all(runs(pid) for pid in others.values())
    serve(first)
    assert call(second, first) == second.address, "the network is no longer there"
    assert len(pids(second)) == 1


@pytest.mark.parametrize("error", [None, ValueError("of the test")])
def test_nothing_is_left_of_a_network(error: Exception | None) -> None:
    expected = pytest.raises(ValueError) if error else contextlib.nullcontext()
    with skipping(), expected, hosts.network(2) as network:
        first, second = network.hosts
        left = [sleep(first), sleep(second), sleep(second, OWN_NETWORK)]
        left += [first._switch, first._keeper, second._keeper]
        assert all(runs(pid) for pid in left)
        if error:
            raise error
    assert not any(runs(pid) for pid in left)
    assert not first.processes()
    first.kill()


def test_nothing_is_left_of_a_network_whose_maker_was_killed(network: hosts.Network) -> None:
    stays = sleep(network.hosts[0])
    maker = subprocess.Popen(
        [sys.executable, "-c", OPENED, SLEEPER.format(more="")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert maker.stdout
    lines = [maker.stdout.readline(), maker.stdout.readline()]
    left = [int(pid) for line in lines if line != "sleeps\n" for pid in line.split()]
    assert len(left) == 3 and all(runs(pid) for pid in left)
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    wait_for(lambda: not any(runs(pid) for pid in left))
    assert runs(stays)


@pytest.mark.parametrize("program", [None, "#!/bin/sh\necho not here >&2; exit 1"])
def test_where_there_can_be_no_hosts_the_reason_is_told(
    program: str | None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program:
        (tmp_path / "unshare").write_text(program)
        (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(hosts.Unavailable, match="not here" if program else "unshare"),
        hosts.network(2),
    ):
        pass
