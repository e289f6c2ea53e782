"""Mistakes of the person who starts a run, and how they are worded."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A mistake of the user: told in one sentence, without a traceback, before anything starts."""


def unknown(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """Returns the error for a `name` that is not among `choices`, naming the nearest right ones.

    Args:
        kind: What the name stands for, as a person would say it ('agent', 'mode').
        name: What was asked for.
        choices: The names that exist.
    """
    choices = sorted(choices)
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(choices)}."
    return UsageError(f"Unknown {kind} {name!r}: {hint}")
