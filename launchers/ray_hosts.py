"""Ray as this project uses it: which hosts there are, what is reserved, an agent on each."""

import contextlib
import os
import signal
import site
import socket
import sys
import sysconfig
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Optional

from launchers.host_agent import HostAgent
from launchers.hosts import GIB, Host
from launchers.placement import Need
from launchers.versions import own_modules
from usage import UsageError

_ANSWER_SECONDS = 5.0
_HEAD_SECONDS = 2.0
_SHUTDOWN_SECONDS = 5.0
_OBJECT_STORE_BYTES = 100_000_000
"""Nothing of ours goes through Ray's object store; this is about the least that it takes."""
_PINNED = 0.001
_DIGITS = 4
"""Ray's precision of what it reserves."""
_LABEL = "ray.io/"


class NoRoom(Exception):
    """A host does not have, or not now, what is to be reserved."""


class Reservation:
    """A part of a host that is this run's, with an agent in it once one is started."""

    def __init__(self, cluster: "Cluster", host: Host, need: Need, group: Any) -> None:
        """Takes what `Cluster.reserve` has made."""
        self.host = host
        self._cluster = cluster
        self._need = need
        self._group = group
        self._agent: Any = None

    def start_agent(self) -> None:
        """Has Ray start the agent, in the background."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._agent = (
            ray.remote(HostAgent)
            .options(
                num_cpus=0,
                num_gpus=self._need.gpus,
                max_concurrency=2,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, 0),
            )
            .remote(self.host.address)
        )

    def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """Returns the answer of the agent's method.

        Raises:
            NoRoom: There is none within `seconds`, or the agent is gone.
        """
        import ray

        try:
            return ray.get(getattr(self._agent, method).remote(*arguments), timeout=seconds)
        except (ray.exceptions.RayError, OSError) as error:  # TimeoutError among them
            lines = (str(error).strip() or repr(error)).splitlines()
            reason = lines[0] if lines[0] == lines[-1] else f"{lines[0]} {lines[-1].strip()}"
            raise NoRoom(f"Host {self.host.address} does not answer: {reason}") from None

    def release(self) -> None:
        """Ends the agent and gives back what was reserved."""
        import ray

        if self._cluster.lost:
            return
        with contextlib.suppress(Exception):  # The host may be gone.
            if self._agent is not None:
                ray.kill(self._agent)
            ray.util.remove_placement_group(self._group)


class Cluster:
    """A Ray cluster that this process has joined.

    Attributes:
        lost: Whether its head is gone, so that nobody should call Ray any more.
    """

    def __init__(self) -> None:
        self.lost = False

    @property
    def head(self) -> str:
        """`host:port` of what holds the cluster together."""
        import ray

        address: str = ray.get_runtime_context().gcs_address
        return address

    def head_answers(self) -> bool:
        """Returns whether the head can be reached now."""
        host, _, port = self.head.rpartition(":")
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), _HEAD_SECONDS).close()
            return True
        return False

    @property
    def hosts(self) -> list[Host]:
        """The hosts that are there now and take work; this process's own comes first."""
        import ray

        own = ray.get_runtime_context().get_node_id()
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        nodes.sort(key=lambda node: (node["NodeID"] != own, node["NodeManagerAddress"]))
        return [_host(node) for node in nodes]

    def reserve(self, host: Host, need: Need, seconds: float) -> Reservation:
        """Reserves `need` on `host`.

        Raises:
            NoRoom: The host has not, or has not now, what is needed.
        """
        import ray

        bundle = {"CPU": need.cpus, "GPU": need.gpus, "memory": int(need.memory * GIB)}
        bundle = {name: amount for name, amount in bundle.items() if amount}
        bundle[f"node:{host.address}"] = _PINNED
        bundle = {name: round(amount, _DIGITS) for name, amount in bundle.items()}
        try:
            group = ray.util.placement_group([bundle], "STRICT_PACK")
            is_given = group.wait(seconds)
            if not is_given:
                ray.util.remove_placement_group(group)
        except (ray.exceptions.RayError, OSError, RuntimeError) as error:
            raise NoRoom(f"Ray does not answer: {error}") from None
        if not is_given:
            raise NoRoom(
                f"Host {host.describe()} has not given {need.describe()} within {seconds:g} s: "
                "another run holds that, or the host is gone and Ray has yet to notice; `ray "
                "status` tells"
            )
        return Reservation(self, host, need, group)


class _Connection:
    """This process's connection to Ray, which runs that overlap share."""

    lock = threading.Lock()
    users = 0


@contextlib.contextmanager
def joined(address: Optional[str]) -> Iterator[Cluster]:
    """Joins the cluster at `address`, or one of this machine's own that ends with the context.

    A cluster that this process has joined already, itself, is used and left alone.

    Raises:
        UsageError: Ray is not installed, or there is no cluster at `address`.
    """
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # Nothing may start one by accident.
    try:
        import ray
    except ImportError:
        raise UsageError(
            "Mode ray needs Ray, which is not installed: pip install 'launchgraph[cluster]'."
        ) from None
    with _Connection.lock:
        is_ours = _Connection.users > 0 or not ray.is_initialized()
        if not ray.is_initialized():
            _join(address)
        elif address not in (None, "auto", ray.get_runtime_context().gcs_address):
            raise UsageError(
                f"This process has joined the Ray cluster {ray.get_runtime_context().gcs_address} "
                f"already, and cannot join {address}, too."
            )
        _Connection.users += is_ours
    cluster = Cluster()
    try:
        yield cluster
    finally:
        with _Connection.lock:
            _Connection.users -= is_ours
            if is_ours and not _Connection.users:
                _leave(cluster)


def _join(address: Optional[str]) -> None:
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    sources = _sources_that_travel()
    if sources:
        options["runtime_env"] = {"py_modules": sources}
    if address is None:
        options |= {"address": "local", "include_dashboard": False}  # Whatever RAY_ADDRESS says.
        options |= {"object_store_memory": _OBJECT_STORE_BYTES}
    else:
        options |= {"address": address, "_node_ip_address": _own_address(address)}
    try:
        with _signals_kept():
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        what = f"The Ray cluster at {address!r} cannot be joined"
        if address is None:
            what = "A Ray cluster of this machine cannot be started"
        reason = str(error).strip() or "what answers there is no head of a cluster"
        raise UsageError(f"{what}: {reason.splitlines()[0].rstrip('.')}.") from None


def _leave(cluster: Cluster) -> None:
    import ray

    leaving = threading.Thread(target=ray.shutdown, name="ray shutdown", daemon=True)
    leaving.start()
    if not cluster.lost:  # Else Ray waits for the head, and ends the process in the end.
        leaving.join(_SHUTDOWN_SECONDS)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Leaves the process's handling of SIGTERM as it was; Ray would end the process at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _own_address(cluster: str) -> Optional[str]:
    """Returns this host's address as the cluster sees it, once the cluster answers."""
    import grpc  # Ray's own way to talk.

    if cluster == "auto":
        return None
    host, _, port = cluster.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _ANSWER_SECONDS) as connection:
            own: str = connection.getsockname()[0]
        with grpc.insecure_channel(cluster) as channel:  # Ray itself would wait for very long.
            grpc.channel_ready_future(channel).result(_ANSWER_SECONDS)
        return own
    except (OSError, ValueError, grpc.FutureTimeoutError) as error:
        reason = str(error) or "something else does"
        raise UsageError(
            f"No Ray cluster answers at {cluster!r} ({reason}): give the host:port that `ray start "
            "--head` printed, or leave --address out for one of this machine's own."
        ) from None


def _host(node: Any) -> Host:
    resources = node["Resources"]
    own = {"CPU", "GPU", "memory", "object_store_memory"}
    tags = {name for name in resources if name not in own and not name.startswith("node:")}
    labels = {f"{k}={v}" for k, v in node["Labels"].items() if not k.startswith(_LABEL)}
    return Host(
        address=node["NodeManagerAddress"],
        cpus=resources["CPU"],
        memory=resources.get("memory", 0.0) / GIB,
        gpus=tuple(map(str, range(int(resources.get("GPU", 0))))),
        tags=frozenset(tags | labels),
        key=node["NodeID"],
    )


def _sources_that_travel() -> list[str]:
    """Returns the files and folders of the loaded modules that no host can have installed."""
    folders = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    installed = {os.path.realpath(folder) for folder in folders}
    own = own_modules()
    sources = {
        source
        for name, module in list(sys.modules.items())
        if "." not in name and not name.startswith("_") and name not in own
        for source in _sources_of(module)
    }
    return sorted(
        source
        for source in sources
        if not any(source.startswith(f"{root}{os.sep}") for root in installed)
    )


def _sources_of(module: ModuleType) -> set[str]:
    """Returns the folders of a package, or the file of a module, where they are Python's."""
    folders = getattr(module, "__path__", None)
    file = getattr(module, "__file__", None) or ""
    paths = ([file] if file.endswith(".py") else []) if folders is None else list(folders)
    return {os.path.realpath(path) for path in paths}
