"""The dueling Q-network of Ape-X."""

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
import sonnet as snt
import tensorflow as tf
from numpy.typing import NDArray

from agents import networks
from agents.agent import EnvironmentSpec, Variables


class DuelingNetwork(snt.Module):
    """A torso and a dueling head."""

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
        init = networks.SeededInitializer(seed)
        self._torso = networks.Torso(spec, hidden_sizes[:-1], init)
        self._head = networks.DuelingHead(hidden_sizes[-1], spec.actions.num_values, init)
        dtype = tf.uint8 if spec.frame_stack else tf.float32
        self(tf.zeros([1, *spec.observations.shape], dtype))

    @property
    def parameters(self) -> list[tf.Variable]:
        """The variables in the order of `agents.networks`."""
        return networks.parameters_of([*self._torso.layers, *self._head.layers])

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Computes Q-values.

        Args:
            observation: uint8 [B, stack, height, width] frames, or float32 [B, ...].

        Returns:
            float32 [B, A].
        """
        return self._head(self._torso(observation))


class ConvolutionalPolicy:
    """Evaluates a `DuelingNetwork` of frames for an actor; see `agents.acting.Policy`."""

    def __init__(self, spec: EnvironmentSpec, hidden_sizes: Sequence[int], num_envs: int):
        """Makes a network for batches of `num_envs` observations; `set_variables` comes next."""
        self.num_envs = num_envs
        network = DuelingNetwork(spec, hidden_sizes, seed=0)
        shape = [num_envs, *spec.observations.shape]
        self._parameters = network.parameters
        self._network = tf.function(
            network.__call__, input_signature=[tf.TensorSpec(shape, tf.uint8)], autograph=False
        )

    def __call__(
        self, timestep: dm_env.TimeStep, previous_actions: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Computes Q-values, float32 [E, A], of uint8 [E, stack, height, width] frames."""
        return np.asarray(self._network(timestep.observation).numpy())

    def set_variables(self, variables: Variables) -> None:
        """Replaces the variables, in the order of `DuelingNetwork.parameters`."""
        for parameter, value in zip(self._parameters, variables, strict=True):
            parameter.assign(value)


class DensePolicy:
    """Evaluates a `DuelingNetwork` of vectors for an actor, with NumPy alone.

    See `agents.acting.Policy`. One call of a TensorFlow function costs 250 microseconds of
    bookkeeping, however small the network: fifteen times what the arithmetic of a small dense
    network takes.
    """

    def __init__(self, num_envs: int):
        """Makes a network for batches of `num_envs` observations; `set_variables` comes next."""
        self.num_envs = num_envs

    def __call__(
        self, timestep: dm_env.TimeStep, previous_actions: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Computes Q-values, float32 [E, A], of observations [E, ...]."""
        observation: NDArray[Any] = timestep.observation
        hidden = observation.reshape(self.num_envs, -1).astype(np.float32, copy=False)
        weights, biases = self._head
        return np.asarray(networks.relu_layers(hidden, self._hidden) @ weights + biases)

    def set_variables(self, variables: Variables) -> None:
        """Replaces the variables, in the order of `DuelingNetwork.parameters`."""
        *self._hidden, value, advantage = networks.in_layers(variables)
        self._head = networks.merge_streams(value, advantage)
