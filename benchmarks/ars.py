"""ARS on Pendulum: what it learns, and how fast it plays.

    python -m benchmarks.ars [--steps=1000000] [--seeds=3] [--plot=docs/ars_pendulum.png]

V2-t, the preset `small`, and V1, which neither normalizes observations nor leaves directions out,
learn with the same seeds. Then the same rollouts are made by one process, without any program, for
some seconds: one task after the other, by the same code.
"""

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from agents.agent import EnvironmentSpec
from agents.ars.agent import Ars
from agents.ars.config import ArsConfig
from benchmarks import support
from environments import registry

STEPS = flags.DEFINE_integer("steps", 1_000_000, "Environment steps of each run.", lower_bound=1)
SEEDS = flags.DEFINE_integer("seeds", 3, "Runs of each variant.", lower_bound=1)
WORKERS = flags.DEFINE_integer("workers", 2, "Workers.", lower_bound=1)
SECONDS = flags.DEFINE_float("seconds", 10.0, "Time measured in one process.", lower_bound=1)
PLOT = flags.DEFINE_string("plot", None, "File for the plot of the learning curves.")
ENV = "gym:Pendulum-v1"
VARIANTS: Mapping[str, Sequence[str]] = {
    "V2-t": (),
    "V1": (
        "--config.normalize_observations=false",
        f"--config.top_directions={ArsConfig.small().num_directions}",
    ),
}


class Point(NamedTuple):
    """How a run was doing at some time.

    Attributes:
        steps: Environment steps of all rollouts used so far.
        rollouts: Mean return of the newest iteration's rollouts.
        evaluator: Mean return of the evaluator's last 100 episodes, or of those that there are.
    """

    steps: int
    rollouts: float
    evaluator: float


class Learned(NamedTuple):
    """What became of a run."""

    curve: Sequence[Point]
    result: Mapping[str, Any]


def learn(directory: str, seed: int, variant: Sequence[str]) -> Learned:
    """Runs the program to its step limit, and looks at it all the time."""
    command = [sys.executable, os.path.join(support.ROOT, "launch.py"), "--agent=ars"]
    command += [f"--env={ENV}", f"--max_steps={STEPS.value}", f"--seed={seed}", *variant]
    command += [f"--num_actors={WORKERS.value}", f"--run_dir={directory}"]
    curve: list[Point] = []
    with support.process_group(command) as process:
        while support.is_alive(process):
            time.sleep(0.1)
            now = support.read_json(os.path.join(directory, "counts.json"))
            rollouts = now.get("gauges", {}).get("search/0", {}).get("return_mean")
            if rollouts is None or now["evaluator_return_mean"] is None:
                continue
            steps = now["counts"]["environment_steps"]
            if not curve or steps > curve[-1].steps:
                curve.append(Point(steps, rollouts, now["evaluator_return_mean"]))
    return Learned(curve, support.read_json(os.path.join(directory, "result.json")))


def rate_of_one_process() -> float:
    """Returns the environment steps a second of a loop over the tasks."""
    environment = registry.load(ENV)
    spec = EnvironmentSpec(environment.observations, environment.actions)
    agent = Ars(ArsConfig.small(), spec)
    noise = np.empty(agent.noise_size, np.float32)
    agent.fill_noise(noise, 0)
    search = agent.make_search(noise, 0)
    results: list[Any] = []
    steps, began = 0, time.monotonic()
    for task in itertools.cycle(range(agent.num_tasks)):
        rollouts = agent.make_rollouts(noise, search.variables(), task, 0)
        batch = environment.make(rollouts.num_envs, rollouts.environment_seed)
        actions = rollouts.step(batch.reset())
        while actions is not None:
            actions = rollouts.step(batch.step(actions))
        batch.close()
        results.append(rollouts.results())
        steps += int(results[-1].steps.sum())
        if len(results) == agent.num_tasks:
            search.update(results)
            results = []
        if time.monotonic() - began > SECONDS.value:
            break
    return steps / (time.monotonic() - began)


def plot(learned: Mapping[str, Sequence[Learned]], path: str) -> None:
    """Draws the evaluator's and the rollouts' returns over the environment steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for (name, runs), color in zip(learned.items(), ("C0", "C1"), strict=True):
        for number, run in enumerate(runs):
            steps = [point.steps for point in run.curve]
            label = {"label": f"{name}: evaluator"} if not number else {}
            axes.plot(steps, [point.evaluator for point in run.curve], color=color, **label)
            label = {"label": f"{name}: rollouts"} if not number else {}
            rollouts = [point.rollouts for point in run.curve]
            axes.plot(steps, rollouts, color=color, alpha=0.4, linestyle=":", **label)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=-1700)
    axes.set_xlabel("environment steps")
    axes.set_ylabel(f"mean return on {ENV.removeprefix('gym:')}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", ncols=2)
    figure.savefig(path, dpi=120)


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as home:
        learned = {
            name: [
                learn(os.path.join(home, f"{name}-{seed}"), seed, variant)
                for seed in range(SEEDS.value)
            ]
            for name, variant in VARIANTS.items()
        }
    alone = rate_of_one_process()
    if PLOT.value:
        plot(learned, PLOT.value)
    returns = {name: [run.curve[-1].evaluator for run in runs] for name, runs in learned.items()}
    means = {name: sum(values) / len(values) for name, values in returns.items()}
    rates = [run.result["environment_steps_per_second"] for run in learned["V2-t"]]
    rate = sum(rates) / len(rates)
    support.report(
        "ars",
        ("", "steps", "evaluator's return", "of each seed", "steps/s"),
        [
            (
                name,
                f"{STEPS.value:,}",
                means[name],
                ", ".join(f"{value:.0f}" for value in returns[name]),
                sum(run.result["environment_steps_per_second"] for run in runs) / len(runs),
            )
            for name, runs in learned.items()
        ]
        + [("one process", "", "", "", alone)],
        {
            "env": ENV,
            "workers": WORKERS.value,
            "ratio": round(means["V2-t"] / means["V1"], 3),
            "returns": {name: [round(v) for v in values] for name, values in returns.items()},
            "steps_per_second": round(rate),
            "ratio_to_one_process": round(rate / alone, 3),
        },
    )


if __name__ == "__main__":
    app.run(main)
