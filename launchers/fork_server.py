"""The one process that replicas are forked from, which has loaded what is heavy."""

import contextlib
import multiprocessing
import os
import queue
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from multiprocessing import forkserver
from typing import Any, Optional

from launchers import leash

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
    def wait_until_loaded(cls) -> None:
        """Waits until the fork server has loaded its modules."""
        process = multiprocessing.get_context("forkserver").Process(target=_do_nothing)
        process.start()
        process.join()

    @classmethod
    def revive(cls) -> None:
        """Starts the fork server again if somebody has killed it."""
        with cls._lock:
            cls._start(None)

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
        cls._start(log)
        cls._loaded = frozenset(modules)

    @classmethod
    def _start(cls, log: Optional[str]) -> None:
        """Starts it unless it runs, tied to the life of this process."""
        os.environ[leash.LAUNCHER_PID] = str(os.getpid())
        try:
            with _output_to(log):
                _starter.run(forkserver.ensure_running)
        finally:
            del os.environ[leash.LAUNCHER_PID]


def _do_nothing() -> None:
    pass


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


def _packages(modules: Iterable[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}
