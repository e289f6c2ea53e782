"""Which items a shard has evicted is worked out from its inserts."""

import numpy as np
import pytest

from nodes.eviction import Eviction
from nodes.replay_info import ShardInfo


def info(inserted: int, size: int = 100) -> ShardInfo:
    return ShardInfo("items", size, 100, inserted, 0, 1, 1.0, -1e9, 1e9)


def gone(eviction: Eviction, *written_ns: int) -> list[bool]:
    return list(eviction.is_gone(np.array(written_ns, np.int64)))


def test_items_from_before_a_whole_tables_inserts_are_gone() -> None:
    eviction = Eviction()
    for second in range(10):
        eviction.note(second, info(50 * second))
    # Since second 7 there were 100 inserts: what was made before is gone.
    assert gone(eviction, 6, 7, 8) == [True, False, False]


def test_what_is_not_known_to_be_gone_is_there() -> None:
    eviction = Eviction()
    assert gone(eviction, 0) == [False]
    eviction.note(1, info(10_000))
    assert gone(eviction, 0) == [False]


def test_a_shard_that_began_anew_has_nothing_from_before() -> None:
    eviction = Eviction()
    eviction.note(1, info(500))
    eviction.note(2, info(3, size=3))
    assert gone(eviction, 1, 2) == [True, False]


def test_of_a_shard_that_came_back_from_a_checkpoint_only_what_came_since_is_gone() -> None:
    eviction = Eviction()
    for second in range(10):
        eviction.note(second, info(10 * second))
    eviction.note(10, info(50))
    assert gone(eviction, 4, 5, 9, 10) == [False, True, True, False]


@pytest.mark.parametrize("inserts", [0, 7])
def test_notes_do_not_pile_up(inserts: int) -> None:
    eviction = Eviction()
    for second in range(10_000):
        eviction.note(second, info(inserts * second))
    assert len(eviction._inserted) < 20
