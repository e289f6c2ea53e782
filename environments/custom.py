"""A user's own environments: `package.module:function`."""

import difflib
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import dm_env

import usage
from environments import single
from environments.batched import BatchedEnvironment
from environments.family import Description


def describe(name: str) -> Description:
    """Makes one environment with `package.module:function` and describes it.

    Raises:
        usage.UsageError: The function cannot be found, cannot be called with `seed` and
            `evaluation`, gives no `dm_env.Environment`, or one whose specs are not understood.
    """
    function = _function(name)
    environment = _make_one(name, function, seed=0, evaluation=False)
    solved_at = getattr(function, "solved_at", None)
    if solved_at is not None and not isinstance(solved_at, (int, float)):
        raise usage.UsageError(
            f"Environment {name!r} has solved_at {solved_at!r}: make it a number or leave it out."
        )
    description = Description(
        observations=single.observation_spec(name, environment),
        actions=single.action_spec(name, environment),
        solved_at=None if solved_at is None else float(solved_at),
    )
    environment.close()
    return description


def make(
    name: str, seeds: Sequence[int], evaluation: bool, life_loss_ends: bool
) -> BatchedEnvironment:
    """Makes one environment a seed; whether there are lives is the function's business."""
    function = _function(name)
    return single.Batch([_make_one(name, function, seed, evaluation) for seed in seeds])


def _function(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise  # The module is there, and misses another: a bug that needs its traceback.
        near = difflib.get_close_matches(module_name, ("atari", "gym", "memory"), n=1)
        hint = f"did you mean {near[0]}:{attribute}" if near else f"is {module_name} installed"
        raise usage.UsageError(
            f"Environment {name!r} needs module {error.name!r}, and there is none: {hint}?"
        ) from error
    function = getattr(module, attribute, None)
    if function is None:
        callables = [
            key for key, value in vars(module).items() if callable(value) and key[0] != "_"
        ]
        raise usage.unknown(f"function of module {module_name},", attribute, callables)
    if not callable(function):
        raise usage.UsageError(
            f"Environment {name!r} must be a function(seed, evaluation), but is "
            f"{type(function).__name__} {function!r}."
        )
    try:
        inspect.signature(function).bind(seed=0, evaluation=False)
    except TypeError as error:
        raise usage.UsageError(
            f"Environment {name!r} is called as {attribute}(seed=..., evaluation=...), but takes "
            f"{inspect.signature(function)}: {error}."
        ) from error
    return cast(Callable[..., Any], function)


def _make_one(
    name: str, function: Callable[..., Any], seed: int, evaluation: bool
) -> dm_env.Environment:
    environment = function(seed=seed, evaluation=evaluation)
    if not isinstance(environment, dm_env.Environment):
        raise usage.UsageError(
            f"Environment {name!r} must return a dm_env.Environment, but returned "
            f"{type(environment).__name__}: derive its class from dm_env.Environment."
        )
    return environment
