"""Ports that nobody else can take before they are served."""

import contextlib
import socket

import launchpad as lp


class ReservedPort(lp.AbstractAddressBuilder):
    """A port of this machine, kept from everybody but the server that is meant to have it.

    A socket that is bound but does not listen holds the port: the kernel gives it to nobody who
    asks for any port, while a server that sets SO_REUSEADDR, as gRPC's do, can still listen on it.
    """

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_INET6)
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("::", 0))
        except OSError:  # A machine without IPv6.
            self._socket = socket.socket(socket.AF_INET)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("", 0))
        self.port: int = self._socket.getsockname()[1]

    def build(self) -> str:
        """Returns `localhost:port`."""
        return f"localhost:{self.port}"

    def close(self) -> None:
        """Gives the port back."""
        self._socket.close()

    def __reduce__(self) -> tuple[type["KnownPort"], tuple[int]]:
        return KnownPort, (self.port,)


class KnownPort(lp.AbstractAddressBuilder):
    """A port of this machine, as another process knows it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def build(self) -> str:
        """Returns `localhost:port`."""
        return f"localhost:{self.port}"
