"""What the documentation shows works as it stands there."""

import pathlib
import re
import subprocess
import sys

import pytest

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
