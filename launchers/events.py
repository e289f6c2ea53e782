"""What back ends tell the supervisor."""

import dataclasses
from typing import Optional, Union


@dataclasses.dataclass(frozen=True)
class Starting:
    """The replica is being constructed."""

    replica: str


@dataclasses.dataclass(frozen=True)
class Running:
    """The replica is constructed, serving and at work."""

    replica: str


@dataclasses.dataclass(frozen=True)
class Ended:
    """The replica's function is over.

    Attributes:
        replica: Its name.
        error: None if it ended well, else a traceback or what stands for one.
    """

    replica: str
    error: Optional[str]


@dataclasses.dataclass(frozen=True)
class StopProgram:
    """Somebody asks for the end of the program.

    Attributes:
        outcome: `solved`, `finished` or `stopped`.
        reason: One sentence for the person who started it.
        seconds: How long everything together may take to stop, or None for each node's own time.
    """

    outcome: str
    reason: str
    seconds: Optional[float] = None


Event = Union[Starting, Running, Ended, StopProgram]
