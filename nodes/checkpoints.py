"""A node's checkpoints: each whole or not there, bounded in number, checked before it is used."""

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Optional, TypeVar

from nodes import contract
from usage import UsageError

T = TypeVar("T")

_MANIFEST = "manifest.json"
"""Sizes and checksums of a checkpoint's files."""
_UNFINISHED = "unfinished"
_SCRATCH = "scratch"
_DAMAGED = "damaged"
_READ_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When checkpoints are saved and how many are kept.

    Attributes:
        period_seconds: Time from one checkpoint's begin to the next one's.
        keep: Newest checkpoints that are kept of each node.

    Raises:
        UsageError: A number is not positive.
    """

    period_seconds: float = 60.0
    keep: int = 2

    def __post_init__(self) -> None:
        if not self.period_seconds > 0:
            raise UsageError(
                f"The time between checkpoints must be positive, got {self.period_seconds}."
            )
        if self.keep < 1:
            raise UsageError(f"At least 1 checkpoint must be kept, got {self.keep}.")


DEFAULT = Schedule()


class Checkpoints:
    """The checkpoints of one node, in a directory of its own; without one nothing is saved."""

    def __init__(self, runtime: contract.Runtime, schedule: Schedule, phase: float = 1.0) -> None:
        """Looks which checkpoints there are.

        Args:
            runtime: The node's runtime, which knows the directory and takes reports.
            schedule: When to save and how many to keep.
            phase: When the first is due, as a part of the period.
        """
        self._runtime = runtime
        self._directory = runtime.checkpoint_directory
        self._schedule = schedule
        self._due_at = time.monotonic() + phase * schedule.period_seconds

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return self._directory is not None and time.monotonic() >= self._due_at

    @contextlib.contextmanager
    def scratch(self) -> Iterator[str]:
        """Lends a directory for work on checkpoints, on their own file system if there is one."""
        if self._directory is None:
            with tempfile.TemporaryDirectory() as path:
                yield path
            return
        path = os.path.join(self._directory, _SCRATCH)
        shutil.rmtree(path, ignore_errors=True)  # An earlier life may have been killed in it.
        os.makedirs(path)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def save(self, write: Callable[[str], float]) -> None:
        """Saves a checkpoint; one that cannot be saved is reported and leaves the others alone.

        Args:
            write: Writes the checkpoint's files into the directory whose path it gets, and returns
                the seconds for which the node's work stood still.
        """
        self._due_at = time.monotonic() + self._schedule.period_seconds
        taken_at = time.time()
        if self._directory is None:
            return
        unfinished = os.path.join(self._directory, _UNFINISHED)
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            os.makedirs(unfinished)
            pause = write(unfinished)
            _seal(unfinished)
            number = max(self._numbers(), default=0) + 1
            os.rename(unfinished, self._path(number))
            _sync(self._directory)
        except (OSError, RuntimeError) as error:  # A full disk, also as Reverb tells of it.
            shutil.rmtree(unfinished, ignore_errors=True)
            reason = str(error).strip() or type(error).__name__
            self._runtime.report_warning(f"A checkpoint was not saved: {reason}")
            return
        for old in self._numbers()[: -self._schedule.keep]:
            shutil.rmtree(self._path(old), ignore_errors=True)
        print(f"Checkpoint {number} was saved; work stood still for {pause:.3f} s.")
        self._runtime.report_save(taken_at, pause)

    def restore(self, read: Callable[[str], T]) -> Optional[T]:
        """Returns what `read` makes of the newest checkpoint that is whole, or None without one.

        Args:
            read: Reads a checkpoint's files from the directory whose path it gets; it raises for
                one that cannot be used.
        """
        for number in reversed(self._numbers()):
            path = self._path(number)
            try:
                _check(path)
            except (OSError, ValueError, AttributeError) as error:
                self._warn(number, error)
                self._set_aside(path)
                continue
            try:
                restored = read(path)
            except Exception as error:  # Whatever reads it may stumble over it in its own way.
                self._warn(number, error)
                continue
            print(f"Checkpoint {number} was restored.")
            return restored
        return None

    def _set_aside(self, path: str) -> None:
        """Takes a damaged checkpoint out of those that are kept, in place of an earlier one."""
        aside = os.path.join(os.path.dirname(path), _DAMAGED)
        shutil.rmtree(aside, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rename(path, aside)

    def _warn(self, number: int, error: Exception) -> None:
        self._runtime.report_warning(
            f"Checkpoint {number} is left out, as it cannot be read: {error}"
        )

    def _numbers(self) -> list[int]:
        """Returns the numbers of the checkpoints, oldest first."""
        if self._directory is None or not os.path.isdir(self._directory):
            return []
        return sorted(int(name) for name in os.listdir(self._directory) if name.isdecimal())

    def _path(self, number: int) -> str:
        return os.path.join(self._directory or "", f"{number:08}")


def _seal(path: str) -> None:
    """Writes down what a checkpoint's files are, and waits until all is on the disk."""
    manifest = {}
    for name in _files(path):
        manifest[name] = _fingerprint(os.path.join(path, name))
        _sync(os.path.join(path, name))
    with open(os.path.join(path, _MANIFEST), "w") as file:
        json.dump(manifest, file)
        file.flush()
        os.fsync(file.fileno())


def _check(path: str) -> None:
    """Raises `ValueError` or `OSError` unless a checkpoint's files are what they were."""
    with open(os.path.join(path, _MANIFEST)) as file:
        manifest = json.load(file)
    for name, fingerprint in manifest.items():
        if _fingerprint(os.path.join(path, name)) != fingerprint:
            raise ValueError(f"the file {name} is damaged")


def _files(path: str) -> Iterator[str]:
    """Yields the files below `path`, by their paths below it."""
    for directory, _, names in os.walk(path):
        for name in names:
            yield os.path.relpath(os.path.join(directory, name), path)


def _fingerprint(path: str) -> list[int]:
    """Returns a file's size and CRC-32."""
    size = checksum = 0
    with open(path, "rb") as file:
        while block := file.read(_READ_BYTES):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return [size, checksum]


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
