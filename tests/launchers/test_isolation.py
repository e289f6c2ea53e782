"""Nobody outside of a run's own network reaches its nodes."""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import launchpad as lp
import pytest

from launchers.run import launch
from tests.command_line import started, states
from tests.support import wait_for

ROOT = pathlib.Path(__file__).parent.parent.parent
ENCLOSE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from launchers import isolation\n"


def python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ENCLOSE + code]
    return subprocess.run(command, timeout=60, capture_output=True, text=True, **options)


@pytest.fixture(scope="module", autouse=True)
def allowed() -> None:
    tried = python("isolation.enclose()")
    if "PermissionError" in tried.stderr:
        pytest.skip(f"no network of its own here: {tried.stderr.splitlines()[-1]}")


LISTENERS = """
import launchpad as lp

class Server:
    pass

def draw():
    program = lp.Program("listeners")
    with program.group("server"):
        for _ in range(4):
            program.add_node(lp.CourierNode(Server))
    return program
"""
APE_X = ("--nostop_when_solved", "--num_actors=1")
SERVERS = ("--program=listeners:draw",)  # Whose processes load no TensorFlow.


@pytest.fixture
def listening(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[tuple[int, set]]:
    """Runs the command line; yields a node's process and the ports at which nodes listen."""
    (tmp_path / "listeners.py").write_text(LISTENERS)
    with started(tmp_path, "--run_dir=r", *request.param) as launcher:
        wait_for(lambda: states(tmp_path / "r") == {"running"}, 60)
        nodes = launcher.children(recursive=True)
        node = nodes[-1].pid if nodes else launcher.pid
        yield node, _listening_ports(node)


def _listening_ports(pid: int) -> set[int]:
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


def reachable(ports: set[int], host: str = "localhost") -> set[int]:
    found = set()
    for port in ports:
        try:
            socket.create_connection((host, port), timeout=2.0).close()
            found.add(port)
        except OSError:
            pass
    return found


INSIDE = """
import ctypes, os, socket
for kind, flag in (("user", 0x10000000), ("net", 0x40000000)):
    if os.readlink(f"/proc/self/ns/{kind}") != os.readlink(f"/proc/{PID}/ns/{kind}"):
        assert ctypes.CDLL(None).setns(os.open(f"/proc/{PID}/ns/{kind}", os.O_RDONLY), flag) == 0
for port in PORTS:
    socket.create_connection(("localhost", port), timeout=5.0).close()
"""


@pytest.mark.parametrize("listening", [APE_X, ("--mode=local_mt", *SERVERS)], indirect=True)
def test_by_default_a_runs_ports_are_out_of_reach_from_another_network(
    listening: tuple[int, set[int]],
) -> None:
    node, ports = listening
    assert len(ports) >= 4
    inside = python(INSIDE.replace("PID", str(node)).replace("PORTS", repr(ports)))
    assert inside.returncode == 0, inside.stderr
    assert not reachable(ports)
    assert not reachable(ports, socket.gethostname())


@pytest.mark.parametrize("listening", [("--network=host", *SERVERS)], indirect=True)
def test_on_the_hosts_network_they_can_be_reached(listening: tuple[int, set[int]]) -> None:
    assert len(reachable(listening[1])) >= 4


ORDINARY = """
import ctypes, encodings.idna, os, socket
if os.getuid() == 0:
    os.setgroups([]); os.setgid(12345); os.setuid(12345)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: its own files in /proc, as after a login
user = os.getuid()
isolation.enclose()
assert isolation.has_loopback_only()
server = socket.create_server(("localhost", 0))
socket.create_connection(server.getsockname()).close()
open("mine", "w").close()
assert os.getuid() == user and os.stat("mine").st_uid == user
isolation.enclose()
"""


def test_an_ordinary_user_gets_a_network_too_and_keeps_files_and_name() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        run = python(ORDINARY, cwd=directory)
        assert run.returncode == 0, run.stderr
        owner = os.stat(os.path.join(directory, "mine")).st_uid
        assert owner == (12345 if os.getuid() == 0 else os.getuid())


def test_a_process_with_threads_is_told_that_they_would_stay_behind() -> None:
    code = (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "isolation.enclose()"
    )
    run = python(code)
    assert "OSError: the process has threads already" in run.stderr


def test_a_launch_from_python_warns_of_what_is_reachable() -> None:
    program = lp.Program("idle")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="idle")
    with pytest.warns(UserWarning, match="whoever reaches one can run code as you"):
        run = launch(program, "test_mt")
    run.stop()
    run.wait(20)


def test_an_unknown_network_is_refused(tmp_path: pathlib.Path) -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "launch.py", "--network=hots"],
        cwd=tmp_path,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert run.stderr == "Unknown network 'hots': did you mean host?\n"
