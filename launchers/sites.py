"""Opens sites on a cluster's hosts, checks what they must be, and closes them."""

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures

from launchers import events as ev
from launchers.host_agent import Opening
from launchers.hosts import Host
from launchers.placement import Need
from launchers.ray_hosts import Cluster, NoRoom, Reservation
from launchers.site import Site
from launchers.versions import difference, installed_versions
from usage import UsageError

_OPEN_SECONDS = 60.0
"""How long an agent may take to answer: Ray starts a process for it, which has much to load."""
_RESERVE_SECONDS = 10.0
_RESERVE_AGAIN_SECONDS = 3.0
_TRAVELLING = ("TF_", "OPENBLAS_", "XLA_", "JAX_")
"""What names of environment variables begin with that replicas need as the launcher has them."""


class Sites:
    """The sites of one run.

    Attributes:
        all: Those that were opened, also those that are lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        run_directory: str,
        modules: Sequence[str],
        tell: Callable[[ev.Event], None],
        on_loss: Callable[[Site, set[str]], None],
    ) -> None:
        """Initializes the sites; none is opened yet.

        Args:
            cluster: Where they are.
            run_directory: The run's directory, which all hosts must share.
            modules: What replicas should find loaded.
            tell: Takes what replicas tell.
            on_loss: Called with the names of those that ran on a site that is lost.
        """
        self.all: list[Site] = []
        self._cluster = cluster
        self._run_directory = run_directory
        self._modules = modules
        self._tell = tell
        self._on_loss = on_loss
        self._reservations: list[Reservation] = []
        self._closed = threading.Event()

    def open_first(self, hosts: Sequence[tuple[Host, Need, int]]) -> list[Site]:
        """Returns a site on each host, all at once.

        Args:
            hosts: Hosts, what is needed on each, and how many ports.

        Raises:
            UsageError: A host has not, or has not now, what it should, or not the same software.
        """
        pool = futures.ThreadPoolExecutor(len(hosts))
        try:
            with self._token() as token:
                openings = [
                    pool.submit(self._open, host, need, num_ports, token, _RESERVE_SECONDS)
                    for host, need, num_ports in hosts
                ]
                futures.wait(openings)
        finally:  # Who is interrupted does not wait for those that are under way.
            pool.shutdown(wait=False, cancel_futures=True)
        failures = [error for opening in openings if (error := opening.exception()) is not None]
        self.all += [opening.result() for opening in openings if opening.exception() is None]
        for failure in failures:
            if isinstance(failure, NoRoom):
                raise UsageError(f"{failure}.") from None
            raise failure
        return list(self.all)

    def site_on(self, host: Host, need: Need) -> Site:
        """Returns a site on `host` with `need` reserved; only GPUs need an agent of their own.

        Raises:
            NoRoom: The host has not what is needed.
        """
        for site in self.all:
            if site.host.key == host.key and site.lost is None and not need.gpus:
                if need != Need():
                    seconds = _RESERVE_AGAIN_SECONDS
                    self._reservations.append(self._cluster.reserve(host, need, seconds))
                return site
        with self._token() as token:
            site = self._open(host, need, 0, token, _RESERVE_AGAIN_SECONDS)
        self.all.append(site)
        return site

    def close(self) -> None:
        """Ends the agents and gives back what was reserved; also what is still being opened."""
        self._closed.set()
        if not self._cluster.head_answers():
            self._cluster.lost = True
        for reservation in self._reservations:
            reservation.release()
        if self.all:
            with futures.ThreadPoolExecutor(len(self.all)) as pool:
                list(pool.map(Site.close, self.all))

    def _open(self, host: Host, need: Need, num_ports: int, token: str, seconds: float) -> Site:
        """Returns a new site on `host`.

        Raises:
            NoRoom: The host does not have what is needed, or is another than it should be.
        """
        reservation = self._cluster.reserve(host, need, seconds)
        try:
            reservation.start_agent()
            environment = {k: v for k, v in os.environ.items() if k.startswith(_TRAVELLING)}
            opening: Opening = reservation.call(
                "open",
                environment,
                self._modules,
                self._run_directory,
                token,
                num_ports,
                seconds=_OPEN_SECONDS,
            )
            self._check(host, opening)
            site = Site(reservation, opening, self._tell, self._on_loss)
        except BaseException as error:
            reservation.release()
            if isinstance(error, OSError):
                raise NoRoom(f"The agent on {host.address} cannot be reached: {error}") from None
            raise
        if self._closed.is_set():  # Nobody waits for it any more.
            site.close()
            raise NoRoom("The run has ended")
        return site

    def _check(self, host: Host, opening: Opening) -> None:
        """Raises `NoRoom` where a host is not fit to run replicas of this launcher."""
        if opening.node != host.key:
            raise NoRoom(f"Another Ray node has the address {host.address}, too")
        differing = difference(installed_versions(), opening.versions)
        if differing:
            raise NoRoom(f"Host {host.address} has {differing}: install the same on all hosts")
        if not opening.shares_run:
            raise NoRoom(
                f"Host {host.address} does not see the run directory {self._run_directory}, or "
                "cannot write it: name one on a path that all hosts share, with --run_dir"
            )

    @contextlib.contextmanager
    def _token(self) -> Iterator[str]:
        """Makes a file in the run's directory by which others know that it is the same one."""
        name = f"shared-{secrets.token_hex(8)}"
        path = os.path.join(self._run_directory, name)
        with open(path, "x"):
            pass
        try:
            yield name
        finally:
            os.remove(path)
