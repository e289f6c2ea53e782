"""How weights travel from a learner to who acts on the same machine, here and by Courier.

    python -m benchmarks.weights [--megabytes=32] [--clients=64] [--gigabytes=3]

Courier's way is that of Acme's `VariableClient`: it calls `get_variables`, which copies the
learner's variables, and assigns what comes. Both ways run at the same time, in turn: one version a
second each. Times are from the learner's `tf.Variable`s, before they are copied, to the client's,
after they were assigned and a value of each page was read; for the transport alone, from arrays to
arrays.

Then many clients take every version: the learner's time for a version is compared with that of one
plain copy of the weights, measured just before; how late a client is, is looked at whenever one
more version is made. Last, weights of some gigabytes, through memory and in pieces.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags
from numpy.typing import NDArray

from benchmarks import support
from benchmarks.weight_travel import (
    CONTEXT,
    COURIERS,
    OURS,
    Clients,
    Job,
    Learner,
    read_all,
    serve,
    source_in_process,
)
from nodes.publisher import Publisher
from nodes.variables import VariableClient
from nodes.version import Version

MEGABYTES = flags.DEFINE_integer("megabytes", 32, "Size of the weights.", lower_bound=1)
CLIENTS = flags.DEFINE_integer("clients", 64, "Clients of the second part.", lower_bound=1)
GIGABYTES = flags.DEFINE_integer("gigabytes", 3, "Size in the last part.", lower_bound=0)
VERSIONS = flags.DEFINE_integer("versions", 15, "Versions of each part.", lower_bound=3)


def one_client(as_tensors: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the seconds that each version took to one client, ours and Courier's."""
    learner = Learner(MEGABYTES.value, as_tensors)
    server, courier_address = serve({"get_variables": learner.get_variables})
    source, address = source_in_process()
    source_client = VariableClient(address)
    publisher = Publisher(source_client)
    first = Version(1, 0, 1, time.time(), learner.weights if not as_tensors else learner.views())
    source_client.publish(first)
    ours = Clients(Job(OURS, address, MEGABYTES.value, as_tensors, 0.0002), 1)
    theirs = Clients(Job(COURIERS, courier_address, MEGABYTES.value, as_tensors, 0.0), 1)
    for clients in ours, theirs:
        clients.wait_until(lambda clients: len(clients.taken[0]) == 1, 60)
    seconds: tuple[list[float], list[float]] = ([], [])
    for step in range(1, VERSIONS.value + 1):
        learner.change(step)
        began = time.monotonic()
        if as_tensors:
            publisher.offer(step, learner.views)
        else:
            source_client.publish(Version(1, step, step, time.time(), learner.weights))
        ours.wait_until(lambda clients, step=step: clients.taken[0][-1].step == step, 60)
        seconds[0].append(ours.taken[0][-1].when - began)
        time.sleep(0.5)
        theirs.fetch()
        theirs.wait_until(lambda clients, step=step: clients.taken[0][-1].step == step, 60)
        seconds[1].append(theirs.taken[0][-1].seconds)
        time.sleep(0.5)
    ours.close()
    theirs.close()
    publisher.close()
    source.kill()
    server.Stop()
    return np.array(seconds[0]), np.array(seconds[1])


class Crowd(NamedTuple):
    """What many clients cost and get.

    Attributes:
        copy: Median seconds of one plain copy of the weights.
        publish: Median seconds that the learner spent for a version.
        late: The most versions that a client was behind when one more was made.
        age: Median seconds from the begin of a version to its being there.
        mixed: Fetches that brought weights of several versions.
    """

    copy: float
    publish: float
    late: int
    age: float
    mixed: int


def many_clients(way: str) -> Crowd:
    """Lets many clients take each of the versions that are made once a second."""
    learner = Learner(MEGABYTES.value, True)
    server, address = serve({"get_variables": learner.get_variables})
    if way == OURS:
        source, address = source_in_process()
        publisher = Publisher(VariableClient(address))
        publisher.offer(0, learner.views)
    number = CLIENTS.value
    clients = Clients(Job(way, address, MEGABYTES.value, True, 0.005), number)
    clients.wait_until(lambda clients: all(clients.taken), 120)
    copies, publishes, begins, late = [], [], {}, 0
    target = [np.empty_like(array) for array in learner.views()]
    for step in range(1, VERSIONS.value + 1):
        next_at = time.monotonic() + 1.0
        learner.change(step)
        copies.append(_time_of(lambda: _copy(target, learner.views())))
        begins[step] = time.monotonic()
        if way == OURS:
            publishes.append(_time_of(lambda step=step: publisher.offer(step, learner.views)))
        else:
            publishes.append(0.0)
            clients.fetch()
        clients.wait_until(lambda _, next_at=next_at: time.monotonic() > next_at, 10)
        late = max(late, step - min(taken[-1].step for taken in clients.taken))
    clients.wait_until(
        lambda clients: all(taken[-1].step == VERSIONS.value for taken in clients.taken), 300
    )
    clients.close()
    if way == OURS:
        publisher.close()
        source.kill()
    server.Stop()
    all_taken = [one for taken in clients.taken for one in taken if one.step]
    ages = [one.when - begins[one.step] for one in all_taken]
    copy, publish, age = (float(np.median(seconds)) for seconds in (copies, publishes, ages))
    return Crowd(copy, publish, late, age, sum(one.mixed for one in all_taken))


def _copy(target: Sequence[NDArray[Any]], arrays: Sequence[Any]) -> None:
    for one, array in zip(target, arrays, strict=True):
        np.copyto(one, array)


def _time_of(function: Callable[[], None]) -> float:
    began = time.monotonic()
    function()
    return time.monotonic() - began


def large(far: bool) -> float:
    """Returns the seconds that some gigabytes take to another process that reads them all."""
    values = [np.full(1 << 27, k + 1, np.uint64) for k in range(GIGABYTES.value)]
    source, address = source_in_process(far)
    began = time.monotonic()
    VariableClient(address).publish(Version(1, 1, 1, time.time(), values))
    ours, theirs = CONTEXT.Pipe()
    reader = CONTEXT.Process(target=read_all, args=(address, theirs), daemon=True)
    reader.start()
    assert ours.poll(500)
    wrong, count = ours.recv()
    seconds = time.monotonic() - began
    assert (wrong, count) == (0, GIGABYTES.value << 27), (wrong, count)
    reader.kill()
    source.kill()
    return seconds


def main(_: Sequence[str]) -> None:
    CONTEXT.set_forkserver_preload(["benchmarks.weight_travel", "tensorflow"])
    ends = one_client(True)
    transports = one_client(False)
    crowds = {way: many_clients(way) for way in (OURS, COURIERS)}
    sizes = {far: large(far) for far in (False, True)} if GIGABYTES.value else {}
    ours, theirs = (1e3 * np.median(ends, axis=1)).tolist()
    ours_alone, theirs_alone = (1e3 * np.median(transports, axis=1)).tolist()
    crowd = crowds[OURS]
    support.report(
        "weights",
        ("", OURS, COURIERS, "ratio"),
        [
            ("one client, variables to variables, ms", ours, theirs, ours / theirs),
            (
                "one client, arrays to arrays, ms",
                ours_alone,
                theirs_alone,
                ours_alone / theirs_alone,
            ),
            *(
                (f"{CLIENTS.value} clients, {name}", *map(of, crowds.values()), "")
                for name, of in _CROWD_ROWS.items()
            ),
            *(
                (f"{GIGABYTES.value} GiB {'in pieces' if far else 'shared'}, s", seconds, "-", "")
                for far, seconds in sizes.items()
            ),
        ],
        {
            "ratio": round(ours / theirs, 3),
            "transport_ratio": round(ours_alone / theirs_alone, 3),
            "megabytes": MEGABYTES.value,
            "clients": CLIENTS.value,
            "publish_in_copies": round(crowd.publish / crowd.copy, 2),
            "versions_late": crowd.late,
            "versions_late_courier": crowds[COURIERS].late,
            "mixed_versions": crowd.mixed,
            "mixed_versions_courier": crowds[COURIERS].mixed,
            "gigabytes": GIGABYTES.value,
            "gigabytes_seconds": [round(seconds, 1) for seconds in sizes.values()],
        },
    )


_CROWD_ROWS: dict[str, Callable[[Crowd], float]] = {
    "learner's time for a version, ms": lambda crowd: 1e3 * crowd.publish,
    "time of one copy, ms": lambda crowd: 1e3 * crowd.copy,
    "versions that a client is late at most": lambda crowd: crowd.late,
    "median age on arrival, ms": lambda crowd: 1e3 * crowd.age,
    "fetches of mixed versions": lambda crowd: crowd.mixed,
}

if __name__ == "__main__":
    app.run(main)
