"""Configuration of Ape-X."""

import dataclasses
import math
from typing import Optional

from usage import UsageError


@dataclasses.dataclass(frozen=True)
class ApexConfig:
    """Configuration of Ape-X; the defaults are those of Horgan et al. (2018) on Atari games.

    "The paper" is Horgan et al., Distributed Prioritized Experience Replay, 2018; where nothing
    else is said, the number is in its account of the Atari experiments.

    Attributes:
        discount: gamma, per environment step.
        n_step: n, the steps of a window.
        reward_clip: Rewards are clipped to [-reward_clip, reward_clip] before they are summed;
            None leaves them.
        hidden_sizes: Units of the fully connected layers; the last is the width of each of the two
            dueling streams, those before it are shared. A stack of frames passes the convolutions
            of Mnih et al. (2015) first. The paper's is the dueling network of Wang et al. (2016):
            two streams of 512 right behind the convolutions.
        epsilon_base: The largest rate of the exploration ladder.
        epsilon_alpha: The exponent of the exploration ladder.
        evaluator_epsilon: Exploration rate of the evaluator. The paper does not say; 0.001 is that
            of the tuned double DQN (van Hasselt et al. 2016, section on human starts).
        batch_size: Items that the learner takes at once.
        replay_size: Items that replay holds. The paper's 2M is a soft limit that is enforced every
            100 learner steps; here the oldest item goes when one more comes.
        min_replay_size: Items in replay before learning starts.
        priority_exponent: alpha, the exponent of priorities.
        importance_exponent: beta, the exponent of importance weights.
        priority_epsilon: Added to every priority, so that an item with no error can still be drawn
            (Schaul et al. 2016, section 3.3, the paper gives no number; 1e-6 is far below any error
            that matters and far above the smallest positive float32).
        samples_per_insert: Times that an item is sampled on average. None, as in the paper: actors
            and learner run as fast as each can.
        error_buffer: Samples by which replay may miss `samples_per_insert`; given exactly if that
            is.
        optimizer: 'rmsprop' (centred) or 'adam'.
        learning_rate: Step size; the paper's is 0.00025 / 4.
        rmsprop_decay: Decay of RMSProp's two moving averages; Adam uses its own 0.9 and 0.999.
        optimizer_epsilon: For RMSProp it is added under the square root, for Adam outside of it.
        max_gradient_norm: The gradient of all variables together is scaled down to this norm.
        target_update_period: Learner steps between copies into the target network.
        variable_update_period: Steps of each of its environments between an actor's looks for newer
            variables; the paper's 400 frames are 100 steps of 4 frames.
        publish_period: Learner steps between published versions of the variables. The paper does
            not say; its actor plays 400 frames in 2.9 s, in which its learner takes 55 steps.
    """

    discount: float = 0.99
    n_step: int = 3
    reward_clip: Optional[float] = 1.0
    hidden_sizes: tuple[int, ...] = (512,)
    epsilon_base: float = 0.4
    epsilon_alpha: float = 7.0
    evaluator_epsilon: float = 0.001
    batch_size: int = 512
    replay_size: int = 2_000_000
    min_replay_size: int = 50_000
    priority_exponent: float = 0.6
    importance_exponent: float = 0.4
    priority_epsilon: float = 1e-6
    samples_per_insert: Optional[float] = None
    error_buffer: Optional[float] = None
    optimizer: str = "rmsprop"
    learning_rate: float = 0.00025 / 4
    rmsprop_decay: float = 0.95
    optimizer_epsilon: float = 1.5e-7
    max_gradient_norm: float = 40.0
    target_update_period: int = 2500
    variable_update_period: int = 100
    publish_period: int = 50

    @classmethod
    def paper(cls) -> "ApexConfig":
        """Returns the paper's configuration, for Atari games and hundreds of actors."""
        return cls()

    @classmethod
    def small(cls) -> "ApexConfig":
        """Returns a configuration for small vector observations and a few actors on two cores.

        What differs from the paper was tuned on Catch and CartPole: the network and the replay are
        small, learning starts early, windows are longer, and Adam (with the numbers of Kingma & Ba
        2015, Algorithm 1) learns in seconds what the paper's RMSProp takes minutes for. The ratio
        of samples to inserts is bound, so that neither side starves the other where they share two
        cores.
        """
        return cls(
            n_step=5,
            reward_clip=None,
            hidden_sizes=(64, 64),
            evaluator_epsilon=0.0,
            batch_size=256,
            replay_size=100_000,
            min_replay_size=1_000,
            samples_per_insert=4.0,
            error_buffer=4_000.0,
            optimizer="adam",
            learning_rate=1e-3,
            optimizer_epsilon=1e-8,
            target_update_period=50,
            publish_period=20,
        )

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
            "rmsprop_decay",
        )
        if self.epsilon_alpha < 0:
            raise UsageError(f"epsilon_alpha must be at least 0, got {self.epsilon_alpha}.")
        if not self.hidden_sizes or min(self.hidden_sizes) < 1:
            raise UsageError(
                f"hidden_sizes must name at least one layer of at least one unit, got "
                f"{self.hidden_sizes}."
            )
        if self.optimizer not in ("rmsprop", "adam"):
            raise UsageError(f"optimizer must be 'rmsprop' or 'adam', got {self.optimizer!r}.")
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
