"""The program of agents that compare policies by whole rollouts: augmented random search.

noise -> search, workers (a table on each host)
search -> variables -> relay -> workers, evaluator
workers <-> search (they take tasks, and give their results)
everyone -> counter -> coordinator -> stop
"""

import dataclasses
from typing import Optional

import numpy as np

from agents.search_agent import SearchAgent
from nodes import checkpoints
from nodes.actor import MakeEnvironments
from nodes.coordinator import coordinator_node
from nodes.counter import counter_node
from nodes.evaluator import evaluator_node
from nodes.noise import noise_node
from nodes.rollout_worker import rollout_worker_node
from nodes.search import search_node
from nodes.variable_relay import variable_relay_node
from nodes.variables import variable_source_node
from programs.program import Program
from usage import UsageError


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """How large a search program is and when it ends.

    Attributes:
        num_workers: Workers; how many there are has no influence on what is found.
        evaluator_envs: Environments of the evaluator, and so episodes a round.
        evaluator_duty: Share of its time in which the evaluator plays.
        max_steps: Environment steps of all rollouts used after which the program ends, or None.
        solved_at: Mean return of the evaluator's last 100 episodes at which it ends, or None.
        seed: What is tried, in which environments, derives from it.
        checkpoint_seconds: Time between checkpoints of search and counter.
        checkpoints_kept: Newest checkpoints of each that are kept.

    Raises:
        UsageError: A count is not positive.
    """

    num_workers: int = 4
    evaluator_envs: int = 10
    evaluator_duty: float = 0.15
    max_steps: Optional[int] = None
    solved_at: Optional[float] = None
    seed: int = 0
    checkpoint_seconds: float = checkpoints.DEFAULT.period_seconds
    checkpoints_kept: int = checkpoints.DEFAULT.keep

    def __post_init__(self) -> None:
        for name in ("num_workers", "evaluator_envs"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.max_steps is not None and self.max_steps < 1:
            raise UsageError(f"max_steps must be at least 1, got {self.max_steps}.")
        if self.seed < 0:
            raise UsageError(f"seed must not be negative, got {self.seed}.")
        self.schedule  # noqa: B018 - checks its fields

    @property
    def schedule(self) -> checkpoints.Schedule:
        """When checkpoints are saved."""
        return checkpoints.Schedule(self.checkpoint_seconds, self.checkpoints_kept)


def make_program(
    name: str, agent: SearchAgent, make_environments: MakeEnvironments, options: SearchOptions
) -> Program:
    """Draws the program.

    Args:
        name: The program's name.
        agent: What is searched, and how.
        make_environments: Makes the environments of workers and evaluator.
        options: Its size and its end.
    """
    program = Program(name)
    with program.group("counter"):
        counter = program.add_node(counter_node(options.schedule))
    with program.group("variables"):
        variables = program.add_node(variable_source_node())
    with program.group("relay"):
        nearby_variables = program.add_node(variable_relay_node(variables))
    with program.group("noise"):
        noise = program.add_node(noise_node(agent, options.seed))
    with program.group("search"):
        search = program.add_node(
            search_node(agent, noise, variables, counter, options.seed, options.schedule)
        )
    with program.group("worker"):
        for index in range(options.num_workers):
            program.add_node(
                rollout_worker_node(
                    agent,
                    make_environments,
                    noise,
                    search,
                    nearby_variables,
                    counter,
                    index=index,
                    seed=options.seed,
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
                seed=_evaluator_seed(options.seed),
            )
        )
    with program.group("coordinator"):
        program.add_node(coordinator_node(counter, options.max_steps, options.solved_at))
    return program


def _evaluator_seed(seed: int) -> int:
    """Returns the evaluator's seed, below 2^31, independent of the rollouts' environments."""
    sequence = np.random.SeedSequence([seed, *b"evaluator"])
    return int(sequence.generate_state(1)[0] >> 1)
