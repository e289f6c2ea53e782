"""What an item of replay is made of: the layout that actors write and the learner reads.

An item is a sequence of T steps, a trace, and the timestep after it, whose value is bootstrapped
from. Its numbers travel as one float32 row, because every column of an item costs again:

    'row'       [version | state | T + 1 timesteps of W numbers each, see the constants below]
    'frame'     uint8 [stack + T, height, width], where observations are stacks of frames;
                timestep t's observation is the frames t ... t + stack - 1

`state` is the recurrent state, 2 H numbers, before the first timestep was seen, and `version` the
learner steps that the variables had seen which computed it, exact up to 2^24. Where there are no
frames, the observation is the rest of a timestep's W numbers.

The first `burn_in` timesteps are not trained on. An episode's first trace begins as many before the
episode, so that its steps are all trained on. What is before an episode's begin and after its end
is zeros, and `REAL` is 0 there and in the last timestep that is present, which has an observation
but no action:

    timestep     0 ... burn_in - 1 | burn_in ...             ... T - 1 | T
    first trace       zeros          s_0  s_1  s_2 ...                   bootstrap
    last trace      s_k  s_{k+1}     ...            s_L  zeros
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from acme import specs
from numpy.typing import NDArray

from agents.agent import EnvironmentSpec

PREVIOUS_ACTION = 0
"""The action that led to this timestep, -1 where there is none."""
PREVIOUS_REWARD = 1
ACTION = 2
"""The action that was taken in this timestep; the next two are what came of it."""
REWARD = 3
DISCOUNT = 4
"""The environment's own: 0 where the action led to a terminal state."""
REAL = 5
"""1 where an action was taken in this timestep and is in this sequence, 0 where not."""
OBSERVATION = 6

_OVERHEAD = 1_000
_FRAME_OVERHEAD = 1_500


def observation_size(spec: EnvironmentSpec) -> int:
    """Returns the numbers of an observation that stand in a timestep."""
    return 0 if spec.frame_stack else int(np.prod(spec.observations.shape, dtype=np.int64))


def item_spec(
    spec: EnvironmentSpec, trace_length: int, state_size: int
) -> Mapping[str, specs.Array]:
    """Returns the columns of an item, without a batch dimension.

    Args:
        spec: The environment's specs.
        trace_length: T.
        state_size: 2 H.
    """
    width = OBSERVATION + observation_size(spec)
    size = 1 + state_size + (trace_length + 1) * width
    item = {"row": specs.Array((size,), np.float32, "row")}
    if spec.frame_stack:
        stack, height, width = spec.observations.shape
        frames = (stack + trace_length, height, width)
        item["frame"] = specs.Array(frames, np.uint8, "frame")
    return item


def pack(version: int, state: Any, timesteps: Any) -> NDArray[np.float32]:
    """Returns an item's row out of its version, state [2 H] and timesteps [T + 1, W]."""
    return np.concatenate([np.array([version], np.float32), state, timesteps.ravel()])


def unpack(xp: Any, row: Any, trace_length: int, state_size: int) -> tuple[Any, Any, Any]:
    """Takes rows apart.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        row: float32 [B, ...].
        trace_length: T.
        state_size: 2 H.

    Returns:
        The versions [B], states [B, 2 H] and timesteps [B, T + 1, W], all float32.
    """
    begin = 1 + state_size
    shape = (row.shape[0], trace_length + 1, (row.shape[1] - begin) // (trace_length + 1))
    return row[:, 0], row[:, 1:begin], xp.reshape(row[:, begin:], shape)


def bytes_per_item(item: Mapping[str, specs.Array], period: int) -> int:
    """Returns the memory that one more item costs the replay server, in bytes.

    A frame is stored once, however many traces refer to it: in long episodes `period` of them come
    with a trace. An episode of one trace brings as many as the trace has, padding included. What an
    item costs beyond its data is the growth of a Reverb 0.7.3 server by random rows and frames,
    rounded up: 400 bytes, and 1,300 a frame.

    Args:
        item: The columns of an item.
        period: Steps between the begins of two traces.
    """
    size = 4 * int(item["row"].shape[0]) + _OVERHEAD
    if "frame" not in item:
        return size
    frame = int(np.prod(item["frame"].shape[1:]))
    return size + period * (frame + _FRAME_OVERHEAD)
