"""Configuration of augmented random search."""

import dataclasses
import math
from typing import Optional

from usage import UsageError


@dataclasses.dataclass(frozen=True)
class ArsConfig:
    """Configuration of ARS; the defaults are the reference code's, which are for Humanoid-v1.

    "The paper" is Mania et al., Simple random search provides a competitive approach to
    reinforcement learning, 2018; "the reference code" is what its authors published with it. The
    paper's four variants are two fields here: V1 does not normalize observations and V2 does; the
    forms with `-t` use fewer directions than they try.

    Attributes:
        step_size: alpha, the step size.
        num_directions: N, the directions that an iteration tries, each with both signs.
        top_directions: b, the directions that an update uses, those with the highest returns;
            all N in the forms without `-t`.
        noise_std: nu, how far a direction is followed while it is tried.
        normalize_observations: Whether a policy sees observations less their mean over their
            standard deviation, both of all that was observed before the iteration.
        episode_limit: Environment steps after which a rollout is cut off, or None for whole
            episodes.
        reward_shift: What is taken from each reward while it is learned from; for Humanoid-v1 its
            bonus for staying alive.
        noise_table_size: Numbers in the table of noise, of 4 bytes each.
        rollouts_per_task: Rollouts that a worker makes at once, an environment each. The results
            depend on it, as it says which environments are stepped together.

    Raises:
        UsageError: A field is out of its range; the message names it.
    """

    step_size: float = 0.02
    num_directions: int = 230
    top_directions: int = 230
    noise_std: float = 0.0075
    normalize_observations: bool = True
    episode_limit: Optional[int] = 1000
    reward_shift: float = 5.0
    noise_table_size: int = 250_000_000
    rollouts_per_task: int = 4

    @classmethod
    def paper(cls) -> "ArsConfig":
        """Returns V2 for Humanoid-v1: the defaults.

        The reference code's worker tries its directions one after the other; a few at once cost
        less each.
        """
        return cls()

    @classmethod
    def small(cls) -> "ArsConfig":
        """Returns V2-t for small vector observations and a few workers on two cores.

        It was tuned on CartPole and Pendulum, whose rewards and episodes are left as they are.
        """
        return cls(
            step_size=0.1,
            num_directions=32,
            top_directions=16,
            noise_std=0.2,
            episode_limit=None,
            reward_shift=0.0,
            noise_table_size=1_000_000,
            rollouts_per_task=8,
        )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{field.name} must be a finite number, got {value}.")
        for name in (
            "step_size",
            "num_directions",
            "noise_std",
            "episode_limit",
            "noise_table_size",
            "rollouts_per_task",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be greater than 0, got {value}.")
        if not 1 <= self.top_directions <= self.num_directions:
            raise UsageError(
                f"top_directions must lie between 1 and num_directions ({self.num_directions}), "
                f"got {self.top_directions}."
            )

    @property
    def num_rollouts(self) -> int:
        """Rollouts of an iteration: number 2d follows direction d, and 2d + 1 its opposite."""
        return 2 * self.num_directions

    @property
    def num_tasks(self) -> int:
        """Tasks of an iteration."""
        return -(-self.num_rollouts // self.rollouts_per_task)

    def rollouts_of(self, task: int) -> range:
        """Returns the numbers of a task's rollouts, which follow one another."""
        first = task * self.rollouts_per_task
        return range(first, min(first + self.rollouts_per_task, self.num_rollouts))
