"""The arguments with which a run goes on: those that it was started with, and what may change."""

from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from command.assembly import CONFIG_PREFIX
from launchers import directory
from usage import UsageError

_MAY_CHANGE = (
    "resume",
    "mode",
    "address",
    "replay_address",
    "num_actors",
    "envs_per_actor",
    "max_steps",
    "stop_when_solved",
    "layout",
    "checkpoint_seconds",
    "checkpoints_kept",
    "stall_timeout",
    "network",
    "plan",
    "debug",
    "help",
)
_NOT_KEPT = ("resume", "run_dir", "plan", "debug", "help")


def arguments(path: str, values: flags.FlagValues, given: Sequence[str]) -> list[str]:
    """Returns a launch's arguments that go on with the run in the directory `path`.

    Args:
        path: The run's directory.
        values: The flags as they were given.
        given: The arguments as they were given; they come over what the run was started with.

    Raises:
        UsageError: There is no run in `path`, or an argument changes what a run must keep.
    """
    started = directory.read(path, directory.CONFIG_FILE)
    parts = [started.get("settings"), started.get("config", {})]
    if not all(isinstance(part, dict) for part in parts):
        raise UsageError(
            f"The run in {path} cannot go on: its {directory.CONFIG_FILE} is not there or damaged."
        )
    before = started["settings"]
    changed = [
        name
        for name in values
        if values[name].present
        and name not in _MAY_CHANGE
        and (name not in before or values[name].value != before[name])
    ]
    names = [argument.lstrip("-").partition("=")[0] for argument in given]
    changed += [name for name in names if name.removeprefix("no").startswith(CONFIG_PREFIX)]
    if changed:
        raise UsageError(
            f"--{changed[0]} stays as the run in {path} was started with: leave it out."
        )
    now = {**before, **{name: values[name].value for name in values if values[name].present}}
    not_kept = {*_NOT_KEPT}
    if now["mode"] != "ray":
        not_kept.add("address")
    if now.get("replay_address") is not None:
        not_kept.add("replay_shards")
    kept = {name: value for name, value in before.items() if name not in not_kept}
    return [*_flags(kept), *_flags(started.get("config", {}), CONFIG_PREFIX), *given]


def _flags(fields: Mapping[str, Any], prefix: str = "") -> list[str]:
    return [f"--{prefix}{name}={_text(value)}" for name, value in fields.items()]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
