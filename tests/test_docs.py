"""What the documentation shows works as it stands there."""

import pathlib
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from launchers.directory import RunDirectory
from launchers.run import launch
from nodes.service import node
from programs.program import Program
from tests.support import wait_for

ROOT = pathlib.Path(__file__).parent.parent
PAGE = (ROOT / "docs/authors.md").read_text()
FILES = re.findall(r"`(\S+\.py)`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line.removeprefix("python launch.py ")
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


def write_files(directory: pathlib.Path) -> None:
    for name, content in FILES:
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_authors_page_runs(command: str, tmp_path: pathlib.Path) -> None:
    write_files(tmp_path)
    run = subprocess.run(
        [sys.executable, ROOT / "launch.py", *command.split(), "--run_dir=run"],
        cwd=tmp_path,
        timeout=110,
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    if "--program" in command:
        assert "sum: 285" in (tmp_path / "run/logs/adder-0.log").read_text()
    else:
        assert "solved: " in run.stdout


def test_the_authors_page_has_all_files_and_commands() -> None:
    assert len(FILES) == 3 and len(COMMANDS) == 4


def test_the_tally_of_the_authors_page_goes_on_in_the_next_life(tmp_path: pathlib.Path) -> None:
    (example,) = re.findall(r"```python\n(import pathlib\n.*?class Tally:.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)

    def live(directory: str | RunDirectory, number: int) -> None:
        program = Program("tally")
        program.add_node(node(names["Tally"]), label="tally")
        with launch(program, "local_mt", run_directory=directory) as run:
            wait_for(lambda: run.status["tally/0"].state == "running")
            assert run.wait(0.5) is None
        if isinstance(directory, RunDirectory):
            directory.release()
        (newest,) = (tmp_path / "run/checkpoints/tally-0").glob(f"{number:08}")
        assert newest.exists()

    live(str(tmp_path / "run"), 1)
    first = int((tmp_path / "run/checkpoints/tally-0/00000001/total").read_text())
    live(RunDirectory.resume(str(tmp_path / "run")), 2)
    assert int((tmp_path / "run/checkpoints/tally-0/00000002/total").read_text()) > first > 0


def test_the_fit_of_the_learners_page_ends_in_the_middle(tmp_path: pathlib.Path) -> None:
    page = (ROOT / "docs/learners.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    with launch(names["make_program"](), "local_mt", run_directory=str(tmp_path / "run")) as run:
        result = run.wait(60)
    assert result is not None and result.outcome == "stopped"
    with np.load(tmp_path / "run/checkpoints/reducer-0/00000001/learner.npz") as state:
        np.testing.assert_allclose(state["learner/online.0"], [0.5, 0.5], atol=0.01)
