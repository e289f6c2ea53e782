"""A type checker finds a miswired program, and nothing in its correct twin."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent

PROGRAM = """
from nodes.counter import CounterClient, counter_node
from nodes.coordinator import coordinator_node
from nodes.service import deref, node
from nodes.variables import VariableClient, variable_source_node
from programs.program import Program


class Watcher:
    def __init__(self, counter: CounterClient, variables: VariableClient) -> None:
        pass


def make_program() -> Program:
    program = Program("typed")
    counter = program.add_node(counter_node(), label="counter")
    variables = program.add_node(variable_source_node(), label="variables")
    program.add_node(coordinator_node({limited}, None, None), label="coordinator")
    program.add_node(node(Watcher, deref(counter), {watched}), label="watcher")
    return program
"""


def mypy(path: pathlib.Path) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", path],
        cwd=ROOT,
        timeout=110,
        check=False,
        capture_output=True,
        text=True,
    )
    return run.stdout


def test_a_correct_program_passes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "right_program.py"
    path.write_text(PROGRAM.format(limited="counter", watched="deref(variables)"))
    assert "Success: no issues found" in mypy(path)


@pytest.mark.parametrize(
    "limited, watched, message",
    [
        (
            "variables",
            "deref(variables)",
            'Argument 1 to "coordinator_node" has incompatible type "Handle[VariableClient]"; '
            'expected "Handle[CounterClient]"',
        ),
        (
            "counter",
            "deref(counter)",
            'Argument 3 to "node" has incompatible type "CounterClient"; expected "VariableClient"',
        ),
    ],
    ids=["typed node", "node of one's own"],
)
def test_a_miswired_program_is_found(
    limited: str, watched: str, message: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "wrong_program.py"
    path.write_text(PROGRAM.format(limited=limited, watched=watched))
    found = mypy(path)
    assert message in found
    assert "Found 1 error" in found
