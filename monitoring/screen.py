"""Keeps the screen for the program: everything else that prints goes to a log."""

import os
import shutil
import sys
import tempfile
from typing import IO

from rich.console import Console


class Screen:
    """The standard output and error that this process was started with.

    What anybody else writes there, such as libraries with notices, is kept for a log.

    Attributes:
        console: Writes to the standard output.
        errors: Writes to the standard error.
    """

    def __init__(self) -> None:
        streams = [os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2)]
        self.console, self.errors = (
            Console(file=stream, soft_wrap=True, highlight=False) for stream in streams
        )
        self._kept = tempfile.TemporaryFile()  # noqa: SIM115 - closed in log_to
        self._redirect(self._kept)

    def log_to(self, path: str) -> None:
        """Sends what was kept, and all that comes, to the file `path`."""
        with open(path, "ab", buffering=0) as log:
            self._redirect(log)
            self._kept.seek(0)
            shutil.copyfileobj(self._kept, log)
        self._kept.close()

    @staticmethod
    def _redirect(file: IO[bytes]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
