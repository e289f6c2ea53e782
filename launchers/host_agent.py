"""The launcher's hands on one host of a cluster: runs replicas there, and ends with it."""

import dataclasses
import os
import secrets
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence

from launchers.child import ChildConfig
from launchers.fork_server import ForkServer
from launchers.hosts import this_machine
from launchers.link import Door, Link, LinkLost
from launchers.ports import ReservedPort
from launchers.processes import ReplicaProcesses
from launchers.versions import installed_versions

_END_SECONDS = 2.0
_LEAVE_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Ready:
    """Tells the launcher that replicas can be started: what they need is loaded."""


@dataclasses.dataclass(frozen=True)
class Start:
    """Asks for the start of a replica.

    Attributes:
        config: What its process must know.
        payload: Its node's function, pickled.
    """

    config: ChildConfig
    payload: bytes


@dataclasses.dataclass(frozen=True)
class Stop:
    """Asks a replica to stop."""

    replica: str


@dataclasses.dataclass(frozen=True)
class Kill:
    """Ends a replica without asking."""

    replica: str


@dataclasses.dataclass(frozen=True)
class Reserve:
    """Asks for ports that nobody else can take; the answer is a `Reserved`."""

    count: int


@dataclasses.dataclass(frozen=True)
class Reserved:
    """Tells the launcher which ports it has."""

    ports: Sequence[int]


@dataclasses.dataclass(frozen=True)
class End:
    """Ends the agent and all that it still runs."""


@dataclasses.dataclass(frozen=True)
class Opening:
    """What an agent answers when it is ready.

    Attributes:
        port: Where it waits for its launcher.
        key: What the launcher has to know.
        versions: What is installed there, by name.
        shares_run: Whether the run's directory is there, and can be written.
        ports: Ports that it has reserved.
        gpus: GPUs that it may hand out, by name.
        node: What Ray knows its host by.
    """

    port: int
    key: bytes
    versions: Mapping[str, str]
    shares_run: bool
    ports: Sequence[int]
    gpus: tuple[str, ...]
    node: str


class HostAgent:
    """Runs replicas as children of its own process, as its launcher says, and ends with it."""

    def __init__(self, address: str) -> None:
        """Initializes the agent of the host with that address."""
        self._address = address
        self._ports: list[ReservedPort] = []

    def open(
        self,
        environment: Mapping[str, str],
        modules: Sequence[str],
        run_directory: str,
        token: str,
        num_ports: int,
    ) -> Opening:
        """Begins to load what replicas need, and waits for the launcher in the background.

        Args:
            environment: Variables of the launcher's that replicas have, too.
            modules: What replicas should find loaded.
            run_directory: The run's directory.
            token: Name of a file there that proves that it is the same one.
            num_ports: Ports to reserve.
        """
        import ray

        node = ray.get_runtime_context().get_node_id()
        os.environ.update(environment)
        # What is forked would load the program of this process, which is Ray's worker.
        vars(sys.modules["__main__"]).pop("__file__", None)
        logs = os.path.join(run_directory, "logs")
        is_there = os.path.exists(os.path.join(run_directory, token))
        shares_run = is_there and os.access(logs, os.W_OK)
        if not shares_run:
            logs = tempfile.gettempdir()
        log = os.path.join(logs, f"forkserver-{self._address}.log")
        door = Door(self._address, secrets.token_bytes(32))
        threading.Thread(
            target=self._serve, args=(door, modules, log), name="agent", daemon=True
        ).start()
        return Opening(
            door.port,
            door.key,
            installed_versions(),
            shares_run,
            self._reserve(num_ports),
            this_machine().gpus,
            node,
        )

    def _reserve(self, count: int) -> list[int]:
        ports = [ReservedPort() for _ in range(count)]
        self._ports += ports
        return [port.port for port in ports]

    def _serve(self, door: Door, modules: Sequence[str], log: str) -> None:
        """Does what the launcher says, until it says that it is done, or is gone.

        With a launcher that is gone, all that ran here ends, this process included.
        """
        try:
            ForkServer.prepare(modules, log)
            link = door.wait()
            processes = ReplicaProcesses(modules, log, link.send)
            try:
                ForkServer.wait_until_loaded()
                link.send(Ready())
                self._obey(link, processes)
            finally:
                processes.end(_END_SECONDS)
                ForkServer.clean_up()
            link.close()
            threading.Event().wait(_LEAVE_SECONDS)  # Ray ends this process, unless it is lost.
            os._exit(0)
        except BaseException as error:
            if not isinstance(error, LinkLost):
                traceback.print_exc()
            os._exit(1)

    def _obey(self, link: Link, processes: ReplicaProcesses) -> None:
        for message in link.messages():
            if isinstance(message, Start):
                processes.start(message.config, message.payload)
            elif isinstance(message, Stop):
                processes.stop(message.replica)
            elif isinstance(message, Kill):
                processes.kill(message.replica)
            elif isinstance(message, Reserve):
                link.send(Reserved(self._reserve(message.count)))
            elif isinstance(message, End):
                return
