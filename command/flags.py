"""Dataclasses as command-line flags: one flag a field, typed by the field's annotation."""

import dataclasses
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, Union

from absl import flags
from rich.console import Console
from rich.table import Table

import usage
from usage import UsageError

T = TypeVar("T")


class _OrNone(flags.ArgumentParser, Generic[T]):
    """Parses what another parser does, and `none`."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self.syntactic_help = f"{parser.syntactic_help} or none".strip()

    def parse(self, argument: Any) -> Any:
        if argument is None or str(argument).lower() == "none":
            return None
        return self._parser.parse(argument)

    def flag_type(self) -> str:
        return f"{self._parser.flag_type()} or none"


class _Integers(flags.ArgumentParser):
    """Parses `64,64` and `(64, 64)`."""

    def parse(self, argument: Any) -> tuple[int, ...]:
        if isinstance(argument, tuple):
            return argument
        parts = argument.strip("()").split(",")
        try:
            return tuple(int(part) for part in parts if part.strip())
        except ValueError:
            raise ValueError("integers are wanted, with commas between them") from None

    def flag_type(self) -> str:
        return "integers"


_PARSERS: dict[Any, Callable[[], Any]] = {
    int: flags.IntegerParser,
    float: flags.FloatParser,
    str: flags.ArgumentParser,
    bool: flags.BooleanParser,
    tuple[int, ...]: _Integers,
}


_ARTICLES = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "int or none": "an integer or none",
    "float or none": "a number or none",
    "integers": "integers with commas between them",
}


def define(values: flags.FlagValues, defaults: Any, prefix: str = "") -> None:
    """Defines a flag on `values` for each field of the dataclass instance `defaults`.

    A flag's help is the first sentence that the class's docstring says of the field.
    """
    hints = typing.get_type_hints(type(defaults))
    descriptions = _descriptions(type(defaults))
    for field in dataclasses.fields(defaults):
        name, default = prefix + field.name, getattr(defaults, field.name)
        description = descriptions.get(field.name, "")
        if hints[field.name] is bool:
            flags.DEFINE_bool(name, default, description, flag_values=values)
        else:
            flags.DEFINE(_parser(hints[field.name]), name, default, description, flag_values=values)


def collect(values: flags.FlagValues, defaults: T, prefix: str = "") -> T:
    """Returns `defaults` with the flags' values in its fields."""
    names = [field.name for field in dataclasses.fields(defaults)]  # type: ignore[arg-type]
    found = {name: values[prefix + name].value for name in names}
    return dataclasses.replace(defaults, **found)  # type: ignore[type-var]


def parse(values: flags.FlagValues, arguments: Sequence[str], known_only: bool = False) -> None:
    """Parses a command's arguments, without the command itself.

    Args:
        values: Takes the values.
        arguments: The arguments.
        known_only: Whether flags that are not defined are left alone.

    Raises:
        UsageError: A flag does not exist or does not take its value, or an argument is no flag.
    """
    values.unparse_flags()
    try:
        rest = values(["launch.py", *arguments], known_only=known_only)
    except flags.UnrecognizedFlagError as error:
        raise usage.unknown("flag", error.flagname, values) from None
    except flags.IllegalFlagValueError as error:
        name, value = re.findall(r"flag --([\w.]+)=(.*?): ", str(error), re.DOTALL)[0]
        kind = values[name].parser.flag_type()
        raise UsageError(f"--{name} wants {_ARTICLES.get(kind, kind)}, got {value!r}.") from None
    except flags.Error as error:
        raise UsageError(f"{str(error).rstrip('.')}.") from None
    if rest[1:] and not known_only:
        raise UsageError(f"{rest[1]!r} is not a flag: flags look like --name=value.")


def show_help(console: Console, values: flags.FlagValues, description: str) -> None:
    """Prints every flag with its type, default and description."""
    console.print(description)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name in values:
        flag = values[name]
        label = f"--[no]{name}" if flag.boolean else f"--{name}"
        table.add_row(label, f"{flag.help.rstrip('.')} (default {flag.default})")
    console.print(table)


def _descriptions(cls: type) -> dict[str, str]:
    """Returns the first sentence on each attribute in a class's Google-style docstring.

    What a class does not describe itself, one that it derives from may.
    """
    entries: list[tuple[str, str]] = []
    for base in reversed(cls.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        section = textwrap.dedent(section.partition("\n\n")[0])
        entries += re.findall(r"^(\w+): (.*(?:\n .*)*)", section, re.MULTILINE)
    return {name: re.split(r"(?<! al)\.\s|;", " ".join(text.split()))[0] for name, text in entries}


def _parser(hint: Any) -> Any:
    if typing.get_origin(hint) in (Union, types.UnionType):
        (inner,) = (part for part in typing.get_args(hint) if part is not type(None))
        return _OrNone(_parser(inner))
    return _PARSERS[hint]()
