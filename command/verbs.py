"""What `launch.py` does besides launching: `status DIR`, `stop DIR`, `replay --port=N`."""

import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console

import usage
from command import standing_replay
from launchers import directory
from monitoring import overview
from usage import UsageError

_STOP_SECONDS = 60.0
"""How long `stop` waits for the end; a run that is asked to stop ends, or is ended, before."""


def run(arguments: Sequence[str], console: Console) -> int:
    """Runs the verb that `arguments` begin with, and returns the exit status.

    Raises:
        UsageError: There is no such verb, or its arguments are not right.
    """
    verb, *rest = arguments
    if verb not in VERBS:
        raise usage.unknown("verb", verb, VERBS)
    return VERBS[verb](rest, console)


def _directory(verb: str, arguments: Sequence[str]) -> str:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise UsageError(f"launch.py {verb} wants one run directory: launch.py {verb} runs/...")
    return arguments[0]


def _status(arguments: Sequence[str], console: Console) -> int:
    overview.show(console, _directory("status", arguments))
    return 0


def _stop(arguments: Sequence[str], console: Console) -> int:
    """Asks a run to end, and waits until its launcher has."""
    path = _directory("stop", arguments)
    if directory.is_running(path):
        try:
            directory.request_stop(path)
        except OSError as error:
            raise UsageError(f"The run in {path} cannot be stopped: {error.strerror}.") from None
        deadline = time.monotonic() + _STOP_SECONDS
        while directory.is_running(path):
            if time.monotonic() > deadline:
                console.print(f"{path} has been asked to stop, but still runs.")
                return 1
            time.sleep(0.1)
    result = directory.read(path, directory.RESULT_FILE)
    if not result:
        console.print(
            f"{path} does not run, and has no result: its launcher is gone; "
            f"launch.py --resume {path} goes on with it."
        )
        return 1
    console.print(f"{path}: {result['outcome']}: {result['reason']}")
    return 0


VERBS: Mapping[str, Callable[[Sequence[str], Console], int]] = {
    "status": _status,
    "stop": _stop,
    "replay": standing_replay.serve,
}
