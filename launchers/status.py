"""How a run's replicas are doing, and how the run ended."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Literal, Optional

State = Literal["pending", "starting", "running", "restarting", "finished", "failed", "stopped"]
ENDED: tuple[State, ...] = ("finished", "failed", "stopped")


@dataclasses.dataclass
class ReplicaStatus:
    """A replica's state and how it came to it.

    Attributes:
        state: Its state.
        since: When the state began, in seconds since the epoch.
        error: Why it failed, at last if it was started again, or None.
        forced: Why it did not stop when it was asked, or None.
        restarts: Times that it was started again.
        host: Address of the host where it was started last, or None where there is but one.
        waiting_for: What it says that it waits for, or None.
        stalled: What the watchdog has to say of it, or None.
        saved_at: When its newest checkpoint was taken, in seconds since the epoch, or None.
        pause_seconds: How long its work stood still for that.
        longest_pause_seconds: The longest of these pauses.
        warnings: Times that it warned of something.
        warning: Of what at last, or None.
    """

    state: State = "pending"
    since: float = dataclasses.field(default_factory=time.time)
    error: Optional[str] = None
    forced: Optional[str] = None
    restarts: int = 0
    host: Optional[str] = None
    waiting_for: Optional[str] = None
    stalled: Optional[str] = None
    saved_at: Optional[float] = None
    pause_seconds: float = 0.0
    longest_pause_seconds: float = 0.0
    warnings: int = 0
    warning: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Result:
    """How a program ended.

    Attributes:
        outcome: `solved`, `finished`, `stopped` or `failed`.
        reason: One sentence for the person who started it.
        failures: Why replicas failed, by name, in the order in which they did; also of those that
            failed while they stopped, which does not change the outcome.
        forced: Replicas that did not stop when they were asked, and what became of them.
        restarts: Times that each replica was started again.
        pauses: The longest time for which each replica that saved checkpoints stood still for one.
    """

    outcome: str
    reason: str
    failures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    forced: Mapping[str, str] = dataclasses.field(default_factory=dict)
    restarts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    pauses: Mapping[str, float] = dataclasses.field(default_factory=dict)
