"""Runs replicas in processes of this machine, forked from one that has loaded what is heavy."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickletools
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.context import ForkServerProcess
from typing import Any, Optional

import cloudpickle
from launchpad import context

from launchers import child
from launchers import events as ev
from launchers.child import ChildConfig
from launchers.fork_server import ForkServer
from launchers.plan import Plan, Replica
from launchers.ports import LocalPorts
from launchers.starting import StartQueue
from launchers.supervisor import KILLED_SECONDS


class ReplicaProcesses:
    """Processes of this machine, one a replica, that this process starts and follows."""

    def __init__(self, modules: Iterable[str], log: str, tell: Callable[[ev.Event], None]) -> None:
        """Has the fork server ready.

        Args:
            modules: What replicas will need.
            log: Where what the modules print goes.
            tell: Takes what the replicas tell, and how they end.
        """
        self._tell = tell
        self._processes: dict[str, ForkServerProcess] = {}
        self._pipes: dict[str, Any] = {}
        self._followers: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._reaping = threading.Lock()  # `Process.start` looks at all processes' exits, as we do
        self._exit = contextlib.ExitStack()
        self._exit.enter_context(ForkServer.used(modules, log))
        self._queue = StartQueue(tell)

    def start(self, config: ChildConfig, payload: bytes) -> None:
        """Has a replica started once those before it are; returns at once.

        Args:
            config: What its process must know.
            payload: Its node's function, pickled.
        """
        self._queue.put(config.name, lambda: self._begin(config, payload))

    def stop(self, name: str) -> None:
        """Asks the replica to stop; one that has no process yet never gets one."""
        if self._queue.cancel(name):
            return
        with self._lock, contextlib.suppress(OSError, KeyError):  # One that has ended has no pipe.
            self._pipes[name].send("stop")

    def kill(self, name: str) -> None:
        """Kills the replica's process."""
        with contextlib.suppress(KeyError):  # It has none yet.
            self._processes[name].kill()

    def end(self, seconds: float) -> None:
        """Kills all processes, and waits until they, and what they have started, are gone."""
        deadline = time.monotonic() + seconds
        for name in list(self._processes):
            self.kill(name)
        for follower in list(self._followers.values()):
            follower.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Ends the starting of replicas and lets go of the fork server."""
        self._queue.close()
        self._exit.close()

    def _begin(self, config: ChildConfig, payload: bytes) -> None:
        name = config.name
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("forkserver").Process(
            target=child.main, args=(config, payload, theirs)
        )
        with self._reaping:
            ForkServer.revive()
            process.start()
        theirs.close()

        def follow() -> bool:
            with self._lock:
                self._processes[name] = process
                self._pipes[name] = ours
            self._tell(ev.Starting(name))
            self._followers[name] = threading.Thread(
                target=self._follow, args=(name,), name=name, daemon=True
            )
            self._followers[name].start()
            return True

        if not self._queue.commit(name, follow):
            process.kill()

    def _follow(self, name: str) -> None:
        """Passes on what a replica tells, until its process is gone."""
        process, pipe = self._processes[name], self._pipes[name]
        pid = process.pid
        assert pid is not None
        error: Optional[str] = None
        told_end = False
        with contextlib.suppress(EOFError, OSError):
            # What the process has forked may hold its pipe open, but not its sentinel.
            while pipe in multiprocessing.connection.wait([pipe, process.sentinel]):
                event = pipe.recv()
                if isinstance(event, ev.Ended):
                    told_end, error = True, event.error
                else:
                    self._tell(event)
        multiprocessing.connection.wait([process.sentinel])
        with self._reaping:
            process.join()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what the node started and did not end
        with self._lock:
            del self._pipes[name]  # The next life has its own.
        pipe.close()
        if not told_end:
            error = _describe_exit(process.exitcode)
        self._tell(ev.Ended(name, error))


class ProcessBackend:
    """Runs each replica in a process of its own, on this machine."""

    def __init__(
        self,
        plan: Plan,
        events: "queue.SimpleQueue[ev.Event]",
        run_directory: str,
        life: int,
    ) -> None:
        """Pickles every node and starts the fork server.

        Args:
            plan: What will run.
            events: Where to tell the supervisor.
            run_directory: Where the run's files go.
            life: 1, and 1 more for each time that the run was resumed.
        """
        self.kill_seconds = KILLED_SECONDS
        self._plan = plan
        self._run_directory = run_directory
        self._life = life
        self._exit = contextlib.ExitStack()
        launch_type = context.LaunchType.LOCAL_MULTI_PROCESSING
        self._ports = self._exit.enter_context(LocalPorts(plan, launch_type))
        self._payloads = {
            name: cloudpickle.dumps(replica.node.function)
            for name, replica in plan.replicas.items()
        }
        self._processes = ReplicaProcesses(
            modules_of(plan, self._payloads.values()),
            os.path.join(run_directory, "logs", "forkserver.log"),
            events.put,
        )
        self._exit.callback(self._processes.close)

    def start(self, replica: Replica) -> None:
        """Has the replica started once those before it are."""
        config = child_config(
            self._plan,
            replica,
            self._run_directory,
            self._life,
            replica.seat.gpus,
            self._ports.of(replica.name),
        )
        self._processes.start(config, self._payloads[replica.name])

    def stop(self, name: str) -> None:
        """Asks the replica to stop; one that has no process yet never gets one."""
        self._processes.stop(name)

    def kill(self, name: str) -> None:
        """Kills the replica's process."""
        self._processes.kill(name)

    def close(self) -> None:
        """Lets go of the fork server and gives the ports back."""
        self._exit.close()


def child_config(
    plan: Plan,
    replica: Replica,
    run_directory: str,
    life: int,
    gpus: tuple[str, ...],
    ports: tuple[int, ...],
) -> ChildConfig:
    """Returns what the process of one of the plan's replicas must know besides its node."""
    return ChildConfig(
        name=replica.name,
        title=f"launchgraph {plan.program} {replica.name}",
        run_directory=run_directory,
        life=life,
        log=os.path.join(run_directory, "logs", f"{replica.name.replace('/', '-')}.log"),
        environment=dict(replica.layout.env),
        gpus=gpus,
        ports=None if replica.traits.reports_running else ports,
    )


def modules_of(plan: Plan, payloads: Iterable[bytes]) -> list[str]:
    """Returns the modules that the plan's replicas, pickled as `payloads`, should find loaded."""
    return [
        *(module for payload in payloads for module in _modules_in(payload)),
        *(name for replica in plan.replicas.values() for name in replica.traits.preload),
    ]


def _describe_exit(code: Optional[int]) -> str:
    if code is not None and code < 0:
        return f"Its process was ended by {signal.Signals(-code).name}"
    return f"Its process exited with status {code}"


def _modules_in(payload: bytes) -> list[str]:
    """Returns those of the modules loaded here that unpickling `payload` imports."""
    strings: list[str] = []
    modules = []
    for opcode, argument, _ in pickletools.genops(payload):
        if opcode.name == "STACK_GLOBAL":
            modules += strings[-2:-1]
        elif opcode.name == "GLOBAL":
            modules.append(str(argument).split(" ")[0])
        elif isinstance(argument, str):
            strings.append(argument)
    return [module for module in modules if module in sys.modules]
