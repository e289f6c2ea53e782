"""The connection between a launcher and its agent on a host.

Both ends show life once a second. An end that is silent for too long is lost, as is one whose
process has ended; a network that is away for a shorter time costs nothing but that time.
"""

import contextlib
import math
import multiprocessing.connection
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

BEAT_SECONDS = 1.0
AGENT_PATIENCE_SECONDS = 35.0
"""How long the launcher may be silent before an agent ends what it runs."""
LAUNCHER_PATIENCE_SECONDS = 45.0
"""How long an agent may be silent before its host counts as lost. Unless it was frozen, it has
ended what ran there by then, so that nothing runs twice."""
_BEAT = "beat"
_CLOSE = "close"
_HANDSHAKE_SECONDS = 10


class LinkLost(ConnectionError):
    """The other end is gone, or silent for too long.

    Attributes:
        silent: Whether it is that: then nobody knows what goes on there.
    """

    def __init__(self, reason: str, silent: bool) -> None:
        super().__init__(reason)
        self.silent = silent


class Link:
    """One end of the connection; safe to use from every thread."""

    def __init__(self, connection: "Connection[Any, Any]", patience: float) -> None:
        """Begins to show life.

        Args:
            connection: The connection.
            patience: Seconds for which the other end may be silent.
        """
        self._connection = connection
        self._patience = patience
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closed = threading.Event()
        _set_option(connection, socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience * 1000))
        _set_option(connection, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._send_all, name="link", daemon=True).start()

    def send(self, message: Any) -> None:
        """Has a message sent, and returns at once; who is gone gets none."""
        self._outgoing.put(message)

    def messages(self, seconds_to_first: float = math.inf) -> Iterator[Any]:
        """Yields what the other end sends, until this one is closed.

        Args:
            seconds_to_first: How long the first may take.

        Raises:
            LinkLost: The other end is gone, or silent for too long.
        """
        heard_at = time.monotonic()
        deadline = heard_at + seconds_to_first
        while not self._closed.is_set():
            try:
                if self._connection.poll(BEAT_SECONDS):
                    message = self._connection.recv()
                    heard_at = time.monotonic()
                    if message != _BEAT:
                        deadline = math.inf
                        yield message
            except (EOFError, OSError, TypeError) as error:  # The last: this end was just closed.
                if self._closed.is_set():
                    return
                silent = not isinstance(error, (EOFError, ConnectionError))  # A cut, to the kernel.
                reason = f"nothing was heard of it for {self._patience:.0f} s"
                raise LinkLost(reason if silent else "its processes are gone", silent) from None
            now = time.monotonic()
            if now - heard_at > self._patience:
                raise LinkLost(f"nothing was heard of it for {now - heard_at:.0f} s", True)
            if now > deadline:
                raise LinkLost(f"it was not ready within {seconds_to_first:.0f} s", False)

    def close(self) -> None:
        """Ends the connection once all is sent; safe to call more than once."""
        self._closed.set()
        self._outgoing.put(_CLOSE)

    def _send_all(self) -> None:
        """Sends what is to be sent, and shows life where that is nothing."""
        with contextlib.suppress(OSError):  # The other end is gone, as `messages` will say.
            while True:
                message = _BEAT
                with contextlib.suppress(queue.Empty):
                    message = self._outgoing.get(timeout=BEAT_SECONDS)
                if message == _CLOSE:
                    break
                self._connection.send(message)
        self._connection.close()


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
    plain = socket.create_connection((host, port), _HANDSHAKE_SECONDS)
    plain.settimeout(None)
    connection: Connection[Any, Any] = Connection(plain.detach())
    _set_patience(connection, _HANDSHAKE_SECONDS)
    try:
        multiprocessing.connection.answer_challenge(connection, key)
        multiprocessing.connection.deliver_challenge(connection, key)
    except (EOFError, multiprocessing.AuthenticationError) as error:
        connection.close()
        raise ConnectionError(f"who answers there is not the agent ({error!r})") from None
    _set_patience(connection, 0)
    return Link(connection, LAUNCHER_PATIENCE_SECONDS)


def _set_patience(connection: "Connection[Any, Any]", seconds: int) -> None:
    """Lets reading fail after so many seconds; 0 for never."""
    _set_option(connection, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


def _set_option(connection: "Connection[Any, Any]", level: int, option: int, value: Any) -> None:
    with socket.socket(fileno=socket.dup(connection.fileno())) as plain:
        plain.setsockopt(level, option, value)
