"""The flags of a launch."""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Optional

import usage
from usage import UsageError

MOST = 10_000
"""More replicas, or environments of one, than a machine or a small cluster runs."""
NETWORKS = ("own", "host")
_HOST_AND_PORT = re.compile(r"(?:[\w.-]+|\[[\da-fA-F:.]+\]):(\d{1,5})", re.ASCII)
_REPLICAS = ("num_actors", "envs_per_actor", "replay_shards", "num_learners")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a person may say about a run, one flag a field.

    Attributes:
        agent: apex, r2d2, ars, or package.module:Class for one of your own.
        program: Instead of --agent, package.module:function that returns a program.
        mode: test_mt or local_mt (threads), local_mp (processes), ray (processes on many hosts).
        address: With mode ray, host:port of the cluster to join, or auto (else one of its own).
        env: catch, cartpole, memory:LENGTH, atari:GAME, gym:ID, or package.module:function.
        preset: Configuration to start from, small or paper (paper for atari:GAME, else small).
        num_actors: Actors, or with ars the workers that make rollouts.
        envs_per_actor: Environments of each actor.
        replay_shards: Replay servers.
        num_learners: Learners, which take each step together.
        num_reducers: Secondary reducers between several learners and the one that takes the steps.
        async_learners: Let learners not wait for each other, so that each gradient is a step.
        max_staleness: Steps by which a gradient may be late then (4 x num_learners unless told).
        replay_address: Replay servers that stand already, host:port,host:port, instead of own ones.
        max_steps: Environment steps of all actors after which the run ends (with ars, of rollouts
            that were used).
        stop_when_solved: End once the environment counts as solved.
        seed: Every replica's and every environment's seed derives from it.
        run_dir: Directory of the run's files (runs/AGENT-ENV-TIME unless told).
        resume: Directory of a run to go on with, as it was started.
        layout: TOML file that says where each group runs and what it gets.
        checkpoint_seconds: Seconds between checkpoints of learner, replay and counter.
        checkpoints_kept: Newest checkpoints of each that are kept.
        stall_timeout: Seconds without progress after which a node counts as stalled.
        network: own, in which nobody else reaches the nodes, or host.
        plan: Print what would run, and stop.
        debug: Show where in the code a mistake was noticed.
        help: Show this.

    Raises:
        UsageError: A number is out of its range.
    """

    agent: str = "apex"
    program: Optional[str] = None
    mode: str = "local_mp"
    address: Optional[str] = None
    env: str = "catch"
    preset: Optional[str] = None
    num_actors: int = 4
    envs_per_actor: int = 1
    replay_shards: int = 1
    num_learners: int = 1
    num_reducers: int = 0
    async_learners: bool = False
    max_staleness: Optional[int] = None
    replay_address: Optional[str] = None
    max_steps: Optional[int] = None
    stop_when_solved: bool = True
    seed: int = 0
    run_dir: Optional[str] = None
    resume: Optional[str] = None
    layout: Optional[str] = None
    checkpoint_seconds: float = 60.0
    checkpoints_kept: int = 2
    stall_timeout: Optional[float] = 120.0
    network: str = "own"
    plan: bool = False
    debug: bool = False
    help: bool = False

    def __post_init__(self) -> None:
        for name in (*_REPLICAS, "max_steps", "checkpoints_kept"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} must be at least 1, got {value}.")
        self._check_learners()
        for name in ("checkpoint_seconds", "stall_timeout"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"--{name} must be a positive number, got {value}.")
        for name in _REPLICAS:
            if getattr(self, name) > MOST:
                raise UsageError(f"--{name} must be at most {MOST}, got {getattr(self, name)}.")
        for name, kind in (("run_dir", "directory"), ("resume", "directory"), ("layout", "file")):
            if getattr(self, name) == "":
                raise UsageError(f"--{name} must name a {kind}, or be left out.")
        if self.network not in NETWORKS:
            raise usage.unknown("network", self.network, NETWORKS)
        if self.seed < 0:
            raise UsageError(f"--seed must not be negative, got {self.seed}.")
        _check_addresses(self.replay_addresses)

    def _check_learners(self) -> None:
        if self.num_reducers and self.num_learners == 1:
            raise UsageError("--num_reducers means nothing with one learner: leave it out.")
        if not 0 <= self.num_reducers <= self.num_learners:
            raise UsageError(
                f"--num_reducers must be between 0 and {self.num_learners}, one a learner, got "
                f"{self.num_reducers}."
            )
        if self.async_learners and self.num_learners == 1:
            raise UsageError("--async_learners means nothing with one learner: leave it out.")
        if self.max_staleness is None:
            return
        if not self.async_learners:
            raise UsageError("--max_staleness is for --async_learners: leave it out.")
        if self.max_staleness < 0:
            raise UsageError(f"--max_staleness must not be negative, got {self.max_staleness}.")

    @property
    def replay_addresses(self) -> tuple[str, ...]:
        """The replay servers that stand already."""
        if self.replay_address is None:
            return ()
        return tuple(address.strip() for address in self.replay_address.split(","))


def check_port(name: str, port: int) -> None:
    """Checks that a flag's value is a port that can be served.

    Raises:
        UsageError: It is not.
    """
    if not 1 <= port <= 65535:
        raise UsageError(f"--{name} wants a port from 1 to 65535, got {port}.")


def _check_addresses(addresses: Sequence[str]) -> None:
    for number, address in enumerate(addresses):
        match = _HOST_AND_PORT.fullmatch(address)
        if match is None:
            raise UsageError(
                f"--replay_address wants host:port of each server, with commas between them, got "
                f"{address!r}."
            )
        check_port("replay_address", int(match[1]))
        if address in addresses[:number]:
            raise UsageError(f"--replay_address has {address} twice: give each server once.")
