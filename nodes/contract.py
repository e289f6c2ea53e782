"""What a node and the launcher that runs it know of each other.

A node says what it needs through its `traits`; a launcher offers what a node may ask for through a
`Runtime`. Both are optional: a node of somebody else's has default traits, and a node that
Launchpad's own launcher runs gets a runtime that knows nothing.
"""

import dataclasses
from typing import Any, Literal, Optional, Protocol

import launchpad as lp
from launchpad import context
from launchpad.nodes import base

from usage import UsageError

OnFailure = Literal["stop", "restart", "ignore"]
Place = Literal["pack", "spread", "one_per_host"]


@dataclasses.dataclass(frozen=True)
class RestartBudget:
    """How often a replica that fails is started again before its failure ends the program.

    Attributes:
        count: Restarts within `window_seconds`; one failure more is one too many.
        window_seconds: How long a restart counts.
        backoff_seconds: Wait before the first of them; each further one waits twice as long, up to
            `longest_backoff_seconds`.

    Raises:
        UsageError: A number is negative.
    """

    count: int = 3
    window_seconds: float = 60.0
    backoff_seconds: float = 0.2
    longest_backoff_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0:
                raise UsageError(f"{name} must be at least 0, got {value}.")


@dataclasses.dataclass(frozen=True)
class Traits:
    """What a launcher must know of a node.

    Attributes:
        on_failure: What a failure means: `stop` ends the program, `restart` starts the replica
            again as long as its budget lasts, `ignore` leaves the rest running.
        restart: The budget of `restart`.
        stop_seconds: How long the node may take to end once it is asked to.
        reports_running: Whether the node itself says when it is running. Of one that does not, a
            launcher thinks that it runs once its addresses accept connections.
        endless: Whether the node works until it is asked to stop; an end before is a failure.
        wants_gpu: Whether the node gets a GPU where there is one and the layout says nothing.
        preload: Modules that the node's process should have loaded before it starts.
        place: Where a cluster puts the group's replicas unless the layout says: `pack` on as few
            hosts as hold them, the launcher's own first; `spread` evenly over all; `one_per_host`
            never two on one.
        dispensable: Whether the rest goes on without the replica when its host is lost and no
            other has room for it.
        per_host: Whether each host with users of it has a replica of its own, to which they are
            connected. Its group has one node.
        stands_in_for: Address of the service that a node with a replica per host passes on, if it
            does. On that service's own host its users are connected to it directly, and a mode of
            one host has no replica.
    """

    on_failure: OnFailure = "stop"
    restart: RestartBudget = RestartBudget()
    stop_seconds: float = 10.0
    reports_running: bool = False
    endless: bool = False
    wants_gpu: bool = False
    preload: tuple[str, ...] = ()
    place: Place = "spread"
    dispensable: bool = False
    per_host: bool = False
    stands_in_for: Optional[lp.Address] = None


class Runtime(Protocol):
    """What a launcher offers a node while it runs; safe to use from every thread of the node."""

    @property
    def run_directory(self) -> Optional[str]:
        """The directory that holds the run's files, or None where there is none."""

    @property
    def checkpoint_directory(self) -> Optional[str]:
        """The directory of the node's own checkpoints, or None where there is none."""

    @property
    def life(self) -> int:
        """1, and 1 more for each time that the run was resumed."""

    @property
    def stopping(self) -> bool:
        """Whether the node has been asked to stop."""

    def wait_for_stop(self, timeout_secs: Optional[float] = None) -> bool:
        """Waits until the node is asked to stop; returns whether it was, within the timeout."""

    def report_running(self) -> None:
        """Says that the node is constructed, serving and at work."""

    def report_progress(self) -> None:
        """Says that the node has done a piece of its work, and so waits for nothing.

        A node that has once said so and then, for long, neither says it again nor waits to be
        stopped counts as stalled.
        """

    def report_waiting(self, what: Optional[str]) -> None:
        """Says what the node waits for, in words for a person, or that it waits no longer.

        Progress ends a wait, too.
        """

    def report_save(self, taken_at: float, pause_seconds: float) -> None:
        """Says that a checkpoint was saved.

        Args:
            taken_at: When its content was taken, in seconds since the epoch.
            pause_seconds: How long the node's work stood still for it.
        """

    def report_warning(self, text: str) -> None:
        """Tells the person who started the run of something that does not end it."""

    def request_stop(self, outcome: str, reason: str) -> None:
        """Asks for the end of the program.

        Args:
            outcome: How the run ends: `solved`, `finished` or `stopped`.
            reason: One sentence for the person who started it.
        """


def set_traits(node: base.Node, traits: Traits) -> None:
    """Lets `node` say `traits` of itself."""
    node._launchgraph_traits = traits  # type: ignore[attr-defined]


def traits_of(node: base.Node) -> Traits:
    """Returns what `node` says of itself, or the defaults."""
    traits = getattr(node, "_launchgraph_traits", None)
    return traits if isinstance(traits, Traits) else Traits()


def leads_outside(handle: base.Handle[Any]) -> bool:
    """Returns whether a handle says that it leads to something that is no node of a program."""
    return bool(getattr(handle, "leads_outside", False))


class _LaunchpadRuntime:
    """The runtime of a node that Launchpad's own launcher runs."""

    def __init__(self) -> None:
        from launchpad.launch import worker_manager

        self._context = context.get_context()
        self._manager = worker_manager._WORKER_MANAGERS.manager
        self.run_directory = None
        self.checkpoint_directory = None
        self.life = 1

    @property
    def stopping(self) -> bool:
        return self._manager.wait_for_stop(0.0)  # type: ignore[no-any-return]

    def wait_for_stop(self, timeout_secs: Optional[float] = None) -> bool:
        return self._manager.wait_for_stop(timeout_secs)  # type: ignore[no-any-return]

    def report_running(self) -> None:
        pass

    def report_progress(self) -> None:
        pass

    def report_waiting(self, what: Optional[str]) -> None:
        pass

    def report_save(self, taken_at: float, pause_seconds: float) -> None:
        pass

    def report_warning(self, text: str) -> None:
        print(f"WARNING: {text}")

    def request_stop(self, outcome: str, reason: str) -> None:
        self._context.program_stopper()


def runtime() -> Runtime:
    """Returns the runtime of the node whose main thread calls; keep it for the other threads."""
    config = context.get_context().launch_config
    if hasattr(config, "request_stop"):
        return config  # type: ignore[no-any-return]
    return _LaunchpadRuntime()


def runtime_if_any() -> Optional[Runtime]:
    """Returns what `runtime` does, or None to who is no node, such as a test with a client."""
    try:
        return runtime()
    except (AssertionError, AttributeError):  # So Launchpad says that this thread is no node's.
        return None
