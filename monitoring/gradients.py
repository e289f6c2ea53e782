"""What the primary reducer's gauges say of the gradients of several learners."""

from collections.abc import Iterator, Mapping


def lines(gauges: Mapping[str, float]) -> Iterator[str]:
    """Returns what there is to say, a line; nothing where there is no such reducer."""
    if "gradients_pushed" not in gauges:
        return
    pushed = gauges["gradients_pushed"]
    fates = {fate: gauges[f"gradients_{fate}"] for fate in ("applied", "late", "refused")}
    known = ", ".join(f"{number:,.0f} {fate}" for fate, number in fates.items())
    on_their_way = pushed - sum(fates.values())
    yield f"gradients: {pushed:,.0f} pushed: {known}, {on_their_way:,.0f} on their way or lost"
