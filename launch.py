"""Launches a distributed agent: flags in, a run out.

python launch.py --agent apex --mode local_mp --env catch
python launch.py --resume DIR   goes on with a run that has ended
python launch.py status DIR     shows a run from another terminal
python launch.py stop DIR       ends it in order
python launch.py replay --port=N   serves replay by itself, for runs with --replay_address;
                                   its own flags: launch.py replay --help
"""

import contextlib
import itertools
import json
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
    from launchers.status import Result
    from monitoring.screen import Screen

STOP_SECONDS_AFTER_SIGNAL = 2.0


class Interrupted(BaseException):
    """A signal asked for the end while there was no run that could be stopped."""


class Signals:
    """Turns signals into the end of the run, or of what comes before it.

    Attributes:
        received: The first signal that came, or None.
        run: The run to stop, once there is one.
        noted: Whether a signal is noted, but acted on only later.
    """

    def __init__(self) -> None:
        self.received: Optional[int] = None
        self.run: Optional[Run] = None
        self.noted = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                signal.signal(number, self._handle)

    @property
    def reason(self) -> str:
        """Names the signal that came."""
        return f"{signal.Signals(self.received or 0).name} was received"

    def act_from_now_on(self) -> None:
        """Raises what signals do while there is no run, also for one that has come already."""
        self.noted = False
        if self.received is not None:
            raise Interrupted

    def stop_from_now_on(self, run: "Run") -> None:
        """Lets signals stop `run`, also one that has come already."""
        self.run = run
        if self.received is not None:
            run.stop("stopped", self.reason, STOP_SECONDS_AFTER_SIGNAL)

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        again = self.received is not None
        self.received = self.received or number
        if self.noted:
            return
        if self.run is None:
            raise Interrupted
        self.run.stop("stopped", self.reason, 0.0 if again else STOP_SECONDS_AFTER_SIGNAL)


def main(arguments: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    signals = Signals()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core an actor
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # 1.6 times faster convolutions on CPUs
    sys.path.append(os.getcwd())
    try:
        open_door = _leave_network(arguments)
        from monitoring.screen import Screen

        screen = Screen()
        try:
            return _run(arguments, screen, signals, open_door)
        except UsageError as error:
            if {"--debug", "--debug=true"}.intersection(arguments):
                screen.errors.print(traceback.format_exc())
            screen.errors.print(str(error), style="red")
            return 2
        except SystemExit as exit_:
            screen.errors.print(f"Somebody's code ended the process: SystemExit: {exit_.code}")
            return 1
        except Exception:
            if signals.received is None:
                screen.errors.print(traceback.format_exc())
                return 1
    except Interrupted:
        pass
    return 128 + (signals.received or 0)


def _leave_network(arguments: Sequence[str]) -> Optional[str]:
    """Moves into a network of our own; returns what to warn of where that does not go.

    This comes before all imports that may start threads, which would stay behind.
    """
    from absl import flags

    from launchers import isolation

    if arguments[:1] == ["replay"]:
        return None  # It is there to be reached.
    values = flags.FlagValues()
    for name in ("network", "resume", "mode", "address", "replay_address"):
        flags.DEFINE_string(name, None, "", flag_values=values)
    try:
        values(["launch.py", *arguments], known_only=True)
        before = _settings_of(values["resume"].value)
        now = {name: values[name].value or before.get(name) for name in values}
        given = {name for name in now if str(now[name]).lower() != "none"}
        joins_cluster = now["mode"] == "ray" and "address" in given
        if now["network"] not in (None, "own") or joins_cluster:
            return None
        if "replay_address" in given and not isolation.has_loopback_only():
            return f"{isolation.OPEN_DOOR}, as replay at {now['replay_address']} is reached there."
        isolation.enclose()
    except flags.Error:
        pass  # It will be told with all others.
    except OSError as error:
        reason = error.strerror or str(error)
        return f"{isolation.OPEN_DOOR}, as they cannot have a network of their own here: {reason}."
    return None


def _settings_of(directory: Optional[str]) -> dict[str, Optional[str]]:
    """Returns the settings with which the run in `directory` was started, if there is one."""
    try:
        with open(os.path.join(directory or "", "config.json")) as file:
            settings: dict[str, Optional[str]] = json.load(file)["settings"]
            return dict(settings)
    except (OSError, ValueError, LookupError, TypeError):
        return {}  # It will be told with all other mistakes.


def _run(
    arguments: Sequence[str], screen: "Screen", signals: Signals, open_door: Optional[str]
) -> int:
    from command import assembly, flags, resumption, verbs

    if arguments and not arguments[0].startswith("-"):
        return verbs.run(arguments, screen.console)
    settings, values = assembly.read(arguments)
    if settings.help:
        flags.show_help(screen.console, assembly.all_flags(settings, values), __doc__ or "")
        return 0
    if settings.resume is not None:
        arguments = resumption.arguments(settings.resume, values, arguments)
        settings, values = assembly.read(arguments)
    assembled = assembly.assemble(settings, values, arguments)
    if settings.plan:
        return _show_plan(assembled, screen)
    if open_door is not None:
        screen.console.print(open_door, style="yellow")
    signals.noted = True  # Until what is made is in hands that can finish it.
    return _launch(assembled, _claim_directory(assembled), screen, signals)


def _show_plan(assembled: "Assembly", screen: "Screen") -> int:
    from launchers import ray_hosts
    from launchers.plan import make_plan

    settings = assembled.settings
    with contextlib.ExitStack() as stack:
        hosts = None
        if settings.mode == "ray":
            hosts = stack.enter_context(ray_hosts.joined(settings.address)).hosts
        plan = make_plan(assembled.draw(), settings.mode, assembled.layout(), hosts)
    screen.console.print_json(json.dumps(plan.describe()))
    return 0


def _claim_directory(assembled: "Assembly") -> "RunDirectory":
    from launchers.directory import RunDirectory

    if assembled.settings.resume is not None:
        return RunDirectory.resume(assembled.settings.resume)
    if assembled.settings.run_dir is not None:
        return RunDirectory(assembled.settings.run_dir)
    default = f"runs/{assembled.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in itertools.count(2):
        try:
            return RunDirectory(default)
        except UsageError:
            if not os.path.exists(default):
                raise
            default = f"{default.removesuffix(f'+{number - 1}')}+{number}"
    raise AssertionError


def _launch(
    assembled: "Assembly", directory: "RunDirectory", screen: "Screen", signals: Signals
) -> int:
    """Runs the program to its end and writes its result."""
    from launchers import fork_server
    from launchers.status import Result

    try:
        signals.act_from_now_on()
        result = _run_to_end(assembled, directory, screen, signals)
    except BaseException:
        if signals.received is None:
            if signals.run is None:  # Nothing was started.
                directory.abandon()
            raise
        result = Result("stopped", signals.reason)
    finally:
        signals.noted = True
        fork_server.ForkServer.clean_up()
    _finish(assembled, directory, screen, result, signals.run)
    if result.outcome == "stopped" and signals.received is not None:
        return 128 + signals.received
    return 1 if result.outcome == "failed" else 0


def _run_to_end(
    assembled: "Assembly", directory: "RunDirectory", screen: "Screen", signals: Signals
) -> "Result":
    from launchers import fork_server
    from launchers.directory import CONFIG_FILE
    from launchers.run import launch
    from monitoring.progress import Progress

    settings = assembled.settings
    screen.log_to(directory.log("launcher"))
    if directory.life == 1:
        try:
            directory.write(CONFIG_FILE, assembled.describe())
        except OSError as error:
            raise UsageError(
                f"The run directory {directory.path} cannot be written: {error.strerror}."
            ) from None
    if settings.mode == "local_mp" and assembled.preload:
        fork_server.ForkServer.prepare(assembled.preload, directory.log("forkserver"))
    run = launch(
        assembled.draw(),
        settings.mode,
        assembled.layout(),
        directory,
        settings.stall_timeout,
        settings.address,
    )
    signals.stop_from_now_on(run)
    if directory.life > 1:
        with contextlib.suppress(OSError):  # Then the next life has to be told again.
            directory.write(CONFIG_FILE, assembled.describe())
    again = f", life {directory.life}" if directory.life > 1 else ""
    screen.console.print(f"{assembled.name}: {directory.path}{again}")
    for notice in assembled.notices():
        screen.console.print(notice, style="yellow")
    with Progress(run, screen.console) as progress:
        asked = False
        while (result := run.wait(0.1)) is None:
            progress.update()
            if directory.stop_requested and not asked:
                asked = True
                run.stop("stopped", "launch.py stop asked for it")
    return result


def _finish(
    assembled: "Assembly",
    directory: "RunDirectory",
    screen: "Screen",
    result: "Result",
    run: Optional["Run"],
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
        list(run.plan.replicas) if run is not None else [],
        directory.life,
    )
    results.show_result(screen.console, result, facts, directory)
    try:
        directory.write("result.json", facts)
    except OSError as error:
        screen.errors.print(f"The result could not be written: {error}.", style="red")


if __name__ == "__main__":
    status = main(sys.argv[1:])
    os._exit(status)  # Threads that could not be stopped must not hold up the end.
