"""A runtime for parts of nodes that are tested without a launcher."""

import pathlib
from typing import Optional


class FakeLauncher:
    """Offers what `nodes.contract.Runtime` does, and remembers what it was told."""

    def __init__(self, directory: Optional[pathlib.Path]) -> None:
        self.run_directory = directory and str(directory)
        self.checkpoint_directory = directory and str(directory / "checkpoints/node-0")
        self.life = 1
        self.stopping = False
        self.pauses: list[float] = []
        self.warnings: list[str] = []
        self.waiting: list[str] = []

    def wait_for_stop(self, timeout_secs: Optional[float] = None) -> bool:
        return self.stopping

    def report_running(self) -> None:
        pass

    def report_progress(self) -> None:
        self.waiting.clear()

    def report_waiting(self, what: Optional[str]) -> None:
        self.waiting = [*self.waiting, what] if what else []

    def report_save(self, taken_at: float, pause_seconds: float) -> None:
        self.pauses.append(pause_seconds)

    def report_warning(self, text: str) -> None:
        self.warnings.append(text)

    def request_stop(self, outcome: str, reason: str) -> None:
        self.stopping = True
