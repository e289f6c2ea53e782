"""Contributions are checked by name, and become one as if they had been one batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from acme import specs

from agents.agent import Gradient, Gradients, SparseGradient
from nodes import contributions
from nodes.contributions import (
    BACKENDS,
    Contribution,
    NotAGradient,
    Ticket,
    assemble,
    check,
    reduce,
)

LAYERS: Mapping[str, specs.Array] = {
    "layer/w": specs.Array((3, 2), np.float32),
    "layer/b": specs.Array((2,), np.float32),
}
AVERAGES: Mapping[str, specs.Array] = {
    "norm/mean": specs.Array((2,), np.float32),
    "norm/count": specs.Array((), np.int64),
}
WEIGHTS, BIASES = np.zeros((3, 2), np.float32), np.zeros(2, np.float32)
STATE = (np.zeros(2, np.float32), np.array(7))


def contribution(
    value: Gradient, weight: float = 1.0, normaliser: float = 1.0, state: Any = (), step: int = 0
) -> Contribution:
    ticket = Ticket(0, 1, int(weight), 0)
    return Contribution([ticket], (7, step), Gradients([value], state, weight, normaliser))


def random_contributions() -> list[Contribution]:
    rng = np.random.default_rng(0)
    return [
        contribution(
            rng.normal(size=(4, 3)),
            float(rng.integers(1, 9)),
            float(rng.uniform(0.1, 10)),
            [rng.normal(size=5)],
            step,
        )
        for step in range(5)
    ]


def with_nan() -> Any:
    values = WEIGHTS.copy()
    values[1, 0] = np.nan
    return values


def with_both_infinities() -> Any:
    values = WEIGHTS.copy()
    values[0] = np.inf, -np.inf
    return values


@pytest.mark.parametrize(
    "gradients, message",
    [
        (Gradients([with_nan(), BIASES], STATE), r"of 'layer/w' is nan at \[1, 0\]"),
        (Gradients([with_both_infinities(), BIASES], STATE), r"'layer/w' is inf at \[0, 0\]"),
        (Gradients([WEIGHTS, WEIGHTS], STATE), r"'layer/b' is float32 \[3, 2\], float32 \[2\]"),
        (Gradients([WEIGHTS, BIASES.astype(float)], STATE), r"'layer/b' is float64 \[2\], float32"),
        (Gradients([WEIGHTS], STATE), "1 gradients came, 2 are wanted"),
        (Gradients([WEIGHTS, BIASES]), "0 state came, 2 are wanted"),
        (Gradients([WEIGHTS, BIASES], (STATE[0], np.array(7.0))), "'norm/count' is float64"),
        (
            Gradients([WEIGHTS, BIASES], (STATE[0] + np.nan, STATE[1])),
            "state of 'norm/mean' is nan",
        ),
        (Gradients([WEIGHTS, BIASES], STATE, weight=0.0), "weight must be a positive number"),
        (Gradients([WEIGHTS, BIASES], STATE, normaliser=np.nan), "normaliser must be a positive"),
        (
            Gradients([SparseGradient(np.array([3]), WEIGHTS[:1]), BIASES], STATE),
            "'layer/w' has rows from 3 to 3, there are 3",
        ),
        (
            Gradients([SparseGradient(np.array([0.0]), WEIGHTS[:1]), BIASES], STATE),
            r"'layer/w' has rows of float64 \[1\], integers \[n\] are wanted",
        ),
        (
            Gradients([SparseGradient(np.array(0), WEIGHTS[:1]), BIASES], STATE),
            r"'layer/w' has rows of int64 \[\], integers",
        ),
        (
            Gradients([SparseGradient(np.array([0, 1]), WEIGHTS[:1]), BIASES], STATE),
            r"'layer/w' is float32 \[1, 2\], float32 \[2, 2\] is wanted",
        ),
    ],
)
def test_what_is_no_gradient_is_named(gradients: Gradients, message: str) -> None:
    with pytest.raises(NotAGradient, match=message):
        check(gradients, LAYERS, AVERAGES)


def test_what_has_no_mean_is_refused_also_where_the_model_has_it() -> None:
    for dtype in (np.complex64, tf.bfloat16.as_numpy_dtype):
        wanted = {"odd": specs.Array((2,), dtype)}
        with pytest.raises(NotAGradient, match="'odd' is .*, of which no mean is taken"):
            check(Gradients([np.zeros(2, dtype)]), wanted, {})


def test_gradients_that_fit_pass_also_where_their_sum_overflows() -> None:
    large = np.full((3, 2), np.finfo(np.float32).max)
    check(Gradients([large, BIASES], STATE), LAYERS, AVERAGES)
    empty = SparseGradient(np.zeros(0, np.int64), WEIGHTS[:0])
    check(Gradients([empty, BIASES], STATE), LAYERS, AVERAGES)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mean_counts_weights_and_shares_one_normaliser(backend: Any) -> None:
    came = [contribution(np.float64(6), 1, 2.0), contribution(np.float64(3), 3, 1.0)]
    reduced = reduce(came, "mean", BACKENDS[backend])
    # Without normalisers the gradients were 12 and 3; their mean is 21 / 4, half of it 21 / 8.
    assert reduced.gradients.values[0] == pytest.approx(21 / 8)
    assert (reduced.gradients.weight, reduced.gradients.normaliser) == (4, 2)
    assert reduced.tickets == [*came[0].tickets, *came[1].tickets]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ["mean", "sum"])
def test_the_way_through_a_tree_makes_no_difference(method: Any, backend: Any) -> None:
    came = random_contributions()
    arithmetic = BACKENDS[backend]
    at_once = reduce(came, method, arithmetic)
    in_parts = reduce(
        [reduce(part, method, arithmetic) for part in (came[:2], came[2:])], method, arithmetic
    )
    np.testing.assert_allclose(in_parts.gradients.values[0], at_once.gradients.values[0], 1e-12)
    np.testing.assert_allclose(in_parts.gradients.state[0], at_once.gradients.state[0], 1e-12)
    assert in_parts.gradients[2:] == pytest.approx(at_once.gradients[2:])
    assert in_parts.model == at_once.model == (7, 0)


def test_state_becomes_its_weighted_mean_also_where_gradients_are_summed() -> None:
    came = [
        contribution(np.float32(1), 1, state=[np.float32(8), np.array(4)]),
        contribution(np.float32(1), 3, state=[np.float32(4), np.array(5)]),
    ]
    state = reduce(came, "sum").gradients.state
    assert state[0] == 5 and state[1] == 5 and state[1].dtype == np.int64


@pytest.mark.parametrize("sparse", [(True, True), (True, False)])
def test_sparse_gradients_add_up_by_row(sparse: Sequence[bool]) -> None:
    rows = [np.array([0, 2, 2]), np.array([2, 1])]
    values = [np.float32([[1], [2], [3]]), np.float32([[10], [20]])]
    came = []
    for row, value, stays in zip(rows, values, sparse, strict=True):
        dense = np.zeros((4, 1), np.float32)
        np.add.at(dense, row, value)
        came.append(contribution(SparseGradient(row, value) if stays else dense))
    total = reduce(came, "sum").gradients.values[0]
    if all(sparse):
        assert isinstance(total, SparseGradient)
        assert total.rows.tolist() == [0, 1, 2] and total.values.dtype == np.float32
        assert total.values[:, 0].tolist() == [1, 20, 15]
    else:
        assert np.asarray(total)[:, 0].tolist() == [1, 20, 15, 0]


def test_what_was_taken_apart_is_put_together() -> None:
    sparse = SparseGradient(np.array([1]), WEIGHTS[:1])
    sent = Contribution(
        [Ticket(1, 2, 3, 0), Ticket(2, 2**62, 0, 1)],
        (2**62, 5),
        Gradients([sparse, BIASES], STATE, 3, 2.0),
    )
    came = assemble(sent.header(), sent.arrays)
    assert (
        came.tickets == sent.tickets and came.model == (2**62, 5) and came.gradients[2:] == (3, 2.0)
    )
    assert isinstance(came.gradients.values[0], SparseGradient)
    assert sent.nbytes == 8 + 8 + 8 + 8 + 8


def test_it_is_reduced_on_the_gpu_that_a_layout_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    monkeypatch.setattr(contributions, "with_numpy", lambda *_: used.append("numpy"))
    monkeypatch.setattr(contributions, "with_tensorflow", lambda *_: used.append("tensorflow"))
    for devices in ("", "-1", "3"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
        reduce([contribution(np.float32(1))], "mean", BACKENDS["auto"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    reduce([contribution(np.float32(1))], "mean", BACKENDS["auto"])
    assert used == ["numpy", "numpy", "tensorflow", "numpy"]
