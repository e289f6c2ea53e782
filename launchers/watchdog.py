"""Notices replicas that live but do nothing, and those that do not even show life."""

import dataclasses
import time
from typing import NamedTuple, Optional

from launchers.events import Alive
from usage import UsageError

CHECK_SECONDS = 0.5
SHORTEST_SECONDS = 3.0
_FIRST_SECONDS = 60.0
"""How much longer the first sign of life may take: much has to be loaded before it."""
_ASLEEP_SECONDS = 2.0
"""After a gap as long as this between two checks, it was the launcher that did not run."""


def check_timeout(seconds: Optional[float]) -> None:
    """Raises `UsageError` for a time in which a replica could not show life."""
    if seconds is not None and seconds < SHORTEST_SECONDS:
        raise UsageError(
            "Replicas show life once a second: the stall timeout must be at least "
            f"{SHORTEST_SECONDS:g} s, got {seconds:g}."
        )


class Stall(NamedTuple):
    """What is wrong with a replica that does nothing.

    Attributes:
        reason: What a person reads after the replica's name.
        waits: Whether it waits for somebody else, who then is to blame.
    """

    reason: str
    waits: bool


@dataclasses.dataclass
class _Watched:
    heard_at: float
    progress_at: float
    progress: int = 0
    waiting_for: Optional[str] = None


class Watchdog:
    """Remembers of each replica when it last showed life and when it made progress.

    A replica that tells neither of progress nor of what it waits for has only to show life.
    """

    def __init__(self, seconds: Optional[float]) -> None:
        """Initializes the watchdog.

        Args:
            seconds: How long a replica may do nothing before it counts as stalled; with None none
                ever does.
        """
        self._seconds = seconds
        self._watched: dict[str, _Watched] = {}
        self._checked_at = time.monotonic()

    def watch(self, name: str) -> None:
        """Begins to watch a replica, which may take some time to show life at first."""
        first = time.monotonic() + _FIRST_SECONDS
        self._watched[name] = _Watched(first, first)

    def running(self, name: str) -> None:
        """Notes that a replica runs, from when on it shows life all the time."""
        now = time.monotonic()
        self._watched[name] = _Watched(now, now)

    def forget(self, name: str) -> None:
        """Ends watching a replica."""
        self._watched.pop(name, None)

    def heard_at(self, name: str) -> float:
        """Returns when a replica that is watched showed life last; infinity for another."""
        watched = self._watched.get(name)
        return float("inf") if watched is None else watched.heard_at

    def heard(self, beat: Alive) -> None:
        """Takes a replica's sign of life."""
        watched = self._watched.get(beat.replica)
        if watched is None:
            return
        watched.heard_at = time.monotonic()
        watched.waiting_for = beat.waiting_for
        never_tells = not beat.progress and beat.waiting_for is None
        if beat.progress != watched.progress or never_tells:
            watched.progress = beat.progress
            watched.progress_at = watched.heard_at

    def stalls(self) -> dict[str, Stall]:
        """Returns those that are stalled now, by name."""
        now = time.monotonic()
        asleep, self._checked_at = now - self._checked_at, now
        if asleep > _ASLEEP_SECONDS:
            for watched in self._watched.values():
                watched.heard_at += asleep
                watched.progress_at += asleep
        if self._seconds is None:
            return {}
        found = {name: self._stall(watched, now) for name, watched in self._watched.items()}
        return {name: stall for name, stall in found.items() if stall is not None}

    def _stall(self, watched: _Watched, now: float) -> Optional[Stall]:
        assert self._seconds is not None
        if now - watched.heard_at >= self._seconds:
            return Stall(f"has shown no life for {self._seconds:g} s", waits=False)
        if now - watched.progress_at < self._seconds:
            return None
        if watched.waiting_for is None:
            return Stall(
                f"has made no progress for {self._seconds:g} s, and does not say why", waits=False
            )
        return Stall(f"has waited for {self._seconds:g} s for {watched.waiting_for}", waits=True)
