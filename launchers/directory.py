"""The one directory that holds all files of a run."""

import contextlib
import json
import os
from typing import Any

from usage import UsageError

PLAN_FILE = "plan.json"
STATUS_FILE = "status.json"
RESULT_FILE = "result.json"
CONFIG_FILE = "config.json"
LOGS = "logs"


class RunDirectory:
    """A directory that belongs to one run, from the moment that it was made for it."""

    def __init__(self, path: str) -> None:
        """Claims `path`, which need not exist, for a new run.

        Raises:
            UsageError: The directory cannot be written, or it holds what a run would write.
        """
        self.path = os.path.abspath(path)
        self._made: list[str] = []
        try:
            self._make_directories()
            taken = {PLAN_FILE, STATUS_FILE, RESULT_FILE, CONFIG_FILE, LOGS}.intersection(
                os.listdir(self.path)
            )
            if taken:
                raise FileExistsError
            with open(self._own(PLAN_FILE), "x"):
                pass  # Whoever makes this file has the directory.
            os.mkdir(self._own(LOGS))
        except FileExistsError:
            raise UsageError(
                f"The run directory {path} holds a run already, or files of the same names: "
                "choose another one."
            ) from None
        except OSError as error:
            self.abandon()
            raise UsageError(
                f"The run directory {path} cannot be written: {error.strerror}."
            ) from None

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
        if path not in self._made:
            self._made.append(path)
        return path
