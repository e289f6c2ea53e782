"""What the benchmarks share: how a run is started and watched, and how a figure is shown."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def report(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], facts: Mapping[str, Any]
) -> None:
    """Prints a table, and last one line of JSON with the benchmark's name and `facts`."""
    table = Table(title=name)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(_format, row))
    Console(soft_wrap=True).print(table)
    print(json.dumps({"benchmark": name, **facts}))


@contextmanager
def process_group(command: Sequence[str]) -> Iterator[psutil.Process]:
    """Starts a command in a group of its own, and kills what is left of the group at the end."""
    with tempfile.TemporaryFile() as output:
        process = psutil.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Returns the first true value of `condition`, which must come within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise TimeoutError(f"{what}: not within {seconds} s")


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that has ended but was not waited for does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def launch(directory: str, *flags: str, timeout: float = 600) -> dict[str, Any]:
    """Runs `launch.py` to its end in `directory` and returns its result."""
    command = [sys.executable, os.path.join(ROOT, "launch.py"), f"--run_dir={directory}", *flags]
    subprocess.run(command, check=True, timeout=timeout, stdout=subprocess.DEVNULL)
    return read_json(os.path.join(directory, "result.json"))


def read_json(path: str) -> dict[str, Any]:
    """Returns a JSON file's content, or nothing where there is no such file yet."""
    try:
        with open(path) as file:
            content: dict[str, Any] = json.load(file)
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return content


def run_acme_dqn(*flags: str) -> dict[str, Any]:
    """Runs Acme's DQN in a process of its own and returns the JSON of its last line."""
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.acme_dqn", *flags],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    facts: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return facts


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)
