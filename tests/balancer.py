"""HAProxy in front of replay servers, configured as docs/operations.md shows."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from tests.support import wait_for

_HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
_PAGE = pathlib.Path(__file__).parent.parent / "docs/operations.md"

needs_haproxy = pytest.mark.skipif(_HAPROXY is None, reason="haproxy is not installed")


def unused_port() -> int:
    """Returns a port of this machine that nobody serves."""
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def is_served(port: int) -> bool:
    """Returns whether somebody listens on a port of this machine."""
    with contextlib.suppress(OSError):
        socket.create_connection(("localhost", port), timeout=1.0).close()
        return True
    return False


@contextlib.contextmanager
def balanced(ports: Sequence[int], directory: pathlib.Path, tcp: bool = False) -> Iterator[str]:
    """Runs a load balancer, and yields its address.

    Args:
        ports: The two servers' ports.
        directory: Where its configuration is written.
        tcp: Whether it forwards whole connections, instead of streams.
    """
    assert _HAPROXY is not None
    port = unused_port()
    config = directory / "haproxy.cfg"
    config.write_text(_configuration([port, *ports], tcp))
    with subprocess.Popen([_HAPROXY, "-db", "-f", config]) as process:
        try:
            wait_for(lambda: is_served(port))
            yield f"localhost:{port}"
        finally:
            process.terminate()


def _configuration(ports: Sequence[int], tcp: bool) -> str:
    found = re.findall(r"```haproxy\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    text: str = found[0]
    for shown, port in zip((8000, 8001, 8002), ports, strict=True):
        text = re.sub(rf"(?<=:){shown}\b", str(port), text)
    if tcp:
        text = text.replace("mode http", "mode tcp").replace(" proto h2", "")
        text = re.sub(r" +use_backend.*\n", "", text)
    return text
