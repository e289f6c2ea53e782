"""Calls to a node that is away, late, or wrong."""

import os
import signal
import time

import pytest
from courier.python.client import StatusNotOk

from launchers.layout import GroupLayout, Layout
from launchers.run import launch
from nodes import contract
from nodes.contract import RestartBudget
from nodes.peer import Peer, PeerLost
from nodes.service import ServiceNode, deref, node
from programs.program import Program
from tests.support import wait_for


class ThePeer(Peer):
    def __init__(self, address: str) -> None:
        super().__init__(address, "server", call_seconds=0.3)


class Server:
    def process(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise ValueError("no good")


def again() -> tuple[Program, ServiceNode[Server]]:
    program = Program("peer")
    server = node(Server)
    contract.set_traits(server, contract.Traits(on_failure="restart"))
    program.add_node(server, label="server")
    return program, server


def test_a_call_waits_until_a_killed_peer_is_back() -> None:
    program, server = again()
    with launch(program, "local_mp") as run:
        run.wait_until_running(60)
        peer = Peer(server._address.resolve(), "server", call_seconds=0.3)
        first = peer.call("process")
        os.kill(first, signal.SIGKILL)
        assert peer.call("process") not in (first, os.getpid())


def test_a_call_to_a_frozen_peer_is_answered_once_it_goes_on() -> None:
    program, server = again()
    with launch(program, "local_mp") as run:
        run.wait_until_running(60)
        peer = Peer(server._address.resolve(), "server", call_seconds=0.2)
        pid = peer.call("process")
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: peer.start("process").exception(5) is not None)  # It takes a moment.
        os.kill(pid, signal.SIGCONT)
        assert peer.call("process") == pid


def test_a_peer_that_stays_away_is_lost() -> None:
    peer = Peer("localhost:1", "server", call_seconds=0.1, patience_seconds=0.5)
    began = time.monotonic()
    with pytest.raises(PeerLost, match="the server at localhost:1 does not answer 'process'"):
        peer.call("process")
    assert 0.5 <= time.monotonic() - began < 5


def test_an_error_of_the_peer_is_raised_at_once() -> None:
    program, server = again()
    with launch(program, "test_mt") as run:
        run.wait_until_running(60)
        with pytest.raises(StatusNotOk, match="no good"):
            Peer(server._address.resolve(), "server").call("fail")


class Waiter:
    """Calls its peer once it is told to, and then does nothing."""

    def __init__(self, server: Peer) -> None:
        self._runtime = contract.runtime()
        self._server = server

    def run(self) -> None:
        self._runtime.report_running()
        while not self._runtime.wait_for_stop(0.1):
            self._server.call("process")


def test_what_a_caller_waited_for_is_forgotten_once_it_is_answered() -> None:
    program = Program("peer")
    server = ServiceNode(
        Server,
        client_type=Peer,
        make_client=ThePeer,
        traits=contract.Traits(on_failure="restart"),
    )
    handle = program.add_node(server, label="server")
    program.add_node(node(Waiter, deref(handle)), label="waiter")
    budget = RestartBudget(backoff_seconds=1.5)
    layout = Layout({"server": GroupLayout(restart=budget)})
    with launch(program, "local_mp", layout) as run:
        run.wait_until_running(60)
        run._supervisor._backend.kill("server/0")
        wait_for(lambda: run.status["waiter/0"].waiting_for)
        wait_for(lambda: not run.status["waiter/0"].waiting_for)
        assert run.status["server/0"].restarts == 1


class Caller:
    """Calls somebody who is away."""

    def __init__(self) -> None:
        self._peer = Peer("localhost:1", "server", call_seconds=0.1)

    def run(self) -> None:
        contract.runtime().report_running()
        self._peer.call("process")


def test_what_a_caller_waits_for_can_be_seen_and_a_stop_ends_the_wait() -> None:
    program = Program("peer")
    program.add_node(node(Caller), label="caller")
    with launch(program, "test_mt") as run:
        wait_for(lambda: run.status["caller/0"].waiting_for)
        said = "the server at localhost:1, which does not answer"
        assert run.status["caller/0"].waiting_for == said
        began = time.monotonic()
        run.stop()
        run.wait()
        assert time.monotonic() - began < 3
