"""Finds what in a node cannot be pickled."""

from collections.abc import Mapping
from typing import Any, Optional

import cloudpickle
import launchpad as lp
from launchpad.launch import serialization
from launchpad.nodes import base

from usage import UsageError


def check_pickles(name: str, node: lp.PyNode) -> None:
    serialization.enable_lru_cache_pickling_once()
    try:
        cloudpickle.dumps(node.function)
        return
    except Exception as error:
        cause = error
    path: str = f"node {name}"
    culprit: Any = node
    for argument, value in _arguments(node).items():
        found = _find_unpicklable(value, f"{path}, argument {argument!r}")
        if found is not None:
            path, culprit = found
            break
    raise UsageError(
        f"N{path[1:]} is a {type(culprit).__name__}, which cannot be pickled ({cause}): build it "
        "inside the node, from arguments that can be."
    ) from cause


def _arguments(node: base.Node) -> dict[str, Any]:
    """Returns the arguments that `node` runs with, by name or place."""
    positional = getattr(node, "_args", ()) or getattr(node, "_func_args", ())
    named = getattr(node, "_kwargs", {}) or getattr(node, "_func_kwargs", {})
    function = getattr(node, "_constructor", None) or getattr(node, "_function", None)
    return {"function": function, **{str(i): v for i, v in enumerate(positional)}, **named}


def _find_unpicklable(value: Any, path: str) -> Optional[tuple[str, Any]]:
    """Returns the path to, and the innermost thing inside `value` that does not pickle."""
    try:
        cloudpickle.dumps(value)
        return None
    except Exception:
        for step, inner in _inside(value):
            found = _find_unpicklable(inner, path + step)
            if found is not None:
                return found
        return path, value


def _inside(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", inner) for key, inner in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{index}]", inner) for index, inner in enumerate(value)]
    return [(f".{name}", inner) for name, inner in getattr(value, "__dict__", {}).items()]
