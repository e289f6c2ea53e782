"""What an item of replay is made of: the layout that actors write and the learner reads.

An item is the window that begins with step t and spans m <= n steps. Its numbers travel as one
float32 row, because every column of an item costs an actor and the server as much again.

    a vector observation:   'row'    [obs_t | obs_{t+m} | action | return | bootstrap]
    a stack of frames:      'row'    [steps | action | return | bootstrap]
                            'frame'  [stack + n, height, width], the newest frames up to t + m

`steps` is m, `return` is R = sum_{k<m} gamma^k r_{t+1+k} and `bootstrap` is gamma^m, or 0 where the
window ends in a terminal state. The newest `stack` frames of 'frame' are the observation at t + m;
the observation at t lies m frames earlier.
"""

from collections.abc import Mapping

import numpy as np
from acme import specs

from agents.agent import EnvironmentSpec

STEPS = 0
ACTION = -3
RETURN = -2
BOOTSTRAP = -1

_ROW_OVERHEAD = 1_700
_FRAME_OVERHEAD = 3_000


def observation_size(spec: EnvironmentSpec) -> int:
    """Returns the number of values in one observation."""
    return int(np.prod(spec.observations.shape, dtype=np.int64))


def item_spec(spec: EnvironmentSpec, n_step: int) -> Mapping[str, specs.Array]:
    """Returns the columns of an item, without a batch dimension.

    Args:
        spec: The environment's specs.
        n_step: n, the steps of a full window.
    """
    if not spec.frame_stack:
        size = 2 * observation_size(spec) + 3
        return {"row": specs.Array((size,), np.float32, "row")}
    stack, height, width = spec.observations.shape
    return {
        "frame": specs.Array((stack + n_step, height, width), np.uint8, "frame"),
        "row": specs.Array((4,), np.float32, "row"),
    }


def bytes_per_item(spec: EnvironmentSpec) -> int:
    """Returns the memory that one more item costs the replay server, in bytes.

    A frame is stored once, however many windows refer to it. What an item costs beyond its data
    was measured as the growth of a Reverb 0.7.3 server by random rows and frames.

    Args:
        spec: The environment's specs.
    """
    if not spec.frame_stack:
        return 4 * (2 * observation_size(spec) + 3) + _ROW_OVERHEAD
    frame = int(np.prod(spec.observations.shape[1:]))
    return frame + _FRAME_OVERHEAD + 4 * 4 + _ROW_OVERHEAD
