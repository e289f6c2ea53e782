"""The small environments of bsuite: `catch`, `cartpole` and `memory:LENGTH`."""

from collections.abc import Sequence

import dm_env
from bsuite.environments import cartpole, catch, memory_chain

import usage
from environments import single
from environments.batched import BatchedEnvironment
from environments.family import FORMS, Description

_SOLVED_AT = {
    # Returns are +1 for a ball caught and -1 for one missed: 39 of 40 are caught.
    "catch": 0.95,
    # bsuite calls a cartpole episode good when it returns more than 500 of about 1,000
    # (bsuite.experiments.cartpole.analysis.GOOD_EPISODE). It asks that of the best episode, we
    # ask it of the mean.
    "cartpole": 500.0,
    # Returns are +1 for the right answer and -1 for the wrong one: 19 of 20 are right.
    "memory": 0.9,
}


def describe(name: str) -> Description:
    """Describes `catch`, `cartpole` or `memory:LENGTH`.

    Raises:
        usage.UsageError: The name is none of these, or LENGTH is not a positive integer.
    """
    environment = _make_one(name, seed=0)
    return Description(
        observations=single.observation_spec(name, environment),
        actions=single.action_spec(name, environment),
        solved_at=_SOLVED_AT[name.partition(":")[0]],
    )


def make(
    name: str, seeds: Sequence[int], evaluation: bool, life_loss_ends: bool
) -> BatchedEnvironment:
    """Makes one environment a seed; there are no lives, and evaluation makes no difference."""
    return single.Batch([_make_one(name, seed) for seed in seeds])


def _make_one(name: str, seed: int) -> dm_env.Environment:
    if name == "catch":
        return catch.Catch(seed=seed)
    if name == "cartpole":
        return cartpole.Cartpole(seed=seed)
    family, colon, length = name.partition(":")
    if family != "memory" or not colon:
        raise usage.unknown("environment", name, FORMS)
    if not (length.isascii() and length.isdecimal() and int(length) > 0):
        raise usage.UsageError(
            f"memory:LENGTH needs a positive whole number of steps, not {length!r}: "
            "write memory:10 for example."
        )
    return memory_chain.MemoryChain(memory_length=int(length), num_bits=1, seed=seed)
