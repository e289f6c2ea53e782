import dataclasses

import pytest

from agents.r2d2.config import R2D2Config
from usage import UsageError

SMALL = R2D2Config.small()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"burn_in": 50}, r"burn_in must be at least 0 and shorter than trace_length \(50\)"),
        ({"burn_in": -1}, "burn_in must be at least 0"),
        ({"period": 0}, "period must be at least 1"),
        ({"period": 51}, r"period must be at least 1 and not longer than trace_length \(50\)"),
        ({"lstm_size": 0}, "needs a network with a recurrent state: lstm_size must be at least 1"),
        ({"n_step": 43}, r"n_step must not be longer than the trained part .*\(42\), got 43"),
        ({"trace_length": 0, "burn_in": 0}, "trace_length must be greater than 0"),
        ({"head_size": 0}, "head_size must be greater than 0"),
        ({"max_priority_weight": 1.5}, "max_priority_weight must lie between 0 and 1"),
        ({"discount": -0.5}, "discount must lie between 0 and 1"),
        ({"hidden_sizes": (0,)}, "hidden_sizes must name layers of at least one unit"),
    ],
)
def test_what_does_not_fit_is_told_in_one_sentence(fields, message):
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(SMALL, **fields)


def test_the_widest_settings_that_fit_are_taken():
    dataclasses.replace(SMALL, burn_in=0, period=50, n_step=50, hidden_sizes=())
    dataclasses.replace(SMALL, burn_in=49, period=1, n_step=1)


def test_the_papers_preset_has_the_papers_numbers():
    paper = R2D2Config.paper()
    assert (paper.discount, paper.n_step, paper.reward_clip) == (0.997, 5, None)
    assert (paper.batch_size, paper.replay_size) == (64, 100_000)
    assert (paper.trace_length, paper.burn_in, paper.period) == (80, 40, 40)
    assert (paper.priority_exponent, paper.importance_exponent) == (0.9, 0.6)
    assert (paper.max_priority_weight, paper.lstm_size, paper.head_size) == (0.9, 512, 512)
    assert (paper.learning_rate, paper.optimizer_epsilon) == (1e-4, 1e-3)
    assert (paper.target_update_period, paper.variable_update_period) == (2500, 400)
    assert (paper.epsilon_base, paper.epsilon_alpha) == (0.4, 7.0)
