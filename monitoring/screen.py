"""Keeps the screen for the program: everything else that prints goes to a log."""

import contextlib
import os
import shutil
import sys
import tempfile
from typing import IO, cast

from rich.console import Console


class Screen:
    """The standard output and error that this process was started with.

    What anybody else writes there, such as libraries with notices, is kept for a log.

    Attributes:
        console: Writes to the standard output.
        errors: Writes to the standard error.
    """

    def __init__(self) -> None:
        self.console, self.errors = (
            Console(
                file=cast(IO[str], _Stream(number)), soft_wrap=True, highlight=False, markup=False
            )
            for number in (1, 2)
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
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


class _Stream:
    """A copy of a standard stream that goes on when its reader has gone away, or never was."""

    def __init__(self, number: int) -> None:
        try:
            self._file = os.fdopen(os.dup(number), "w", buffering=1, errors="replace")
        except OSError:
            self._file = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
        self.encoding = self._file.encoding

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()

    def isatty(self) -> bool:
        return self._file.isatty()

    def fileno(self) -> int:
        return self._file.fileno()
