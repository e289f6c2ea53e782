"""Configuration that every agent with prioritized replay and Q-values has."""

import dataclasses
import math
from typing import Optional

from usage import UsageError


@dataclasses.dataclass(frozen=True)
class ReplayConfig:
    """What agents with prioritized replay and Q-values have in common; each has its own defaults.

    Attributes:
        discount: gamma, per environment step.
        n_step: n, the steps over which rewards are summed before a value is bootstrapped from.
        reward_clip: Rewards are clipped to [-reward_clip, reward_clip] before they are summed;
            None leaves them.
        hidden_sizes: Units of the fully connected layers.
        epsilon_base: The largest rate of the exploration ladder.
        epsilon_alpha: The exponent of the exploration ladder.
        evaluator_epsilon: Exploration rate of the evaluator.
        batch_size: Items that the learner takes at once.
        replay_size: Items that replay holds.
        min_replay_size: Items in replay before learning starts.
        priority_exponent: alpha, the exponent of priorities.
        importance_exponent: beta, the exponent of importance weights; at 0 all weights are 1.
        priority_epsilon: Added to every priority, so that an item with no error can still be drawn.
        samples_per_insert: Times that an item is sampled on average; with None actors and learner
            run as fast as each can.
        error_buffer: Samples by which replay may miss `samples_per_insert`; given exactly if that
            is.
        learning_rate: Step size of the optimizer.
        optimizer_epsilon: The optimizer's own epsilon.
        max_gradient_norm: The gradient of all variables together is scaled down to this norm.
        target_update_period: Learner steps between copies into the target network.
        variable_update_period: Steps of each of its environments between an actor's looks for newer
            variables.
        publish_period: Learner steps between published versions of the variables.
    """

    discount: float
    n_step: int
    reward_clip: Optional[float]
    hidden_sizes: tuple[int, ...]
    epsilon_base: float
    epsilon_alpha: float
    evaluator_epsilon: float
    batch_size: int
    replay_size: int
    min_replay_size: int
    priority_exponent: float
    importance_exponent: float
    priority_epsilon: float
    samples_per_insert: Optional[float]
    error_buffer: Optional[float]
    learning_rate: float
    optimizer_epsilon: float
    max_gradient_norm: float
    target_update_period: int
    variable_update_period: int
    publish_period: int

    def __post_init__(self) -> None:
        """Checks the fields, and those that only fit together.

        Raises:
            UsageError: A field is out of its range; the message names it.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{field.name} must be a finite number, got {value}.")
        self._require_positive(
            "n_step",
            "batch_size",
            "replay_size",
            "min_replay_size",
            "priority_epsilon",
            "learning_rate",
            "optimizer_epsilon",
            "max_gradient_norm",
            "target_update_period",
            "variable_update_period",
            "publish_period",
        )
        for name in ("reward_clip", "samples_per_insert", "error_buffer"):
            if getattr(self, name) is not None:
                self._require_positive(name)
        self._require_fraction(
            "discount",
            "epsilon_base",
            "evaluator_epsilon",
            "priority_exponent",
            "importance_exponent",
        )
        if self.epsilon_alpha < 0:
            raise UsageError(f"epsilon_alpha must be at least 0, got {self.epsilon_alpha}.")
        if any(size < 1 for size in self.hidden_sizes):
            raise UsageError(
                f"hidden_sizes must name layers of at least one unit, got {self.hidden_sizes}."
            )
        self._check_replay()

    def _check_replay(self) -> None:
        if self.batch_size > self.min_replay_size:
            raise UsageError(
                f"min_replay_size must be at least batch_size ({self.batch_size}), got "
                f"{self.min_replay_size}."
            )
        if self.min_replay_size > self.replay_size:
            raise UsageError(
                f"replay_size must be at least min_replay_size ({self.min_replay_size}), got "
                f"{self.replay_size}."
            )
        if (self.samples_per_insert is None) != (self.error_buffer is None):
            raise UsageError(
                "samples_per_insert and error_buffer must be given together or both be None, got "
                f"{self.samples_per_insert} and {self.error_buffer}."
            )
        if self.samples_per_insert is None or self.error_buffer is None:
            return
        least = max(self.batch_size, 2 * max(1.0, self.samples_per_insert))
        if self.error_buffer < least:
            raise UsageError(
                f"error_buffer must be at least {least:g} (one batch, and twice "
                f"samples_per_insert), got {self.error_buffer}."
            )

    def _require_positive(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be greater than 0, got {getattr(self, name)}.")

    def _require_fraction(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} must lie between 0 and 1, got {getattr(self, name)}.")
