"""Shows how a run is doing: one refreshing table on a terminal, plain lines elsewhere."""

import collections
import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from rich.console import Console
from rich.live import Live
from rich.table import Table

from launchers.run import Run
from launchers.status import ReplicaStatus
from monitoring import snapshot

_TABLE_PERIOD_SECONDS = 0.5
_LINE_PERIOD_SECONDS = 5.0
_RATE_WINDOW_SECONDS = 5.0
_NEW = ReplicaStatus()


class Progress:
    """Shows a run on a console, as often as the console's kind can bear."""

    def __init__(self, run: Run, console: Console) -> None:
        self._run = run
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._period = _TABLE_PERIOD_SECONDS if self._live else _LINE_PERIOD_SECONDS
        self._history: collections.deque[Mapping[str, Any]] = collections.deque()
        self._next = 0.0
        self._began = time.time()
        self._told: dict[str, ReplicaStatus] = {}

    def __enter__(self) -> "Progress":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._tell_changes()
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        """Tells what has happened; shows the run as it is, unless it was shown a moment ago."""
        self._tell_changes()
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._period
        facts = self._facts()
        if self._live is not None:
            self._live.update(_table(self._run.plan.program, facts), refresh=True)
        else:
            self._console.print(
                "  ".join(f"{name} {value}" for name, value in facts if value), highlight=False
            )

    def _tell_changes(self) -> None:
        """Prints what has happened to replicas, a line each."""
        for name, status in self._run.status.items():
            before = self._told.get(name, _NEW)
            if status.restarts > before.restarts:
                why = (status.error or "").strip().splitlines()[-1:]
                self._console.print(f"{name} was started again: {''.join(why)}")
            if status.warnings > before.warnings:
                self._console.print(f"{name} warns: {status.warning}")
            if status.stalled and not before.stalled:
                self._console.print(f"{name} {status.stalled}")
            if before.stalled and not status.stalled and status.state == "running":
                self._console.print(f"{name} goes on")
            self._told[name] = dataclasses.replace(status)

    def _facts(self) -> list[tuple[str, str]]:
        """Returns what there is to show, by name; an empty value is not known yet."""
        now = snapshot.read(self._run.directory)
        if (now["time"] or 0.0) < self._began:  # An earlier life has left it.
            now = {**snapshot.EMPTY, "counts": now["counts"]}
        if not self._history or now["time"] != self._history[-1]["time"]:
            self._history.append(now)
        while len(self._history) > 2 and _age(self._history[1], now) > _RATE_WINDOW_SECONDS:
            self._history.popleft()
        rates = snapshot.rates(self._history[0], now)
        counts, gauges = now["counts"], now["gauges"]
        actors = [values for name, values in gauges.items() if name.startswith("actor/")]
        begin = [
            ("nodes", self._states()),
            ("steps", _count(counts.get("environment_steps"))),
            ("steps/s", _number(rates and rates.environment_steps)),
        ]
        if "search/0" in self._run.status:
            search = gauges.get("search/0", {})
            return [
                *begin,
                ("iterations", _count(counts.get("learner_steps"))),
                ("iterations/s", _number(rates and rates.learner_steps, 1)),
                ("rollouts' return", _number(search.get("return_mean"), 3)),
                ("evaluator", _number(now["evaluator_return_mean"], 3)),
                ("search waits for", self._what_it_waits_for("search/0")),
            ]
        learner, reducer = gauges.get("learner/0", {}), gauges.get("reducer/0", {})
        return [
            *begin,
            ("learner steps", _count(counts.get("learner_steps"))),
            ("learner steps/s", _number(rates and rates.learner_steps)),
            ("replay", _fill(learner)),
            ("samples/insert", _number(learner.get("samples_per_insert"), 2)),
            ("late gradients", _count_of(reducer, "gradients_late")),
            ("return", _number(_mean(actor.get("episode_return") for actor in actors), 3)),
            ("evaluator", _number(now["evaluator_return_mean"], 3)),
            ("weight age", _seconds(_mean(actor["version_age_seconds"] for actor in actors))),
            ("learner waits for", self._what_it_waits_for("learner/0")),
        ]

    def _what_it_waits_for(self, replica: str) -> str:
        status = self._run.status.get(replica)
        return (status and status.waiting_for) or ""

    def _states(self) -> str:
        states = collections.Counter(status.state for status in self._run.status.values())
        return ", ".join(f"{number} {state}" for state, number in sorted(states.items()))


def _table(title: str, facts: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=title, show_header=False)
    for name, value in facts:
        table.add_row(name, value)
    return table


def _age(old: Mapping[str, Any], new: Mapping[str, Any]) -> float:
    return float((new["time"] or 0.0) - (old["time"] or 0.0))


def _mean(values: Iterable[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _fill(learner: Mapping[str, float]) -> str:
    if "replay_size" not in learner:
        return ""
    share = learner["replay_size"] / learner["replay_max_size"]
    return f"{_count(int(learner['replay_size']))} ({share:.0%})"


def _count_of(gauges: Mapping[str, float], name: str) -> str:
    return _count(int(gauges[name])) if name in gauges else ""


def _count(value: Optional[int]) -> str:
    return "" if value is None else f"{value:,}"


def _number(value: Optional[float], digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _seconds(value: Optional[float]) -> str:
    return "" if value is None else f"{value:.1f} s"
