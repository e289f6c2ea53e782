"""What a replay server's node runs. Importing this module loads Reverb and TensorFlow."""

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

import launchpad as lp
import reverb
import tensorflow as tf

from agents.agent import TableSpec
from nodes import contract
from nodes.checkpoints import Checkpoints, Schedule
from nodes.part_server import PartServer
from nodes.replay import is_saved
from usage import UsageError

_LOOK_SECONDS = 0.2
_PROBE_SECONDS = 0.002
_NO_KEY = 0
"""A key that no item has: Reverb draws keys from 64 bits, and ignores unknown ones."""
_CONTENT = "reverb"
_TURN_FILE = "replay.turn"
"""Locked by the shard whose turn it is to save."""


def serve(
    spec: TableSpec, schedule: Schedule, phase: float, address: str, parts_address: str
) -> None:
    """Serves a shard until the program stops; it begins with what the newest checkpoint holds.

    Args:
        spec: The table.
        schedule: When checkpoints are saved.
        phase: When the first is due, as a part of the schedule's period.
        address: `host:port` of the server.
        parts_address: `host:port` of its `nodes.part_server`.
    """
    runtime = contract.runtime()
    checkpoints = Checkpoints(runtime, schedule, phase)
    saved = is_saved(spec)
    with checkpoints.scratch() as scratch:
        server = _start(spec, checkpoints, scratch, lp.get_port_from_address(address))

        def write(path: str) -> float:
            return _write(server, spec.name, scratch, path)

        parts = PartServer(
            f"localhost:{server.port}", spec, lp.get_port_from_address(parts_address)
        )
        try:
            while not runtime.wait_for_stop(_LOOK_SECONDS):
                parts.forget()
                if saved and checkpoints.due:
                    with turn(runtime) as ours:
                        if ours:
                            checkpoints.save(write)
            if saved:
                checkpoints.save(write)
        finally:
            parts.close()
            server.stop()


def _start(spec: TableSpec, checkpoints: Checkpoints, scratch: str, port: int) -> Any:
    """Returns a server with what the newest checkpoint holds, its limiter's counts included.

    Args:
        spec: The table.
        checkpoints: This shard's.
        scratch: Where the server writes; it keeps one checkpoint there, which is moved away.
        port: Where it listens.
    """

    def make_server(path: Optional[str]) -> Any:
        content = None if path is None else os.path.join(path, _CONTENT)
        return reverb.Server(
            tables=[make_table(spec)],
            port=port,
            checkpointer=reverb.checkpointers.DefaultCheckpointer(
                scratch, fallback_checkpoint_path=content
            ),
        )

    return checkpoints.restore(make_server) or make_server(None)


def make_table(spec: TableSpec) -> Any:
    """Returns the Reverb table that `spec` describes, evicting the oldest item when it is full."""
    if spec.samples_per_insert is None:
        limiter = reverb.rate_limiters.MinSize(spec.min_size)
    else:
        limiter = reverb.rate_limiters.SampleToInsertRatio(
            samples_per_insert=spec.samples_per_insert,
            min_size_to_sample=spec.min_size,
            error_buffer=spec.error_buffer,
        )
    return reverb.Table(
        name=spec.name,
        sampler=reverb.selectors.Prioritized(spec.priority_exponent),
        remover=reverb.selectors.Fifo(),
        max_size=spec.max_size,
        rate_limiter=limiter,
        signature={
            name: tf.TensorSpec(column.shape, tf.as_dtype(column.dtype), name)
            for name, column in spec.item.items()
        },
    )


@contextlib.contextmanager
def served(spec: TableSpec, port: int) -> Iterator[None]:
    """Serves a table on `port`, without checkpoints, until the context is left.

    Raises:
        UsageError: The port cannot be had. Reverb itself would share it with another server.
    """
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=dual).close()
    except OSError as error:
        raise UsageError(
            f"Port {port} cannot be served: {os.strerror(error.errno or 0)}: choose another --port."
        ) from None
    with tempfile.TemporaryDirectory() as scratch:
        checkpointer = reverb.checkpointers.DefaultCheckpointer(scratch)
        server = reverb.Server([make_table(spec)], port, checkpointer)
        try:
            yield
        finally:
            server.stop()


def _write(server: Any, table: str, scratch: str, path: str) -> float:
    """Writes what a server holds to `path`, by way of `scratch`.

    Returns:
        Seconds for which it answered nobody, at most.
    """
    client = server.localhost_client()
    try:
        with _LongestPause(client, table) as pause:
            written = client.checkpoint()
        os.rename(written, os.path.join(path, _CONTENT))
    except Exception as error:  # Of a full disk Reverb tells by an IndexError.
        raise RuntimeError(str(error)) from error
    finally:
        for left in os.listdir(scratch):  # Half a checkpoint, of a full disk.
            shutil.rmtree(os.path.join(scratch, left), ignore_errors=True)
    return pause.seconds


class _LongestPause:
    """Calls a server all the time, to see how long a call takes at most.

    Attributes:
        seconds: The longest call's time.
    """

    def __init__(self, client: Any, table: str) -> None:
        self.seconds = 0.0
        self._client = client
        self._table = table
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._call, name="pauses", daemon=True)

    def __enter__(self) -> "_LongestPause":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _call(self) -> None:
        done = False
        while not done:
            began = time.monotonic()
            self._client.mutate_priorities(self._table, updates={_NO_KEY: 1.0})
            self.seconds = max(self.seconds, time.monotonic() - began)
            done = self._done.wait(_PROBE_SECONDS)


@contextlib.contextmanager
def turn(runtime: contract.Runtime) -> Iterator[bool]:
    """Tells whether it is this shard's turn to save, and keeps the others from it meanwhile."""
    assert runtime.checkpoint_directory is not None
    common = os.path.dirname(runtime.checkpoint_directory)
    os.makedirs(common, exist_ok=True)
    with open(os.path.join(common, _TURN_FILE), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
