"""The recurrent dueling Q-network of R2D2."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import dm_env
import numpy as np
import sonnet as snt
import tensorflow as tf
from numpy.typing import NDArray

from agents import networks
from agents.agent import EnvironmentSpec, Variables

_FIRST = int(dm_env.StepType.FIRST)
_FORGET_BIAS = 1.0
"""Added to the forget gate: a fresh network remembers (Jozefowicz et al. 2015, section 2.2)."""


class Inputs(NamedTuple):
    """What the network sees in N timesteps.

    Attributes:
        observation: uint8 [N, stack, height, width] frames, or numbers [N, ...].
        previous_action: int [N], the action that led there, -1 where there is none.
        previous_reward: float32 [N], what it gave; the network sees its hyperbolic tangent.
    """

    observation: Any
    previous_action: Any
    previous_reward: Any


class RecurrentNetwork(snt.Module):
    """A torso, an LSTM that also sees the previous action and reward, and a dueling head.

    The LSTM is that of Hochreiter & Schmidhuber (1997) with forget gates (Gers et al. 2000):

        i, g, f, o = W x + U h + b
        c' = sigmoid(f + 1) c + sigmoid(i) tanh(g)
        h' = sigmoid(o) tanh(c')

    W x is computed for all timesteps at once; only U h needs one after the other. A state is h and
    c, side by side: float32 [B, 2 H].
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        hidden_sizes: Sequence[int],
        lstm_size: int,
        head_size: int,
        seed: int,
        name: str = "recurrent",
    ):
        """Makes the network and its variables.

        Args:
            spec: The environment's specs; actions must be discrete.
            hidden_sizes: Units of the torso's fully connected layers.
            lstm_size: H.
            head_size: Units of each dueling stream's hidden layer.
            seed: Seeds the variables.
            name: Name of the module.
        """
        super().__init__(name)
        init = networks.SeededInitializer(seed)
        self._num_actions = spec.actions.num_values
        self._torso = networks.Torso(spec, hidden_sizes, init)
        self._input = snt.Linear(4 * lstm_size, w_init=init)
        self._recurrent = snt.Linear(4 * lstm_size, with_bias=False, w_init=init)
        self._head = networks.DuelingHead(head_size, self._num_actions, init)
        self._gate_bias = np.repeat(np.array([0, 0, _FORGET_BIAS, 0], np.float32), lstm_size)
        dtype = tf.uint8 if spec.frame_stack else tf.float32
        observation = tf.zeros([1, 1, *spec.observations.shape], dtype)
        nothing = Inputs(observation, tf.zeros([1, 1], tf.int32), tf.zeros([1, 1]))
        self.unroll(nothing, tf.zeros([1, 2 * lstm_size]))

    @property
    def parameters(self) -> list[tf.Variable]:
        """The variables in the order of `agents.networks`, and U at the end."""
        layers = [*self._torso.layers, self._input, *self._head.layers]
        return [*networks.parameters_of(layers), self._recurrent.w]

    def unroll(self, inputs: Inputs, state: tf.Tensor) -> tf.Tensor:
        """Computes the Q-values of T timesteps one after the other.

        Args:
            inputs: [T, B, ...].
            state: float32 [B, 2 H], the state before the first timestep.

        Returns:
            float32 [T, B, A].
        """
        outputs, _ = self._run(inputs, state)
        q_values = self._head(tf.concat(outputs, axis=0))
        return tf.reshape(q_values, [len(outputs), -1, self._num_actions])

    def warm_up(self, inputs: Inputs, state: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Computes the state after T timesteps.

        Args:
            inputs: [T, B, ...].
            state: float32 [B, 2 H], the state before them.
            real: float32 [T, B], 0 where there is no timestep yet, and the state stays zero.

        Returns:
            float32 [B, 2 H].
        """
        return self._run(inputs, state, real)[1]

    def step(self, inputs: Inputs, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes Q-values float32 [B, A] and the next state of one timestep [B, ...]."""
        (output,), state = self._run(Inputs(*(column[None] for column in inputs)), state)
        return self._head(output), state

    def _run(
        self, inputs: Inputs, state: tf.Tensor, real: Optional[tf.Tensor] = None
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        h, c = tf.split(state, 2, axis=1)
        outputs = []
        exists = None if real is None else tf.unstack(real[:, :, None])
        for t, projected in enumerate(tf.unstack(self._project(inputs))):
            i, g, f, o = tf.split(projected + self._recurrent(h), 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            if exists is not None:
                h, c = h * exists[t], c * exists[t]
            outputs.append(h)
        return outputs, tf.concat([h, c], axis=1)

    def _project(self, inputs: Inputs) -> tf.Tensor:
        """Computes W x + b, with the forget gates' constant in b: float32 [T, B, 4 H]."""
        length, _, *shape = inputs.observation.shape
        features = self._torso(tf.reshape(inputs.observation, [-1, *shape]))
        action = tf.one_hot(tf.reshape(inputs.previous_action, [-1]), self._num_actions)
        reward = tf.tanh(tf.reshape(inputs.previous_reward, [-1, 1]))
        projected = self._input(tf.concat([features, action, reward], axis=1)) + self._gate_bias
        return tf.reshape(projected, [length, -1, projected.shape[1]])


class Memory:
    """What a recurrent policy carries from one timestep of its E environments to the next.

    Attributes:
        previous_action: int64 [E], the actions that led to the newest timestep, -1 for FIRST.
        previous_reward: float32 [E], what they gave, 0 for FIRST.
        before: float32 [E, 2 H], the state before the newest timestep was seen, zero for FIRST.
        after: float32 [E, 2 H], the state after it.
    """

    def __init__(self, num_envs: int, lstm_size: int) -> None:
        """Makes an empty memory."""
        self.previous_action = np.full(num_envs, -1)
        self.previous_reward = np.zeros(num_envs, np.float32)
        self.before = self.after = np.zeros((num_envs, 2 * lstm_size), np.float32)

    def see(self, timestep: dm_env.TimeStep, previous_actions: NDArray[np.int64]) -> None:
        """Moves on to `timestep`, and forgets where it begins an episode."""
        first = timestep.step_type == _FIRST
        self.previous_action = np.where(first, -1, previous_actions)
        self.previous_reward = np.where(first, np.float32(0), timestep.reward)
        self.before = np.where(first[:, None], np.float32(0), self.after)


class ConvolutionalPolicy:
    """Evaluates a `RecurrentNetwork` of frames for an actor; see `agents.acting.Policy`."""

    def __init__(self, network: RecurrentNetwork, spec: EnvironmentSpec, memory: Memory):
        """Takes a network for itself; `set_variables` comes next.

        Args:
            network: The network.
            spec: The environment's specs.
            memory: Its memory.
        """
        self.num_envs = len(memory.before)
        self.memory = memory
        self._parameters = network.parameters
        shape = [self.num_envs, *spec.observations.shape]
        inputs = Inputs(
            tf.TensorSpec(shape, tf.uint8),
            tf.TensorSpec([self.num_envs], tf.int32),
            tf.TensorSpec([self.num_envs], tf.float32),
        )
        state = tf.TensorSpec(memory.before.shape, tf.float32)
        self._step = tf.function(network.step, input_signature=[inputs, state], autograph=False)

    def __call__(
        self, timestep: dm_env.TimeStep, previous_actions: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Computes Q-values, float32 [E, A], of uint8 [E, stack, height, width] frames."""
        memory = self.memory
        memory.see(timestep, previous_actions)
        actions = memory.previous_action.astype(np.int32)
        inputs = Inputs(timestep.observation, actions, memory.previous_reward)
        q_values, state = self._step(inputs, memory.before)
        memory.after = state.numpy()
        return np.asarray(q_values.numpy())

    def set_variables(self, variables: Variables) -> None:
        """Replaces the variables, in the order of `RecurrentNetwork.parameters`."""
        for parameter, value in zip(self._parameters, variables, strict=True):
            parameter.assign(value)


class VectorPolicy:
    """Evaluates a `RecurrentNetwork` of vectors for an actor, with NumPy alone.

    See `agents.acting.Policy`, and `agents.apex.networks.DensePolicy` for the reason.
    """

    def __init__(self, num_actions: int, memory: Memory):
        """Makes a network; `set_variables` comes next.

        Args:
            num_actions: A.
            memory: Its memory.
        """
        self.num_envs = len(memory.before)
        self.memory = memory
        self._actions = np.arange(num_actions)

    def __call__(
        self, timestep: dm_env.TimeStep, previous_actions: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Computes Q-values, float32 [E, A], of observations [E, ...]."""
        memory = self.memory
        memory.see(timestep, previous_actions)
        observation = timestep.observation.reshape(self.num_envs, -1)
        features = networks.relu_layers(observation.astype(np.float32, copy=False), self._torso)
        action = (memory.previous_action[:, None] == self._actions).astype(np.float32)
        reward = np.tanh(memory.previous_reward[:, None])
        h, c = np.split(memory.before, 2, axis=1)
        gates = np.concatenate([features, action, reward, h], axis=1) @ self._weights + self._biases
        i, g, f, o = np.split(gates, 4, axis=1)
        c = _sigmoid(f + _FORGET_BIAS) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        memory.after = np.concatenate([h, c], axis=1)
        weights, biases = self._head
        return np.asarray(networks.relu_layers(h, [self._streams]) @ weights + biases)

    def set_variables(self, variables: Variables) -> None:
        """Replaces the variables, in the order of `RecurrentNetwork.parameters`."""
        *layers, recurrent = variables
        *self._torso, into_lstm, self._streams, value, advantage = networks.in_layers(layers)
        self._weights, self._biases = np.concatenate([into_lstm[0], recurrent]), into_lstm[1]
        self._head = networks.merge_streams(value, advantage)


def _sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    half = np.float32(0.5)
    return np.asarray(half * (np.tanh(half * x) + np.float32(1)))
