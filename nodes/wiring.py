"""Checks a node's arguments against its constructor while the graph is drawn."""

import contextlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from unittest import mock

import typeguard
from launchpad.nodes import base, dereference

from usage import UsageError


class WiringError(UsageError, TypeError):
    """A wrong, missing or misspelt argument of a node, or a handle of the wrong kind."""


def check_arguments(
    constructor: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Checks that `constructor` can be called once the handles are dereferenced.

    Every argument is checked against its parameter's annotation, with each handle standing for
    what it dereferences to; what an untyped handle dereferences to is not known and always fits.

    Raises:
        WiringError: An argument is missing, misspelt or of the wrong kind. The message names the
            node, the parameter, what was wanted and what came.
    """
    node = getattr(constructor, "__qualname__", repr(constructor))
    try:
        signature = inspect.signature(constructor)
    except ValueError:  # A constructor written in C may have no signature.
        return
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        came = f", got {', '.join(kwargs)}" if kwargs else ""
        raise WiringError(
            f"Node {node}: {error}{came}; its signature is {node}{signature}."
        ) from None
    hints = _hints(constructor)
    for name, value in bound.arguments.items():
        if name not in hints:
            continue
        kind = signature.parameters[name].kind
        values: Iterable[Any] = (value,)
        if kind is inspect.Parameter.VAR_POSITIONAL:
            values = value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            values = value.values()
        for one in values:
            _check(node, name, one, hints[name])


def _check(node: str, name: str, value: Any, hint: Any) -> None:
    try:
        typeguard.check_type(
            _stand_in(value),
            hint,
            collection_check_strategy=typeguard.CollectionCheckStrategy.ALL_ITEMS,
        )
    except typeguard.TypeCheckError:
        raise WiringError(
            f"Node {node}: parameter {name!r} wants {inspect.formatannotation(hint)}, "
            f"got {_describe(value)}."
        ) from None


def client_type(handle: Any) -> Any:
    """Returns the type that `handle` dereferences to, or None where it does not say."""
    return getattr(handle, "client_type", None)


def _hints(constructor: Callable[..., Any]) -> dict[str, Any]:
    """Returns those of the annotations that can be resolved, by parameter."""
    function = constructor.__init__ if inspect.isclass(constructor) else constructor
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # At least one is for a type checker alone.
        hints = {}
        for name, hint in getattr(function, "__annotations__", {}).items():
            with contextlib.suppress(NameError, TypeError):
                names = getattr(function, "__globals__", {})
                hints[name] = eval(hint, names) if isinstance(hint, str) else hint
        return hints


def _handles_in(value: Any) -> list[Any]:
    if isinstance(value, dereference.Dereferenceable):
        return [value]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [handle for one in value for handle in _handles_in(one)]
    if isinstance(value, Mapping):
        return [handle for one in value.values() for handle in _handles_in(one)]
    return []


def _stand_in(value: Any) -> Any:
    """Returns what passes for what `value` will be when the node runs."""
    if not _handles_in(value):
        return value
    if isinstance(value, dereference.Dereferenceable):
        wanted = client_type(value)
        # typeguard lets a mock pass for every type.
        return _Instance(wanted) if inspect.isclass(wanted) else mock.Mock()
    if isinstance(value, Mapping):
        return {key: _stand_in(one) for key, one in value.items()}
    return type(value)(map(_stand_in, value))


class _Instance:
    """Passes `isinstance` for a class without being made by it."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._cls


def _describe(value: Any) -> str:
    handles = [handle for handle in _handles_in(value) if client_type(handle) is not None]
    if isinstance(value, base.Node):
        return "a node: pass the handle that `program.add_node` returns for it"
    if not handles:
        return f"{value!r} ({type(value).__name__})"
    kinds = sorted({client_type(handle).__name__ for handle in handles})
    return f"a handle of {' and '.join(kinds)} ({', '.join(map(repr, handles))})"
