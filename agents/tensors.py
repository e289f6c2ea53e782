"""TensorFlow's variables and gradients as arrays with names."""

from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np
import tensorflow as tf
from acme import specs

from agents.agent import Gradient, SparseGradient


def specs_of(variables: Sequence[tf.Variable]) -> Mapping[str, specs.Array]:
    """Returns the specs of variables by name; those of the same name are numbered."""
    found: dict[str, specs.Array] = {}
    for variable in variables:
        name = base = variable.name.partition(":")[0]
        number = 1
        while name in found:
            number += 1
            name = f"{base}_{number}"
        found[name] = specs.Array(tuple(variable.shape), variable.dtype.as_numpy_dtype, name)
    return found


def to_gradient(gradient: Union[tf.Tensor, tf.IndexedSlices]) -> Gradient:
    """Returns a gradient as arrays; it is not copied where it is in the host's memory."""
    if isinstance(gradient, tf.IndexedSlices):
        rows = np.asarray(gradient.indices, np.int64)
        return SparseGradient(rows, np.asarray(gradient.values))
    return np.asarray(gradient)


def from_gradient(gradient: Gradient, shape: Any) -> Union[tf.Tensor, tf.IndexedSlices]:
    """Returns a gradient, of a variable of that shape, as TensorFlow has it."""
    if isinstance(gradient, SparseGradient):
        rows, values = map(tf.convert_to_tensor, gradient)
        return tf.IndexedSlices(values, rows, tf.constant(list(shape), tf.int64))
    return tf.convert_to_tensor(gradient)


def global_norm(gradients: Sequence[Union[tf.Tensor, tf.IndexedSlices]]) -> tf.Tensor:
    """Returns the norm of all gradients together, float32 [].

    Where squares are too large for float32 it is computed in float64; it is infinite only if it is
    too large itself.
    """
    parts = [each.values if isinstance(each, tf.IndexedSlices) else each for each in gradients]

    def norm(dtype: tf.DType) -> tf.Tensor:
        squares = [tf.reduce_sum(tf.square(tf.cast(part, dtype))) for part in parts]
        return tf.cast(tf.sqrt(tf.add_n(squares)), tf.float32)

    quick = norm(tf.float32)
    return tf.cond(tf.math.is_finite(quick), lambda: quick, lambda: norm(tf.float64))


def scale(
    gradient: Union[tf.Tensor, tf.IndexedSlices], factor: tf.Tensor
) -> Union[tf.Tensor, tf.IndexedSlices]:
    """Returns a gradient times a float32 factor."""
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * tf.cast(factor, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)
