"""Steps a second of one actor process with one Catch environment, alone on a core.

Ours is the actor's node of the Ape-X program, the peer is Acme's environment loop with its
feed-forward actor and n-step adder; both act with the same network and write to a replay server in
another process, on another core.

    python -m benchmarks.actor [--seconds=15]
"""

import dataclasses
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil
from absl import app, flags

from agents.agent import EnvironmentSpec
from agents.apex.agent import ApeX
from benchmarks import support
from environments import registry
from launchers.run import launch
from nodes.actor import actor_node
from nodes.counter import counter_node
from nodes.replay import replay_shards
from nodes.variables import variable_source_node
from nodes.version import Version
from programs.program import Program

SECONDS = flags.DEFINE_integer("seconds", 15, "How long each side is measured.", lower_bound=1)
ACTORS_CORE, OTHERS_CORE = 0, 1


def measure_ours(directory: str) -> float:
    """Returns the environment steps a second of our actor."""
    environment = registry.load("catch")
    spec = EnvironmentSpec(environment.observations, environment.actions)
    small = ApeX.presets()["small"]
    agent = ApeX(dataclasses.replace(small, samples_per_insert=None, error_buffer=None), spec)
    program = Program("actor_alone")
    counter = program.add_node(counter_node(), label="counter")
    variables = program.add_node(variable_source_node(), label="variables")
    (shard,), replay = replay_shards(agent.table, 1)
    program.add_node(shard, label="replay")
    program.add_node(
        actor_node(
            agent,
            environment.make,
            replay,
            variables,
            counter,
            index=0,
            num_actors=1,
            num_envs=1,
            seed=0,
        ),
        label="actor",
    )
    with launch(program, "local_mp", run_directory=os.path.join(directory, "run")) as run:
        support.wait_for(lambda: run.status["variables/0"].state == "running", 60, "variables")
        values = agent.make_learner(0).variables()
        variables.dereference().publish(Version(1, 0, 1, time.time(), values))
        run.wait_until_running(60)
        for process in psutil.Process().children(recursive=True):
            is_actor = " actor/" in " ".join(process.cmdline())
            pin(process, ACTORS_CORE if is_actor else OTHERS_CORE)
        client = counter.dereference()
        return rate(lambda: int(client.snapshot()["counts"].get("environment_steps", 0)))


def pin(process: psutil.Process, core: int) -> None:
    """Keeps all threads of a process on one core."""
    for thread in process.threads():
        os.sched_setaffinity(thread.id, [core])


def rate(count: Callable[[], int]) -> float:
    """Returns by how much a count grows a second."""
    time.sleep(2.0)  # Caches and rates settle.
    before, began = count(), time.monotonic()
    time.sleep(SECONDS.value)
    return (count() - before) / (time.monotonic() - began)


def acme_replay(pipe: Any) -> None:
    """Serves a replay for Acme's adder until the pipe closes."""
    import reverb
    from acme.adders import reverb as adders

    os.sched_setaffinity(0, [OTHERS_CORE])
    table = reverb.Table(
        adders.DEFAULT_PRIORITY_TABLE,
        reverb.selectors.Prioritized(0.6),
        reverb.selectors.Fifo(),
        100_000,
        reverb.rate_limiters.MinSize(1),
    )
    server = reverb.Server([table])
    pipe.send(server.port)
    pipe.recv()


def acme_actor(port: int, count: Any) -> None:
    """Acts for ever with Acme's loop, and counts the steps."""
    os.sched_setaffinity(0, [ACTORS_CORE])
    import acme
    import reverb
    import sonnet as snt
    import tensorflow as tf
    import trfl
    from acme import specs, wrappers
    from acme.adders import reverb as adders
    from acme.agents.tf import actors
    from acme.utils import loggers
    from bsuite.environments import catch

    from agents.apex.networks import DuelingNetwork

    environment = wrappers.SinglePrecisionWrapper(catch.Catch(seed=0))
    spec = specs.make_environment_spec(environment)
    network = DuelingNetwork(EnvironmentSpec(spec.observations, spec.actions), (64, 64), 0)
    policy = snt.Sequential(
        [network, lambda q: trfl.epsilon_greedy(q, epsilon=tf.constant(0.4)).sample()]
    )
    adder = adders.NStepTransitionAdder(reverb.Client(f"localhost:{port}"), n_step=5, discount=0.99)
    loop = acme.EnvironmentLoop(
        environment, actors.FeedForwardActor(policy, adder), logger=loggers.NoOpLogger()
    )
    while True:
        count.value += loop.run_episode()["episode_length"]


def measure_acme() -> float:
    """Returns the environment steps a second of Acme's loop."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    replay = context.Process(target=acme_replay, args=(theirs,), daemon=True)
    replay.start()
    count = context.Value("q", 0)
    actor = context.Process(target=acme_actor, args=(ours.recv(), count), daemon=True)
    actor.start()
    try:
        support.wait_for(lambda: count.value > 0, 60, "Acme's first episode")
        return rate(lambda: int(count.value))
    finally:
        actor.kill()
        replay.kill()


def main(_: Sequence[str]) -> None:
    acme_rate = measure_acme()
    with tempfile.TemporaryDirectory() as directory:
        our_rate = measure_ours(directory)
    support.report(
        "actor",
        ("", "launchgraph", "Acme"),
        [("environment steps/s", our_rate, acme_rate)],
        {
            "ratio": round(our_rate / acme_rate, 2),
            "environment_steps_per_second": round(our_rate),
            "acme_environment_steps_per_second": round(acme_rate),
        },
    )


if __name__ == "__main__":
    app.run(main)
