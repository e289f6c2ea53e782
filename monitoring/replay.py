"""What the learner's gauges say of replay, of priorities, and of the age of the weights."""

import re
from collections.abc import Iterator, Mapping

_DECADE = re.compile("priority_share_from_(.*)")


def lines(gauges: Mapping[str, float]) -> Iterator[str]:
    """Returns what there is to say, a line for each subject; nothing of what is not known."""
    if "replay_size" in gauges:
        yield _replay(gauges)
    if "priority_max" in gauges:
        yield _priorities(gauges)
    if "priorities_applied" in gauges:
        yield (
            f"new priorities: {gauges['priorities_applied']:,.0f} applied, "
            f"{gauges['priorities_late']:,.0f} late (the item was gone), "
            f"{gauges['priorities_dropped']:,.0f} dropped"
        )
    if "weight_age_seconds_p50" in gauges:
        yield (
            "weights behind what is learned from: "
            f"{_spread(gauges, 'weight_age_seconds')} s old"
            + (
                f", {_spread(gauges, 'weight_age_versions')} versions"
                if "weight_age_versions_p50" in gauges
                else ""
            )
            + " (half, 99 of 100, oldest)"
        )


def _replay(gauges: Mapping[str, float]) -> str:
    size, most = gauges["replay_size"], gauges["replay_max_size"]
    blocked = [
        f"{what} wait in {gauges[name]:.0f} of its shards"
        for what, name in (("samples", "samples_blocked"), ("inserts", "inserts_blocked"))
        if gauges[name]
    ]
    if gauges["replay_shards_away"]:
        blocked.append(f"{gauges['replay_shards_away']:.0f} shards do not answer")
    return "; ".join(
        [
            f"replay: {size:,.0f} of {most:,.0f} items ({size / most:.0%}), "
            f"about {gauges['replay_bytes'] / 2**20:,.0f} MiB",
            f"{gauges.get('inserts_per_second', 0):,.0f} inserts/s, "
            f"{gauges.get('samples_per_second', 0):,.0f} samples/s, "
            f"{gauges['samples_per_insert']:.2f} samples/insert",
            *blocked,
        ]
    )


def _priorities(gauges: Mapping[str, float]) -> str:
    shares = sorted(
        (float(match[1]), share)
        for name, share in gauges.items()
        if (match := _DECADE.fullmatch(name))
    )
    histogram = ", ".join(f"{share:.0%} from {begin:g}" for begin, share in shares)
    return f"priorities: {gauges['priority_max']:.3g} at most; {histogram}"


def _spread(gauges: Mapping[str, float], name: str) -> str:
    return ", ".join(f"{gauges[f'{name}_{part}']:.3g}" for part in ("p50", "p99", "max"))
