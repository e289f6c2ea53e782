"""Versions in shared memory: whole, never overwritten under a reader, and free when unused."""

import gc
import multiprocessing
import os
import pathlib
import signal
from typing import Any, Optional

import numpy as np
import pytest
import tensorflow as tf

from nodes import shared_versions
from nodes.shared_versions import Board, NotHere, Place, Record, Store, Writer, map_version
from nodes.version import Version, empty_block, pack, packed_size, unpack
from tests.support import wait_for


def version(step: int, size: int = 1000) -> Version:
    return Version(7, step, step + 1, 0.5, [np.full(size, step, np.float32), np.full(3, step)])


def writer_of(store: Store) -> Writer:
    return Writer(store.place(), store.add_buffer)


def newest(place: Place) -> Optional[Version]:
    record = Board(place).read()
    mapped = None if record is None else map_version(record)
    return mapped and mapped.version


def buffers(store: Store) -> int:
    return len(store.place().buffers)


@pytest.mark.parametrize(
    "values",
    [
        [np.arange(6.0).reshape(2, 3), np.array(3, np.uint8), np.float32([1, 2])],
        [np.zeros((0, 4)), np.array([True])],
        [],
        [np.arange(12).reshape(3, 4).T],
        [np.full(k, k, np.float16) for k in range(500)],
    ],
    ids=["several", "an empty one", "none", "transposed", "many"],
)
def test_a_version_comes_out_as_it_went_in(values: list[Any]) -> None:
    store = Store()
    writer_of(store).write(Version(1, 2, 3, 4.5, values))
    found = newest(store.place())
    assert found is not None and found[:4] == (1, 2, 3, 4.5)
    for value, expected in zip(found.values, values, strict=True):
        np.testing.assert_array_equal(value, expected)
        assert value.dtype == expected.dtype


def test_a_block_is_packed_the_same_without_shared_memory() -> None:
    block = empty_block(packed_size(version(3)))
    pack(version(3), block)
    found = unpack(block)
    assert found is not None and found.key == (7, 3) and (found.values[0] == 3).all()


def test_tensorflow_takes_the_mapped_arrays_as_they_are() -> None:
    store = Store()
    writer_of(store).write(version(3))
    found = newest(store.place())
    assert found is not None
    variable = tf.Variable(tf.zeros(1000))
    variable.assign(found.values[0])
    assert np.shares_memory(np.asarray(variable.read_value()), found.values[0])


def test_what_a_reader_changes_nobody_else_sees() -> None:
    store = Store()
    writer_of(store).write(version(3))
    ours, theirs = newest(store.place()), newest(store.place())
    assert ours is not None and theirs is not None
    ours.values[0][:] = 9
    again = newest(store.place())
    assert again is not None
    assert (theirs.values[0] == 3).all() and (again.values[0] == 3).all()


def test_a_version_that_is_read_stays_as_it_is_and_one_that_is_not_makes_room() -> None:
    store = Store()
    writer = writer_of(store)
    writer.write(version(0))
    held = newest(store.place())
    assert held is not None
    for step in range(1, 20):
        writer.write(version(step))
    assert (held.values[0] == 0).all()
    assert buffers(store) == 3  # One is read, one is the newest, one is filled.
    del held
    gc.collect()
    for step in range(20, 40):
        writer.write(version(step))
    assert buffers(store) == 3


def test_arrays_keep_their_version_even_if_they_alone_are_left() -> None:
    store = Store()
    writer = writer_of(store)
    writer.write(version(0))
    found = newest(store.place())
    assert found is not None
    variable = tf.Variable(tf.zeros(1000))
    variable.assign(found.values[0])
    del found
    gc.collect()
    for step in range(1, 10):
        writer.write(version(step))
    assert (variable.numpy() == 0).all()


def test_versions_may_grow_and_shrink() -> None:
    store = Store()
    writer = writer_of(store)
    for step, size in enumerate([10, 100_000, 10, 1_000_000, 1]):
        writer.write(version(step, size))
        found = newest(store.place())
        assert found is not None and (found.values[0] == step).all()
        assert found.values[0].size == size


def test_memory_that_is_not_needed_for_long_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    writer = writer_of(store)
    held = []
    for step in range(6):
        writer.write(version(step))
        held.append(newest(store.place()))
    held.clear()
    gc.collect()
    monkeypatch.setattr(shared_versions, "_SPARE_SECONDS", 0.0)
    writer.write(version(6))
    sizes = [os.stat(path).st_size for path in store.place().buffers]
    assert sorted(size > 0 for size in sizes) == [False] * 4 + [True] * 2


def test_a_half_written_board_says_what_it_said_before() -> None:
    store = Store()
    writer_of(store).write(version(1))
    board = Board(store.place())
    before = board.read()
    board._memory[shared_versions._RECORD + 10] ^= 1
    assert board.read() == before and before is not None
    assert Board(store.place()).read() is None


def test_a_version_that_was_replaced_before_it_was_mapped_is_not_mistaken_for_another() -> None:
    store = Store()
    writer = writer_of(store)
    writer.write(version(1))
    record = Board(store.place()).read()
    assert record is not None
    writer.write(version(2))
    writer.write(version(3))  # Into the buffer of the first.
    assert buffers(store) == 2
    assert map_version(record) is None


def test_a_file_in_a_buffers_place_is_not_taken_for_a_version(tmp_path: pathlib.Path) -> None:
    (tmp_path / "log").write_text("something else")
    with (tmp_path / "log").open() as file:
        path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        assert map_version(Record(1, 2, 3, path)) is None


def test_a_board_of_another_host_is_not_here() -> None:
    place = Store().place()
    with pytest.raises(NotHere):
        Board(place._replace(host="another"))
    store = Store()
    with pytest.raises(NotHere):
        Board(store.place()._replace(token="00"))


def test_a_board_knows_when_its_owner_is_gone() -> None:
    store = Store()
    board = Board(store.place())
    assert board.is_owned
    store.close()
    assert not board.is_owned


def test_a_question_is_taken_once() -> None:
    store = Store()
    reader, owner = Board(store.place()), Board(store.place())
    assert not owner.take_question()
    reader.ask()
    assert owner.take_question() and not owner.take_question()


def _read_until(place: Place, last: int, found: Any) -> None:
    """Reads all that it can see until version `last`, and tells whether each was whole."""
    board = Board(place)
    whole = True
    step = -1
    while step < last:
        record = board.read()
        mapped = None if record is None or record.step == step else map_version(record)
        if mapped is not None:
            seen = mapped.version
            whole &= all((value == seen.step).all() for value in seen.values)
            step = seen.step
    found.put(whole)


def test_readers_in_other_processes_never_see_a_mixture() -> None:
    store = Store()
    writer = writer_of(store)
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    readers = [
        context.Process(target=_read_until, args=(store.place(), 300, found), daemon=True)
        for _ in range(4)
    ]
    for reader in readers:
        reader.start()
    for step in range(301):
        writer.write(version(step, 100_000))
    assert [found.get(timeout=60) for _ in readers] == [True] * 4
    # One is the newest and one is filled. A reader has one mapped while it maps another, which
    # need not be the newest any more; then it can only go on to the newest.
    assert buffers(store) <= 1 + 1 + 2 * len(readers)


def _write_for_ever(place: Place, store: Store) -> None:
    writer = Writer(place, store.add_buffer)
    for step in range(1_000_000):
        writer.write(version(step, 1_000_000))


def test_a_writer_that_is_killed_leaves_a_whole_version_and_no_lock() -> None:
    store = Store()
    for _ in range(3):
        store.add_buffer()
    context = multiprocessing.get_context("fork")
    board = Board(store.place())
    for _ in range(5):
        before = board.read()
        process = context.Process(target=_write_for_ever, args=(store.place(), store))
        process.start()
        wait_for(lambda before=before: board.read() != before)  # type: ignore[misc]
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(20)
        found = newest(store.place())
        assert found is not None
        assert all((value == found.step).all() for value in found.values)
    after = Writer(store.place(), store.add_buffer)
    for step in range(5):
        after.write(version(step, 1_000_000))
    assert buffers(store) == 3


def test_a_stopped_reader_holds_nobody_up() -> None:
    store = Store()
    writer = writer_of(store)
    writer.write(version(0))
    context = multiprocessing.get_context("fork")
    reading = context.Event()
    reader = context.Process(target=_map_and_stop, args=(store.place(), reading))
    reader.start()
    assert reading.wait(20) and reader.pid is not None
    for step in range(1, 10):
        writer.write(version(step))
    found = newest(store.place())
    assert found is not None and found.step == 9
    os.kill(reader.pid, signal.SIGKILL)
    reader.join(20)


def _map_and_stop(place: Place, reading: Any) -> None:
    held = newest(place)
    reading.set()
    os.kill(os.getpid(), signal.SIGSTOP)
    del held


def test_nothing_is_left_in_the_file_system() -> None:
    before = set(pathlib.Path("/dev/shm").iterdir())
    store = Store()
    writer_of(store).write(version(0))
    assert set(pathlib.Path("/dev/shm").iterdir()) <= before
