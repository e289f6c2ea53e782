"""What a search's gauges say of its rollouts."""

from collections.abc import Iterator, Mapping


def lines(gauges: Mapping[str, float]) -> Iterator[str]:
    """Returns what there is to say, a line for each subject; nothing of what is not known."""
    if "return_mean" in gauges:
        yield (
            f"iteration {gauges['iteration']:,.0f}: rollouts returned {gauges['return_mean']:.3f} "
            f"on average, {gauges['return_max']:.3f} at most, in "
            f"{gauges['rollout_steps_mean']:,.1f} steps"
        )
    if "rollouts_handed_out" in gauges:
        yield (
            f"rollouts: {gauges['rollouts_handed_out']:,.0f} handed out, "
            f"{gauges['rollouts_used']:,.0f} used, {gauges['rollouts_duplicate']:,.0f} duplicates, "
            f"{gauges['rollouts_late']:,.0f} late, {gauges['rollouts_lost']:,.0f} lost, "
            f"{gauges['rollouts_out']:,.0f} out"
        )
