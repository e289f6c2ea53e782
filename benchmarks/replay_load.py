"""The nodes that load a replay in `benchmarks.replay`: writers, our learner, and one of Acme's."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

import courier
import numpy as np
import psutil
from acme import specs

from agents.agent import TableSpec
from launchers.run import Run, launch
from nodes import contract
from nodes.priorities import Counts
from nodes.replay import ReplayClient, replay_shards
from nodes.samples import DEFAULT_PREFETCH, Prefetch
from nodes.service import Handle, deref, node
from nodes.writing import ReplayWriter
from programs.program import Program

BATCH_SIZE = 512
SHAPE = (84, 84, 4)
ITEMS = 20_000
"""All shards' size together: 0.56 GB of noise, which cannot be compressed."""
PROCESSES = 8
TABLE = TableSpec(
    name="items",
    item={"frames": specs.Array(SHAPE, np.uint8)},
    max_size=ITEMS,
    min_size=2 * BATCH_SIZE,
    priority_exponent=0.6,
    samples_per_insert=None,
    error_buffer=None,
    bytes_per_item=int(np.prod(SHAPE)),
)
_NOISE = 64
_TRAJECTORY_ITEMS = 20
_CALL_SECONDS = 120.0


class Writers:
    """Clients that insert items at a steady rate; each has streams of its own to all shards."""

    def __init__(self, replay: ReplayClient, process: int) -> None:
        self._runtime = contract.runtime()
        self._replay = replay
        self._first = process
        self._writers: list[ReplayWriter] = []
        self._wanted = 0
        self._rate = 0.0

    def set(self, clients: int, rate: float) -> None:
        """Lets so many clients insert `rate` items a second together."""
        self._wanted, self._rate = clients, rate

    def clients(self) -> int:
        """Returns how many clients there are."""
        return len(self._writers)

    def memory(self) -> float:
        """Returns this process's memory, in bytes, a part of what it shares with others counted."""
        return float(psutil.Process().memory_full_info().pss)

    def run(self) -> None:
        """Inserts until the program stops."""
        rng = np.random.default_rng(self._first)
        frames = rng.integers(0, 256, (_NOISE, *SHAPE), np.uint8)
        next_at = time.monotonic()
        turn = 0
        while not self._runtime.stopping:
            while len(self._writers) < self._wanted:
                first_shard = self._first + PROCESSES * len(self._writers)
                self._writers.append(self._replay.writer(first_shard, 2))
                next_at = time.monotonic()
            rate = self._rate
            if not rate:
                self._runtime.wait_for_stop(0.05)
                next_at = time.monotonic()
                continue
            writer = self._writers[turn % len(self._writers)]
            writer.append({"frames": frames[turn % _NOISE]})
            writer.create_item(random.random() + 0.1, {"frames": writer.history["frames"][-1]})
            if turn // len(self._writers) % _TRAJECTORY_ITEMS == _TRAJECTORY_ITEMS - 1:
                writer.end_episode()
            turn += 1
            next_at += 1 / rate
            time.sleep(max(0.0, next_at - time.monotonic()))


class Taken(NamedTuple):
    """What a learner got.

    Attributes:
        rate: Batches a second.
        median_wait: Median seconds that it waited for a batch.
        longest_waits: The 99th percentile of these.
        longest_wait: The longest of these.
        counts: What became of its priorities, if that is known.
    """

    rate: float
    median_wait: float
    longest_waits: float
    longest_wait: float
    counts: tuple[int, ...]


class Learner:
    """Takes batches and gives them new priorities, at its own pace."""

    def __init__(self, replay: ReplayClient) -> None:
        self._replay = replay
        self._runtime = contract.runtime()

    def measure(
        self, seconds: float, rate: Optional[float], prefetch: Optional[Sequence[int]] = None
    ) -> Taken:
        """Takes `rate` batches a second, or as many as it gets."""
        ahead = DEFAULT_PREFETCH if prefetch is None else Prefetch(*prefetch)
        sampler = self._replay.sampler(BATCH_SIZE, ahead)
        updater = self._replay.priority_updater()
        renewer = _Periodic(0.5, lambda: _note(self._replay, sampler, updater))
        rng = np.random.default_rng(0)
        while sampler.next() is None:
            pass

        def step() -> None:
            while (batch := sampler.next()) is None:
                pass
            updater.update(batch, rng.random(BATCH_SIZE, np.float32) + 0.1)

        try:
            waits, spent = _pace(step, seconds, rate)
        finally:
            renewer.close()
            sampler.close()
            updater.close()
        return _taken(waits, spent, updater.counts)


class AcmeLearner:
    """Takes batches and gives them new priorities as Acme's DQN does."""

    def __init__(self, replay: ReplayClient) -> None:
        import reverb
        from acme.datasets import make_reverb_dataset

        (address,) = replay._addresses
        self._client = reverb.Client(address)
        self._make = lambda: iter(
            make_reverb_dataset(address, batch_size=BATCH_SIZE, table=TABLE.name)
        )

    def measure(self, seconds: float, rate: Optional[float]) -> Taken:
        """Takes `rate` batches a second, or as many as it gets."""
        batches = self._make()
        next(batches)
        rng = np.random.default_rng(0)

        def step() -> None:
            sample = next(batches)
            priorities = rng.random(BATCH_SIZE, np.float32) + 0.1
            updates = dict(zip(sample.info.key.numpy(), priorities, strict=True))
            self._client.mutate_priorities(table=TABLE.name, updates=updates)

        waits, spent = _pace(step, seconds, rate)
        return _taken(waits, spent, Counts())


def _note(replay: ReplayClient, sampler: Any, updater: Any) -> None:
    info = replay.info()
    sampler.renew(info)
    updater.note(info)


class _Periodic:
    """Does something again and again in a thread."""

    def __init__(self, period: float, action: Any) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(period, action), daemon=True)
        self._thread.start()

    def _run(self, period: float, action: Any) -> None:
        while not self._end.wait(period):
            action()

    def close(self) -> None:
        self._end.set()
        self._thread.join()


def _pace(step: Any, seconds: float, rate: Optional[float]) -> tuple[list[float], float]:
    """Steps for some seconds, and returns how long each step took and how long all did."""
    took = []
    began = next_at = time.monotonic()
    while time.monotonic() < began + seconds:
        before = time.monotonic()
        step()
        took.append(time.monotonic() - before)
        if rate is not None:
            next_at += 1 / rate
            time.sleep(max(0.0, next_at - time.monotonic()))
    return took, time.monotonic() - began


def _taken(waits: list[float], seconds: float, counts: Counts) -> Taken:
    median, late = np.quantile(waits, [0.5, 0.99])
    return Taken(len(waits) / seconds, float(median), float(late), max(waits), tuple(counts))


class Load(NamedTuple):
    """A running program of a replay, its writers, and learners.

    Attributes:
        run: The run.
        replay: The replay.
        writers: Clients of the writers' processes.
        learner: Client of our learner.
        acme: Client of Acme's, where there is one shard.
    """

    run: Run
    replay: ReplayClient
    writers: list[Any]
    learner: Any
    acme: Any

    def write(self, clients: int, rate: float) -> None:
        """Lets so many clients insert `rate` items a second, and waits until they are there."""
        shares = [clients // PROCESSES + (i < clients % PROCESSES) for i in range(PROCESSES)]
        for writer, share in zip(self.writers, shares, strict=True):
            writer.set(share, rate * share / max(1, clients))
        deadline = time.monotonic() + 120
        while sum(writer.clients() for writer in self.writers) < clients:
            assert time.monotonic() < deadline, "the writers did not come up"
            time.sleep(0.1)

    def memory(self) -> float:
        """Returns the bytes that the writers' processes take."""
        return sum(writer.memory() for writer in self.writers)


def _client(handle: Handle[Any]) -> Any:
    """Returns a client that does not wait for ever."""
    return courier.Client(handle.address.resolve(), call_timeout=_CALL_SECONDS)


@contextmanager
def running(num_shards: int, directory: str) -> Iterator[Load]:
    """Runs the program with a full replay."""
    program = Program("replay_load")
    shards, replay = replay_shards(TABLE, num_shards)
    with program.group("replay"):
        for shard in shards:
            contract.set_traits(
                shard, contract.Traits(on_failure="restart", preload=("nodes.replay_server",))
            )
            program.add_node(shard)
    with program.group("writers"):
        writers = [program.add_node(node(Writers, deref(replay), i)) for i in range(PROCESSES)]
    with program.group("learner"):
        learner = program.add_node(node(Learner, deref(replay)))
    acme = None
    if num_shards == 1:
        with program.group("acme"):
            acme = program.add_node(node(AcmeLearner, deref(replay)))
    with launch(program, "local_mp", run_directory=directory) as run:
        run.wait_until_running(120)
        load = Load(
            run,
            replay.dereference(),
            [_client(writer) for writer in writers],
            _client(learner),
            acme and _client(acme),
        )
        load.write(PROCESSES, 4000.0)
        deadline = time.monotonic() + 120
        while load.replay.info().size < ITEMS - 100:
            assert time.monotonic() < deadline, "replay was not filled"
            time.sleep(0.1)
        load.write(PROCESSES, 0.0)
        yield load
