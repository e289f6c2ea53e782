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
from multiprocessing.context import ForkServerProcess
from typing import Any, Optional

import cloudpickle

from launchers import child
from launchers import events as ev
from launchers.fork_server import ForkServer
from launchers.plan import Plan, Replica
from launchers.ports import ReservedPort
from launchers.starting import StartQueue


class ProcessBackend:
    """Runs each replica in a process of its own."""

    def __init__(
        self,
        plan: Plan,
        ports: dict[str, list[ReservedPort]],
        events: "queue.SimpleQueue[ev.Event]",
        run_directory: str,
        life: int,
    ) -> None:
        """Pickles every node and starts the fork server.

        Args:
            plan: What will run.
            ports: Where each replica listens.
            events: Where to tell the supervisor.
            run_directory: Where the run's files go.
            life: 1, and 1 more for each time that the run was resumed.
        """
        self._plan = plan
        self._ports = ports
        self._events = events
        self._run_directory = run_directory
        self._life = life
        self._payloads = {
            name: cloudpickle.dumps(replica.node.function)
            for name, replica in plan.replicas.items()
        }
        self._processes: dict[str, ForkServerProcess] = {}
        self._pipes: dict[str, Any] = {}
        self._asked: set[str] = set()
        self._lock = threading.Lock()
        self._reaping = threading.Lock()  # `Process.start` looks at all processes' exits, as we do
        modules = [
            *(module for payload in self._payloads.values() for module in _modules_in(payload)),
            *(name for replica in plan.replicas.values() for name in replica.traits.preload),
        ]
        log = os.path.join(run_directory, "logs", "forkserver.log")
        self._exit = contextlib.ExitStack()
        self._exit.enter_context(ForkServer.used(modules, log))
        self._queue = StartQueue(self._begin, events)

    def start(self, replica: Replica) -> None:
        """Has the replica started once those before it are."""
        self._queue.put(replica)

    def stop(self, name: str) -> None:
        """Asks the replica to stop; one that has no process yet never gets one."""
        if self._queue.cancel(name):
            return
        with self._lock:
            self._asked.add(name)
            pipe = self._pipes.get(name)
        if pipe is None:  # The process is on its way, and will be killed when it comes.
            self._events.put(ev.Ended(name, None))
            return
        with contextlib.suppress(OSError):
            pipe.send("stop")

    def kill(self, name: str) -> None:
        """Kills the replica's process."""
        self._processes[name].kill()

    def close(self) -> None:
        """Ends the back end's own thread and lets go of the fork server."""
        self._queue.close()
        self._exit.close()

    def _begin(self, replica: Replica) -> None:
        name = replica.name
        reports = replica.traits.reports_running
        config = child.ChildConfig(
            name=name,
            title=f"launchgraph {self._plan.program} {name}",
            run_directory=self._run_directory,
            life=self._life,
            log=os.path.join(self._run_directory, "logs", f"{name.replace('/', '-')}.log"),
            gpus=replica.gpus,
            ports=None if reports else tuple(port.port for port in self._ports[name]),
        )
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("forkserver").Process(
            target=child.main, args=(config, self._payloads[name], theirs)
        )
        with self._reaping:
            ForkServer.revive()
            process.start()
        theirs.close()
        with self._lock:
            self._processes[name] = process
            self._pipes[name] = ours
            asked = name in self._asked
        if asked:
            process.kill()
            return
        self._events.put(ev.Starting(name))
        threading.Thread(target=self._follow, args=(name,), name=name, daemon=True).start()

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
                    self._events.put(event)
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
        self._events.put(ev.Ended(name, error))


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
