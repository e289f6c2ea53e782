"""Where a program's groups run and what they get there."""

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any, Optional, TypeVar

import tomli
import typeguard

import usage
from launchers.placement import Need
from nodes.contract import OnFailure, Place, RestartBudget
from usage import UsageError

T = TypeVar("T")
_SMALLEST_PART = 0.0001


@dataclasses.dataclass(frozen=True)
class GroupLayout:
    """What each replica of a group gets.

    Attributes:
        cpus: Cores that it reserves on a cluster, or None for none: it then shares what there is.
        gpus: GPUs of its own, or a part of one that it shares with others; None for one where the
            node wants one and there is one.
        memory: GiB that it reserves on a cluster, or None for none.
        host: On which hosts of a cluster it may run: an address, a label as `key=value`, or a
            custom resource; None for any.
        place: How a cluster's hosts share the group's replicas, or None for what the node says.
        env: Environment variables of its processes, above the launcher's.
        on_failure: What a failure of it means, or None for what the node says.
        restart: How often it is started again where a failure means that, or None likewise.
        stop_seconds: How long it may take to stop, or None for what the node says.

    Raises:
        UsageError: A number is negative, or no number of GPUs.
    """

    cpus: Optional[float] = None
    gpus: Optional[float] = None
    memory: Optional[float] = None
    host: Optional[str] = None
    place: Optional[Place] = None
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    on_failure: Optional[OnFailure] = None
    restart: Optional[RestartBudget] = None
    stop_seconds: Optional[float] = None

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus", "memory", "stop_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"{name} must be at least 0, got {value}.")
        if self.gpus is not None and self.gpus > 1 and self.gpus != int(self.gpus):
            raise UsageError(f"gpus must be a whole number, or a part of one, got {self.gpus:g}.")
        if self.gpus is not None and 0 < self.gpus < _SMALLEST_PART:
            raise UsageError(f"gpus must be 0, or at least {_SMALLEST_PART}, got {self.gpus:g}.")
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise UsageError(f"env cannot have {name!r} with the value {value!r}.")

    @property
    def need(self) -> Need:
        """What each replica reserves."""
        return Need(self.cpus or 0.0, self.gpus or 0.0, self.memory or 0.0)


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
            if isinstance(value, bool):  # To a checker of types it is a number.
                raise typeguard.TypeCheckError("a truth value")
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
    kind = hint
    if typing.get_origin(hint) is typing.Union:
        (kind,) = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(kind) is typing.Literal:
        return f"one of {', '.join(typing.get_args(kind))}"
    if typing.get_origin(kind) is Mapping:
        return "a table of strings"
    return {int: "a whole number", float: "a number", str: "a string"}.get(kind, "a table")
