"""R2D2's values as pure functions: rescaling, n-step targets, priorities of sequences.

Actors compute with NumPy, the learner with TensorFlow. Both use these functions: `xp`, where a
function has it, is `numpy` or `tensorflow.experimental.numpy`, and time is the first dimension.
"""

from typing import Any

RESCALING_EPSILON = 1e-3
"""What keeps the rescaling invertible (Kapturowski et al. 2019, section 2.3)."""


def rescale(x: Any, epsilon: float = RESCALING_EPSILON) -> Any:
    """Squashes returns.

        h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x

    (Pohlen et al. 2018, proposition A.2; Kapturowski et al. 2019, section 2.3), computed as
    x / (sqrt(|x| + 1) + 1) + epsilon x, in which nothing cancels.

    Args:
        x: float32 [...].
        epsilon: Greater than 0.
    """
    return x / ((abs(x) + 1.0) ** 0.5 + 1.0) + epsilon * x


def unscale(x: Any, epsilon: float = RESCALING_EPSILON) -> Any:
    """Inverts `rescale`.

        h^-1(x) = sign(x) (u^2 - 1),  u = (s - 1) / (2 epsilon),
        s = sqrt(1 + 4 epsilon (|x| + 1 + epsilon))

    (Pohlen et al. 2018, proposition A.2.) As u is also 2 (|x| + 1 + epsilon) / (s + 1), and u - 1
    is 2 |x| / (s + 1 + 2 epsilon), it is computed without anything that cancels.

    Args:
        x: float32 [...].
        epsilon: Greater than 0.
    """
    shifted = abs(x) + (1.0 + epsilon)
    root = (1.0 + 4.0 * epsilon * shifted) ** 0.5
    return x * (2.0 / (root + (1.0 + 2.0 * epsilon))) * (2.0 * shifted / (root + 1.0) + 1.0)


def n_step_targets(xp: Any, reward: Any, discount: Any, value: Any, real: Any, n_step: int) -> Any:
    """Computes what the values of a sequence should be, before rescaling.

        G_t = r_{t+1} + gamma_{t+1} r_{t+2} + ... + (gamma_{t+1} ... gamma_{t+m}) V_{t+m}

    (Kapturowski et al. 2019, section 2.3.) m is n, or less where the episode or the sequence ends
    before: a sequence's last step still has the value that comes after it.

    Args:
        xp: See the module.
        reward: float32 [T, B], r_{t+1}.
        discount: float32 [T, B], gamma_{t+1}: 0 where the step ends in a terminal state.
        value: float32 [T + 1, B], V_t.
        real: float32 [T, B], 1 where step t was taken, and 0 after the episode's last step.
        n_step: n.

    Returns:
        float32 [T, B]; means nothing where `real` is 0.
    """
    bootstrap = value[1:]
    following = bootstrap
    for _ in range(n_step):
        target = reward + discount * following
        goes_on = xp.where(real[1:] > 0, target[1:], bootstrap[:-1])
        following = xp.concatenate([goes_on, bootstrap[-1:]], axis=0)
    return target


def sequence_priority(xp: Any, error: Any, real: Any, max_weight: float) -> Any:
    """Computes the priorities of sequences.

        p = eta max_t |delta_t| + (1 - eta) mean_t |delta_t|

    (Kapturowski et al. 2019, section 2.3.)

    Args:
        xp: See the module.
        error: float32 [T, B], delta over the trained part of each sequence.
        real: float32 [T, B], 1 for steps that count; each sequence has one at least.
        max_weight: eta.

    Returns:
        float32 [B].
    """
    size = xp.where(real > 0, abs(error), xp.zeros_like(error))
    mean = xp.sum(size, axis=0) / xp.sum(real, axis=0)
    return max_weight * xp.max(size, axis=0) + (1.0 - max_weight) * mean
