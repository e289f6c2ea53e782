"""Keeps the screen for the program: everything else that prints goes to a log."""

import os
import sys

from rich.console import Console


class Screen:
    """The standard output and error that this process was started with.

    Attributes:
        console: Writes to the standard output.
        errors: Writes to the standard error.
    """

    def __init__(self) -> None:
        self._streams = [os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2)]
        self.console, self.errors = (
            Console(file=stream, soft_wrap=True, highlight=False) for stream in self._streams
        )

    def divert(self, log: str) -> None:
        """Sends what this process and its libraries print from now on to the file `log`."""
        sys.stdout.flush()
        sys.stderr.flush()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
