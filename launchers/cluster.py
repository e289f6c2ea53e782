"""Runs replicas in processes on the hosts of a Ray cluster."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Optional

import cloudpickle
from launchpad import context

from launchers import events as ev
from launchers.hosts import Host
from launchers.link import LAUNCHER_PATIENCE_SECONDS
from launchers.placement import Need
from launchers.plan import Nearness, Plan, Replica, Server
from launchers.ports import KnownAddress, bind, connect
from launchers.processes import child_config, modules_of
from launchers.ray_hosts import Cluster, NoRoom
from launchers.site import Site
from launchers.sites import Sites
from launchers.starting import StartQueue

_TRY_AGAIN_SECONDS = 30.0
"""How long a host that had no room is not asked for the same again."""
_HEAD_LOOK_SECONDS = 1.0
_HEAD_PATIENCE_SECONDS = 30.0
"""How long the cluster's head may be away; after 60 s Ray ends all of its processes, and so us."""
_HEAD_STOP_SECONDS = 10.0
_KILL_SECONDS = LAUNCHER_PATIENCE_SECONDS + 5.0


class ClusterBackend:
    """Runs each replica in a process of its own, on the host that the plan names.

    One agent a host, in a reservation of all that the replicas there need, starts them as
    `processes.ReplicaProcesses` does. A replica whose host is lost is started on another one.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        events: "queue.SimpleQueue[ev.Event]",
        run_directory: str,
        life: int,
    ) -> None:
        """Reserves what the plan needs and has an agent ready on every host of it.

        Args:
            plan: What will run.
            cluster: Where.
            events: Where to tell the supervisor.
            run_directory: Where the run's files go.
            life: 1, and 1 more for each time that the run was resumed.

        Raises:
            UsageError: A host has not, or has not now, what it should, or not the same software.
        """
        self._plan = plan
        self._cluster = cluster
        self._tell = events.put
        self._run_directory = run_directory
        self._life = life
        self._where: dict[str, Site] = {}
        self._ports: dict[str, tuple[int, ...]] = {}
        self._gpus: dict[str, tuple[str, ...]] = {}
        self._homeless: set[str] = set()
        self._no_room: dict[tuple[str, Need], float] = {}
        self._closed = threading.Event()
        self.kill_seconds = _KILL_SECONDS
        connect(plan, context.LaunchType.LOCAL_MULTI_PROCESSING)
        payloads = (cloudpickle.dumps(r.node.function) for r in plan.replicas.values())
        modules = list(dict.fromkeys(modules_of(plan, payloads)))
        self._sites = Sites(cluster, run_directory, modules, self._tell, self._lose)
        try:
            self._take_seats()
        except BaseException:
            self._sites.close()
            raise
        self._queue = StartQueue(self._tell)
        threading.Thread(target=self._watch_head, name="head watch", daemon=True).start()

    def start(self, replica: Replica) -> None:
        """Has the replica started once those before it are."""
        self._queue.put(replica.name, lambda: self._begin(replica))

    def stop(self, name: str) -> None:
        """Asks the replica to stop; one that has no process yet never gets one."""
        if not self._queue.cancel(name):
            self._where[name].stop(name)

    def kill(self, name: str) -> None:
        """Kills the replica's process, where its host can be reached."""
        self._where[name].kill(name)

    def close(self) -> None:
        """Ends the agents and gives back what was reserved."""
        self._closed.set()
        self._queue.close()
        self._sites.close()

    def _take_seats(self) -> None:
        """Opens a site on each host of the plan, and gives every replica its place there."""
        members: dict[Host, list[Replica]] = {}
        for replica in self._plan.replicas.values():
            members.setdefault(replica.seat.host, []).append(replica)
        sites = self._sites.open_first(
            [
                (host, _sum(replicas), sum(len(r.node.addresses) for r in replicas))
                for host, replicas in members.items()
            ]
        )
        for site, replicas in zip(sites, members.values(), strict=True):
            gpus = dict(zip(_gpu_names(replicas), site.gpus, strict=False))
            for replica in replicas:
                self._where[replica.name] = site
                self._ports[replica.name] = site.take_ports(len(replica.node.addresses))
                self._gpus[replica.name] = tuple(gpus[name] for name in replica.seat.gpus)

    def _begin(self, replica: Replica) -> None:
        """Starts a replica where it was, or on another host, if its own is lost."""
        while True:
            try:
                self._leave_lost_hosts(replica)
            except NoRoom as error:
                if self._queue.commit(replica.name, lambda: True):
                    self._tell(ev.LeftOut(replica.name, str(error)))
                return
            start = self._prepare(replica)
            if self._queue.commit(replica.name, start) is not False:
                return

    def _prepare(self, replica: Replica) -> Callable[[], bool]:
        """Returns what starts a replica and says whether its host was still there."""
        site = self._where[replica.name]
        config = child_config(
            self._plan,
            replica,
            self._run_directory,
            self._life,
            self._gpus[replica.name],
            self._ports[replica.name],
        )
        payload = self._pickle(replica, site)
        return lambda: site.start(config, payload)

    def _lose(self, site: Site, names: set[str]) -> None:
        """Tells of the end of all that ran on a host that is lost; who is needed most comes first.

        Called from the site's own thread.
        """
        replicas = [replica for replica in self._plan.replicas.values() if replica.name in names]
        replicas.sort(key=lambda replica: replica.traits.dispensable)
        self._homeless |= {r.name for r in replicas if r.traits.on_failure == "restart"}
        for replica in replicas:
            told = f"Its host {site.host.address} was lost: {site.lost}"
            self._tell(ev.Ended(replica.name, told))

    def _leave_lost_hosts(self, replica: Replica) -> None:
        """Finds other hosts for a replica and those that it is connected to, where theirs is lost.

        Raises:
            NoRoom: There is none for the replica itself.
        """
        for name in list(self._homeless):
            peer = self._plan.replicas[name]
            if replica.name in peer.holders:
                with contextlib.suppress(NoRoom):  # It will be told when its own start comes.
                    self._move(peer)
        if self._where[replica.name].lost is not None:
            self._move(replica)

    def _pickle(self, replica: Replica, site: Site) -> bytes:
        """Returns the replica's function with all addresses as they are seen from `site`."""

        def address(server: Server) -> KnownAddress:
            host = self._where[server.replica].host.address
            return KnownAddress(f"{host}:{self._ports[server.replica][server.number]}")

        bind(self._plan, address, self._nearness(site))
        pickled: bytes = cloudpickle.dumps(replica.node.function)
        return pickled

    def _nearness(self, site: Site) -> Callable[[str], Nearness]:
        """Returns what says how near replicas are to one at `site`."""

        def nearness(name: str) -> Nearness:
            other = self._where[name]
            if other.lost is not None:
                return Nearness.LOST
            return Nearness.NEAR if other.host.key == site.host.key else Nearness.THERE

        return nearness

    def _move(self, replica: Replica) -> None:
        """Seats a replica whose host is lost on another one, and tells those who must know.

        Raises:
            NoRoom: There is none.
        """
        old = self._where[replica.name]
        self._homeless.discard(replica.name)
        reason = f"Its host {old.host.address} was lost ({old.lost})"
        if replica.traits.per_host:
            raise NoRoom(f"{reason}, and so are those that it was for")
        site = self._find_site(replica)
        if site is None:
            need = replica.layout.need.describe()
            raise NoRoom(f"{reason}, and no other has room for it: it needs {need}")
        self._where[replica.name] = site
        for holder in replica.holders:
            there = self._where[holder]
            if not there.runs(holder):
                continue
            nearness = self._nearness(there)
            used = [self._plan.server_of(a, nearness) for a in self._plan.replicas[holder].uses]
            if any(server is not None and server.replica == replica.name for server in used):
                self._tell(ev.Stale(holder, replica.name))

    def _find_site(self, replica: Replica) -> Optional[Site]:
        """Returns a site with room for a replica and with ports for it, or None."""
        self._wait_for_head(replica)
        needs = [replica.seat.need]
        if replica.layout.gpus is None and replica.seat.gpus:  # It can do without.
            needs.append(replica.layout.need)
        for need in needs:
            for host in self._candidates(replica):
                if time.monotonic() < self._no_room.get((host.key, need), 0.0):
                    continue
                try:
                    site = self._sites.site_on(host, need)
                    self._ports[replica.name] = site.take_ports(len(replica.node.addresses))
                    self._gpus[replica.name] = site.gpus if need.gpus else ()
                    return site
                except NoRoom:
                    again = time.monotonic() + _TRY_AGAIN_SECONDS
                    self._no_room[host.key, need] = again
        return None

    def _wait_for_head(self, replica: Replica) -> None:
        """Waits while the head of the cluster is away, unless the replica has no need of it."""
        while not self._cluster.head_answers() and not self._closed.wait(_HEAD_LOOK_SECONDS):
            if any(site.lost is None for site in self._sites.all) and replica.seat.need == Need():
                return

    def _candidates(self, replica: Replica) -> Sequence[Host]:
        """Returns the hosts to try for a replica that has lost its own, the best first.

        Those that the layout admits come first; then those that stand in for it; and at last those
        whose agent has died, though perhaps not the host itself.
        """
        cut_off = {site.host.key for site in self._sites.all if site.cut_off}
        doubtful = {site.host.key for site in self._sites.all if site.lost is not None}
        known = list(dict.fromkeys(site.host for site in self._sites.all))
        there = self._cluster.hosts if self._cluster.head_answers() else known
        hosts = [host for host in there if host.key not in cut_off]
        load = {host.key: 0 for host in hosts}
        same_group = dict(load)
        for name, site in self._where.items():
            if site.host.key in load and site.lost is None:
                load[site.host.key] += 1
                same_group[site.host.key] += name.startswith(f"{replica.group}/")
        place = replica.layout.place or replica.traits.place

        def cost(host: Host) -> tuple[bool, bool, bool, int, int]:
            unlike = not host.is_called(replica.layout.host)
            doubled = place == "one_per_host" and bool(same_group[host.key])
            if place == "pack":
                return host.key in doubtful, unlike, doubled, 0, 0
            others = same_group[host.key], load[host.key]
            return host.key in doubtful, unlike, doubled, *others

        return sorted(hosts, key=cost)

    def _watch_head(self) -> None:
        """Ends the program when the head of the cluster is lost, while that still goes in order."""
        head = self._cluster.head
        answered_at = time.monotonic()
        while not self._closed.wait(_HEAD_LOOK_SECONDS):
            if self._cluster.head_answers():
                answered_at = time.monotonic()
            elif time.monotonic() - answered_at > _HEAD_PATIENCE_SECONDS:
                self._cluster.lost = True
                reason = f"the head of the Ray cluster, {head}, was lost"
                self._tell(ev.StopProgram("failed", reason, _HEAD_STOP_SECONDS))
                return


def _gpu_names(replicas: Iterable[Replica]) -> list[str]:
    """Returns the plan's names of the GPUs that replicas of one host have."""
    return sorted({name for replica in replicas for name in replica.seat.gpus})


def _sum(replicas: Sequence[Replica]) -> Need:
    """Returns what all replicas of a host need together; of GPUs, whole ones or a part of one."""
    gpus = float(len(_gpu_names(replicas)))
    if gpus == 1.0:
        gpus = min(1.0, sum(replica.seat.need.gpus for replica in replicas))
    return Need(
        cpus=sum(replica.seat.need.cpus for replica in replicas),
        gpus=gpus,
        memory=sum(replica.seat.need.memory for replica in replicas),
    )
