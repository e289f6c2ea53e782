"""The program of agents that learn from replay: Ape-X and R2D2 share it.

    actors -> replay -> learner -> variables -> relay -> actors, evaluator
    everyone -> counter -> coordinator -> stop

Several learners share the steps: learners -> secondary reducers -> reducer -> models -> learners,
and the reducer is who publishes the variables.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import ClassVar, Optional

import numpy as np

from agents.agent import Agent, TableSpec
from nodes.actor import MakeEnvironments, actor_node
from nodes.coordinator import coordinator_node
from nodes.counter import CounterClient, counter_node
from nodes.evaluator import evaluator_node
from nodes.gradients import gradient_reducers
from nodes.learner import learner_node
from nodes.parallel_learner import parallel_learner, parallel_learner_node
from nodes.reducer import Reduction
from nodes.replay import (
    MAX_SAVED_BYTES,
    ReplayHandle,
    is_saved,
    replay_at,
    replay_shards,
    shard_of,
)
from nodes.service import Handle
from nodes.variable_relay import variable_relay_node
from nodes.variables import VariableClient, variable_source_node
from programs.options import ProgramOptions
from programs.program import Program
from usage import UsageError


@dataclasses.dataclass(frozen=True)
class ReplayOptions(ProgramOptions):
    """How large a replay program is, beside what every program has.

    Attributes:
        num_actors: Actors.
        envs_per_actor: Environments of each actor, acted in with one forward pass.
        replay_shards: Replay servers.
        num_learners: Learners; several of them take each step together.
        num_reducers: Secondary reducers between them and the one that takes the steps.
        async_learners: Whether learners do not wait for each other, and each one's gradient is a
            step.
        max_staleness: Steps by which a gradient may then be late; four times as many as there are
            learners unless given.
        replay_addresses: Servers that stand already, as `host:port`, which are used instead.

    Raises:
        UsageError: A count is not positive.
    """

    COUNTS: ClassVar[tuple[str, ...]] = (
        *ProgramOptions.COUNTS,
        "num_actors",
        "envs_per_actor",
        "replay_shards",
        "num_learners",
    )

    num_actors: int = 4
    envs_per_actor: int = 1
    replay_shards: int = 1
    num_learners: int = 1
    num_reducers: int = 0
    async_learners: bool = False
    max_staleness: Optional[int] = None
    replay_addresses: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reduction  # noqa: B018 - checks its fields
        if not 0 <= self.num_reducers <= (self.num_learners if self.num_learners > 1 else 0):
            raise UsageError(
                f"num_reducers must be between 0 and num_learners ({self.num_learners}), and 0 "
                f"where there is one learner, got {self.num_reducers}."
            )

    @property
    def reduction(self) -> Reduction:
        """How the gradients of several learners become one step's."""
        if not self.async_learners:
            return Reduction(max_staleness=self.max_staleness or 0)
        staleness = 4 * self.num_learners if self.max_staleness is None else self.max_staleness
        return Reduction(synchronous=False, max_staleness=staleness)


def make_program(
    name: str, agent: Agent, make_environments: MakeEnvironments, options: ReplayOptions
) -> Program:
    """Draws the program.

    Args:
        name: The program's name.
        agent: What acts and learns.
        make_environments: Makes the environments of actors and evaluator.
        options: Its size and its end.
    """
    program = Program(name)
    with program.group("counter"):
        counter = program.add_node(counter_node(options.schedule))
    with program.group("variables"):
        variables = program.add_node(variable_source_node())
    with program.group("relay"):
        nearby_variables = program.add_node(variable_relay_node(variables))
    replay = _add_replay(program, agent, options)
    _add_learners(program, agent, replay, variables, counter, options)
    with program.group("actor"):
        for index in range(options.num_actors):
            program.add_node(
                actor_node(
                    agent,
                    make_environments,
                    replay,
                    nearby_variables,
                    counter,
                    index=index,
                    num_actors=options.num_actors,
                    num_envs=options.envs_per_actor,
                    seed=_seed(options.seed, "actor", index),
                )
            )
    with program.group("evaluator"):
        program.add_node(
            evaluator_node(
                agent,
                make_environments,
                nearby_variables,
                counter,
                num_envs=options.evaluator_envs,
                duty=options.evaluator_duty,
                seed=_seed(options.seed, "evaluator", 0),
            )
        )
    with program.group("coordinator"):
        program.add_node(coordinator_node(counter, options.max_steps, options.solved_at))
    return program


def _add_replay(program: Program, agent: Agent, options: ReplayOptions) -> ReplayHandle:
    """Adds replay servers to the program, unless there are some, and returns their handle."""
    if options.replay_addresses:
        return replay_at(options.replay_addresses, _standing_shard(agent, options))
    shards, replay = replay_shards(agent.table, options.replay_shards, options.schedule)
    with program.group("replay"):
        for shard in shards:
            program.add_node(shard)
    return replay


def _add_learners(
    program: Program,
    agent: Agent,
    replay: ReplayHandle,
    variables: Handle[VariableClient],
    counter: Handle[CounterClient],
    options: ReplayOptions,
) -> None:
    """Adds the learner, or several with what makes one step of their gradients."""
    seed = _seed(options.seed, "learner", 0)
    if options.num_learners == 1:
        with program.group("learner"):
            program.add_node(
                learner_node(agent, replay, variables, counter, seed, options.schedule)
            )
        return
    with program.group("models"):
        models = program.add_node(variable_source_node())
    primary, secondaries, reducers = gradient_reducers(
        functools.partial(parallel_learner, agent, seed),
        models,
        options.num_learners,
        options.num_reducers,
        options.reduction,
        schedule=options.schedule,
        variables=variables,
        publish_period=agent.publish_period,
        counter=counter,
    )
    with program.group("reducer"):
        program.add_node(primary)
    with program.group("secondary_reducer"):
        for secondary in secondaries:
            program.add_node(secondary)
    with program.group("learner"):
        for index in range(options.num_learners):
            program.add_node(
                parallel_learner_node(
                    agent,
                    replay,
                    reducers,
                    models,
                    counter,
                    index=index,
                    seed=_seed(options.seed, "learner", index),
                    synchronous=options.reduction.synchronous,
                )
            )


def check_standing_replay(agent: Agent, options: ReplayOptions) -> None:
    """Checks that the servers at `options.replay_addresses` are the replay that is needed.

    Raises:
        UsageError: A server does not answer, or something does not fit.
    """
    from nodes import standing_replay

    standing_replay.check(options.replay_addresses, _standing_shard(agent, options))


def _standing_shard(agent: Agent, options: ReplayOptions) -> TableSpec:
    return shard_of(agent.table, len(options.replay_addresses))


def notices(agent: Agent, options: ReplayOptions) -> list[str]:
    """Returns what the person who starts the program should know of it."""
    if options.replay_addresses:
        return []
    shard = shard_of(agent.table, options.replay_shards)
    if is_saved(shard):
        return []
    size = shard.max_size * shard.bytes_per_item
    return [
        f"Checkpoints leave out what is in replay: a shard may hold {size / 2**30:.1f} GiB, and "
        f"{MAX_SAVED_BYTES / 2**30:g} GiB can be saved. Replay that is started again or resumed "
        "begins empty and is filled as at the start."
    ]


def _seed(seed: int, group: str, index: int) -> int:
    """Returns the seed of one replica, below 2^31, independent of all others'."""
    sequence = np.random.SeedSequence([seed, *group.encode(), index])
    return int(sequence.generate_state(1)[0] >> 1)
