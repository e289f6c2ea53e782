"""Environment steps and trained samples a second, together, on CartPole with an MLP 64-64.

Ape-X with 2 actors of 16 environments each, batch 256, about 4 samples an insert, against Acme's
DQN in one process, with the same network, environment, batch and ratio.

    python -m benchmarks.throughput [--seconds=40]
"""

import os
import tempfile
from collections.abc import Sequence

from absl import app, flags

from benchmarks import support

SECONDS = flags.DEFINE_integer("seconds", 40, "How long each side runs, about.", lower_bound=5)
ENVIRONMENT = "gym:CartPole-v1"

FLAGS = (
    f"--env={ENVIRONMENT}",
    "--num_actors=2",
    "--envs_per_actor=16",
    "--nostop_when_solved",
    "--config.batch_size=256",
    "--config.hidden_sizes=64,64",
    "--config.samples_per_insert=4",
)


def main(_: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ours = support.launch(
            os.path.join(directory, "run"), *FLAGS, f"--max_steps={10_000 * SECONDS.value}"
        )
    theirs = support.run_acme_dqn(
        f"--env={ENVIRONMENT}", f"--seconds={SECONDS.value}", "--samples_per_insert=4"
    )
    rows = [
        ("environment steps/s", ours["environment_steps_per_second"], theirs["steps_per_second"]),
        ("trained samples/s", ours["trained_samples_per_second"], theirs["samples_per_second"]),
    ]
    support.report(
        "throughput",
        ("", "Ape-X, 2 x 16", "Acme DQN, one process"),
        rows,
        {
            "ratio": round(rows[0][1] / rows[0][2], 2),
            "environment_steps_per_second": rows[0][1],
            "trained_samples_per_second": rows[1][1],
            "acme_environment_steps_per_second": rows[0][2],
            "acme_trained_samples_per_second": rows[1][2],
            "evaluator_return_mean_100": ours["evaluator_return_mean_100"],
        },
    )


if __name__ == "__main__":
    app.run(main)
