"""The process of one replica, from its fork to its end."""

import contextlib
import ctypes
import dataclasses
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Optional

import cloudpickle
import setproctitle
from absl import logging
from launchpad import context

from launchers import events as ev
from launchers.launchpad_state import launchpad_host
from launchers.runtime import NodeRuntime

_PR_SET_PDEATHSIG = 1
QUICK_RECONNECT = ("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "200")
"""How often gRPC looks after connections that nobody uses. With its own 5,000 ms, Reverb's streams
find a server that was back after 0.3 s only after 7 to 9 s; with this after 2 s."""


@dataclasses.dataclass(frozen=True)
class ChildConfig:
    """What a replica's process must know besides its node.

    Attributes:
        name: The replica's name.
        title: What `ps` shows.
        run_directory: Where the run's files go.
        life: 1, and 1 more for each time that the run was resumed.
        log: Where the process's output goes.
        environment: Environment variables of its own.
        gpus: GPUs of its own, by name.
        ports: Where the node listens, or None where it says itself when it is running.
    """

    name: str
    title: str
    run_directory: Optional[str]
    life: int
    log: str
    environment: Mapping[str, str]
    gpus: tuple[str, ...]
    ports: Optional[tuple[int, ...]]


class _Pipe:
    """The node's end of the pipe that its launcher holds, too."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def put(self, event: ev.Event) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._connection.send(event)


def main(config: ChildConfig, payload: bytes, pipe: "Connection[Any, Any]") -> None:
    """Runs the replica that `payload` holds, and exits the process.

    The process ends when its launcher does, however that happens: the kernel kills it with the
    process that forked it, and a pipe without a launcher at its other end ends it too.
    """
    os.setsid()  # What the node starts is in its group, and can be ended with it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a fork does not inherit it
    post = ev.Post(config.name, _Pipe(pipe).put)
    runtime = NodeRuntime(config.name, config.run_directory, post, config.life)
    threading.Thread(target=_listen, args=(pipe, runtime, post), daemon=True).start()
    try:
        _take_over_process(config)
        with launchpad_host():
            error = runtime.execute(
                cloudpickle.loads(payload),
                context.LaunchType.LOCAL_MULTI_PROCESSING,
                config.ports,
            )
    except BaseException:
        error = traceback.format_exc()
    if error:
        print(error, file=sys.stderr)
    post.ended(error)
    _exit(1 if error else 0)


def _take_over_process(config: ChildConfig) -> None:
    setproctitle.setproctitle(config.title)
    file = os.open(config.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.update(config.environment)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(config.gpus)
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    os.environ.setdefault(*QUICK_RECONNECT)
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)


def _listen(pipe: "Connection[Any, Any]", runtime: NodeRuntime, post: ev.Post) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        _exit(1)
    if not runtime.listening:  # It would not notice, and has nothing yet that could be lost.
        post.ended(None)
        _exit(0)
    runtime.stop()
    with contextlib.suppress(EOFError, OSError):
        pipe.recv()
    _exit(1)


def _exit(status: int) -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
