"""The flags of a launch."""

import dataclasses
from typing import Any, Optional

from command.flags import DESCRIPTION
from usage import UsageError


def _flag(default: Any, description: str) -> Any:
    return dataclasses.field(default=default, metadata={DESCRIPTION: description})


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a person may say about a run, one flag a field; the fields' metadata describe them.

    Raises:
        UsageError: A number is out of its range.
    """

    agent: str = _flag("apex", "apex, or package.module:Class for one of your own")
    program: Optional[str] = _flag(
        None, "instead of --agent: package.module:function that returns a program"
    )
    mode: str = _flag("local_mp", "test_mt or local_mt (threads), local_mp (processes)")
    env: str = _flag(
        "catch", "catch, cartpole, memory:LENGTH, atari:GAME, gym:ID, or package.module:function"
    )
    preset: Optional[str] = _flag(
        None, "small or paper: the configuration to start from (paper for atari:GAME, else small)"
    )
    num_actors: int = _flag(4, "actors")
    envs_per_actor: int = _flag(1, "environments of each actor")
    replay_shards: int = _flag(1, "replay servers")
    max_steps: Optional[int] = _flag(
        None, "environment steps of all actors after which the run ends"
    )
    stop_when_solved: bool = _flag(True, "end once the environment counts as solved")
    seed: int = _flag(0, "every replica's and every environment's seed derives from it")
    run_dir: Optional[str] = _flag(
        None, "directory of the run's files (runs/AGENT-ENV-TIME unless told)"
    )
    plan: bool = _flag(False, "print what would run, and stop")
    debug: bool = _flag(False, "show where in the code a mistake was noticed")
    help: bool = _flag(False, "show this")

    def __post_init__(self) -> None:
        for name in ("num_actors", "envs_per_actor", "replay_shards", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} must be at least 1, got {value}.")
        if self.seed < 0:
            raise UsageError(f"--seed must not be negative, got {self.seed}.")
