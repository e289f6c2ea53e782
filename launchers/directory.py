"""The one directory that holds all files of a run."""

import contextlib
import json
import os
import shutil
from typing import Any

from usage import UsageError

PLAN_FILE = "plan.json"
STATUS_FILE = "status.json"
RESULT_FILE = "result.json"
CONFIG_FILE = "config.json"


class RunDirectory:
    """A directory that belongs to one run, from the moment that it was made for it."""

    def __init__(self, path: str) -> None:
        """Claims `path`, which need not exist, for a new run.

        Raises:
            UsageError: The directory cannot be written, or it holds a run.
        """
        self.path = os.path.abspath(path)
        self._made = not os.path.exists(self.path)
        try:
            os.makedirs(self.path, exist_ok=True)
            with open(os.path.join(self.path, PLAN_FILE), "x"):
                pass  # Whoever makes this file has the directory.
            os.makedirs(os.path.join(self.path, "logs"), exist_ok=True)
        except FileExistsError:
            raise UsageError(
                f"The run directory {path} holds a run already: choose another one."
            ) from None
        except OSError as error:
            raise UsageError(
                f"The run directory {path} cannot be written: {error.strerror}."
            ) from None

    def abandon(self) -> None:
        """Removes what was made for a run that does not take place."""
        if self._made:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            shutil.rmtree(os.path.join(self.path, "logs"), ignore_errors=True)
            for name in (PLAN_FILE, CONFIG_FILE):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(self.path, name))

    def write(self, name: str, content: Any) -> None:
        """Replaces the file `name` by `content` as JSON, whole or not at all."""
        path = os.path.join(self.path, name)
        with open(f"{path}.new", "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
        os.replace(f"{path}.new", path)

    def log(self, replica: str) -> str:
        """Returns the path of a replica's log."""
        return os.path.join(self.path, "logs", f"{replica.replace('/', '-')}.log")
