"""What may be said of every agent's program."""

import dataclasses
from typing import ClassVar, Optional

from nodes import checkpoints
from usage import UsageError


@dataclasses.dataclass(frozen=True)
class ProgramOptions:
    """How a program is evaluated, when it ends, and when it is saved.

    Attributes:
        evaluator_envs: Environments of the evaluator, and so episodes a round.
        evaluator_duty: Share of its time in which the evaluator plays.
        max_steps: Environment steps that were learned from after which the program ends, or None.
        solved_at: Mean return of the evaluator's last 100 episodes at which it ends, or None.
        seed: Every replica's and every environment's seed derives from it.
        checkpoint_seconds: Time between checkpoints.
        checkpoints_kept: Newest checkpoints of each node that are kept.

    Raises:
        UsageError: A number is out of its range.
    """

    COUNTS: ClassVar[tuple[str, ...]] = ("evaluator_envs",)
    """The fields that must be positive."""

    evaluator_envs: int = 10
    evaluator_duty: float = 0.15
    max_steps: Optional[int] = None
    solved_at: Optional[float] = None
    seed: int = 0
    checkpoint_seconds: float = checkpoints.DEFAULT.period_seconds
    checkpoints_kept: int = checkpoints.DEFAULT.keep

    def __post_init__(self) -> None:
        for name in (*self.COUNTS, "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, got {value}.")
        if self.seed < 0:
            raise UsageError(f"seed must not be negative, got {self.seed}.")
        self.schedule  # noqa: B018 - checks its fields

    @property
    def schedule(self) -> checkpoints.Schedule:
        """When checkpoints are saved."""
        return checkpoints.Schedule(self.checkpoint_seconds, self.checkpoints_kept)
