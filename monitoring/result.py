"""The result of a run, as `result.json` and as the screen's last lines."""

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from rich.console import Console

from launchers.directory import RunDirectory
from launchers.status import Result


def make_result(
    result: Result,
    snapshot: Mapping[str, Any],
    solved_at: Optional[float],
    began: float,
    ended: float,
    replicas: Sequence[str],
    life: int,
) -> dict[str, Any]:
    """Returns what `result.json` holds.

    Args:
        result: How the program ended.
        snapshot: The counter's last snapshot.
        solved_at: Return at which the environment counts as solved, or None.
        began: When the process started, in seconds since the epoch.
        ended: When the program ended, likewise.
        replicas: Names of all replicas.
        life: 1, and 1 more for each time that the run was resumed.
    """
    counts = snapshot["counts"]
    learning = snapshot["learning_since"]
    if learning is not None and learning["time"] < began:  # An earlier life has left it.
        learning = None
    return {
        "outcome": result.outcome,
        "reason": result.reason,
        "environment_steps": counts.get("environment_steps", 0),
        "learner_steps": counts.get("learner_steps", 0),
        "trained_samples": counts.get("trained_samples", 0),
        "trained_timesteps": counts.get("trained_timesteps", 0),
        "environment_steps_per_second": _rate("environment_steps", snapshot, learning),
        "trained_samples_per_second": _rate("trained_samples", snapshot, learning),
        "evaluator_episodes": snapshot["evaluator_episodes"],
        "evaluator_return_mean_100": snapshot["evaluator_return_mean_100"],
        "solved_at": solved_at,
        "seconds_to_first_learner_step": learning and round(learning["time"] - began, 3),
        "wall_seconds": round(ended - began, 3),
        "restarts": _by_group({**dict.fromkeys(replicas, 0), **result.restarts}),
        "lives": life,
        "longest_checkpoint_pause_seconds": _longest_by_group(result.pauses),
    }


def show_result(
    console: Console, result: Result, facts: Mapping[str, Any], directory: RunDirectory
) -> None:
    """Prints the end of a run: what became of it, and where a node that failed says more."""
    for name, error in result.failures.items():
        console.print(f"{name} failed: {_last_line(error)}", style="red")
        console.print(f"  see {directory.log(name)}")
    for name, what in result.forced.items():
        console.print(f"{name} {what}", style="yellow")
    console.print(f"{facts['outcome']}: {facts['reason']}")
    if facts["learner_steps"] or facts["environment_steps"]:
        _show_learning(console, facts)
    for group, number in facts["restarts"].items():
        if number:
            console.print(f"{group}: started again {number} time{'s' if number > 1 else ''}")
    first = facts["seconds_to_first_learner_step"]
    learned = "" if first is None else f", first learner step after {first:.1f} s"
    console.print(f"{facts['wall_seconds']:.1f} s{learned}")


def _show_learning(console: Console, facts: Mapping[str, Any]) -> None:
    mean = facts["evaluator_return_mean_100"]
    solved_at = "" if facts["solved_at"] is None else f", solved at {facts['solved_at']:g}"
    console.print(
        f"{facts['environment_steps']:,} environment steps "
        f"({_per_second(facts['environment_steps_per_second'])}), "
        f"{facts['learner_steps']:,} learner steps on {facts['trained_samples']:,} samples "
        f"({_per_second(facts['trained_samples_per_second'])})"
    )
    returned = "fewer than 100 so far" if mean is None else f"the last 100 returned {mean:.3f}"
    console.print(f"evaluator: {facts['evaluator_episodes']:,} episodes, {returned}{solved_at}")


def _rate(
    name: str, snapshot: Mapping[str, Any], learning: Optional[Mapping[str, Any]]
) -> Optional[float]:
    """Returns a count's rate since the learner began, or None before."""
    if learning is None or snapshot["time"] <= learning["time"]:
        return None
    done = snapshot["counts"].get(name, 0) - learning["counts"].get(name, 0)
    return round(float(done / (snapshot["time"] - learning["time"])), 1)


def _by_group(restarts: Mapping[str, int]) -> dict[str, int]:
    groups: dict[str, int] = {}
    for replica, number in restarts.items():
        group = replica.rsplit("/", 1)[0]
        groups[group] = groups.get(group, 0) + number
    return groups


def _longest_by_group(pauses: Mapping[str, float]) -> dict[str, float]:
    groups: dict[str, float] = {}
    for replica, seconds in pauses.items():
        group = replica.rsplit("/", 1)[0]
        groups[group] = max(groups.get(group, 0.0), round(seconds, 3))
    return groups


def _last_line(error: str) -> str:
    return error.strip().splitlines()[-1]


def _per_second(value: Optional[float]) -> str:
    return "no rate yet" if value is None else f"{value:,.0f}/s"
