"""Reserved ports are served by whom they are for, and by nobody else."""

import socket

import courier
import pytest
import reverb

from launchers.ports import ReservedPort


def test_a_courier_server_listens_on_a_reserved_port() -> None:
    reserved = ReservedPort()
    server = courier.Server(port=reserved.port)
    server.Bind("three", lambda: 3)
    server.Start()
    try:
        assert courier.Client(reserved.build(), call_timeout=10).three() == 3
    finally:
        server.Stop()
        server.Join()
        reserved.close()


def test_a_reverb_server_listens_on_a_reserved_port() -> None:
    reserved = ReservedPort()
    table = reverb.Table.queue("queue", 3)
    server = reverb.Server([table], port=reserved.port)
    try:
        assert "queue" in reverb.Client(reserved.build()).server_info(timeout=10)
    finally:
        server.stop()
        reserved.close()


def test_a_reserved_port_refuses_whoever_does_not_share_it() -> None:
    reserved = ReservedPort()
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("", reserved.port))
    reserved.close()


def test_the_kernel_gives_a_reserved_port_to_nobody_else() -> None:
    reserved = [ReservedPort() for _ in range(200)]
    assert len({port.port for port in reserved}) == 200
    for port in reserved:
        port.close()
