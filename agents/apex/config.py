"""Configuration of Ape-X."""

import dataclasses
from typing import Optional

from agents.config import ReplayConfig
from usage import UsageError


@dataclasses.dataclass(frozen=True)
class ApexConfig(ReplayConfig):
    """Configuration of Ape-X; the defaults are those of Horgan et al. (2018) on Atari games.

    "The paper" is Horgan et al., Distributed Prioritized Experience Replay, 2018; where nothing
    else is said, the number is in its account of the Atari experiments.

    Attributes:
        reward_clip: Rewards are clipped to [-reward_clip, reward_clip] before they are summed;
            None leaves them.
        hidden_sizes: Units of the fully connected layers; the last is the width of each of the two
            dueling streams, those before it are shared. A stack of frames passes the convolutions
            of Mnih et al. (2015) first. The paper's is the dueling network of Wang et al. (2016):
            two streams of 512 right behind the convolutions.
        evaluator_epsilon: Exploration rate of the evaluator. The paper does not say; 0.001 is that
            of the tuned double DQN (van Hasselt et al. 2016, section on human starts).
        replay_size: Items that replay holds. The paper's 2M is a soft limit that is enforced every
            100 learner steps; here the oldest item goes when one more comes.
        priority_epsilon: Added to every priority, so that an item with no error can still be drawn
            (Schaul et al. 2016, section 3.3, the paper gives no number; 1e-6 is far below any error
            that matters and far above the smallest positive float32).
        samples_per_insert: Times that an item is sampled on average. None, as in the paper: actors
            and learner run as fast as each can.
        learning_rate: Step size; the paper's is 0.00025 / 4.
        optimizer_epsilon: For RMSProp it is added under the square root, for Adam outside of it.
        variable_update_period: Steps of each of its environments between an actor's looks for newer
            variables; the paper's 400 frames are 100 steps of 4 frames.
        publish_period: Learner steps between published versions of the variables. The paper does
            not say; its actor plays 400 frames in 2.9 s, in which its learner takes 55 steps.
        optimizer: 'rmsprop' (centred) or 'adam'.
        rmsprop_decay: Decay of RMSProp's two moving averages; Adam uses its own 0.9 and 0.999.
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
    learning_rate: float = 0.00025 / 4
    optimizer_epsilon: float = 1.5e-7
    max_gradient_norm: float = 40.0
    target_update_period: int = 2500
    variable_update_period: int = 100
    publish_period: int = 50
    optimizer: str = "rmsprop"
    rmsprop_decay: float = 0.95

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
        super().__post_init__()
        self._require_fraction("rmsprop_decay")
        if not self.hidden_sizes:
            raise UsageError("hidden_sizes must name at least one layer, got ().")
        if self.optimizer not in ("rmsprop", "adam"):
            raise UsageError(f"optimizer must be 'rmsprop' or 'adam', got {self.optimizer!r}.")
