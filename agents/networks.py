"""What the Q-networks of several agents are built of.

A network lists its parameters layer by layer, weights before biases; `agents.agent.Variables` come
in that order.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from numpy.typing import NDArray

from agents.agent import EnvironmentSpec, Variables

Layer = tuple[NDArray[Any], NDArray[Any]]
"""Weights [inputs, outputs] and biases [outputs] of a fully connected layer."""


class SeededInitializer:
    """Draws weights from a truncated normal distribution of deviation 1 / sqrt(fan-in).

    The distribution is that of LeCun et al. (1998, section 4.6), cut at two deviations. Unlike the
    library's initializers, which share one stream in a process, two of the same seed draw the same.
    """

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)

    def __call__(self, shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
        """Draws a weight of `shape` [..., inputs, outputs]."""
        fan_in = int(np.prod(shape[:-1]))
        seed = self._rng.integers(2**31, size=2)
        deviation = 1.0 / np.sqrt(fan_in)
        return tf.random.stateless_truncated_normal(shape, seed, 0.0, deviation, dtype)


def parameters_of(layers: Sequence[Any]) -> list[tf.Variable]:
    """Returns the weights and biases of `layers`, which must have been called once."""
    return [variable for layer in layers for variable in (layer.w, layer.b)]


class Torso(snt.Module):
    """From observations to features.

    Frames pass the three convolutions of Mnih et al. (2015) first. Then all is flattened and passes
    the fully connected layers, each followed by a rectifier.
    """

    def __init__(
        self, spec: EnvironmentSpec, hidden_sizes: Sequence[int], init: SeededInitializer
    ) -> None:
        """Describes the layers.

        Args:
            spec: The environment's specs.
            hidden_sizes: Units of the fully connected layers, of which there may be none.
            init: Draws the weights.
        """
        super().__init__("torso")

        def convolution(channels: int, kernel: int, stride: int) -> snt.Conv2D:
            return snt.Conv2D(channels, kernel, stride, padding="VALID", w_init=init)

        self._frames = spec.frame_stack
        self._convolutions = []
        if self._frames:
            self._convolutions = [convolution(32, 8, 4), convolution(64, 4, 2)]
            self._convolutions.append(convolution(64, 3, 1))
        self._dense = [snt.Linear(size, w_init=init) for size in hidden_sizes]

    @property
    def layers(self) -> list[Any]:
        """The layers from input to output."""
        return [*self._convolutions, *self._dense]

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Computes features.

        Args:
            observation: uint8 [N, stack, height, width] frames, or numbers [N, ...].

        Returns:
            float32 [N, F].
        """
        hidden = observation
        if self._frames:
            hidden = tf.cast(tf.transpose(observation, [0, 2, 3, 1]), tf.float32) / 255.0
        for convolution in self._convolutions:
            hidden = tf.nn.relu(convolution(hidden))
        hidden = snt.flatten(hidden)
        for layer in self._dense:
            hidden = tf.nn.relu(layer(hidden))
        return hidden


class DuelingHead(snt.Module):
    """From features to Q-values in two streams, a state's value and its actions' advantages.

    Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)

    (Wang et al. 2016, eq. 9.)
    """

    def __init__(self, size: int, num_actions: int, init: SeededInitializer) -> None:
        """Describes the layers.

        Args:
            size: Units of each stream's one hidden layer.
            num_actions: A.
            init: Draws the weights.
        """
        super().__init__("dueling_head")
        self._streams = snt.Linear(2 * size, w_init=init)
        self._value = snt.Linear(1, w_init=init)
        self._advantage = snt.Linear(num_actions, w_init=init)

    @property
    def layers(self) -> list[Any]:
        """The hidden layers of both streams in one, then value, then advantage."""
        return [self._streams, self._value, self._advantage]

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Computes Q-values, float32 [N, A], of features [N, F]."""
        streams = tf.split(tf.nn.relu(self._streams(features)), 2, axis=1)
        value, advantage = self._value(streams[0]), self._advantage(streams[1])
        return value + advantage - tf.reduce_mean(advantage, axis=1, keepdims=True)


def in_layers(variables: Variables) -> list[Layer]:
    """Returns weights and biases in pairs."""
    return list(zip(variables[::2], variables[1::2], strict=True))


def relu_layers(hidden: NDArray[Any], layers: Sequence[Layer]) -> NDArray[np.float32]:
    """Computes fully connected layers, each followed by a rectifier, with NumPy."""
    for weights, biases in layers:
        hidden = np.maximum(hidden @ weights + biases, 0)
    return hidden


def merge_streams(value: Layer, advantage: Layer) -> Layer:
    """Returns one layer from both streams of a `DuelingHead` to its Q-values.

    It is made of the value's weights, repeated for each action, and the advantages' without their
    mean.
    """
    (w_value, b_value), (w_advantage, b_advantage) = value, advantage
    centred = w_advantage - w_advantage.mean(axis=1, keepdims=True)
    weights = np.concatenate([np.repeat(w_value, len(b_advantage), axis=1), centred])
    return weights, b_value + b_advantage - b_advantage.mean()
