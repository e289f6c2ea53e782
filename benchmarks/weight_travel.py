"""The two ways of weights that `benchmarks.weights` compares, in processes of their own."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import courier
import numpy as np

from benchmarks import support
from nodes.shared_versions import Place
from nodes.variables import VariableClient, VariableSource

ARRAYS = 8
OURS, COURIERS = "launchgraph", "Courier"
CONTEXT = multiprocessing.get_context("forkserver")


class FarSource(VariableSource):
    """A source whose memory nobody shares, as on another host."""

    def place(self) -> Place:
        return super().place()._replace(host="another")


class Learner:
    """Has weights that change, and offers them in both ways."""

    def __init__(self, megabytes: int, as_tensors: bool) -> None:
        import tensorflow as tf

        size = (megabytes << 18) // ARRAYS
        arrays = [np.zeros(size, np.float32) for _ in range(ARRAYS)]
        self.weights: list[Any] = [tf.Variable(a) for a in arrays] if as_tensors else arrays
        self.as_tensors = as_tensors

    def change(self, step: int) -> None:
        """Lets every weight be `step`."""
        for weight in self.weights:
            if self.as_tensors:
                weight.assign(np.full(weight.shape, step, np.float32))
            else:
                weight[:] = step

    def views(self) -> Sequence[Any]:
        """Returns the weights as our learners do, without a copy."""
        if self.as_tensors:
            return [np.asarray(weight.read_value()) for weight in self.weights]
        return self.weights

    def get_variables(self, _: Sequence[str]) -> Sequence[Any]:
        """Returns the weights as Acme's learners do."""
        return [[weight.numpy() if self.as_tensors else weight for weight in self.weights]]


def touch(arrays: Sequence[Any]) -> tuple[int, bool]:
    """Reads a value of each page; returns the oldest step and whether there are others."""
    read = [np.asarray(array)[::1024] for array in arrays]
    oldest, newest = min(one.min() for one in read), max(one.max() for one in read)
    return int(oldest), bool(oldest != newest)


class Target:
    """Where a client puts the weights."""

    def __init__(self, megabytes: int, as_tensors: bool) -> None:
        learner = Learner(megabytes, as_tensors)
        self.variables = learner.weights if as_tensors else None

    def put(self, arrays: Sequence[Any]) -> tuple[int, bool]:
        """Takes the arrays, and returns their oldest step and whether there are others."""
        if self.variables is None:
            return touch(arrays)
        for variable, array in zip(self.variables, arrays, strict=True):
            variable.assign(array)
        return touch([variable.read_value() for variable in self.variables])


class Job(NamedTuple):
    """What a client has to do.

    Attributes:
        way: Ours or Courier's.
        address: Of the source or of the learner.
        megabytes: Size of the weights.
        as_tensors: Whether it puts them into `tf.Variable`s.
        poll_seconds: How often it looks for something newer, in our way.
    """

    way: str
    address: str
    megabytes: int
    as_tensors: bool
    poll_seconds: float


class Taken(NamedTuple):
    """A version that a client took.

    Attributes:
        step: The oldest step in it.
        mixed: Whether there were others in it.
        when: When it was there, on the monotonic clock.
        seconds: How long its fetch took, where it was fetched.
    """

    step: int
    mixed: bool
    when: float
    seconds: float


def fetch_for_ever(job: Job, taken: Any, gate: Any) -> None:
    """Takes every version, and tells what it took."""
    target = Target(job.megabytes, job.as_tensors)
    if job.way == OURS:
        ours = VariableClient(job.address)
        ours.wait_for_first(_Forever())
        taken.put(Taken(0, False, time.monotonic(), 0.0))
        while True:
            ours.request()
            version = ours.poll()
            if version is None:
                time.sleep(job.poll_seconds)
            else:
                taken.put(Taken(*target.put(version.values), time.monotonic(), 0.0))
    client = courier.Client(job.address)
    taken.put(Taken(0, False, time.monotonic(), 0.0))
    for _ in iter(lambda: gate.acquire(timeout=60), False):
        began = time.monotonic()
        (arrays,) = client.get_variables(["policy"])
        step, mixed = target.put(arrays)
        now = time.monotonic()
        taken.put(Taken(step, mixed, now, now - began))


class _Forever:
    """A runtime that never stops."""

    def wait_for_stop(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False

    def report_waiting(self, _: object) -> None:
        pass


class Clients:
    """Processes that take every version in one of the two ways."""

    def __init__(self, job: Job, number: int) -> None:
        self._queues = [CONTEXT.SimpleQueue() for _ in range(number)]
        self._gates = [CONTEXT.Semaphore(0) for _ in range(number)]
        self.taken: list[list[Taken]] = [[] for _ in range(number)]
        self._processes = [
            CONTEXT.Process(target=fetch_for_ever, args=(job, queue, gate), daemon=True)
            for queue, gate in zip(self._queues, self._gates, strict=True)
        ]
        for process in self._processes:
            process.start()

    def wait_until(self, condition: Callable[["Clients"], bool], seconds: float) -> None:
        """Reads what the clients tell until `condition` holds."""

        def look() -> bool:
            for queue, taken in zip(self._queues, self.taken, strict=True):
                while not queue.empty():
                    taken.append(queue.get())
            return condition(self)

        support.wait_for(look, seconds, "the clients")

    def fetch(self) -> None:
        """Lets each client of Courier's way fetch once."""
        for gate in self._gates:
            gate.release()

    def close(self) -> None:
        """Ends the processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join(20)


def serve(bound: dict[str, Callable[..., Any]]) -> tuple[Any, str]:
    """Returns a Courier server of functions, and its address."""
    server = courier.Server()
    for name, function in bound.items():
        server.Bind(name, function)
    server.Start()
    return server, f"localhost:{server.port}"


def source_in_process(far: bool = False) -> tuple[Any, str]:
    """Starts a variable source in a process of its own."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_serve_source, args=(theirs, far), daemon=True)
    process.start()
    return process, ours.recv()


def _serve_source(pipe: Any, far: bool) -> None:
    source = FarSource() if far else VariableSource()
    names = ("place", "lend", "piece", "key", "receive", "add_buffer")
    server, address = serve({name: getattr(source, name) for name in names})
    pipe.send(address)
    server.Join()


def read_all(address: str, pipe: Any) -> None:
    """Tells how many values are wrong, of which array k holds k + 1, and how many came."""
    version = VariableClient(address).wait_for_first(_Forever())
    assert version is not None
    wrong = sum(int((value != k + 1).sum()) for k, value in enumerate(version.values))
    pipe.send((wrong, sum(value.size for value in version.values)))
