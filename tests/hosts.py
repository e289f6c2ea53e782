"""Hosts of a network, on one machine: what tests and benchmarks of a Ray cluster run on.

Each host is a network namespace with an address and a /dev/shm of its own, joined to the others by
a switch. All are in one user namespace: no root is needed, and networks do not see each other. A
holder process ends what still runs in them, also when the process that made them was killed.

The hosts share the files and process ids of the machine, which Ray looks through: `ray stop` would
end the nodes of all networks, `ray.init("auto")` could find any of them.
"""

import contextlib
import dataclasses
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

_IP = shutil.which("ip") or "/usr/sbin/ip"
_PORT = 6379
_RAY_DIRECTORY = "/dev/shm/ray"  # Sockets need a short path; and so it goes with the host.
_RAY_STARTED = b"Ray runtime started"


class Unavailable(Exception):
    """The kernel or the installed tools do not allow such hosts; the message is the reason."""


@dataclasses.dataclass
class Host:
    """One host of a network."""

    address: str
    _port: str  # its end of the link at the switch
    _switch: int  # a process in the network namespace of the switch
    _keeper: int  # a process that only keeps the host's namespaces
    _ray_command: Sequence[str] = ()
    _ray_environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    _started: list[subprocess.Popen[Any]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self._namespaces = _namespaces(self._keeper)

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a command here, in a session of its own; `options` are those of `Popen`."""
        options = {"start_new_session": True, **options}
        process: subprocess.Popen[Any] = subprocess.Popen(self._here(command, options), **options)
        self._started.append(process)
        return process

    def run(
        self, command: Sequence[str], timeout: float = 60.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command here to its end, which must be a success."""
        options = {"check": True, "capture_output": True, "text": True, **options}
        return subprocess.run(self._here(command, options), timeout=timeout, **options)

    def processes(self) -> list[psutil.Process]:
        """Returns all that runs here, also what has a network namespace of its own inside."""
        return _inhabitants(self._namespaces, self._keeper)

    def commands(self) -> list[str]:
        """Returns the command lines, or titles, of the processes that run here."""
        lines = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):  # It has just ended.
                lines.append(" ".join(process.cmdline()).strip())
        return lines

    def kill(self) -> None:
        """Kills all that runs here; the host and its link stay."""
        _kill(self._namespaces, self._keeper)

    def cut(self) -> None:
        """Takes the link down, at the switch: the address stays, and so does the loopback."""
        _ip(self._switch, f"link set {self._port} down")

    def mend(self) -> None:
        """Takes the link up again."""
        _ip(self._switch, f"link set {self._port} up")

    def bytes_sent(self) -> int:
        """Returns how many bytes this host has sent to others."""
        return self._counters()[8]

    def bytes_received(self) -> int:
        """Returns how many bytes this host has received from others."""
        return self._counters()[0]

    def start_ray(self, seconds: float = 60.0) -> None:
        """Starts this host's Ray node, again where it was killed, and waits until it has joined.

        The cluster holds a killed node for alive until its health checks have failed.

        Raises:
            RuntimeError: The node has not joined; the message is what it printed.
        """
        # What a head that was killed left there keeps another from starting.
        self.run(["rm", "-rf", _RAY_DIRECTORY])
        environment = {**os.environ, **self._ray_environment}
        with tempfile.TemporaryFile() as output:
            streams = {"stdout": output, "stderr": subprocess.STDOUT}
            node = self.popen(self._ray_command, env=environment, **streams)

            def printed() -> bytes:
                return os.pread(output.fileno(), 1 << 20, 0)

            _wait(lambda: _RAY_STARTED in printed() or node.poll() is not None, seconds)
            if _RAY_STARTED not in printed():
                raise RuntimeError(f"no Ray node on {self.address}:\n{printed().decode()}")

    def _here(self, command: Sequence[str], options: dict[str, Any]) -> list[str]:
        # In another mount namespace a process begins in the root directory.
        directory = os.path.abspath(options.pop("cwd", None) or os.getcwd())
        return [*_enter(self._keeper), "--mount", "env", f"--chdir={directory}", *command]

    def _counters(self) -> list[int]:
        devices = pathlib.Path(f"/proc/{self._keeper}/net/dev").read_text()
        return [int(count) for count in devices.partition("eth0:")[2].splitlines()[0].split()]


@dataclasses.dataclass
class Network:
    """Hosts that reach each other."""

    hosts: Sequence[Host]
    address: str  # of the Ray cluster


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """Makes `count` hosts, and removes them with all that runs there.

    Raises:
        Unavailable: There can be no such hosts on this machine.
    """
    program = [sys.executable, __file__, str(os.getpid()), str(count)]
    with contextlib.ExitStack() as stack:
        try:
            holder = subprocess.Popen(
                ["unshare", "--user", "--map-root-user", "--net", *program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            hosts: list[Host] = []
            stack.callback(_remove, holder, hosts)
            assert holder.stdout and holder.stderr
            keepers = [int(pid) for pid in holder.stdout.readline().split()]
            if not keepers:
                raise Unavailable(f"no namespaces for hosts: {holder.stderr.read().strip()}")
            _ip(holder.pid, "link add switch type bridge", "link set switch up")
            for number, keeper in enumerate(keepers, start=1):
                host = Host(f"10.77.0.{number}", f"port{number}", holder.pid, keeper)
                hosts.append(host)
                link = f"link add {host._port} type veth peer name eth0 netns {keeper}"
                _ip(holder.pid, link, f"link set {host._port} master switch up")
                address = f"address add {host.address}/24 dev eth0"
                _ip(keeper, "link set lo up", address, "link set eth0 up")
                host.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"])
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or str(error)
            raise Unavailable(f"no network of hosts: {reason.strip()}") from error
        yield Network(hosts, f"{hosts[0].address}:{_PORT}")


@contextlib.contextmanager
def cluster(
    count: int,
    cpus: int = 2,
    gpus: int = 0,
    arguments: Mapping[int, Sequence[str]] | None = None,
    environments: Mapping[int, Mapping[str, str]] | None = None,
) -> Iterator[Network]:
    """Makes `count` hosts with a Ray node on each, the head on the first.

    Args:
        count: The number of hosts.
        cpus: The CPUs of each.
        gpus: The GPUs of each.
        arguments: By host, further arguments of its `ray start`, which may contradict ours.
        environments: By host, further environment of its node.

    Raises:
        Unavailable: As `network`.
        RuntimeError: A node has not started.
    """
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    start += [f"--num-cpus={cpus}", f"--num-gpus={gpus}"]
    start += ["--disable-usage-stats", "--object-store-memory=100000000"]
    # Only the head may name the directory, which holds for all.
    head = ["--head", f"--port={_PORT}", f"--temp-dir={_RAY_DIRECTORY}"]
    head += ["--include-dashboard=false"]
    with network(count) as made:
        for index, host in enumerate(made.hosts):
            role = [f"--address={made.address}"] if index else head
            more = (arguments or {}).get(index, ())
            host._ray_command = [*start, *role, f"--node-ip-address={host.address}", *more]
            host._ray_environment = (environments or {}).get(index, {})
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(Host.start_ray, made.hosts))  # The others try until the head is there.
        yield made


def _remove(holder: subprocess.Popen[str], hosts: Iterable[Host]) -> None:
    """Ends a holder, which ends what its hosts run."""
    holder.communicate("end\n", timeout=60)
    for host in hosts:
        host._namespaces.clear()  # Others may get the same numbers.
        for process in host._started:
            process.wait()


def _ip(pid: int, *lines: str) -> None:
    command = [*_enter(pid), _IP, "-batch", "-"]
    subprocess.run(command, input="\n".join(lines), check=True, capture_output=True, text=True)


def _enter(pid: int) -> list[str]:
    return ["nsenter", f"--target={pid}", "--user", "--preserve-credentials", "--net"]


def _namespaces(pid: int, kinds: Sequence[str] = ("net", "mnt")) -> set[int]:
    return {os.stat(f"/proc/{pid}/ns/{kind}").st_ino for kind in kinds}


def _inhabitants(namespaces: set[int], spared: int) -> list[psutil.Process]:
    """Returns the processes one of whose namespaces is one of these."""
    found = []
    for pid in psutil.pids():
        # Others' namespaces cannot be seen, nor those of a process that has ended.
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            if pid != spared and namespaces & _namespaces(pid):
                found.append(process)
    return found


def _kill(namespaces: set[int], spared: int) -> None:
    """Kills the processes in these namespaces until there are none."""

    def killed() -> bool:
        processes = _inhabitants(namespaces, spared)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not processes

    if not _wait(killed, 30):
        raise TimeoutError(f"cannot be killed: {_inhabitants(namespaces, spared)}")


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits until a condition holds; returns whether it did in time."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    return holds


def _hold(parent: int, count: int) -> None:
    """Keeps a switch and `count` hosts until it is told to end or its parent has ended."""
    parent_ended = os.pidfd_open(parent)
    keepers = []
    for _ in range(count):
        # It tells when its namespaces are there, and ends with this process.
        command = ["unshare", "--net", "--mount", "sh", "-c", "echo there; exec cat"]
        keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert keeper.stdout
        if not keeper.stdout.readline():
            sys.exit(1)
        keepers.append(keeper)
    if os.getppid() == parent:
        print(*(keeper.pid for keeper in keepers), flush=True)
        select.select([sys.stdin, parent_ended], [], [])
    switch = _namespaces(os.getpid(), ["net"])
    _kill(switch.union(*(_namespaces(keeper.pid) for keeper in keepers)), os.getpid())


if __name__ == "__main__":
    _hold(int(sys.argv[1]), int(sys.argv[2]))
