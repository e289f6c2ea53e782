"""The primary reducer: takes the optimizer's steps, and keeps the account of all gradients."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from agents.agent import SharedModel
from nodes import checkpoints, contract, contributions
from nodes.checkpoints import Schedule
from nodes.contributions import BACKENDS, Contribution, NotAGradient, Ticket
from nodes.counter import CounterClient
from nodes.gathering import Closed, Outcome
from nodes.intake import Intake
from nodes.learner import STALE_SECONDS
from nodes.learner_checkpoints import LearnerCheckpoints
from nodes.ledger import Ledger
from nodes.peer import PeerLost
from nodes.publisher import Publisher
from nodes.reducer import GradientSpecs, Reduction
from nodes.reducer_peer import TakesContributions
from nodes.variables import VariableClient
from nodes.version import Key, Version

_TAKE_SECONDS = 0.2
_LOOK_SECONDS = 1.0
_REPORT_SECONDS = 0.5
_LEDGER = "ledger"

MakeModel = Callable[[], SharedModel]


class _ModelAndLedger:
    """A model with the account of the gradients in it, as checkpoints have both."""

    def __init__(self, model: SharedModel, intake: Intake) -> None:
        self._model = model
        self._intake = intake
        self.ledger = Ledger()

    def state(self) -> Mapping[str, NDArray[Any]]:
        """See `agents.agent.Saved`."""
        return {_LEDGER: self._intake.packed_ledger(), **self._model.state()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `agents.agent.Saved`; the account is for `PrimaryReducer` to take up."""
        self._model.restore({name: value for name, value in state.items() if name != _LEDGER})
        self.ledger = Ledger.unpack(state[_LEDGER])


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
        synchronous = reduction.synchronous
        self._intake = Intake(
            num_learners if synchronous else reduction.batch_size,
            2 * reduction.flush_seconds,
            range(num_learners) if synchronous else (),
            reduction.max_staleness,
        )
        self._saved = _ModelAndLedger(self._model, self._intake)
        self._checkpoints = LearnerCheckpoints(self._saved, self._runtime, schedule)
        self._published = Version(time.time_ns(), 0, 0, 0.0, ())
        self._bytes = 0
        self._counted = 0
        self._ready = threading.Event()

    def _take(self, contribution: Contribution) -> Outcome:
        self._ready.wait()
        self._bytes += contribution.nbytes
        try:
            contributions.check(contribution.gradients, *self._specs)
        except NotAGradient as error:
            return self._intake.refuse(contribution.tickets, str(error))
        try:
            return self._intake.add(contribution).result()
        except Closed:
            return Outcome("again", contribution.model[1])

    def withdraw(self, *ticket: int) -> Optional[Outcome]:
        """Lets an attempt come to nothing unless it has arrived; see `PrimaryClient.withdraw`."""
        self._ready.wait()
        return self._intake.withdraw(Ticket(*ticket))

    def refuse(self, *ticket: int) -> None:
        """Accounts for a gradient that a secondary has refused."""
        self._ready.wait()
        self._intake.refuse([Ticket(*ticket)], "")

    def specs(self) -> Any:
        """Returns what gradients look like, packed."""
        return self._specs.pack()

    def accounts(self) -> dict[str, int]:
        """See `PrimaryClient.accounts`."""
        return {**self._intake.accounts(), "bytes": self._bytes}

    def account_of(self, member: int, client: int) -> dict[str, int]:
        """See `PrimaryClient.account_of`."""
        return self._intake.account_of(member, client)

    def run(self) -> None:
        """Takes steps until the program stops, from the newest model on if there is one."""
        publisher = None if self._variables is None else Publisher(self._variables)
        try:
            self._take_up()
            if publisher is not None:
                publisher.offer(self._step, self._model.variables)
            self._ready.set()
            self._take_steps(publisher)
            self._checkpoints.save(self._step)
        finally:
            self._ready.set()
            for round_ in self._intake.close():
                round_.settle(Outcome("again", self._step))
            if publisher is not None:
                publisher.close()

    @property
    def _step(self) -> int:
        """Steps in the model that was published last."""
        return self._published.step

    def _take_steps(self, publisher: Optional[Publisher]) -> None:
        looked = reported = time.monotonic()
        metrics: dict[str, Any] = {}
        while not self._runtime.stopping:
            self._checkpoints.save_if_due(self._step)
            now = time.monotonic()
            if self._step_if_due(metrics):
                looked = now
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

    def _step_if_due(self, metrics: dict[str, Any]) -> bool:
        """Takes a step if there is a round to take it with; returns whether it did."""
        round_ = self._intake.take(_TAKE_SECONDS)
        if round_ is None:
            self._runtime.report_waiting("gradients")
            return False
        came = [contribution for contribution, _ in round_.contributions]
        try:
            backend = BACKENDS[self._reduction.backend]
            reduced = contributions.reduce(came, self._reduction.method, backend).gradients
            contributions.check(reduced, *self._specs)  # A sum of large ones may be infinite.
            metrics.update(self._model.apply_gradients(reduced.values, reduced.state))
        except (NotAGradient, FloatingPointError) as error:
            reason = f"what {len(round_.tickets)} gradients were reduced to is none: {error}"
            self._intake.finish(round_, Outcome("refused", self._step, reason), self._model_key)
            return False
        except Exception as error:
            round_.fail(error)
            raise
        try:
            self._publish(self._step + 1, self._intake.packed_ledger(applied=round_))
        except Exception as error:
            round_.fail(error)
            raise
        self._intake.finish(round_, Outcome("applied", self._step), self._model_key)
        self._runtime.report_progress()
        return True

    @property
    def _model_key(self) -> Key:
        return self._published.key

    def _take_up(self) -> None:
        """Goes on from the checkpoint, or from the model that was published last if it is newer."""
        step = self._checkpoints.restore()
        ledger = self._saved.ledger
        newest = self._models.newest()
        if newest is not None and newest.step >= step:
            *model, packed = newest.values
            self._model.set_model(model)
            ledger = Ledger.unpack(packed)
            self._published, step = newest._replace(values=()), newest.step
            print(f"The model of step {step} was taken up.")
        self._intake.take_up(ledger, (self._published.incarnation, step))
        self._publish(step, ledger.pack())
        if self._counter is not None:
            self._counted = self._counter.snapshot()["counts"].get("learner_steps", 0)

    def _publish(self, step: int, ledger: NDArray[np.uint8]) -> None:
        """Publishes the model, and waits until it is there.

        A model keeps the incarnation of the one that it was made from, also in another life of the
        reducer, unless that one is lost. So no two models have the same key.
        """
        version = self._published._replace(
            step=step,
            number=self._published.number + 1,
            time=time.time(),
            values=[*self._model.model(), ledger],
        )
        self._models.publish(version)
        self._published = version._replace(values=())  # They are the model's own memory.

    def _publish_again_if_lost(self) -> None:
        if not self._models.has(self._published):
            self._publish(self._step, self._intake.packed_ledger())

    def _report(self, metrics: dict[str, Any]) -> None:
        if self._counter is None:
            return
        new = max(0, self._step - self._counted)  # Of a model that was lost some were counted.
        self._counter.increment_soon(learner_steps=new)
        self._counted += new
        self._counter.report_soon(
            "reducer/0",
            {
                **{name: float(value) for name, value in metrics.items()},
                **{f"gradients_{name}": number for name, number in self.accounts().items()},
            },
        )
