"""Follows every replica's state, applies policies, and ends the program in order."""

import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Optional, Protocol

from launchers.events import (
    Alive,
    Ended,
    Event,
    LeftOut,
    Running,
    Saved,
    Stale,
    Starting,
    StopProgram,
    Warned,
)
from launchers.graph import stop_wave
from launchers.plan import Plan, Replica
from launchers.status import ENDED, ReplicaStatus, Result, State
from launchers.watchdog import CHECK_SECONDS, Watchdog

KILLED_SECONDS = 1.0
"""How long a killed replica may take to be gone before it is left behind."""
_LIFELESS_SECONDS = 5.0
"""How long a replica that is to stop may show no life."""


class Backend(Protocol):
    """Runs replicas somewhere and tells the supervisor's queue of events about them.

    Attributes:
        kill_seconds: How long the end of a killed replica may take to be told.
    """

    kill_seconds: float

    def start(self, replica: Replica) -> None:
        """Begins to start a replica, also one that has ended; returns at once."""

    def stop(self, name: str) -> None:
        """Asks a replica to stop; returns at once."""

    def kill(self, name: str) -> None:
        """Ends a replica without asking; returns at once."""

    def close(self) -> None:
        """Frees what the back end holds, once every replica has ended."""


class Supervisor:
    """Runs a plan on a back end until every replica has ended."""

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        events: "queue.SimpleQueue[Event]",
        on_change: Callable[[Optional[str]], None],
        stall_timeout: Optional[float] = None,
    ) -> None:
        """Initializes the supervisor.

        Args:
            plan: What to run.
            backend: Runs it.
            events: Where the back end, and whoever wants the program to end, put events.
            on_change: Called when a replica's state has changed, with its name, and now and then
                with None when something else of some replica's status has.
            stall_timeout: Seconds without progress after which a replica counts as stalled.
        """
        self._plan = plan
        self._backend = backend
        self._events = events
        self._on_change = on_change
        self.status = {name: ReplicaStatus() for name in plan.replicas}
        self.all_running = threading.Event()
        self._end: Optional[StopProgram] = None
        self._failed = False
        self._failures: dict[str, str] = {}
        self._restarted: dict[str, list[float]] = {name: [] for name in plan.replicas}
        self._restart_at: dict[str, float] = {}
        self._renewed_by: dict[str, float] = {}
        self._watchdog = Watchdog(stall_timeout)
        self._watch_at = 0.0
        self._ended_by_watchdog: dict[str, str] = {}
        self._ended_at: dict[str, float] = {}
        self._changed = False
        self._asked: dict[str, float] = {}
        self._killed: dict[str, float] = {}
        self._everybody_asked_by = math.inf
        self._everything_by = math.inf

    def run(self) -> Result:
        """Starts every replica, supervises them, and returns how the program ended."""
        for replica in self._plan.replicas.values():
            self._backend.start(replica)
        while any(status.state not in ENDED for status in self.status.values()):
            try:
                self._handle(self._events.get(timeout=self._seconds_to_next_deadline()))
            except queue.Empty:
                self._enforce_deadlines()
            if time.monotonic() >= self._watch_at:
                self._watch()
            self._start_again()
            if self._end is not None:
                self._ask_next_wave()
        return self._result()

    def _alive(self) -> dict[str, frozenset[str]]:
        """Returns the holders of every replica that has not ended."""
        return {
            name: self._plan.replicas[name].holders
            for name, status in self.status.items()
            if status.state not in ENDED
        }

    def _handle(self, event: Event) -> None:
        if isinstance(event, StopProgram):
            self._begin_stop(event)
        elif self.status[event.replica].state in ENDED:
            return
        elif isinstance(event, Alive):
            self._watchdog.heard(event)
            self._update(event.replica, waiting_for=event.waiting_for)
        elif isinstance(event, Saved):
            self._note_save(event)
        elif isinstance(event, Warned):
            times = self.status[event.replica].warnings + 1
            self._update(event.replica, warnings=times, warning=event.text)
        elif isinstance(event, Starting):
            self._watchdog.watch(event.replica)
            self.status[event.replica].restarts += self.status[event.replica].state == "restarting"
            self.status[event.replica].host = event.host
            self._change(event.replica, "starting")
        elif isinstance(event, Running):
            self._watchdog.running(event.replica)
            self._change(event.replica, "running")
        elif isinstance(event, Stale):
            self._renew(event)
        elif isinstance(event, LeftOut):
            self._leave_out(event)
        elif isinstance(event, Ended):
            self._handle_end(event)

    def _note_save(self, event: Saved) -> None:
        longest = max(self.status[event.replica].longest_pause_seconds, event.pause_seconds)
        self._update(
            event.replica,
            saved_at=event.taken_at,
            pause_seconds=event.pause_seconds,
            longest_pause_seconds=longest,
        )

    def _watch(self) -> None:
        """Tells of replicas that are stalled; one that nobody else holds up has failed by that."""
        self._watch_at = time.monotonic() + CHECK_SECONDS
        self._enforce_deadlines()
        stalls = self._watchdog.stalls()
        for name in self._alive() if self._end is None else ():
            stall = stalls.get(name)
            self._update(name, stalled=stall and stall.reason)
            if time.monotonic() > self._renewed_by.get(name, math.inf):
                self._backend.kill(name)
            if name in self._ended_by_watchdog:
                self._give_up(name)
            elif stall is not None and not stall.waits:
                self._end_stalled(name, f"It {stall.reason}")
        if self._changed:
            self._changed = False
            self._on_change(None)

    def _end_stalled(self, name: str, reason: str) -> None:
        if self._plan.replicas[name].traits.on_failure != "ignore":
            self._ended_by_watchdog[name] = reason
            self._ended_at[name] = time.monotonic()
            self._backend.kill(name)

    def _give_up(self, name: str) -> None:
        """Ends the program for a replica that was ended and does not go, such as a thread in C."""
        if time.monotonic() > self._ended_at[name] + self._backend.kill_seconds:
            self.status[name].error = self._failures[name] = self._ended_by_watchdog[name]
            self._fail(name)

    def _handle_end(self, event: Ended) -> None:
        name = event.replica
        error = self._ended_by_watchdog.pop(name, event.error)
        self._watchdog.forget(name)
        self._update(name, waiting_for=None, stalled=None)
        traits = self._plan.replicas[name].traits
        if self._renewed_by.pop(name, None) is not None and self._end is None:
            self._restart_at[name] = time.monotonic()
            self._change(name, "restarting")
            return
        if error is None and traits.endless and self._end is None:
            error = "It ended without having been asked to"
        if error is not None and name not in self._killed:
            self.status[name].error = error
        if self._end is None and error is not None and self._may_restart(name):
            self._change(name, "restarting")
            return
        if error is not None and name not in self._killed:
            self._failures[name] = error
        if self._end is not None:
            self._change(name, "stopped")
        elif error is None:
            self._change(name, "finished")
        else:
            self._change(name, "failed")
            if traits.on_failure != "ignore":
                self._fail(name)

    def _renew(self, event: Stale) -> None:
        """Has a replica stopped and started again, with the addresses as they are now."""
        name = event.replica
        if self._end is None and name not in {**self._restart_at, **self._renewed_by}:
            seconds = self._plan.replicas[name].traits.stop_seconds
            self._renewed_by[name] = time.monotonic() + seconds
            self.status[name].error = f"{event.moved} has another address now"
            self._backend.stop(name)

    def _leave_out(self, event: LeftOut) -> None:
        """Goes on without a replica, where its group can do without it."""
        name, replica = event.replica, self._plan.replicas[event.replica]
        if self._end is not None:
            self._change(name, "stopped")
            return
        self.status[name].error = event.reason
        if replica.traits.per_host:  # Those that it was for are gone, too.
            self._change(name, "stopped")
            return
        self._failures[name] = event.reason
        self._change(name, "failed")
        others = [other for other in self._alive() if other.startswith(f"{replica.group}/")]
        if not replica.traits.dispensable or not others:
            self._failed = True
            self._begin_stop(StopProgram("failed", f"{name} is needed, but has no host"))

    def _may_restart(self, name: str) -> bool:
        """Plans the next start of a replica that has failed, if its budget allows one."""
        traits = self._plan.replicas[name].traits
        if traits.on_failure != "restart":
            return False
        budget, now = traits.restart, time.monotonic()
        recent = [at for at in self._restarted[name] if at > now - budget.window_seconds]
        if len(recent) >= budget.count:
            return False
        self._restarted[name] = [*recent, now]
        wait = min(budget.backoff_seconds * 2.0 ** len(recent), budget.longest_backoff_seconds)
        self._restart_at[name] = now + wait
        return True

    def _fail(self, name: str) -> None:
        times = len(self._restarted[name])
        again = f" again, after {times} restart{'s' if times > 1 else ''}" if times else ""
        self._failed = True
        self._begin_stop(StopProgram("failed", f"{name} failed{again}"))

    def _start_again(self) -> None:
        """Starts those whose wait is over; once the program ends, they have ended with it."""
        now = time.monotonic()
        for name, at in list(self._restart_at.items()):
            if self._end is not None:
                del self._restart_at[name]
                self._change(name, "stopped")
            elif at <= now:
                del self._restart_at[name]
                self._backend.start(self._plan.replicas[name])

    def _begin_stop(self, request: StopProgram) -> None:
        if self._end is None:
            self._end = request
        if request.seconds is not None:
            now = time.monotonic()
            self._everybody_asked_by = min(self._everybody_asked_by, now + request.seconds / 2)
            self._everything_by = min(self._everything_by, now + request.seconds)

    def _ask_next_wave(self) -> None:
        """Asks those whose handles nobody alive holds; everybody, when time is short."""
        alive = self._alive()
        short = time.monotonic() >= self._everybody_asked_by
        for name in alive if short or not alive else stop_wave(alive):
            if name not in self._asked:
                seconds = self._plan.replicas[name].traits.stop_seconds
                self._asked[name] = time.monotonic() + seconds
                if name not in self._renewed_by:  # It was asked for another reason.
                    self._backend.stop(name)

    def _seconds_to_next_deadline(self) -> float:
        deadlines = [self._watch_at, *self._restart_at.values()]
        if self._end is not None:
            deadlines += map(self._deadline, self._alive())
        if len(self._asked) < len(self.status):
            deadlines.append(self._everybody_asked_by)
        return max(0.0, min(deadlines) - time.monotonic())

    def _deadline(self, name: str) -> float:
        if name in self._killed:
            return self._killed[name]
        if name not in self._asked:
            return self._everything_by
        lifeless = self._watchdog.heard_at(name) + _LIFELESS_SECONDS
        return min(self._asked[name], lifeless, self._everything_by)

    def _enforce_deadlines(self) -> None:
        now = time.monotonic()
        for name in self._alive():
            if self._deadline(name) > now:
                continue
            if name in self._killed:
                self.status[name].forced = "did not stop, and could not be ended: it is left behind"
                self._change(name, "stopped")
            else:
                self._killed[name] = now + KILLED_SECONDS
                self.status[name].forced = "did not stop in time and was ended"
                self._backend.kill(name)

    def _update(self, name: str, **fields: Any) -> None:
        """Changes what is said of a replica; the next look of the watchdog shows it."""
        status = self.status[name]
        for field, value in fields.items():
            if getattr(status, field) != value:
                setattr(status, field, value)
                self._changed = True

    def _change(self, name: str, state: State) -> None:
        status = self.status[name]
        status.state = state
        status.since = time.time()
        if all(status.state in ("running", "finished") for status in self.status.values()):
            self.all_running.set()
        self._on_change(name)

    def _result(self) -> Result:
        end = self._end or StopProgram("finished", "every node has finished")
        return Result(
            outcome="failed" if self._failed else end.outcome,
            reason=end.reason,
            failures=dict(self._failures),
            restarts={name: status.restarts for name, status in self.status.items()},
            pauses={
                name: status.longest_pause_seconds
                for name, status in self.status.items()
                if status.saved_at is not None
            },
            forced={name: status.forced for name, status in self.status.items() if status.forced},
        )
