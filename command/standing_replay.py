"""`launch.py replay`: one replay server by itself, for runs with --replay_address."""

import dataclasses
import signal
from collections.abc import Sequence
from typing import NoReturn, Optional

from absl import flags
from rich.console import Console

from command import assembly
from command import flags as flags_
from command.settings import MOST, Settings, check_port
from launchers import isolation
from programs import replay_alone
from usage import UsageError

_HELP = """Serves the replay table that an agent needs, for runs with --replay_address, until it is
interrupted or terminated. It has no run directory and keeps no checkpoint.
"""


@dataclasses.dataclass(frozen=True)
class ReplaySettings:
    """The flags of `launch.py replay`.

    Attributes:
        port: Port that is served, on every interface.
        agent: apex, r2d2, or package.module:Class for one of your own.
        env: catch, cartpole, memory:LENGTH, atari:GAME, gym:ID, or package.module:function.
        preset: Configuration to start from, small or paper (paper for atari:GAME, else small).
        shards: Servers that share the replay, of which this is one.
        debug: Show where in the code a mistake was noticed.
        help: Show this.

    Raises:
        UsageError: A number is out of its range.
    """

    port: Optional[int] = None
    agent: str = Settings.agent
    env: str = Settings.env
    preset: Optional[str] = None
    shards: int = 1
    debug: bool = False
    help: bool = False

    def __post_init__(self) -> None:
        if self.port is not None:
            check_port("port", self.port)
        if not 1 <= self.shards <= MOST:
            raise UsageError(f"--shards must lie between 1 and {MOST}, got {self.shards}.")


def serve(arguments: Sequence[str], console: Console) -> int:
    """Serves until a signal's handler raises; returns only where help was asked for.

    Raises:
        UsageError: Something does not exist or does not fit, or the port cannot be had.
    """
    values = flags.FlagValues()
    flags_.define(values, ReplaySettings())
    flags_.parse(values, arguments, known_only=True)
    if values["help"].value:
        choice = Settings(**{name: values[name].value for name in ("agent", "env", "preset")})
        flags_.show_help(console, assembly.all_flags(choice, values), _HELP)
        return 0
    settings = flags_.collect(values, ReplaySettings())
    choice = Settings(agent=settings.agent, env=settings.env, preset=settings.preset)
    agent, _, _ = assembly.make_agent(choice, values, arguments)
    if assembly.is_search(agent):
        raise UsageError(f"--agent {settings.agent} has no replay that could be served.")
    if settings.port is None:
        raise UsageError("launch.py replay wants the port to serve: launch.py replay --port=N.")
    table = replay_alone.table_of(agent, settings.shards)
    assembly.check_memory(table)
    with replay_alone.served(table, settings.port):
        if not isolation.has_loopback_only():
            console.print(
                f"Port {settings.port} can be reached from wherever this machine can, and whoever "
                "reaches it can read and change what is in replay.",
                style="yellow",
            )
        console.print(
            f"table {table.name!r} of {settings.agent} for {settings.env} is served on port "
            f"{settings.port}"
        )
        _wait()


def _wait() -> NoReturn:
    while True:
        signal.pause()
