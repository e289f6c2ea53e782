"""What learners contribute to a step that they take together, and how contributions become one."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Optional, Protocol

import numpy as np
from acme import specs
from numpy.typing import NDArray

from agents.agent import Gradient, Gradients, SparseGradient
from nodes.version import Key

Method = Literal["mean", "sum"]
METHODS: tuple[Method, ...] = ("mean", "sum")
_KINDS = "fiu"
"""Kinds of dtypes that are reduced: floats, and integers, which are rounded."""


class Ticket(NamedTuple):
    """What tells one gradient, on one of its ways, from all others.

    Attributes:
        member: Which of the learners has computed it.
        client: Which life of that learner.
        number: How many that life had pushed before it.
        attempt: How often it was pushed before, on ways of which nothing was heard.
    """

    member: int
    client: int
    number: int
    attempt: int


class Contribution(NamedTuple):
    """A gradient, or several that were reduced to one.

    Attributes:
        tickets: Those of the gradients in it.
        model: Incarnation and step of the oldest model that they were computed on.
        gradients: The gradients.
    """

    tickets: Sequence[Ticket]
    model: Key
    gradients: Gradients

    @property
    def members(self) -> set[int]:
        """Whose gradients are in it."""
        return {ticket.member for ticket in self.tickets}

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All arrays in it, one after the other."""
        values = [
            array
            for value in self.gradients.values
            for array in (value if isinstance(value, SparseGradient) else (value,))
        ]
        return [*map(np.asarray, values), *map(np.asarray, self.gradients.state)]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays in it."""
        return sum(array.nbytes for array in self.arrays)

    def header(self) -> tuple[Any, ...]:
        """Returns, in a form that a call carries, what else is needed to make it from `arrays`."""
        return (
            np.array(self.tickets, np.int64),
            self.model,
            [is_sparse(value) for value in self.gradients.values],
            float(self.gradients.weight),
            float(self.gradients.normaliser),
        )


class NotAGradient(ValueError):
    """What was pushed is no gradient of the model."""


def assemble(header: Sequence[Any], arrays: Sequence[NDArray[Any]]) -> Contribution:
    """Returns the contribution that `header` and `arrays` were taken from."""
    tickets, model, sparse, weight, normaliser = header
    left = iter(arrays)
    values = [SparseGradient(next(left), next(left)) if each else next(left) for each in sparse]
    return Contribution(
        [Ticket(*map(int, row)) for row in tickets],
        (int(model[0]), int(model[1])),
        Gradients(values, list(left), weight, normaliser),
    )


def is_sparse(gradient: Gradient) -> bool:
    """Returns whether a gradient is one of some rows."""
    return isinstance(gradient, SparseGradient)


def check(
    gradients: Gradients, variables: Mapping[str, specs.Array], state: Mapping[str, specs.Array]
) -> None:
    """Checks that gradients are finite and fit a model.

    Args:
        gradients: The gradients.
        variables: See `agents.agent.SharedModel.gradient_specs`.
        state: See `agents.agent.SharedModel.state_specs`.

    Raises:
        NotAGradient: They are not; the message names the variable.
    """
    for what, values, wanted in (
        ("gradients", gradients.values, variables),
        ("state", gradients.state, state),
    ):
        if len(values) != len(wanted):
            raise NotAGradient(f"{len(values)} {what} came, {len(wanted)} are wanted.")
        for value, (name, spec) in zip(values, wanted.items(), strict=True):
            problem = _problem(value, spec)
            if problem is not None:
                raise NotAGradient(f"the {what.removesuffix('s')} of {name!r} {problem}.")
    for name in ("weight", "normaliser"):
        number = getattr(gradients, name)
        if not 0 < number < np.inf:
            raise NotAGradient(f"the {name} must be a positive number, got {number}.")


def _problem(value: Gradient, spec: specs.Array) -> Optional[str]:
    """Says what is wrong with a value, if anything is."""
    shape = tuple(spec.shape)
    if isinstance(value, SparseGradient):
        rows, value = np.asarray(value.rows), np.asarray(value.values)
        if not shape or rows.ndim != 1 or rows.dtype.kind not in "iu":
            return f"has rows of {rows.dtype} {list(rows.shape)}, integers [n] are wanted"
        shape = (len(rows), *shape[1:])
        if len(rows) and not 0 <= rows.min() <= rows.max() < spec.shape[0]:
            return f"has rows from {rows.min()} to {rows.max()}, there are {spec.shape[0]}"
    value = np.asarray(value)
    if value.shape != shape or value.dtype != spec.dtype:
        return (
            f"is {value.dtype} {list(value.shape)}, {np.dtype(spec.dtype)} {list(shape)} is wanted"
        )
    if value.dtype.kind not in _KINDS:
        return f"is {value.dtype}, of which no mean is taken"
    # The sum takes one pass and no memory; only if it is not finite has each to be looked at.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = value.dtype.kind == "f" and not np.isfinite(np.add.reduce(value, axis=None))
    if suspicious and not np.isfinite(value).all():
        place = np.argwhere(~np.isfinite(value))[0].tolist()
        return f"is {value[tuple(place)]} at {place}"
    return None


class Arithmetic(Protocol):
    """Adds arrays up."""

    def __call__(
        self, values: Sequence[NDArray[Any]], factors: NDArray[np.float64]
    ) -> NDArray[Any]:
        """Returns sum_i factors[i] * values[i], in the values' dtype; integers are rounded."""


def with_numpy(values: Sequence[NDArray[Any]], factors: NDArray[np.float64]) -> NDArray[Any]:
    """Adds arrays up with NumPy; see `Arithmetic`."""
    dtype = np.asarray(values[0]).dtype
    if dtype.kind != "f":
        exact = sum(value * factor for value, factor in zip(values, factors, strict=True))
        return np.asarray(np.rint(exact), dtype)
    with np.errstate(over="ignore"):  # What is infinite is found afterwards.
        total = np.multiply(values[0], dtype.type(factors[0]))
        scaled = np.empty_like(total)
        for value, factor in zip(values[1:], factors[1:], strict=True):
            total += np.multiply(value, dtype.type(factor), out=scaled)
    return np.asarray(total)


def with_tensorflow(values: Sequence[NDArray[Any]], factors: NDArray[np.float64]) -> NDArray[Any]:
    """Adds arrays up with TensorFlow, on a GPU if this process has one; see `Arithmetic`."""
    import tensorflow as tf

    dtype = np.asarray(values[0]).dtype
    if dtype.kind != "f":
        return with_numpy(values, factors)
    scaled = [
        tf.convert_to_tensor(value) * tf.constant(factor, dtype)
        for value, factor in zip(values, factors, strict=True)
    ]
    return np.asarray(tf.add_n(scaled))


def where_it_fits(values: Sequence[NDArray[Any]], factors: NDArray[np.float64]) -> NDArray[Any]:
    """Adds arrays up on the GPU that a layout gave this process, else with NumPy."""
    has_gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "") not in ("", "-1")
    return (with_tensorflow if has_gpu else with_numpy)(values, factors)


Backend = Literal["auto", "numpy", "tensorflow"]
BACKENDS: Mapping[Backend, Arithmetic] = {
    "auto": where_it_fits,
    "numpy": with_numpy,
    "tensorflow": with_tensorflow,
}


def reduce(
    contributions: Sequence[Contribution], method: Method, arithmetic: Arithmetic = with_numpy
) -> Contribution:
    """Reduces contributions to one; in which order and how often changes only the rounding.

    Normalisers become one, n = max_i n_i. With weights w_i,

        mean: sum_i w_i (n_i / n) g_i / sum_i w_i,      sum: sum_i (n_i / n) g_i,

    so that mean losses over parts of a batch become the mean loss over all of it. State becomes
    the mean, weighted likewise, under both methods.
    """
    gradients = [contribution.gradients for contribution in contributions]
    weights = np.array([each.weight for each in gradients])
    normaliser = max(each.normaliser for each in gradients)
    shares = weights / weights.sum()
    scales = np.array([each.normaliser for each in gradients]) / normaliser
    factors = scales * shares if method == "mean" else scales
    return Contribution(
        [ticket for contribution in contributions for ticket in contribution.tickets],
        min(contribution.model for contribution in contributions),
        Gradients(
            _combine([each.values for each in gradients], factors, arithmetic),
            [
                arithmetic(values, shares)
                for values in zip(*(each.state for each in gradients), strict=True)
            ],
            float(weights.sum()),
            normaliser,
        ),
    )


def _combine(
    columns: Sequence[Sequence[Gradient]], factors: NDArray[np.float64], arithmetic: Arithmetic
) -> list[Gradient]:
    """Returns the sums of what was contributed to each variable, times the factors."""
    sums: list[Gradient] = []
    for values in zip(*columns, strict=True):
        if all(isinstance(value, SparseGradient) for value in values):
            sums.append(_sum_of_rows(values, factors))
        else:
            shape = next(value.shape for value in values if not is_sparse(value))
            sums.append(arithmetic([_dense(value, shape) for value in values], factors))
    return sums


def _sum_of_rows(values: Sequence[SparseGradient], factors: NDArray[np.float64]) -> SparseGradient:
    rows, places = np.unique(np.concatenate([value.rows for value in values]), return_inverse=True)
    together = np.concatenate(
        [each.values * each.values.dtype.type(f) for each, f in zip(values, factors, strict=True)]
    )
    sums = np.zeros((len(rows), *together.shape[1:]), together.dtype)
    np.add.at(sums, places, together)
    return SparseGradient(rows, sums)


def _dense(value: Gradient, shape: Sequence[int]) -> NDArray[Any]:
    if not isinstance(value, SparseGradient):
        return value
    dense = np.zeros(shape, value.values.dtype)
    np.add.at(dense, value.rows, value.values)
    return dense
