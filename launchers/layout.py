"""Where a program's groups run and what they get there."""

import dataclasses
import glob
import itertools
import os
import typing
from collections.abc import Mapping
from typing import Any, Optional, TypeVar

import tomli
import typeguard

import usage
from nodes.contract import OnFailure, RestartBudget
from usage import UsageError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class GroupLayout:
    """What each replica of a group gets.

    Attributes:
        gpus: GPUs of its own, or None for one where the node wants one and the machine has one.
        on_failure: What a failure of it means, or None for what the node says.
        restart: How often it is started again where a failure means that, or None likewise.
        stop_seconds: How long it may take to stop, or None for what the node says.

    Raises:
        UsageError: A number is negative.
    """

    gpus: Optional[int] = None
    on_failure: Optional[OnFailure] = None
    restart: Optional[RestartBudget] = None
    stop_seconds: Optional[float] = None

    def __post_init__(self) -> None:
        for name in ("gpus", "stop_seconds"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise UsageError(f"{name} must be at least 0, got {value}.")


@dataclasses.dataclass(frozen=True)
class Layout:
    """What each group gets, by the group's name; a group that is not named gets the defaults."""

    groups: Mapping[str, GroupLayout] = dataclasses.field(default_factory=dict)


def read(path: str) -> Layout:
    """Returns the layout in a TOML file: a table a group, with the fields of `GroupLayout`.

    Raises:
        UsageError: The file cannot be read, or says something that a layout does not.
    """
    try:
        with open(path, "rb") as file:
            groups = tomli.load(file)
    except OSError as error:
        raise UsageError(f"The layout {path} cannot be read: {error.strerror}.") from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The layout {path} is no TOML: {error}.") from None
    return Layout({name: _group(path, name, fields) for name, fields in groups.items()})


def _group(path: str, name: str, fields: Any) -> GroupLayout:
    if isinstance(fields, dict) and isinstance(fields.get("restart"), dict):
        budget = _make(RestartBudget, path, f"{name}.restart", fields["restart"])
        fields = {**fields, "restart": budget}
    return _make(GroupLayout, path, name, fields)


def _make(cls: type[T], path: str, name: str, fields: Any) -> T:
    """Returns an instance of a dataclass with the values of a table of the layout."""
    where = f"The layout {path}, [{name}]"
    if not isinstance(fields, dict):
        raise UsageError(f"{where}: a table is wanted, got {fields!r}.")
    hints = typing.get_type_hints(cls)
    for field, value in fields.items():
        if field not in hints:
            raise UsageError(f"{where}: {usage.unknown('field', field, hints)}")
        try:
            typeguard.check_type(value, hints[field])
        except typeguard.TypeCheckError:
            raise UsageError(
                f"{where}: {field} wants {_wanted(hints[field])}, got {value!r}."
            ) from None
    try:
        return cls(**fields)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _wanted(hint: Any) -> str:
    """Says in words what a field's type admits in a file."""
    (kind,) = [part for part in typing.get_args(hint) if part is not type(None)] or [hint]
    if typing.get_origin(kind) is typing.Literal:
        return f"one of {', '.join(typing.get_args(kind))}"
    return {int: "a whole number", float: "a number"}.get(kind, "a table")


def visible_gpus() -> tuple[str, ...]:
    """Returns the GPUs that this process may hand out, as `CUDA_VISIBLE_DEVICES` names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = [name.strip() for name in named.split(",") if name.strip()]
        return tuple(itertools.takewhile(lambda name: name != "-1", names))  # as CUDA reads it
    return tuple(str(index) for index in range(len(glob.glob("/dev/nvidia[0-9]*"))))
