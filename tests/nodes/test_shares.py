"""Draws over shards are what draws from one big table would be."""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import reverb
from scipy import stats

from agents.value_losses import importance_weights
from nodes import sampling, shard_sampling, shares
from nodes.origins import ORIGIN
from nodes.replay import ReplayClient
from nodes.replay_server import make_table
from nodes.sample_feeds import ShardAddress
from nodes.samples import Samples
from nodes.sampling import Batch, Sampler
from tests.nodes.replays import table
from tests.support import in_node, wait_for

BATCH = 512
BATCHES = 60
ALPHA = 0.6
SPEC = dataclasses.replace(table(), priority_exponent=ALPHA)
PRIORITIES = np.random.default_rng(3).uniform(0.1, 1.0, 60)
PRIORITIES[:15] *= 30
SHARD = np.repeat([0, 1, 2, 3], [15, 5, 30, 10])
"""The first shard has by far most of the mass, the second the fewest items."""


def test_a_sample_tells_the_mass_of_its_table() -> None:
    priorities = np.array([1.0, 2.0, 5.0])
    scaled = priorities**ALPHA
    for priority, probability in zip(priorities, scaled / scaled.sum(), strict=True):
        assert shares.mass(priority, probability, ALPHA) == pytest.approx(scaled.sum())


def test_shares_are_in_proportion_to_mass() -> None:
    assert shares.shares({0: 1.0, 2: 3.0}) == {0: 0.25, 2: 0.75}


def test_shards_without_mass_are_alike() -> None:
    assert shares.shares({0: 0.0, 1: 0.0}) == {0: 0.5, 1: 0.5}


def test_all_draws_are_given_to_some_shard() -> None:
    rng = np.random.default_rng(0)
    counts = collections.Counter[int]()
    for _ in range(1000):
        drawn = shares.draw(rng, 7, {0: 1.0, 1: 3.0, 2: 0.0})
        assert sum(drawn.values()) == 7
        counts.update(drawn)
    assert counts[2] == 0 and 1600 < counts[0] < 1900


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_WAIT_SECONDS", 10.0)  # So that none is late on a busy machine.


def replay(servers: list[reverb.Server], num_shards: int) -> ReplayClient:
    """Returns a replay of `num_shards` shards with the same items, the n-th of which says n."""

    def fill() -> None:
        for shard, server in enumerate(servers):
            client = ReplayClient([f"localhost:{server.port}"], SPEC)
            writer = client.writer(0, 1)
            for number in np.flatnonzero(SHARD % num_shards == shard):
                writer.append({"row": np.array([number, 0], np.float32)})
                item = {"row": writer.history["row"][-1]}
                writer.create_item(float(PRIORITIES[number]), item)
            writer.end_episode()
            writer.close()

    servers += [reverb.Server([make_table(SPEC)]) for _ in range(num_shards)]
    in_node(fill)
    return ReplayClient([f"localhost:{server.port}" for server in servers], SPEC)


def drawn(sampler: Sampler) -> list[Batch]:
    batches = [wait_for(sampler.next) for _ in range(BATCHES)]
    sampler.close()
    return batches


def p_value(batches: list[Batch]) -> float:
    """Returns how likely a chi-square as large as that of the batches is for one big table."""
    numbers = np.concatenate([batch.sample.data["row"][:, 0] for batch in batches]).astype(int)
    observed = np.bincount(numbers, minlength=len(PRIORITIES))
    return float(stats.chisquare(observed, observed.sum() * one_big_table()).pvalue)


def one_big_table() -> Any:
    """Returns with which probability one table would draw each item."""
    scaled: Any = PRIORITIES**ALPHA
    return scaled / scaled.sum()


@pytest.mark.parametrize("num_shards", [1, 2, 4])
def test_items_are_drawn_as_from_one_big_table(
    num_shards: int, servers: list[reverb.Server]
) -> None:
    client = replay(servers, num_shards)
    batches = drawn(client.sampler(BATCH))
    assert p_value(batches) > 1e-6
    for batch in batches:
        numbers = np.asarray(batch.sample.data["row"])[:, 0].astype(int)
        # Reverb itself says with which priority it has drawn an item.
        np.testing.assert_allclose(batch.priorities, PRIORITIES[numbers])
        np.testing.assert_allclose(batch.sample.probability, one_big_table()[numbers])
        assert set(batch.sample.table_size.numpy()) == {len(PRIORITIES)}


def _alike(masses: Mapping[int, float]) -> dict[int, float]:
    return dict.fromkeys(masses, 1 / len(masses))


def _by_size(masses: Mapping[int, float]) -> dict[int, float]:
    sizes = np.bincount(SHARD)
    return {shard: sizes[shard] / len(SHARD) for shard in masses}


@pytest.mark.parametrize("wrong", [_alike, _by_size])
def test_the_test_sees_shards_that_are_drawn_otherwise(
    wrong: Callable[..., Any], servers: list[reverb.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "shares", wrong)
    assert p_value(drawn(replay(servers, 4).sampler(BATCH))) < 1e-12


def mean_update(batches: list[Batch], weights_of: Callable[[Batch], Any]) -> float:
    """Returns the mean of w_i f(i), what a learner's gradients are of some function of items."""
    return float(
        np.mean(
            [
                weights_of(batch) * np.sin(np.asarray(batch.sample.data["row"])[:, 0])
                for batch in batches
            ]
        )
    )


def normalised_once(batch: Batch) -> Any:
    weights, _ = importance_weights(batch.sample.probability, batch.sample.table_size, 1.0)
    return np.asarray(weights)


def normalised_by_shard(batch: Batch) -> Any:
    """Returns weights as one would compute them within each shard."""
    weights = np.zeros(BATCH)
    masses = np.bincount(SHARD, PRIORITIES**ALPHA)
    for shard, size in enumerate(np.bincount(SHARD)):
        here = batch.shards == shard
        within = batch.priorities[here] ** ALPHA / masses[shard]
        if here.any():
            weights[here], _ = importance_weights(within, np.full(here.sum(), size), 1.0)
    return weights


def expected_update(least: float) -> float:
    """Returns the mean update in closed form.

    E[w f] = sum_i P(i) f(i) (N P(i))^-1 / max_j (N P(j))^-1 = mean_i f(i) * N min_j P(j).
    """
    return float(np.sin(np.arange(len(PRIORITIES))).mean() * len(PRIORITIES) * least)


def test_the_expected_update_is_that_of_one_big_table(servers: list[reverb.Server]) -> None:
    batches = drawn(replay(servers, 4).sampler(BATCH))
    expected = expected_update(one_big_table().min())
    deviation = 4 / np.sqrt(BATCH * BATCHES)  # Weights and f are at most 1.
    assert mean_update(batches, normalised_once) == pytest.approx(expected, abs=deviation / 4)
    assert abs(mean_update(batches, normalised_by_shard) - expected) > deviation


def test_a_shard_whose_mass_grows_from_nothing_is_drawn_from(
    servers: list[reverb.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_sampling, "_STALE_BATCHES", 3)
    client = replay(servers, 2)
    nothing = {number: 0.0 for number in keys_of(servers[0])}
    servers[0].localhost_client().mutate_priorities("items", updates=nothing)
    sampler = client.sampler(BATCH)
    wait_for(lambda: set(wait_for(sampler.next).shards.tolist()) == {1})
    much = dict.fromkeys(nothing, 1000.0)
    servers[0].localhost_client().mutate_priorities("items", updates=much)
    wait_for(lambda: np.count_nonzero(wait_for(sampler.next).shards == 0) > BATCH / 2)
    sampler.close()


def keys_of(server: reverb.Server) -> set[int]:
    client = reverb.Client(f"localhost:{server.port}")
    return {sample.info.key for sample in client.sample("items", 3000, emit_timesteps=False)}


class Shard:
    """A shard's sampler whose samples are put down by hand."""

    def __init__(self, mass: float, size: int) -> None:
        self.mass: float | None = mass
        self.size = size
        self.name = "shard"
        self.available = 0
        self.given = 0

    def take(self, number: int) -> list[Samples]:
        number = min(number, self.available)
        self.available -= number
        self.given += number
        column = np.zeros(number)
        data = {"row": np.zeros((number, 2), np.float32), ORIGIN: np.zeros((number, 4), np.int64)}
        keys, sizes = column.astype(np.uint64), np.full(number, self.size)
        return [Samples(keys, column + 1 / self.size, column + 1, sizes, data)] if number else []

    def count_batch(self) -> None:
        pass


def by_hand(monkeypatch: pytest.MonkeyPatch, *shards: Shard) -> Sampler:
    made = iter(shards)
    monkeypatch.setattr(Sampler, "_sample", lambda self, address: next(made))
    monkeypatch.setattr(sampling.threading.Thread, "start", lambda self: None)
    monkeypatch.setattr(sampling, "_WAIT_SECONDS", 0.01)
    return Sampler([ShardAddress("")] * len(shards), SPEC, 8, seed=0)


def test_shards_that_are_late_in_turn_do_not_hold_the_learner_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Shard(1.0, 10), Shard(1.0, 10)
    sampler = by_hand(monkeypatch, first, second)
    first.available = 7
    assert sampler._make() is None  # The second was late, and then the first one has too few.
    assert sampler._plan is not None and sampler._plan.late == {1}
    second.available = 100
    batch = wait_for(sampler._make)
    assert set(batch.shards) == {1}


def test_while_shards_are_late_their_shares_are_what_they_gave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Shard(3.0, 10), Shard(1.0, 10)
    sampler = by_hand(monkeypatch, first, second)
    first.available = second.available = 8
    batch = sampler._make()
    assert batch is not None
    np.testing.assert_allclose(
        batch.sample.probability, np.where(batch.shards == 0, 0.75, 0.25) / 10
    )
    first.available, second.available = 3, 100
    seen = 0
    for _ in range(20):
        first.available = 3
        batch = sampler._make()
        if batch is None:
            continue
        seen += 1
        here = np.count_nonzero(batch.shards == 0)
        expected = np.where(batch.shards == 0, here / 8, 1 - here / 8) / 10
        np.testing.assert_allclose(batch.sample.probability, expected)
        second.available = 100
    assert seen > 10
