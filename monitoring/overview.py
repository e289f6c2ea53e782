"""Shows a run from outside of it: what its directory says of it."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from launchers import directory
from monitoring import snapshot


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
        console.print(_table(status))
    now = snapshot.read(path)
    counts = now["counts"]
    console.print(
        f"{counts.get('environment_steps', 0):,} environment steps, "
        f"{counts.get('learner_steps', 0):,} learner steps on "
        f"{counts.get('trained_samples', 0):,} samples"
    )
    mean = now["evaluator_return_mean"]
    if mean is not None:
        console.print(f"evaluator: {mean:.3f} over {now['evaluator_episodes']:,} episodes")


def _state(path: str, result: Mapping[str, Any]) -> str:
    if directory.is_running(path):
        return "running"
    if result:
        return f"{result['outcome']}: {result['reason']}"
    return "its launcher is gone"


def _table(status: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("replica", "state", "for", "restarts", "last failed with"):
        table.add_column(column)
    for name, replica in status.items():
        error = (replica["error"] or "").strip().splitlines()
        table.add_row(
            name,
            replica["state"],
            f"{time.time() - replica['since']:,.0f} s",
            str(replica["restarts"]),
            error[-1] if error else "",
        )
    return table
