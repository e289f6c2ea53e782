"""The primary reducer: takes the optimizer's steps, and keeps the account of all gradients."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any, Optional

from numpy.typing import NDArray

from agents.agent import SharedModel
from nodes import checkpoints, contract, contributions
from nodes.checkpoints import Schedule
from nodes.contributions import BACKENDS, Contribution, NotAGradient, Ticket
from nodes.counter import CounterClient
from nodes.gathering import Closed, Gathering, Outcome, Round
from nodes.learner import STALE_SECONDS
from nodes.learner_checkpoints import LearnerCheckpoints
from nodes.ledger import Ledger
from nodes.peer import PeerLost
from nodes.publisher import Publisher
from nodes.reducer import GradientSpecs, Reduction
from nodes.reducer_peer import TakesContributions
from nodes.variables import VariableClient
from nodes.version import Version

_TAKE_SECONDS = 0.2
_FETCH_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_REPORT_SECONDS = 0.5
_LEDGER = "ledger"

MakeModel = Callable[[], SharedModel]


class ModelAndLedger:
    """A model with the account of the gradients in it, as checkpoints have both.

    Attributes:
        model: The model.
        ledger: The account.
    """

    def __init__(self, model: SharedModel) -> None:
        self.model = model
        self.ledger = Ledger()

    def state(self) -> Mapping[str, NDArray[Any]]:
        """See `agents.agent.Saved`."""
        return {_LEDGER: self.ledger.pack(), **self.model.state()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `agents.agent.Saved`."""
        self.model.restore({name: value for name, value in state.items() if name != _LEDGER})
        self.ledger = Ledger.unpack(state[_LEDGER])

    def pack(self) -> list[NDArray[Any]]:
        """Returns both as a version has them, and learners get them."""
        return [*self.model.model(), self.ledger.pack()]

    def take_up(self, values: Sequence[NDArray[Any]]) -> None:
        """Takes up what `pack` returned."""
        *model, ledger = values
        self.model.set_model(model)
        self.ledger = Ledger.unpack(ledger)


class PrimaryReducer(TakesContributions):
    """Reduces contributions, lets the model take a step with the result, and publishes it.

    A model is published together with the account of the gradients in it, before anybody hears
    what became of his: so a primary that is started again takes both up as they were, and a
    gradient that is pushed again, since its answer was lost, is not applied twice.
    """

    def __init__(
        self,
        make_model: MakeModel,
        models: VariableClient,
        num_learners: int,
        reduction: Reduction,
        schedule: Schedule = checkpoints.DEFAULT,
        variables: Optional[VariableClient] = None,
        publish_period: int = 1,
        counter: Optional[CounterClient] = None,
    ) -> None:
        """Makes the model.

        Args:
            make_model: Makes it.
            models: Where each version of the model goes, for the learners.
            num_learners: Learners.
            reduction: How gradients are reduced, and when a step is taken.
            schedule: When checkpoints are saved.
            variables: Where the variables go that are acted with, if anywhere.
            publish_period: Steps between two published versions of these.
            counter: Counts the steps, if there is one.
        """
        self._runtime = contract.runtime()
        self._models = models
        self._reduction = reduction
        self._variables = variables
        self._publish_period = publish_period
        self._counter = counter
        self._model = make_model()
        self._specs = GradientSpecs(self._model.gradient_specs, self._model.state_specs)
        self._saved = ModelAndLedger(self._model)
        self._checkpoints = LearnerCheckpoints(self._saved, self._runtime, schedule)
        synchronous = reduction.synchronous
        self._gathering = Gathering(
            num_learners if synchronous else reduction.batch_size,
            2 * reduction.flush_seconds,
            range(num_learners) if synchronous else (),
            mixes_steps=True,
        )
        self._lock = threading.Lock()
        self._at_work: Optional[Round] = None
        self._step = -1
        self._incarnation = time.time_ns()
        self._number = 0
        self._bytes = 0
        self._uncounted = 0
        self._ready = threading.Event()

    def _take(self, contribution: Contribution) -> Outcome:
        self._ready.wait()
        try:
            contributions.check(contribution.gradients, *self._specs)
        except NotAGradient as error:
            with self._lock:
                self._saved.ledger.settle(contribution.tickets, "refused")
            return Outcome("refused", self._step, str(error))
        with self._lock:
            self._bytes += contribution.nbytes
            self._saved.ledger.note(contribution.tickets)
            decided = self._decide(contribution)
            pending = self._pending(contribution.tickets)
        if decided is not None:
            return decided
        if pending is not None:  # This call was made before, and its answer lost.
            return pending.result()
        try:
            answer = self._gathering.add(contribution)
        except Closed:
            return Outcome("again", self._step)
        self._leave_out_decided()  # A step may have been taken since.
        return answer.result()

    def withdraw(self, *ticket: int) -> Optional[Outcome]:
        """Lets an attempt come to nothing unless it has arrived; see `PrimaryClient.withdraw`."""
        self._ready.wait()
        withdrawn = Ticket(*ticket)
        with self._lock:
            fate = self._saved.ledger.fate(withdrawn)
            pending = None if fate is not None else self._pending([withdrawn])
            if fate is None and pending is None:
                self._saved.ledger.withdraw(withdrawn)
        if fate is not None:
            return Outcome(fate, self._step)
        outcome = None if pending is None else pending.result()
        return None if outcome is None or outcome.fate == "again" else outcome

    def refuse(self, *ticket: int) -> None:
        """Accounts for a gradient that a secondary has refused."""
        with self._lock:
            self._saved.ledger.settle([Ticket(*ticket)], "refused")

    def specs(self) -> Any:
        """Returns what gradients look like, packed."""
        return self._specs.pack()

    def accounts(self) -> dict[str, int]:
        """See `PrimaryClient.accounts`."""
        with self._lock:
            total = self._saved.ledger.total._asdict()
            return {"pushed": self._saved.ledger.pushed, **total, "bytes": self._bytes}

    def accounts_of(self, member: int, client: int) -> dict[str, int]:
        """Returns what became of the gradients of one life of a learner."""
        with self._lock:
            return dict(self._saved.ledger.of(member, client)._asdict())

    def run(self) -> None:
        """Takes steps until the program stops, from the newest model on if there is one."""
        publisher = None if self._variables is None else Publisher(self._variables)
        try:
            self._take_up()
            self._publish()
            if publisher is not None:
                publisher.offer(self._step, self._model.variables)
            self._ready.set()
            self._take_steps(publisher)
            self._checkpoints.save(self._step)
        finally:
            self._ready.set()
            for round_ in self._gathering.close():
                round_.settle(Outcome("again", self._step))
            if publisher is not None:
                publisher.close()

    def _take_steps(self, publisher: Optional[Publisher]) -> None:
        looked = reported = time.monotonic()
        metrics: dict[str, Any] = {}
        while not self._runtime.stopping:
            self._checkpoints.save_if_due(self._step)
            round_ = self._gathering.take(_TAKE_SECONDS)
            now = time.monotonic()
            if round_ is None:
                self._runtime.report_waiting("gradients")
            elif self._step_with(round_, metrics):
                looked = now
                self._runtime.report_progress()
                due = self._step % self._publish_period == 0
                if publisher is not None and (due or publisher.idle_seconds > STALE_SECONDS):
                    publisher.offer(self._step, self._model.variables)
            if now - looked > _LOOK_SECONDS:
                looked = now
                self._publish_again_if_lost()
            if now - reported > _REPORT_SECONDS:
                reported = now
                self._report(metrics)
        self._report(metrics)
        if self._counter is not None:
            with contextlib.suppress(PeerLost):  # It may have ended before us.
                self._counter.increment()

    def _step_with(self, round_: Round, metrics: dict[str, Any]) -> bool:
        """Takes a step with what is valid of a round; returns whether anything was."""
        with self._lock:
            self._leave_out(round_.take_out(lambda each: self._decide(each) is not None))
            self._leave_out(round_.take_out(_is_there_again()))
            if not round_.contributions:
                return False
            self._at_work = round_
        came = [contribution for contribution, _ in round_.contributions]
        backend = BACKENDS[self._reduction.backend]
        try:
            reduced = contributions.reduce(came, self._reduction.method, backend).gradients
            metrics.update(self._model.apply_gradients(reduced.values, reduced.state))
            with self._lock:
                self._saved.ledger.settle(round_.tickets, "applied")
                self._step += 1
            self._publish()
        except Exception as error:
            round_.fail(error)
            raise
        with self._lock:
            self._at_work = None
        self._leave_out_decided()
        round_.settle(Outcome("applied", self._step))
        self._uncounted += 1
        return True

    def _decide(self, contribution: Contribution) -> Optional[Outcome]:
        """Returns the outcome of a contribution for which no step is needed, or None.

        It is called with the lock.
        """
        fates = {self._saved.ledger.fate(ticket) for ticket in contribution.tickets}
        if len(fates) == 1 and None not in fates:
            return Outcome(fates.pop() or "again", self._step)
        if any(self._saved.ledger.is_void(ticket) for ticket in contribution.tickets):
            return Outcome("again", self._step)
        age = self._step - contribution.step
        if not 0 <= age <= self._reduction.max_staleness:  # Below 0: it is of a model that is lost.
            self._saved.ledger.settle(contribution.tickets, "late")
            return Outcome("late", self._step)
        return None

    def _leave_out_decided(self) -> None:
        """Tells those whose contributions need no step, and takes them out."""
        with self._lock:
            self._leave_out(self._gathering.take_out(lambda each: self._decide(each) is not None))

    def _leave_out(
        self, left_out: Sequence[tuple[Contribution, "futures.Future[Outcome]"]]
    ) -> None:
        for contribution, answer in left_out:
            answer.set_result(self._decide(contribution) or Outcome("again", self._step))

    def _pending(self, tickets: Sequence[Ticket]) -> "Optional[futures.Future[Outcome]]":
        """Returns where the outcome of one of the gradients is waited for, if it is."""
        for ticket in tickets:
            at_work = None if self._at_work is None else self._at_work.find(ticket)
            answer = at_work or self._gathering.find(ticket)
            if answer is not None:
                return answer
        return None

    def _take_up(self) -> None:
        """Goes on from the checkpoint, or from the model that was published last if it is newer."""
        self._step = self._checkpoints.restore()
        newest = self._models.fetch(_FETCH_SECONDS)
        if newest is None or newest.step < self._step:
            return
        self._saved.take_up(newest.values)
        self._step = newest.step
        print(f"The model of step {self._step} was taken up.")

    def _publish(self) -> None:
        """Publishes the model, and waits until it is there."""
        self._number += 1
        self._published = Version(
            self._incarnation,
            self._step,
            self._number,
            time.time(),
            self._saved.pack(),
        )
        self._models.publish(self._published)

    def _publish_again_if_lost(self) -> None:
        if not self._models.has(self._published):
            self._publish()

    def _report(self, metrics: dict[str, Any]) -> None:
        if self._counter is None:
            return
        self._counter.increment_soon(learner_steps=self._uncounted)
        self._uncounted = 0
        self._counter.report_soon(
            "reducer/0",
            {
                **{name: float(value) for name, value in metrics.items()},
                **{f"gradients_{name}": number for name, number in self.accounts().items()},
            },
        )


def _is_there_again() -> Callable[[Contribution], bool]:
    """Returns what tells whether a gradient was among the contributions that it was asked for.

    That happens where a call was made once more while it was on its way.
    """
    seen: set[tuple[int, ...]] = set()

    def is_there_again(contribution: Contribution) -> bool:
        known = len(seen)
        seen.update(ticket[:3] for ticket in contribution.tickets)
        return len(seen) < known + len(contribution.tickets)

    return is_there_again
