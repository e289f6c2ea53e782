"""The command line, run as a person runs it."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, TypeVar

import psutil

K = TypeVar("K", bound=Hashable)
Completed = subprocess.CompletedProcess[str]

LAUNCH = pathlib.Path(__file__).parent.parent / "launch.py"
QUICK = (
    "--num_actors=2",
    "--config.min_replay_size=64",
    "--config.batch_size=32",
    "--config.error_buffer=2000",
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, os.fspath(LAUNCH), *arguments]


def launch(directory: pathlib.Path, *arguments: str, timeout: float = 100) -> Completed:
    """Runs a command to its end."""
    return subprocess.run(
        command(*arguments),
        cwd=directory,
        timeout=timeout,
        check=False,
        capture_output=True,
        text=True,
    )


@contextlib.contextmanager
def launched(
    commands: Mapping[K, tuple[pathlib.Path, Sequence[str]]],
) -> Iterator[Callable[[K], tuple[pathlib.Path, Completed]]]:
    """Runs commands, each in its directory, two at a time, as each keeps one core busy.

    Yields what waits for the end of one of them, and returns its directory and what came of it.
    """

    def end(key: K) -> tuple[pathlib.Path, Completed]:
        return commands[key][0], runs[key].result()

    with futures.ThreadPoolExecutor(2) as pool:
        runs = {
            key: pool.submit(launch, directory, *arguments)
            for key, (directory, arguments) in commands.items()
        }
        try:
            yield end
        finally:
            pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def started(directory: pathlib.Path, *arguments: str, **options: Any) -> Iterator[psutil.Popen]:
    """Starts a command; if it still runs at the end, as after a failure, it is killed."""
    options = {"stdout": subprocess.DEVNULL, "text": True, **options}
    with psutil.Popen(command(*arguments), cwd=directory, **options) as launcher:
        try:
            yield launcher
        finally:
            if launcher.poll() is None:
                launcher.kill()


def status_of(directory: pathlib.Path) -> dict[str, Any]:
    path = directory / "status.json"
    return json.loads(path.read_text()) if path.exists() else {}


def states(directory: pathlib.Path) -> set[str]:
    return {replica["state"] for replica in status_of(directory).values()}


def result_of(directory: pathlib.Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return content
