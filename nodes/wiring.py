"""Checks a node's arguments against its constructor while the graph is drawn."""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import tree
import typeguard
from launchpad.nodes import dereference


class WiringError(TypeError):
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
        raise WiringError(f"Node {node}: {error}; its signature is {node}{signature}.") from None
    hints = _hints(constructor)
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if name not in hints or kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            continue
        try:
            typeguard.check_type(
                tree.map_structure(_stand_in, value) if _holds_handle(value) else value,
                hints[name],
                collection_check_strategy=typeguard.CollectionCheckStrategy.ALL_ITEMS,
            )
        except typeguard.TypeCheckError:
            raise WiringError(
                f"Node {node}: parameter {name!r} wants {inspect.formatannotation(hints[name])}, "
                f"got {_describe(value)}."
            ) from None


def client_type(handle: Any) -> Any:
    """Returns the type that `handle` dereferences to, or None where it does not say."""
    return getattr(handle, "client_type", None)


def _hints(constructor: Callable[..., Any]) -> dict[str, Any]:
    function = constructor.__init__ if inspect.isclass(constructor) else constructor
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # Annotations that only a type checker can resolve.
        return {}


def _holds_handle(value: Any) -> bool:
    return any(isinstance(leaf, dereference.Dereferenceable) for leaf in tree.flatten(value))


def _stand_in(leaf: Any) -> Any:
    """Returns something that passes for what `leaf` will be when the node runs."""
    if not isinstance(leaf, dereference.Dereferenceable):
        return leaf
    wanted = client_type(leaf)
    if not inspect.isclass(wanted):
        return mock.Mock()  # typeguard lets a mock pass for every type
    return _Instance(wanted)


class _Instance:
    """Passes `isinstance` for a class without being made by it."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._cls


def _describe(value: Any) -> str:
    handles = [leaf for leaf in tree.flatten(value) if client_type(leaf) is not None]
    if not handles:
        return f"{value!r} ({type(value).__name__})"
    kinds = sorted({client_type(handle).__name__ for handle in handles})
    return f"a handle of {' and '.join(kinds)} ({', '.join(map(repr, handles))})"
