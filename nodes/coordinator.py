"""The coordinator: ends the program when it has done what it was asked."""

from typing import Optional

from nodes import contract
from nodes.counter import CounterClient
from nodes.service import Handle, ServiceNode, deref

_PERIOD_SECONDS = 0.2


class Coordinator:
    """Watches the counter and ends the program at a step limit, or once it is solved."""

    def __init__(
        self, counter: CounterClient, max_steps: Optional[int], solved_at: Optional[float]
    ) -> None:
        """Initializes the coordinator.

        Args:
            counter: Knows how far the program is.
            max_steps: Environment steps of all actors after which the program has finished.
            solved_at: Mean return of the evaluator's last 100 episodes at which it is solved.
        """
        self._runtime = contract.runtime()
        self._counter = counter
        self._max_steps = max_steps
        self._solved_at = solved_at

    def run(self) -> None:
        """Watches until the program is asked to stop."""
        while not self._runtime.wait_for_stop(_PERIOD_SECONDS):
            snapshot = self._counter.snapshot()
            mean = snapshot["evaluator_return_mean_100"]
            steps = snapshot["counts"].get("environment_steps", 0)
            if self._solved_at is not None and mean is not None and mean >= self._solved_at:
                self._runtime.request_stop(
                    "solved",
                    f"the evaluator's last 100 episodes returned {mean:.3g} on average, "
                    f"{self._solved_at:g} counts as solved",
                )
                return
            if self._max_steps is not None and steps >= self._max_steps:
                self._runtime.request_stop(
                    "finished", f"{steps} of {self._max_steps} environment steps were taken"
                )
                return


def coordinator_node(
    counter: Handle[CounterClient], max_steps: Optional[int], solved_at: Optional[float]
) -> ServiceNode[Coordinator]:
    """Returns the node that ends the program; see `Coordinator`."""
    return ServiceNode(
        Coordinator,
        deref(counter),
        max_steps,
        solved_at,
        client_type=Coordinator,
        traits=contract.Traits(on_failure="restart", place="pack"),
    )
