"""One reserved part of a host, as the launcher sees it: replicas go there, events come back."""

import dataclasses
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Optional

from launchers import events as ev
from launchers.child import ChildConfig
from launchers.host_agent import End, Kill, Opening, Reserve, Reserved, Start, Stop
from launchers.hosts import Host
from launchers.link import LinkLost, knock
from launchers.ray_hosts import NoRoom, Reservation

_END_SECONDS = 3.0
_ANSWER_SECONDS = 20.0
_READY_SECONDS = 120.0


class Site:
    """A place where replicas run until the host is lost.

    Attributes:
        host: The host.
        gpus: GPUs that are reserved there, by name.
        lost: Why it is gone, or None while it is there.
        cut_off: Whether it is gone because nothing is heard of it.
    """

    def __init__(
        self,
        reservation: Reservation,
        opening: Opening,
        tell: Callable[[ev.Event], None],
        on_loss: Callable[["Site", set[str]], None],
    ) -> None:
        """Connects to the agent and waits until it is ready to start replicas.

        Args:
            reservation: What is reserved.
            opening: What the agent answered when it was opened.
            tell: Takes what replicas tell.
            on_loss: Called with the names of those that ran there when the host is lost.

        Raises:
            OSError: The agent cannot be reached, or is not ready in time.
        """
        self.host: Host = reservation.host
        self.gpus = opening.gpus
        self.lost: Optional[str] = None
        self.cut_off = False
        self._reservation = reservation
        self._ports = list(opening.ports)
        self._tell = tell
        self._on_loss = on_loss
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._reserved: queue.SimpleQueue[Sequence[int]] = queue.SimpleQueue()
        self._link = knock(self.host.address, opening.port, opening.key)
        try:
            next(self._link.messages(_READY_SECONDS))  # It says that it is ready.
        except LinkLost:
            self._link.close()
            raise
        self._follower = threading.Thread(target=self._follow, name="site", daemon=True)
        self._follower.start()

    def runs(self, name: str) -> bool:
        """Returns whether a replica was started there and has not ended."""
        with self._lock:
            return name in self._running

    def take_ports(self, count: int) -> tuple[int, ...]:
        """Returns ports there that nobody else has.

        Raises:
            NoRoom: The host does not answer.
        """
        if count > len(self._ports):
            self._link.send(Reserve(count))
            try:
                self._ports += self._reserved.get(timeout=_ANSWER_SECONDS)
            except queue.Empty:
                raise NoRoom(f"Host {self.host.address} does not answer") from None
        taken, self._ports = self._ports[:count], self._ports[count:]
        return tuple(taken)

    def start(self, config: ChildConfig, payload: bytes) -> bool:
        """Has a replica started there; returns whether the site is still there."""
        with self._lock:
            if self.lost is not None:
                return False
            self._running.add(config.name)
        self._link.send(Start(config, payload))
        return True

    def stop(self, name: str) -> None:
        """Asks a replica to stop; one that has ended was told of."""
        if self.runs(name):
            self._link.send(Stop(name))

    def kill(self, name: str) -> None:
        """Ends a replica without asking."""
        self._link.send(Kill(name))

    def close(self) -> None:
        """Ends the agent, waits until it is gone, and gives back what was reserved."""
        self._link.send(End())
        self._follower.join(_END_SECONDS)
        self._link.close()
        self._reservation.release()

    def _follow(self) -> None:
        try:
            for message in self._link.messages():
                if isinstance(message, Reserved):
                    self._reserved.put(message.ports)
                else:
                    self._pass_on(message)
        except Exception as error:  # Whatever it is, nothing more will be heard from there.
            if not isinstance(error, LinkLost):
                traceback.print_exc()
            self.cut_off = isinstance(error, LinkLost) and error.silent
            self._lose(str(error))
            self._link.close()
            self._reservation.release()

    def _pass_on(self, event: ev.Event) -> None:
        if isinstance(event, ev.Ended):
            with self._lock:
                self._running.discard(event.replica)
        elif isinstance(event, ev.Starting):
            event = dataclasses.replace(event, host=self.host.address)
        self._tell(event)

    def _lose(self, reason: str) -> None:
        with self._lock:
            self.lost = reason
            names, self._running = self._running, set()
        self._on_loss(self, names)
