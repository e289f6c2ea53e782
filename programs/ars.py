"""The program of agents that compare policies by whole rollouts: augmented random search.

noise -> search, workers (a table on each host)
search -> variables -> relay -> workers, evaluator
workers <-> search (they take tasks, and give their results)
everyone -> counter -> coordinator -> stop
"""

import dataclasses
from typing import ClassVar

import numpy as np

from agents.search_agent import SearchAgent
from nodes.actor import MakeEnvironments
from nodes.coordinator import coordinator_node
from nodes.counter import counter_node
from nodes.evaluator import evaluator_node
from nodes.noise import noise_node
from nodes.rollout_worker import rollout_worker_node
from nodes.search import search_node
from nodes.variable_relay import variable_relay_node
from nodes.variables import variable_source_node
from programs.options import ProgramOptions
from programs.program import Program


@dataclasses.dataclass(frozen=True)
class SearchOptions(ProgramOptions):
    """How large a search program is, beside what every program has.

    Attributes:
        num_workers: Workers; how many there are has no influence on what is found.

    Raises:
        UsageError: A count is not positive.
    """

    COUNTS: ClassVar[tuple[str, ...]] = (*ProgramOptions.COUNTS, "num_workers")

    num_workers: int = 4


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
