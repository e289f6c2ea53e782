"""What several tests need."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import launchpad as lp

from launchers.run import launch

T = TypeVar("T")


def wait_for(condition: Callable[[], Any], seconds: float = 20.0, what: str = "") -> Any:
    """Returns the first true value of `condition`, which must come within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        threading.Event().wait(0.02)
    raise AssertionError(f"not within {seconds} s: {what or condition}")


def in_node(function: Callable[[], T]) -> T:
    """Runs `function` as the main thread of a node does and returns its result."""
    results: list[T] = []
    program = lp.Program("one_node")
    program.add_node(lp.PyNode(lambda: results.append(function())), label="node")
    with launch(program, "local_mt") as run:
        run.wait(60)
    return results[0]
