"""Arrows between the rooms point one way, and what only plans a run loads no TensorFlow."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
INTERFACES = ("agents.agent", "agents.search_agent")
ROOMS = {
    "agents": {"usage"},
    "command": {*INTERFACES, "environments", "launchers", "monitoring", "programs", "usage"},
    "environments": {"usage"},
    "launchers": {"nodes.contract", "usage"},
    "monitoring": {"launchers", "nodes.counter"},
    "nodes": {*INTERFACES, "usage"},
    "programs": {*INTERFACES, "nodes", "usage"},
}


def imports_of(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_that_it_may(room: str) -> None:
    ours = {*ROOMS, "usage", "launch", "tests"}
    for path in (ROOT / room).rglob("*.py"):
        for name in imports_of(path):
            if name.partition(".")[0] in ours - {room}:
                allowed = any(f"{name}.".startswith(f"{may}.") for may in ROOMS[room])
                assert allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_every_room_is_held() -> None:
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms - {"benchmarks"} == set(ROOMS)


@pytest.mark.parametrize("room", ["programs", "launchers", "environments", "command", "monitoring"])
def test_importing_a_room_loads_no_tensorflow(room: str) -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / room).rglob("*.py")
    ]
    code = f"import sys, {', '.join(modules)}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


def test_planning_a_run_loads_no_tensorflow() -> None:
    code = """
import sys
from command import assembly
from launchers.plan import make_plan

for agent in ("apex", "r2d2"):
    arguments = [f"--agent={agent}"]
    assembled = assembly.assemble(*assembly.read(arguments), arguments)
    assert "replay/0" in make_plan(assembled.draw(), "local_mp", assembled.layout()).replicas
sys.exit("tensorflow" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0
