"""What the supervisor makes of what a back end on many hosts tells it."""

import queue
import threading
from typing import Any

import launchpad as lp

from launchers import events as ev
from launchers.plan import Replica, make_plan
from launchers.status import Result
from launchers.supervisor import Supervisor
from nodes import contract
from tests.support import wait_for


class Service:
    def __init__(self, *others: object) -> None:
        pass


class Hands:
    """A back end that does nothing by itself, and keeps what it was asked for."""

    kill_seconds = 1.0

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
        self.asked: list[tuple[str, str]] = []

    def start(self, replica: Replica) -> None:
        self.asked.append(("start", replica.name))
        self.events.put(ev.Starting(replica.name))
        self.events.put(ev.Running(replica.name))

    def stop(self, name: str) -> None:
        self.asked.append(("stop", name))
        self.events.put(ev.Ended(name, None))

    def kill(self, name: str) -> None:
        self.asked.append(("kill", name))
        self.events.put(ev.Ended(name, "killed"))

    def close(self) -> None:
        pass


class Running:
    """A supervised program of a server and three users of it."""

    def __init__(self, **traits: Any) -> None:
        program = lp.Program("supervised")
        server = program.add_node(lp.CourierNode(Service), label="server")
        with program.group("user"):
            for _ in range(3):
                node = lp.CourierNode(Service, server)
                contract.set_traits(node, contract.Traits(**traits))
                program.add_node(node)
        self.hands = Hands()
        self.supervisor = Supervisor(
            make_plan(program, "local_mt"), self.hands, self.hands.events, lambda name: None
        )
        self.result: Result | None = None
        threading.Thread(target=self._run, daemon=True).start()
        assert self.supervisor.all_running.wait(10)
        self.hands.asked.clear()

    def _run(self) -> None:
        self.result = self.supervisor.run()

    def state(self, name: str) -> str:
        return self.supervisor.status[name].state

    def end(self) -> Result:
        self.hands.events.put(ev.StopProgram("stopped", "enough"))
        wait_for(lambda: self.result)
        assert self.result is not None
        return self.result


def test_who_has_a_stale_address_is_stopped_once_and_started_again() -> None:
    running = Running(endless=True)
    for _ in range(2):
        running.hands.events.put(ev.Stale("user/1", "server/0"))
    wait_for(lambda: ("start", "user/1") in running.hands.asked)
    wait_for(lambda: running.state("user/1") == "running")
    assert running.hands.asked == [("stop", "user/1"), ("start", "user/1")]
    assert running.supervisor.status["user/1"].error == "server/0 has another address now"
    assert running.supervisor.status["user/1"].restarts == 1
    result = running.end()
    assert result.outcome == "stopped" and result.failures == {}


def test_a_stale_address_is_of_no_interest_once_the_program_ends() -> None:
    running = Running()
    running.hands.events.put(ev.StopProgram("stopped", "enough"))
    running.hands.events.put(ev.Stale("user/1", "server/0"))
    wait_for(lambda: running.result)
    assert ("start", "user/1") not in running.hands.asked
    assert running.hands.asked.count(("stop", "user/1")) == 1


def test_who_can_be_done_without_is_left_out_as_long_as_another_is_there() -> None:
    running = Running(dispensable=True)
    for name in ("user/0", "user/1"):
        running.hands.events.put(ev.LeftOut(name, "no room"))
    wait_for(lambda: running.state("user/1") == "failed")
    assert running.result is None and running.state("user/2") == "running"
    running.hands.events.put(ev.LeftOut("user/2", "no room"))
    wait_for(lambda: running.result)
    assert running.result is not None
    assert (running.result.outcome, running.result.reason) == (
        "failed",
        "user/2 is needed, but has no host",
    )
    assert running.result.failures == dict.fromkeys(("user/0", "user/1", "user/2"), "no room")


def test_without_one_that_is_needed_the_program_fails() -> None:
    running = Running()
    running.hands.events.put(ev.LeftOut("user/0", "no room"))
    wait_for(lambda: running.result)
    assert running.result is not None and running.result.outcome == "failed"
