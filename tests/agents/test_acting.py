"""The actor that all agents with Q-values share."""

import numpy as np

from agents.acting import EpsilonGreedyActor
from tests.agents.episodes import FIRST, LAST, MID, Step, batch


class Recording:
    """A policy of two actions that keeps what it is called with."""

    num_envs = 2

    def __init__(self):
        self.seen = []

    def __call__(self, timestep, previous_actions):
        self.seen.append((timestep.step_type.tolist(), previous_actions.tolist()))
        return np.float32([[0, 1], [1, 0]])

    def set_variables(self, variables):
        self.variables = variables


def act(*timesteps):
    policy = Recording()
    actor = EpsilonGreedyActor(policy, 2, np.zeros(2), None, np.dtype(np.int32), seed=0)
    actions = [
        actor.step(batch([Step(kind, 0.0, discount, np.zeros(1)) for kind, discount in timestep]))
        for timestep in timesteps
    ]
    return policy.seen, [action.tolist() for action in actions]


def test_a_policy_is_told_the_actions_before():
    seen, actions = act([(FIRST, 1), (FIRST, 1)], [(MID, 1), (MID, 1)])
    assert actions == [[1, 0], [1, 0]]
    assert seen == [([FIRST, FIRST], [0, 0]), ([MID, MID], [1, 0])]


def test_the_network_is_left_out_only_where_all_environments_are_in_a_terminal_state():
    for other, calls in (((LAST, 0), 1), ((LAST, 1), 2), ((MID, 1), 2)):
        seen, _ = act([(FIRST, 1), (FIRST, 1)], [(LAST, 0), other])
        assert len(seen) == calls
