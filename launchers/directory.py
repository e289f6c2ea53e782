"""The one directory that holds all files of a run."""

import contextlib
import fcntl
import json
import os
import time
from typing import IO, Any

from usage import UsageError

PLAN_FILE = "plan.json"
STATUS_FILE = "status.json"
RESULT_FILE = "result.json"
CONFIG_FILE = "config.json"
LOGS = "logs"
STATES_LOG = os.path.join(LOGS, "states.log")
"""A line for each change of a replica's state."""
CHECKPOINTS = "checkpoints"
LOCK_FILE = "lock"
"""Locked as long as the run's launcher lives; says how many lives the run has had."""
_STOP_FILE = "stop"
"""Made by whoever asks the run to stop."""
_NAMES = {
    LOCK_FILE,
    PLAN_FILE,
    STATUS_FILE,
    RESULT_FILE,
    CONFIG_FILE,
    LOGS,
    CHECKPOINTS,
    _STOP_FILE,
}


def read(path: str, name: str) -> dict[str, Any]:
    """Returns what the file `name` of a run holds, or nothing where there is no such file yet.

    Raises:
        UsageError: There is no run in the directory `path`.
    """
    if not os.path.exists(os.path.join(path, LOCK_FILE)):
        raise UsageError(f"There is no run in {path}: name the directory that a run printed.")
    try:
        with open(os.path.join(path, name)) as file:
            content = json.load(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def is_running(path: str) -> bool:
    """Returns whether the launcher of the run in the directory `path` lives.

    Raises:
        UsageError: There is no run in it.
    """
    read(path, LOCK_FILE)
    with open(os.path.join(path, LOCK_FILE)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def request_stop(path: str) -> None:
    """Asks the launcher of the run in the directory `path` to stop it."""
    with open(os.path.join(path, _STOP_FILE), "w"):
        pass


def _lock_soon(file: IO[str]) -> None:
    """Locks a file, which who only looks whether it is locked may have locked for a moment.

    Raises:
        BlockingIOError: It stays locked.
    """
    for _ in range(5):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.05)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class RunDirectory:
    """A directory that belongs to one run, from the moment that it was made for it.

    Attributes:
        path: Its absolute path.
        life: 1, and 1 more for each time that the run was resumed.
    """

    def __init__(self, path: str) -> None:
        """Claims `path`, which need not exist, for a new run.

        Raises:
            UsageError: The directory cannot be written, or it holds what a run would write.
        """
        self.path = os.path.abspath(path)
        self.life = 1
        self._made: list[str] = []
        try:
            self._make_directories()
            taken = _NAMES.intersection(os.listdir(self.path))
            if taken:
                raise FileExistsError
            # Whoever makes this file has the directory; it stays open and locked with the process.
            self._lock = open(self._own(LOCK_FILE), "x")  # noqa: SIM115
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.mkdir(self._own(LOGS))
        except FileExistsError:
            raise UsageError(
                f"The run directory {path} holds a run already, or files of the same names: "
                f"choose another one, or go on with --resume {path}."
            ) from None
        except OSError as error:
            self.abandon()
            raise UsageError(
                f"The run directory {path} cannot be written: {error.strerror}."
            ) from None

    @classmethod
    def resume(cls, path: str) -> "RunDirectory":
        """Claims the directory of a run that has ended, however it did, to go on with it.

        Raises:
            UsageError: There is no run in it, it still runs, or it cannot be written.
        """
        life = read(path, LOCK_FILE).get("life", 1)
        directory = cls.__new__(cls)
        directory.path = os.path.abspath(path)
        directory.life = life + 1 if isinstance(life, int) else 2
        directory._made = []
        try:
            directory._lock = open(os.path.join(directory.path, LOCK_FILE), "r+")  # noqa: SIM115
            _lock_soon(directory._lock)
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(directory.path, _STOP_FILE))  # That was for an earlier life.
        except BlockingIOError:
            raise UsageError(f"The run in {path} still runs: stop it first.") from None
        except OSError as error:
            raise UsageError(
                f"The run directory {path} cannot be written: {error.strerror}."
            ) from None
        return directory

    def begin(self) -> None:
        """Notes that the run, or its next life, begins now.

        Raises:
            UsageError: The directory cannot be written.
        """
        try:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.path, RESULT_FILE))
            self._lock.seek(0)
            json.dump({"life": self.life}, self._lock)
            self._lock.truncate()
            self._lock.flush()
        except OSError as error:
            raise UsageError(
                f"The run directory {self.path} cannot be written: {error.strerror}."
            ) from None

    def release(self) -> None:
        """Lets others resume the run; the end of the process does, too."""
        self._lock.close()

    def abandon(self) -> None:
        """Removes what was made for a run that does not take place, and nothing else."""
        logs = os.path.join(self.path, LOGS)
        if logs in self._made:
            self._made += [os.path.join(logs, name) for name in os.listdir(logs)]
        for path in sorted(self._made, key=len, reverse=True):
            with contextlib.suppress(OSError):
                os.rmdir(path) if os.path.isdir(path) else os.remove(path)

    def write(self, name: str, content: Any) -> None:
        """Replaces the file `name` by `content` as JSON, whole or not at all.

        Raises:
            OSError: The disk is full, or the like.
        """
        path = self._own(name)
        with open(f"{path}.new", "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
        os.replace(f"{path}.new", path)

    def append(self, name: str, line: str) -> None:
        """Adds a line to the file `name`.

        Raises:
            OSError: The disk is full, or the like.
        """
        with open(self._own(name), "a") as file:
            file.write(f"{line}\n")

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asks for the run's end."""
        return os.path.exists(os.path.join(self.path, _STOP_FILE))

    def log(self, replica: str) -> str:
        """Returns the path of a replica's log."""
        return os.path.join(self.path, LOGS, f"{replica.replace('/', '-')}.log")

    def _make_directories(self) -> None:
        missing = self.path
        while not os.path.exists(missing):
            self._made.append(missing)
            missing = os.path.dirname(missing)
        os.makedirs(self.path, exist_ok=True)

    def _own(self, name: str) -> str:
        path = os.path.join(self.path, name)
        if path not in self._made and not os.path.exists(path):
            self._made.append(path)
        return path
