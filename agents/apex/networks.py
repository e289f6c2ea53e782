"""The dueling Q-network of Ape-X."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from numpy.typing import NDArray

from agents.agent import EnvironmentSpec, Variables


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


class DuelingNetwork(snt.Module):
    """Q-values from two streams, a state's value and its actions' advantages.

        Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)

    (Wang et al. 2016, eq. 9.) Frames pass the three convolutions of Mnih et al. (2015) first; all
    else is flattened.
    """

    def __init__(
        self, spec: EnvironmentSpec, hidden_sizes: Sequence[int], seed: int, name: str = "dueling"
    ):
        """Makes the network and its variables.

        Args:
            spec: The environment's specs; actions must be discrete.
            hidden_sizes: Units of the shared layers, then of each stream's one hidden layer.
            seed: Seeds the variables.
            name: Name of the module.
        """
        super().__init__(name)
        init = SeededInitializer(seed)

        def linear(size: int) -> snt.Linear:
            return snt.Linear(size, w_init=init)

        def convolution(channels: int, kernel: int, stride: int) -> snt.Conv2D:
            return snt.Conv2D(channels, kernel, stride, padding="VALID", w_init=init)

        self._frames = spec.frame_stack
        self._convolutions = []
        if self._frames:
            self._convolutions = [convolution(32, 8, 4), convolution(64, 4, 2)]
            self._convolutions.append(convolution(64, 3, 1))
        self._shared = [linear(size) for size in hidden_sizes[:-1]]
        self._streams = linear(2 * hidden_sizes[-1])
        self._value = linear(1)
        self._advantage = linear(spec.actions.num_values)
        dtype = tf.uint8 if self._frames else tf.float32
        self(tf.zeros([1, *spec.observations.shape], dtype))

    @property
    def parameters(self) -> list[tf.Variable]:
        """The variables, layer by layer, weights before biases, value before advantage."""
        layers = [*self._convolutions, *self._shared, self._streams, self._value, self._advantage]
        return [variable for layer in layers for variable in (layer.w, layer.b)]

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Computes Q-values.

        Args:
            observation: uint8 [B, stack, height, width] frames, or float32 [B, ...].

        Returns:
            float32 [B, A].
        """
        hidden = observation
        if self._frames:
            hidden = tf.cast(tf.transpose(observation, [0, 2, 3, 1]), tf.float32) / 255.0
        for convolution in self._convolutions:
            hidden = tf.nn.relu(convolution(hidden))
        hidden = snt.flatten(hidden)
        for layer in self._shared:
            hidden = tf.nn.relu(layer(hidden))
        streams = tf.split(tf.nn.relu(self._streams(hidden)), 2, axis=1)
        value, advantage = self._value(streams[0]), self._advantage(streams[1])
        return value + advantage - tf.reduce_mean(advantage, axis=1, keepdims=True)


class ConvolutionalPolicy:
    """Evaluates a `DuelingNetwork` of frames for an actor."""

    def __init__(self, spec: EnvironmentSpec, hidden_sizes: Sequence[int], num_envs: int):
        """Makes a network for batches of `num_envs` observations; `set_variables` comes next."""
        network = DuelingNetwork(spec, hidden_sizes, seed=0)
        shape = [num_envs, *spec.observations.shape]
        self._parameters = network.parameters
        self._network = tf.function(
            network.__call__, input_signature=[tf.TensorSpec(shape, tf.uint8)], autograph=False
        )

    def __call__(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Computes Q-values, float32 [E, A], of uint8 [E, stack, height, width] frames."""
        return np.asarray(self._network(observation).numpy())

    def set_variables(self, variables: Variables) -> None:
        """Replaces the variables, in the order of `DuelingNetwork.parameters`."""
        for parameter, value in zip(self._parameters, variables, strict=True):
            parameter.assign(value)


class DensePolicy:
    """Evaluates a `DuelingNetwork` of vectors for an actor, with NumPy alone.

    One call of a TensorFlow function costs 250 microseconds of bookkeeping, however small the
    network: fifteen times what the arithmetic of a small dense network takes.
    """

    def __init__(self, num_envs: int):
        """Makes a network for batches of `num_envs` observations; `set_variables` comes next."""
        self._shape = (num_envs, -1)

    def __call__(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Computes Q-values, float32 [E, A], of observations [E, ...]."""
        hidden = observation.reshape(self._shape).astype(np.float32, copy=False)
        for weights, biases in self._hidden:
            hidden = np.maximum(hidden @ weights + biases, 0)
        return np.asarray(hidden @ self._heads + self._offsets)

    def set_variables(self, variables: Variables) -> None:
        """Replaces the variables, in the order of `DuelingNetwork.parameters`.

        The last layer becomes one matrix from both streams to Q-values, out of the value's weights,
        repeated for each action, and the advantages' weights without their mean.
        """
        layers = list(zip(variables[::2], variables[1::2], strict=True))
        *self._hidden, (w_value, b_value), (w_adv, b_adv) = layers
        centred = w_adv - w_adv.mean(axis=1, keepdims=True)
        self._heads = np.concatenate([np.repeat(w_value, len(b_adv), axis=1), centred])
        self._offsets = b_value + b_adv - b_adv.mean()
