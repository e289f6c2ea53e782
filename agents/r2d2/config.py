"""Configuration of R2D2."""

import dataclasses
from typing import Optional

from agents.config import ReplayConfig
from usage import UsageError


@dataclasses.dataclass(frozen=True)
class R2D2Config(ReplayConfig):
    """Configuration of R2D2; the defaults are those of Kapturowski et al. (2019) on Atari games.

    "The paper" is Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement
    Learning, 2019; where nothing else is said, the number is in its section 2.3 or table 2. What it
    takes from Ape-X without a number of its own is Ape-X's (Horgan et al. 2018).

    Attributes:
        reward_clip: Rewards are clipped to [-reward_clip, reward_clip] before they are summed;
            None, as in the paper, leaves them to the rescaling of values.
        hidden_sizes: Units of fully connected layers before the LSTM; the paper has none behind its
            convolutions.
        evaluator_epsilon: Exploration rate of the evaluator; the paper does not say, 0.001 is that
            of our Ape-X.
        batch_size: Sequences that the learner takes at once.
        replay_size: Sequences that replay holds; the paper's 4M observations are 100,000 sequences
            that begin 40 steps apart.
        min_replay_size: Sequences in replay before learning starts; Ape-X's 50,000 observations.
        importance_exponent: beta, the exponent of importance weights; at 0 all weights are 1.
            The paper's is 0.6; its preprint had no weights.
        variable_update_period: Steps of each of its environments between an actor's looks for newer
            variables.
        publish_period: Learner steps between published versions of the variables. The paper does
            not say; its actor plays 400 steps in 1.5 s, in which its learner takes 8 steps.
        lstm_size: H, units of the LSTM.
        head_size: Units of each dueling stream's one hidden layer.
        trace_length: T, steps of a sequence, those of the burn-in among them. One more timestep is
            kept behind them, to bootstrap from.
        burn_in: Steps at a sequence's begin that only bring the recurrent state up to date.
        period: Steps between the begins of two sequences; at most `trace_length - burn_in` of them
            leave no step untrained. The paper's sequences of 80 overlap by 40.
        max_priority_weight: eta, the weight of the largest error in a sequence's priority; the rest
            is the mean's.
    """

    discount: float = 0.997
    n_step: int = 5
    reward_clip: Optional[float] = None
    hidden_sizes: tuple[int, ...] = ()
    epsilon_base: float = 0.4
    epsilon_alpha: float = 7.0
    evaluator_epsilon: float = 0.001
    batch_size: int = 64
    replay_size: int = 100_000
    min_replay_size: int = 1_250
    priority_exponent: float = 0.9
    importance_exponent: float = 0.6
    priority_epsilon: float = 1e-6
    samples_per_insert: Optional[float] = None
    error_buffer: Optional[float] = None
    learning_rate: float = 1e-4
    optimizer_epsilon: float = 1e-3
    max_gradient_norm: float = 40.0
    target_update_period: int = 2500
    variable_update_period: int = 400
    publish_period: int = 8
    lstm_size: int = 512
    head_size: int = 512
    trace_length: int = 80
    burn_in: int = 40
    period: int = 40
    max_priority_weight: float = 0.9

    @property
    def trained_length(self) -> int:
        """Steps of a sequence that are trained on."""
        return self.trace_length - self.burn_in

    @property
    def state_size(self) -> int:
        """Numbers in the recurrent state: the LSTM's output and its cells."""
        return 2 * self.lstm_size

    @classmethod
    def paper(cls) -> "R2D2Config":
        """Returns the paper's configuration, for Atari games and hundreds of actors."""
        return cls()

    @classmethod
    def small(cls) -> "R2D2Config":
        """Returns a configuration for small vector observations and a few actors on two cores.

        What differs from the paper was tuned on Catch, CartPole and a memory of 40 steps: the
        network and the replay are small, learning starts early, and Adam has the epsilon of Kingma
        & Ba (2015, Algorithm 1), with which it learns several times faster here than with the
        paper's. The ratio of samples to inserts is bound, so that neither side starves the other
        where they share two cores.
        """
        return cls(
            discount=0.99,
            hidden_sizes=(32,),
            evaluator_epsilon=0.0,
            replay_size=20_000,
            min_replay_size=200,
            samples_per_insert=16.0,
            error_buffer=1_600.0,
            learning_rate=1e-3,
            optimizer_epsilon=1e-8,
            target_update_period=50,
            variable_update_period=100,
            publish_period=20,
            lstm_size=32,
            head_size=32,
            trace_length=50,
            burn_in=8,
            period=24,
        )

    def __post_init__(self) -> None:
        """Checks the fields, and those that only fit together.

        Raises:
            UsageError: A field is out of its range; the message names it.
        """
        super().__post_init__()
        self._require_positive("head_size", "trace_length")
        self._require_fraction("max_priority_weight")
        if self.lstm_size < 1:
            raise UsageError(
                f"R2D2 needs a network with a recurrent state: lstm_size must be at least 1, got "
                f"{self.lstm_size}."
            )
        if not 0 <= self.burn_in < self.trace_length:
            raise UsageError(
                f"burn_in must be at least 0 and shorter than trace_length ({self.trace_length}), "
                f"got {self.burn_in}."
            )
        if not 1 <= self.period <= self.trace_length:
            raise UsageError(
                f"period must be at least 1 and not longer than trace_length "
                f"({self.trace_length}), got {self.period}."
            )
        if self.n_step > self.trained_length:
            raise UsageError(
                f"n_step must not be longer than the trained part of a sequence, trace_length - "
                f"burn_in ({self.trained_length}), got {self.n_step}."
            )
