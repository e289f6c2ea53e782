"""What replay holds, and whom its rate limiters hold up."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

_TIMEOUT_SECONDS = 1


class ShardInfo(NamedTuple):
    """The state of one shard.

    A limiter keeps `inserted * samples_per_insert - sampled` between `min_diff` and `max_diff`, and
    gives out no sample before `min_size` items are there.

    Attributes:
        table: Name of the table.
        size: Items.
        max_size: Items that fit.
        inserted: Items inserted since the table was made.
        sampled: Samples given out since then.
        min_size: Items that must be there before the first sample is given out.
        samples_per_insert: What the limiter keeps; 1 where it keeps nothing but `min_size`.
        min_diff: The lower bound.
        max_diff: The upper bound.
    """

    table: str
    size: int
    max_size: int
    inserted: int
    sampled: int
    min_size: int
    samples_per_insert: float
    min_diff: float
    max_diff: float

    @classmethod
    def of(cls, table: Any) -> "ShardInfo":
        """Returns what Reverb's information on a table says."""
        limiter = table.rate_limiter_info
        return cls(
            table.name,
            table.current_size,
            table.max_size,
            limiter.insert_stats.completed,
            limiter.sample_stats.completed,
            limiter.min_size_to_sample,
            limiter.samples_per_insert,
            limiter.min_diff,
            limiter.max_diff,
        )

    @property
    def diff(self) -> float:
        """What the limiter keeps between its bounds."""
        return self.inserted * self.samples_per_insert - self.sampled

    @property
    def blocks_samples(self) -> bool:
        """Whether the next sample has to wait for inserts."""
        return self.size < self.min_size or self.diff - 1 < self.min_diff

    @property
    def blocks_inserts(self) -> bool:
        """Whether the next insert has to wait for samples."""
        enough = self.size >= self.min_size
        return enough and self.diff + self.samples_per_insert > self.max_diff

    def describe(self) -> str:
        """Says whom the shard holds up, and by which bound."""
        holds = f"table {self.table!r} holds {self.size:,} items"
        if self.size < self.min_size:
            return f"{holds} and gives out samples from {self.min_size:,} on"
        bounds = (
            f"{holds}; {self.inserted:,} inserts x {self.samples_per_insert:g} - "
            f"{self.sampled:,} samples = {self.diff:,.0f}, kept between {self.min_diff:,.0f} and "
            f"{self.max_diff:,.0f}"
        )
        if self.blocks_samples:
            return f"{bounds}: samples wait for inserts"
        if self.blocks_inserts:
            return f"{bounds}: inserts wait for samples"
        return f"{holds} and holds nobody up"


def ask(client: Any, table: str) -> Optional[ShardInfo]:
    """Returns the state of the shard of a `reverb.Client`, or None if it does not say it soon."""
    from reverb import errors

    try:
        return ShardInfo.of(client.server_info(timeout=_TIMEOUT_SECONDS)[table])
    except (errors.DeadlineExceededError, RuntimeError):
        return None


class ReplayInfo:
    """The state of all shards.

    Attributes:
        shards: Each shard's, or None for one that did not answer.
        asked_ns: When the first was asked, in nanoseconds since the epoch.
    """

    def __init__(
        self,
        shards: Sequence[Optional[ShardInfo]],
        addresses: Sequence[str],
        bytes_per_item: int,
        asked_ns: int,
    ) -> None:
        self.shards = shards
        self.asked_ns = asked_ns
        self._bytes_per_item = bytes_per_item
        self._addresses = addresses
        self._known = [shard for shard in shards if shard is not None]

    @property
    def size(self) -> int:
        """Items in all shards that answered."""
        return sum(shard.size for shard in self._known)

    @property
    def max_size(self) -> int:
        """Items that fit into them."""
        return sum(shard.max_size for shard in self._known)

    @property
    def inserted(self) -> int:
        """Items inserted into them."""
        return sum(shard.inserted for shard in self._known)

    @property
    def sampled(self) -> int:
        """Samples given out by them."""
        return sum(shard.sampled for shard in self._known)

    def absent(self) -> set[int]:
        """Returns the numbers of the shards that are not waited for, as the others are enough.

        These are those that do not answer, and those that have few items still while all together
        have as many as must be there.
        """
        absent = {number for number, shard in enumerate(self.shards) if shard is None}
        wanted = sum(shard.min_size for shard in self._known)
        if self.size >= wanted:
            absent |= {
                number
                for number, shard in enumerate(self.shards)
                if shard is not None and shard.size < shard.min_size
            }
        return absent

    def gauges(self) -> dict[str, float]:
        """Returns figures by name, of the shards that answered, if any did."""
        if not self._known:
            return {"replay_shards_away": len(self.shards)}
        return {
            "replay_size": self.size,
            "replay_bytes": self.size * self._bytes_per_item,
            "replay_max_size": self.max_size,
            "replay_inserted": self.inserted,
            "samples_per_insert": self.sampled / max(1, self.inserted),
            "replay_shards_away": len(self.shards) - len(self._known),
            "samples_blocked": sum(shard.blocks_samples for shard in self._known),
            "inserts_blocked": sum(shard.blocks_inserts for shard in self._known),
        }

    def describe(self) -> str:
        """Says which shards hold somebody up and why; if none does, what the first holds."""
        told = [
            f"replay at {address} does not answer" if shard is None else shard.describe()
            for address, shard in zip(self._addresses, self.shards, strict=True)
            if shard is None or shard.blocks_samples or shard.blocks_inserts
        ]
        return "; ".join(told) or self._known[0].describe()


class Rates:
    """How fast replay takes items and gives samples, from one look at it to the next."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, ShardInfo]] = {}

    def of(self, info: ReplayInfo) -> dict[str, float]:
        """Returns inserts and samples a second, by name, since the last call.

        A shard that did not answer, or was started again, adds nothing.
        """
        now = time.monotonic()
        inserts = samples = 0.0
        for number, shard in enumerate(info.shards):
            if shard is None:
                continue
            then, before = self._before.get(number, (now, shard))
            if now > then and shard.inserted >= before.inserted and shard.sampled >= before.sampled:
                inserts += (shard.inserted - before.inserted) / (now - then)
                samples += (shard.sampled - before.sampled) / (now - then)
            self._before[number] = now, shard
        return {"inserts_per_second": inserts, "samples_per_second": samples}
