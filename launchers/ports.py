"""Ports that nobody else can take before they are served, and addresses that lead to them."""

import contextlib
import socket
from collections.abc import Callable

import launchpad as lp
from launchpad import context

from launchers.plan import Nearness, Plan, Server


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

    def __reduce__(self) -> tuple[type["KnownAddress"], tuple[str]]:
        return KnownAddress, (self.build(),)


class KnownAddress(lp.AbstractAddressBuilder):
    """A port of some host, as others know it."""

    def __init__(self, address: str) -> None:
        self._address = address

    def build(self) -> str:
        """Returns `host:port`."""
        return self._address


class LocalPorts:
    """A port of this machine for each address of a plan, until the context is left."""

    def __init__(self, plan: Plan, launch_type: context.LaunchType) -> None:
        """Reserves the ports and tells every handle where it is going."""
        self._ports = {
            name: [ReservedPort() for _ in replica.node.addresses]
            for name, replica in plan.replicas.items()
        }
        connect(plan, launch_type)
        bind(plan, lambda server: self._ports[server.replica][server.number])

    def of(self, name: str) -> tuple[int, ...]:
        """Returns the ports on which replica `name` listens."""
        return tuple(port.port for port in self._ports[name])

    def __enter__(self) -> "LocalPorts":
        return self

    def __exit__(self, *exc: object) -> None:
        """Gives the ports back."""
        for ports in self._ports.values():
            for port in ports:
                port.close()


def connect(plan: Plan, launch_type: context.LaunchType) -> None:
    """Tells every node how it is launched, and every handle whom it leads."""
    for replica in plan.replicas.values():
        replica.node._launch_context.initialize(launch_type, None, None)
        for handle in replica.node.input_handles:
            handle.connect(replica.node, replica.group)


def bind(
    plan: Plan,
    builder: Callable[[Server], lp.AbstractAddressBuilder],
    nearness: Callable[[str], Nearness] = lambda name: Nearness.NEAR,
) -> None:
    """Binds every address of the plan's nodes to the server that is meant, where there is one.

    Args:
        plan: The plan.
        builder: Says where a server is.
        nearness: How near a replica, by its name, is to whom the addresses are for.
    """
    for address in plan.addresses:
        server = plan.server_of(address, nearness)
        if server is not None:
            address.bind(builder(server))
