import dataclasses

import pytest

from agents.apex.config import ApexConfig
from usage import UsageError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("discount", 1.5),
        ("n_step", 0),
        ("reward_clip", 0.0),
        ("hidden_sizes", ()),
        ("hidden_sizes", (64, 0)),
        ("epsilon_base", -0.1),
        ("epsilon_alpha", -1.0),
        ("evaluator_epsilon", 2.0),
        ("batch_size", 0),
        ("replay_size", -1),
        ("min_replay_size", 0),
        ("priority_exponent", 1.1),
        ("importance_exponent", -0.1),
        ("priority_epsilon", 0.0),
        ("samples_per_insert", 0.0),
        ("error_buffer", float("nan")),
        ("optimizer", "sgd"),
        ("learning_rate", 0.0),
        ("rmsprop_decay", 1.01),
        ("optimizer_epsilon", 0.0),
        ("max_gradient_norm", -40.0),
        ("target_update_period", 0),
        ("variable_update_period", 0),
        ("publish_period", 0),
    ],
)
def test_a_field_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(UsageError, match=f"^{field} must .*, got "):
        dataclasses.replace(ApexConfig.small(), **{field: value})


def test_learning_may_not_start_before_there_is_one_batch():
    with pytest.raises(UsageError, match=r"min_replay_size must be at least batch_size \(64\)"):
        dataclasses.replace(ApexConfig.small(), batch_size=64, min_replay_size=63)


def test_learning_may_not_wait_for_more_than_replay_holds():
    with pytest.raises(UsageError, match=r"replay_size must be at least min_replay_size \(2000\)"):
        dataclasses.replace(ApexConfig.small(), min_replay_size=2000, replay_size=1999)


def test_a_ratio_of_samples_to_inserts_needs_an_error_buffer():
    with pytest.raises(UsageError, match="must be given together"):
        ApexConfig(samples_per_insert=8.0)


@pytest.mark.parametrize(("batch_size", "least"), [(64, 80), (256, 256)])
def test_the_error_buffer_holds_a_batch_and_twice_the_ratio(batch_size, least):
    fields = {"batch_size": batch_size, "samples_per_insert": 40.0, "min_replay_size": 1000}
    ApexConfig(**fields, error_buffer=float(least))
    with pytest.raises(UsageError, match=f"error_buffer must be at least {least} "):
        ApexConfig(**fields, error_buffer=least - 1.0)


def test_the_papers_preset_has_the_papers_numbers():
    paper = ApexConfig.paper()
    assert (paper.discount, paper.n_step, paper.reward_clip) == (0.99, 3, 1.0)
    assert (paper.batch_size, paper.replay_size, paper.min_replay_size) == (512, 2_000_000, 50_000)
    assert (paper.priority_exponent, paper.importance_exponent) == (0.6, 0.4)
    assert (paper.epsilon_base, paper.epsilon_alpha) == (0.4, 7.0)
    assert (paper.optimizer, paper.learning_rate) == ("rmsprop", 6.25e-5)
    assert (paper.rmsprop_decay, paper.optimizer_epsilon) == (0.95, 1.5e-7)
    assert (paper.max_gradient_norm, paper.target_update_period) == (40.0, 2500)
    assert (paper.variable_update_period, paper.samples_per_insert) == (100, None)
