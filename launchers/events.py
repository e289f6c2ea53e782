"""What back ends tell the supervisor."""

import dataclasses
from collections.abc import Callable
from typing import Optional, Union


@dataclasses.dataclass(frozen=True)
class Starting:
    """The replica is being constructed.

    Attributes:
        replica: Its name.
        host: Address of the host where it is, or None where there is but one.
    """

    replica: str
    host: Optional[str] = None


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


@dataclasses.dataclass(frozen=True)
class Alive:
    """The replica's heart beats.

    Attributes:
        replica: Its name.
        progress: Grows with the work done; 0 for one that never tells of its work.
        waiting_for: What it waits for, in words for a person, or None.
    """

    replica: str
    progress: int
    waiting_for: Optional[str]


@dataclasses.dataclass(frozen=True)
class Saved:
    """The replica has saved a checkpoint.

    Attributes:
        replica: Its name.
        taken_at: When its content was taken, in seconds since the epoch.
        pause_seconds: How long its work stood still for it.
    """

    replica: str
    taken_at: float
    pause_seconds: float


@dataclasses.dataclass(frozen=True)
class Warned:
    """The replica tells of something that does not end it."""

    replica: str
    text: str


@dataclasses.dataclass(frozen=True)
class Stale:
    """The replica runs with an address that leads nowhere any more: it must learn the new one.

    Attributes:
        replica: Its name.
        moved: Name of the one that has another address now.
    """

    replica: str
    moved: str


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """The replica cannot be started again, for want of a host.

    Attributes:
        replica: Its name.
        reason: Why.
    """

    replica: str
    reason: str


Event = Union[Stale, LeftOut, Starting, Running, Ended, StopProgram, Alive, Saved, Warned]


class Post:
    """Takes what a node tells its launcher to the supervisor; safe to call from every thread."""

    def __init__(self, replica: str, put: Callable[[Event], None]) -> None:
        """Initializes the post of one replica, whose events `put` takes on."""
        self._replica = replica
        self._put = put

    def running(self) -> None:
        """The node is running."""
        self._put(Running(self._replica))

    def alive(self, progress: int, waiting_for: Optional[str]) -> None:
        """The node lives; see `Alive`."""
        self._put(Alive(self._replica, progress, waiting_for))

    def saved(self, taken_at: float, pause_seconds: float) -> None:
        """The node has saved a checkpoint."""
        self._put(Saved(self._replica, taken_at, pause_seconds))

    def warned(self, text: str) -> None:
        """The node tells of something that does not end it."""
        self._put(Warned(self._replica, text))

    def ended(self, error: Optional[str]) -> None:
        """The node's function is over."""
        self._put(Ended(self._replica, error))

    def stop_program(self, outcome: str, reason: str) -> None:
        """The node asks for the end of the program."""
        self._put(StopProgram(outcome, reason))
