"""Launches a distributed agent: flags in, a run out.

python launch.py --agent apex --mode local_mp --env catch
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Optional

from usage import UsageError

if TYPE_CHECKING:
    from command.assembly import Assembly
    from launchers.directory import RunDirectory
    from launchers.run import Run
    from launchers.supervisor import Result
    from monitoring.screen import Screen

STOP_SECONDS_AFTER_SIGNAL = 2.0


class Interrupted(BaseException):
    """A signal asked for the end while there was no run that could be stopped."""


class Signals:
    """Turns signals into the end of the run, or of what comes before it.

    Attributes:
        received: The first signal that came, or None.
        run: The run to stop, once there is one.
    """

    def __init__(self) -> None:
        self.received: Optional[int] = None
        self.run: Optional[Run] = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._handle)

    @property
    def reason(self) -> str:
        """Names the signal that came."""
        return f"{signal.Signals(self.received or 0).name} was received"

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        again = self.received is not None
        self.received = self.received or number
        if self.run is not None:
            self.run.stop("stopped", self.reason, 0.0 if again else STOP_SECONDS_AFTER_SIGNAL)
        elif not again:
            raise Interrupted


def main(arguments: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    signals = Signals()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core an actor
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # 1.6 times faster convolutions on CPUs
    sys.path.insert(0, os.getcwd())
    try:
        from monitoring.screen import Screen

        screen = Screen()
        try:
            return _run(arguments, screen, signals)
        except UsageError as error:
            if "--debug" in arguments:
                screen.errors.print(traceback.format_exc(), markup=False)
            screen.errors.print(str(error), style="red", markup=False)
            return 2
        except Exception:
            screen.errors.print(traceback.format_exc(), markup=False)
            return 1
    except Interrupted:
        return 128 + (signals.received or 0)


def _run(arguments: Sequence[str], screen: "Screen", signals: Signals) -> int:
    from command import assembly, flags

    settings, values = assembly.read(arguments)
    if settings.help:
        flags.show_help(screen.console, assembly.all_flags(settings, values), __doc__ or "")
        return 0
    assembled = assembly.assemble(settings, values, arguments)
    if settings.plan:
        return _show_plan(assembled, screen)
    from launchers.directory import RunDirectory

    directory = RunDirectory(
        settings.run_dir or f"runs/{assembled.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    try:
        return _launch(assembled, directory, screen, signals)
    except Exception:
        if signals.run is None:  # Nothing was started.
            directory.abandon()
        raise


def _show_plan(assembled: "Assembly", screen: "Screen") -> int:
    import json

    from launchers.plan import make_plan

    plan = make_plan(assembled.draw(), assembled.settings.mode)
    screen.console.print_json(json.dumps(plan.describe()))
    return 0


def _launch(
    assembled: "Assembly", directory: "RunDirectory", screen: "Screen", signals: Signals
) -> int:
    """Draws the program, runs it to its end and writes its result."""
    from launchers import processes
    from launchers.run import launch
    from launchers.supervisor import Result
    from monitoring.progress import Progress

    screen.log_to(directory.log("launcher"))
    directory.write("config.json", assembled.describe())
    replicas: list[str] = []
    try:
        if assembled.settings.mode == "local_mp":
            processes.ForkServer.start(assembled.preload, directory.log("forkserver"))
        run = launch(assembled.draw(), assembled.settings.mode, run_directory=directory)
        signals.run = run
        screen.console.print(f"{assembled.name}: {directory.path}")
        replicas = list(run.plan.replicas)
        with Progress(run, screen.console) as progress:
            while (result := run.wait(0.1)) is None:
                progress.update()
    except Interrupted:
        result = Result("stopped", signals.reason, {}, {})
    finally:
        processes.ForkServer.kill()
    _finish(assembled, directory, screen, result, replicas)
    if result.outcome == "stopped" and signals.received is not None:
        return 128 + signals.received
    return 1 if result.outcome == "failed" else 0


def _finish(
    assembled: "Assembly",
    directory: "RunDirectory",
    screen: "Screen",
    result: "Result",
    replicas: Sequence[str],
) -> None:
    import psutil

    from monitoring import result as results
    from monitoring import snapshot

    facts = results.make_result(
        result,
        snapshot.read(directory.path),
        assembled.solved_at,
        psutil.Process().create_time(),
        time.time(),
        replicas,
    )
    directory.write("result.json", facts)
    results.show_result(screen.console, result, facts, directory)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # Threads that could not be stopped must not hold up the end.
