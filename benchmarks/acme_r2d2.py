"""Acme's R2D2 learner, for comparison: the same layers, on items as its own adder writes them."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import reverb
import sonnet as snt
import tensorflow as tf
from acme import datasets, specs
from acme.adders import reverb as adders
from acme.agents.tf.r2d2 import learning
from acme.tf import networks
from acme.tf import utils as tf2_utils
from acme.tf.networks import embedding, recurrence
from acme.utils import loggers
from acme.wrappers.observation_action_reward import OAR

from agents.agent import EnvironmentSpec
from agents.r2d2.config import R2D2Config


class Network(networks.R2D2AtariNetwork):
    """Acme's recurrent network, which unrolls only its LSTM, with our torso and sizes."""

    def __init__(self, config: R2D2Config, spec: EnvironmentSpec) -> None:
        num_actions = spec.actions.num_values
        super().__init__(num_actions, core=recurrence.LSTM(config.lstm_size))
        layers: list[Any] = []
        if spec.frame_stack:
            layers = [lambda x: tf.cast(x, tf.float32) / 255.0, networks.AtariTorso()]
        layers.append(snt.Flatten())
        if config.hidden_sizes:
            layers.append(snt.nets.MLP(config.hidden_sizes, activate_final=True))
        self._embed = embedding.OAREmbedding(torso=snt.Sequential(layers), num_actions=num_actions)
        self._head = networks.DuellingMLP(num_actions, hidden_sizes=[config.head_size])


def environment_spec(spec: EnvironmentSpec) -> specs.EnvironmentSpec:
    shape = spec.observations.shape
    if spec.frame_stack:
        shape = (*shape[1:], shape[0])  # Acme's frames are the last dimension.
    observations = OAR(
        observation=specs.Array(shape, spec.observations.dtype),
        action=specs.Array((), np.int32),
        reward=specs.Array((), np.float32),
    )
    rewards, discounts = specs.Array((), np.float32), specs.BoundedArray((), np.float32, 0, 1)
    return specs.EnvironmentSpec(observations, spec.actions, rewards, discounts)


def make_table(config: R2D2Config, spec: EnvironmentSpec, max_size: int) -> reverb.Table:
    """Returns a table of the form that Acme's R2D2 agent makes."""
    state = Network(config, spec).initial_state(1)
    extras = {"core_state": tf2_utils.squeeze_batch_dim(state)}
    signature = adders.SequenceAdder.signature(
        environment_spec(spec), extras, sequence_length=config.trace_length + 1
    )
    return reverb.Table(
        name=adders.DEFAULT_PRIORITY_TABLE,
        sampler=reverb.selectors.Prioritized(config.priority_exponent),
        remover=reverb.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverb.rate_limiters.MinSize(max_size),
        signature=signature,
    )


def item_of(columns: Mapping[str, np.ndarray], config: R2D2Config) -> adders.Step:
    """Returns a sequence of Acme's form out of columns [T + 1, ...] with the same content."""
    length = config.trace_length + 1
    state = np.zeros((length, config.lstm_size), np.float32)
    return adders.Step(
        observation=OAR(
            columns["observation"],
            columns["previous_action"].astype(np.int32),
            columns["previous_reward"].astype(np.float32),
        ),
        action=columns["action"].astype(np.int32),
        reward=columns["reward"].astype(np.float32),
        discount=columns["discount"].astype(np.float32),
        start_of_episode=np.zeros(length, bool),
        extras={"core_state": snt.LSTMState(state, state)},
    )


def make_learner(
    config: R2D2Config, spec: EnvironmentSpec, dataset: tf.data.Dataset, address: Optional[str]
) -> learning.R2D2Learner:
    """Returns Acme's learner; with an `address` it writes its priorities back there."""
    network = Network(config, spec)
    target = copy.deepcopy(network)
    for either in (network, target):
        tf2_utils.create_variables(either, [environment_spec(spec).observations])
    return learning.R2D2Learner(
        environment_spec(spec),
        network,
        target,
        burn_in_length=config.burn_in,
        sequence_length=config.trace_length + 1,
        dataset=dataset,
        reverb_client=reverb.TFClient(address) if address else None,
        logger=loggers.NoOpLogger(),
        discount=config.discount,
        target_update_period=config.target_update_period,
        importance_sampling_exponent=config.importance_exponent,
        max_replay_size=config.replay_size,
        learning_rate=config.learning_rate,
        max_priority_weight=config.max_priority_weight,
        n_step=config.n_step,
        clip_grad_norm=config.max_gradient_norm,
    )


def constant_dataset(items: Sequence[adders.Step]) -> tf.data.Dataset:
    """Returns a dataset of the same batch again and again."""
    data = tf.nest.map_structure(lambda *columns: np.stack(columns), *items)
    size = len(items)
    info = reverb.SampleInfo(
        key=np.arange(size, dtype=np.uint64),
        probability=np.full(size, 0.1),
        table_size=np.full(size, 10, np.int64),
        priority=np.ones(size),
    )
    return tf.data.Dataset.from_tensors(reverb.ReplaySample(info, data)).cache().repeat()


def replay_dataset(address: str, batch_size: int) -> tf.data.Dataset:
    """Returns the dataset that Acme's R2D2 agent would make."""
    return datasets.make_reverb_dataset(
        server_address=address, batch_size=batch_size, prefetch_size=tf.data.experimental.AUTOTUNE
    )
