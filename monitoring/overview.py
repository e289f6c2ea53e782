"""Shows a run from outside of it: what its directory says of it."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from launchers import directory
from monitoring import gradients, replay, search, snapshot


def show(console: Console, path: str) -> None:
    """Prints how the run in the directory `path` is doing.

    Raises:
        UsageError: There is no run in it.
    """
    plan = directory.read(path, directory.PLAN_FILE)
    result = directory.read(path, directory.RESULT_FILE)
    status = directory.read(path, directory.STATUS_FILE)
    console.print(f"{path}: {plan.get('program', 'a run')}, {_state(path, result)}")
    if status:
        console.print(_table(status, directory.is_running(path) or bool(result)))
    now = snapshot.read(path)
    counts = now["counts"]
    if counts:
        console.print(
            f"{counts.get('environment_steps', 0):,} environment steps, "
            f"{counts.get('learner_steps', 0):,} learner steps on "
            f"{counts.get('trained_samples', 0):,} samples"
        )
    for line in replay.lines(now["gauges"].get("learner/0", {})):
        console.print(line, highlight=False)
    for line in gradients.lines(now["gauges"].get("reducer/0", {})):
        console.print(line, highlight=False)
    for line in search.lines(now["gauges"].get("search/0", {})):
        console.print(line, highlight=False)
    mean = now["evaluator_return_mean"]
    if mean is not None:
        console.print(
            f"evaluator: {now['evaluator_episodes']:,} episodes, the newest (up to 100) returned "
            f"{mean:.3f}"
        )


def _state(path: str, result: Mapping[str, Any]) -> str:
    if directory.is_running(path):
        return "running"
    if result:
        return f"{result['outcome']}: {result['reason']}"
    return f"its launcher is gone; launch.py --resume {path} goes on with it"


def _table(status: Mapping[str, Mapping[str, Any]], is_known: bool) -> Table:
    """Returns a table of the replicas; where nobody writes their status any more it is unknown."""
    table = Table(box=None, pad_edge=False)
    for column in (
        "replica",
        "host",
        "state",
        "for",
        "restarts",
        "saved",
        "waits for, or last failed with",
    ):
        table.add_column(column)
    for name, replica in status.items():
        error = (replica["error"] or "").strip().splitlines()
        saved = replica["saved_at"]
        table.add_row(
            name,
            replica["host"] or "",
            replica["state"] if is_known else "gone",
            f"{time.time() - replica['since']:,.0f} s" if is_known else "",
            str(replica["restarts"]),
            "" if saved is None else f"{time.time() - saved:,.0f} s ago",
            replica["stalled"] or replica["waiting_for"] or (error[-1] if error else ""),
        )
    return table
