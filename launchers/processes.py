"""Runs replicas in processes of this machine, forked from one that has loaded what is heavy."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickletools
import queue
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from typing import Any, Optional

import cloudpickle

from launchers import child, leash
from launchers import events as ev
from launchers.plan import Plan, Replica
from launchers.ports import ReservedPort
from launchers.starting import StartQueue

_ALWAYS_PRELOADED = ("launchers.leash", "launchers.child", "courier")


class ForkServer:
    """The one process that all replicas of this process's runs are forked from.

    It is Python's own fork server, of which a process has one. It loads the modules that its first
    user names, and is there for all later runs.
    """

    _lock = threading.Lock()
    _loaded: frozenset[str] = frozenset()
    _prepared = False
    _users = 0

    @classmethod
    def prepare(cls, modules: Iterable[str], log: Optional[str] = None) -> None:
        """Starts loading `modules` in the background, for all runs to come.

        Args:
            modules: What replicas will need; one that cannot be imported is left to the replicas.
            log: Where what the modules print goes.
        """
        with cls._lock:
            if not cls._loaded.issuperset(modules):
                cls._replace([*modules], log)
            cls._prepared = True

    @classmethod
    @contextlib.contextmanager
    def used(cls, modules: Iterable[str], log: str) -> Iterator[None]:
        """Keeps the fork server for a run.

        Args:
            modules: What the run needs. Unless it was prepared, a fork server that has nothing of
                one of their packages is replaced, when no other run uses it.
            log: Where what the modules print goes.
        """
        modules = list(modules)
        with cls._lock:
            lacking = _packages(modules) - _packages(cls._loaded)
            if not cls._loaded or (lacking and not cls._prepared):
                cls._replace(modules, log)
            cls._users += 1
        try:
            yield
        finally:
            with cls._lock:
                cls._users -= 1

    @classmethod
    def kill(cls) -> None:
        """Ends the fork server and with it all that it has forked."""
        server: Any = forkserver._forkserver
        if server._forkserver_pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server._forkserver_pid, signal.SIGKILL)
            server._stop()
        cls._loaded = frozenset()
        cls._prepared = False

    @classmethod
    def clean_up(cls) -> None:
        """Ends the fork server and removes its files, for a process that ends."""
        cls.kill()
        directory = multiprocessing.current_process()._config.get("tempdir")  # type: ignore[attr-defined]
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    @classmethod
    def _replace(cls, modules: Sequence[str], log: Optional[str]) -> None:
        if cls._users:
            return
        cls.kill()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(dict.fromkeys([*_ALWAYS_PRELOADED, *sorted(modules)])))
        os.environ[leash.LAUNCHER_PID] = str(os.getpid())
        try:
            with _output_to(log):
                _starter.run(forkserver.ensure_running)
        finally:
            del os.environ[leash.LAUNCHER_PID]
        cls._loaded = frozenset(modules)


class _LongLivedThread:
    """Runs functions in a thread that ends only with the process.

    The kernel takes the end of the thread that started a process for the end of its parent.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], None], futures.Future[None]]] = (
            queue.SimpleQueue()
        )
        self._thread: Optional[threading.Thread] = None

    def run(self, function: Callable[[], None]) -> None:
        """Runs `function` there and waits for its end."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="fork server's", daemon=True)
            self._thread.start()
        done: futures.Future[None] = futures.Future()
        self._tasks.put((function, done))
        done.result()

    def _loop(self) -> None:
        while True:
            function, done = self._tasks.get()
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)


_starter = _LongLivedThread()


@contextlib.contextmanager
def _output_to(path: Optional[str]) -> Iterator[None]:
    """Sends this process's output to a file, for a process started meanwhile to inherit."""
    if path is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, file):
            os.close(descriptor)


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
        pipe.close()
        if not told_end:
            error = _describe_exit(process.exitcode)
        self._events.put(ev.Ended(name, error))


def _packages(modules: Iterable[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


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
