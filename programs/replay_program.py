"""The program of agents that learn from replay: Ape-X and R2D2 share it.

actors -> replay -> learner -> variables -> actors, evaluator
everyone -> counter -> coordinator -> stop
"""

import dataclasses
from typing import Optional

import numpy as np

from agents.agent import Agent
from nodes.actor import MakeEnvironments, actor_node
from nodes.coordinator import coordinator_node
from nodes.counter import counter_node
from nodes.evaluator import evaluator_node
from nodes.learner import learner_node
from nodes.replay import replay_shards
from nodes.variables import variable_source_node
from programs.program import Program
from usage import UsageError


@dataclasses.dataclass(frozen=True)
class ReplayOptions:
    """How large a replay program is and when it ends.

    Attributes:
        num_actors: Actors.
        envs_per_actor: Environments of each actor, acted in with one forward pass.
        replay_shards: Replay servers.
        evaluator_envs: Environments of the evaluator, and so episodes a round.
        evaluator_duty: Share of its time in which the evaluator plays.
        max_steps: Environment steps of all actors after which the program ends, or None.
        solved_at: Mean return of the evaluator's last 100 episodes at which it ends, or None.
        seed: Every replica's seed derives from it.

    Raises:
        UsageError: A count is not positive.
    """

    num_actors: int = 4
    envs_per_actor: int = 1
    replay_shards: int = 1
    evaluator_envs: int = 10
    evaluator_duty: float = 0.15
    max_steps: Optional[int] = None
    solved_at: Optional[float] = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_actors", "envs_per_actor", "replay_shards", "evaluator_envs"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.max_steps is not None and self.max_steps < 1:
            raise UsageError(f"max_steps must be at least 1, got {self.max_steps}.")
        if self.seed < 0:
            raise UsageError(f"seed must not be negative, got {self.seed}.")


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
        counter = program.add_node(counter_node())
    with program.group("variables"):
        variables = program.add_node(variable_source_node())
    shards, replay = replay_shards(
        agent.table, options.replay_shards, agent.batch_size, options.num_actors
    )
    with program.group("replay"):
        for shard in shards:
            program.add_node(shard)
    with program.group("learner"):
        program.add_node(
            learner_node(agent, replay, variables, counter, _seed(options.seed, "learner", 0))
        )
    with program.group("actor"):
        for index in range(options.num_actors):
            program.add_node(
                actor_node(
                    agent,
                    make_environments,
                    replay,
                    variables,
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
                variables,
                counter,
                num_envs=options.evaluator_envs,
                duty=options.evaluator_duty,
                seed=_seed(options.seed, "evaluator", 0),
            )
        )
    with program.group("coordinator"):
        program.add_node(coordinator_node(counter, options.max_steps, options.solved_at))
    return program


def _seed(seed: int, group: str, index: int) -> int:
    """Returns the seed of one replica, below 2^31, independent of all others'."""
    sequence = np.random.SeedSequence([seed, *group.encode(), index])
    return int(sequence.generate_state(1)[0] >> 1)
