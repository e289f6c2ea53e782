"""The connection between a launcher and its agent on a host.

Both ends show life once a second. An end that is silent for too long is lost, as is one whose
process has ended; a network that is away for a shorter time costs nothing but that time.
"""

import contextlib
import multiprocessing.connection
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

BEAT_SECONDS = 1.0
AGENT_PATIENCE_SECONDS = 35.0
"""How long the launcher may be silent before an agent ends what it runs."""
LAUNCHER_PATIENCE_SECONDS = 45.0
"""How long an agent may be silent before its host counts as lost; what ran there has ended by
then, so that nothing runs twice."""
_BEAT = "beat"


class LinkLost(ConnectionError):
    """The other end is gone, or silent for too long.

    Attributes:
        silent: Whether it is that: then nobody knows what goes on there.
    """

    def __init__(self, reason: str, silent: bool) -> None:
        super().__init__(reason)
        self.silent = silent


class Link:
    """One end of the connection; safe to send from every thread."""

    def __init__(self, connection: "Connection[Any, Any]", patience: float) -> None:
        """Begins to show life.

        Args:
            connection: The connection.
            patience: Seconds for which the other end may be silent.
        """
        self._connection = connection
        self._patience = patience
        self._sending = threading.Lock()
        self._closed = threading.Event()
        with socket.socket(fileno=socket.dup(connection.fileno())) as plain:
            milliseconds = int(patience * 1000)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._show_life, name="link", daemon=True).start()

    def send(self, message: Any) -> None:
        """Sends a message; where the other end is gone, `messages` says so."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(message)

    def messages(self) -> Iterator[Any]:
        """Yields what the other end sends, until this one is closed.

        Raises:
            LinkLost: The other end is gone, or silent for too long.
        """
        heard_at = time.monotonic()
        while not self._closed.is_set():
            try:
                if self._connection.poll(BEAT_SECONDS):
                    message = self._connection.recv()
                    heard_at = time.monotonic()
                    if message != _BEAT:
                        yield message
            except (EOFError, OSError) as error:
                if self._closed.is_set():
                    return
                silent = not isinstance(error, (EOFError, ConnectionError))  # A cut, to the kernel.
                reason = f"nothing was heard of it for {self._patience:.0f} s"
                raise LinkLost(reason if silent else "its processes are gone", silent) from None
            seconds = time.monotonic() - heard_at
            if seconds > self._patience:
                raise LinkLost(f"nothing was heard of it for {seconds:.0f} s", True)

    def close(self) -> None:
        """Ends the connection; safe to call more than once."""
        self._closed.set()
        self._connection.close()

    def _show_life(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            self.send(_BEAT)


class Door:
    """Where an agent waits for its launcher."""

    def __init__(self, host: str, key: bytes) -> None:
        """Listens on a port of `host` for who knows `key`."""
        self.key = key
        self._listener = multiprocessing.connection.Listener((host, 0), "AF_INET", authkey=key)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.address[1]
        return port

    def wait(self) -> Link:
        """Returns the link to the first who comes and knows the key."""
        while True:
            with contextlib.suppress(OSError, EOFError, multiprocessing.AuthenticationError):
                connection = self._listener.accept()
                self._listener.close()
                return Link(connection, AGENT_PATIENCE_SECONDS)


def knock(host: str, port: int, key: bytes) -> Link:
    """Returns the launcher's link to the agent that waits on `port` of `host`.

    Raises:
        OSError: Nobody answers there, or does not know `key`.
    """
    connection = multiprocessing.connection.Client((host, port), "AF_INET", authkey=key)
    return Link(connection, LAUNCHER_PATIENCE_SECONDS)
