"""Bugs to plant into the product, each one a guard taken out: the simulation must find every one of them.

A bug stays in for as long as its context lasts, in this process only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

from lab.real_runs import driver
from lab.real_runs.driver import Job
from spark_kafka_eos.appending import barrier
from spark_kafka_eos.errors import KafkaEosError, TransactionAborted
from spark_kafka_eos.kafka.producer import ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol import transactions
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.answers import CoordinatorAnswers
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.transaction.attempt import TRANSITIONS, Event, State
from spark_kafka_eos.transaction.doubt import CommitDoubt
from spark_kafka_eos.transaction.fence import Fence
from spark_kafka_eos.transaction.hanging import HangingTransactions
from spark_kafka_eos.transaction.hold import Hold, HoldEvent, HoldState
from spark_kafka_eos.transaction.owner import Owner
from spark_kafka_eos.transaction.shared import SharedTransaction
from spark_kafka_eos.transaction.steps import TransactionSteps
from spark_kafka_eos.transaction.takeover import OwnerLook, OwnerTakeover


@contextlib.contextmanager
def _no_barrier() -> Iterator[None]:
    """Whatever the append tasks report is committed."""
    with mock.patch.object(barrier, "obstacle", return_value=None):
        yield


@contextlib.contextmanager
def _abort_after_unknown_commit() -> Iterator[None]:
    """A commit that was not answered is taken for one that did not happen: abort, and write the batch again."""

    def settle(steps: TransactionSteps, owner: Owner, error: KafkaEosError) -> None:
        cluster: Any = steps._cluster
        with contextlib.suppress(KafkaEosError):
            following = transactions.end_transaction(cluster, steps.identity, commit=False)
            steps.hold.apply(HoldEvent.ABORTED, following)
        steps.hold.apply(HoldEvent.LOOKED)
        owner.initialise()
        raise TransactionAborted(f"taken for aborted: {error.what}")

    def verdict(self: Any, batch: MicroBatch) -> verdicts.Verdict:
        return verdicts.Write(reason="it was aborted") if self._retaken == batch else by_ledger(self, batch)

    by_ledger = OwnerTakeover.verdict

    def settle_and_note(self: Any, batch: MicroBatch, _entry: object, error: KafkaEosError, *, is_over: bool) -> None:
        self._takeover._retaken = batch
        settle(self._steps, self._owner, error)

    with (
        mock.patch.object(CommitDoubt, "doubt", settle_and_note),
        mock.patch.object(OwnerTakeover, "verdict", verdict),
        mock.patch.object(OwnerTakeover, "_retaken", None, create=True),
    ):
        yield


@contextlib.contextmanager
def _ledger_before_init() -> Iterator[None]:
    """The ledger is read first and the identity taken afterwards; nor is it asked again before the commit."""

    def reading_first(initialise: Callable[..., Any]) -> Callable[..., Any]:
        def read_first(self: Owner, *args: Any) -> Any:
            ledger = self._steps.ledger
            ledger.read()
            with mock.patch.object(ledger, "read"):
                return initialise(self, *args)

        return read_first

    with (
        mock.patch.object(Owner, "initialise", reading_first(Owner.initialise)),
        mock.patch.object(Owner, "take_over", reading_first(Owner.take_over)),
        mock.patch.object(CoordinatorAnswers, "confirm", return_value=None),
    ):
        yield


@contextlib.contextmanager
def _skip_by_batch_id() -> Iterator[None]:
    """A batch whose number is in the ledger is skipped, whatever offsets it covers and whoever's it is."""
    decide = verdicts.decide

    def by_number(entry: LedgerEntry | None, batch: MicroBatch, committed: Any, **options: Any) -> verdicts.Verdict:
        if entry is not None and entry.query_id == batch.query_id and entry.batch_id == batch.batch_id:
            return verdicts.Skip(reason="this number is committed")
        return decide(entry, batch, committed, **options)

    with mock.patch.object(verdicts, "decide", by_number):
        yield


@contextlib.contextmanager
def _no_epoch_bump() -> Iterator[None]:
    """A batch that is tried again is tried under the same epoch."""
    initialise = Owner.initialise

    def once(self: Owner, read_under: ProducerEpoch | None = None) -> Any:
        if self._steps.hold.identity is None:
            return initialise(self, read_under)
        self._steps.attempt._state = State.READY
        return "known"

    def end(cluster: Any, identity: Any, *, commit: bool) -> Any:
        return end_transaction(cluster, identity, commit=commit) if commit else identity

    end_transaction = transactions.end_transaction
    with (
        mock.patch.object(Owner, "initialise", once),
        mock.patch.object(transactions, "end_transaction", end),
        mock.patch.dict(TRANSITIONS, {(State.READY, Event.APPEND): State.APPENDING}),
    ):
        yield


@contextlib.contextmanager
def _stage_attempt_accepted() -> Iterator[None]:
    """An append stage that ran twice counts like one that ran once."""
    with mock.patch.object(barrier, "_stage_that_ran_again", return_value=None):
        yield


@contextlib.contextmanager
def _no_fence() -> Iterator[None]:
    """TV1's next epoch does not shut the last one out of the partitions; to be found without verification."""
    with mock.patch.object(Fence, "apply", return_value=None):
        yield


@contextlib.contextmanager
def _no_look() -> Iterator[None]:
    """The id is taken before anybody asks whose it is and what is committed."""

    def blind(self: Any, batch: MicroBatch, *, to_take: bool = False) -> OwnerLook:
        return OwnerLook(verdict=verdicts.Write(reason="InitProducerId first"), facts=None)

    with (
        mock.patch.object(SharedTransaction, "look", blind),
        mock.patch.object(Owner, "ask_if_held", return_value=None),
    ):
        yield


@contextlib.contextmanager
def _no_owner_check() -> Iterator[None]:
    """Whoever holds no epoch goes by the ledger alone."""
    with mock.patch.object(OwnerTakeover, "_require_untaken", return_value=None):
        yield


@contextlib.contextmanager
def _no_look_again() -> Iterator[None]:
    """An InitProducerId without an answer is sent again, whoever may have taken the id since."""
    with mock.patch.object(Owner, "look_again", return_value=None):
        yield


@contextlib.contextmanager
def _epoch_is_not_named() -> Iterator[None]:
    """After its transaction was aborted by the coordinator, a driver takes the id as one that starts."""
    look_again = Owner.look_again

    def required(self: Any, before: ProducerEpoch | None, *, may_doubt: bool) -> None:
        look_again(self, before, may_doubt=True)

    apply = Hold.apply

    def applied(self: Any, event: HoldEvent, identity: ProducerIdentity | None = None) -> HoldState:
        if event is not HoldEvent.TIMED_OUT:
            return apply(self, event, identity)
        self._state = HoldState.RELEASED
        return HoldState.RELEASED

    with (
        mock.patch.object(Hold, "apply", applied),
        mock.patch.object(Owner, "look_again", required),
    ):
        yield


@contextlib.contextmanager
def _any_abort_is_the_coordinators() -> Iterator[None]:
    """An abort is taken for the coordinator's, after the timeout, also if it may be another driver's (TV1)."""
    with mock.patch.object(transactions, "was_opened", return_value=True):
        yield


@contextlib.contextmanager
def _earlier_runs_unknown() -> Iterator[None]:
    """An entry does not name the runs that committed before its own."""
    with mock.patch("spark_kafka_eos.ledger.next_entry.runs_before", return_value=()):
        yield


@contextlib.contextmanager
def _held_is_not_asked() -> Iterator[None]:
    """A held identity gets its next epoch without a question whose the id is; TV1 does so for each batch."""
    with mock.patch.object(Owner, "ask_if_held", return_value=None):
        yield


@contextlib.contextmanager
def _look_always_counts() -> Iterator[None]:
    """The ledger is not read again after InitProducerId, whatever the epoch shows."""
    take = Owner._take

    def counts(self: Owner, named: Any, before: Any, read_under: Any) -> Any:
        steps = self._steps
        steps.ledger.topic.ensure()
        if read_under is None and steps.hold.identity is not None:
            return take(self, named, before, None)
        with mock.patch.object(steps.ledger, "read"):
            take(self, named, before, read_under)
        return "known"

    with (
        mock.patch.object(Owner, "_take", counts),
        mock.patch.object(CoordinatorAnswers, "confirm", return_value=None),
    ):
        yield


@contextlib.contextmanager
def _nothing_hangs() -> Iterator[None]:
    """Nobody asks whether a transaction hangs. Only the model's brokers that leave out markers make a difference."""
    with mock.patch.object(HangingTransactions, "find", return_value=[]):
        yield


BUGS: Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "no-barrier": _no_barrier,
    "abort-after-unknown-commit": _abort_after_unknown_commit,
    "ledger-before-init": _ledger_before_init,
    "skip-by-batch-id": _skip_by_batch_id,
    "no-epoch-bump": _no_epoch_bump,
    "stage-attempt-accepted": _stage_attempt_accepted,
    "no-fence": _no_fence,
    "no-look": _no_look,
    "no-owner-check": _no_owner_check,
    "no-look-again": _no_look_again,
    "epoch-is-not-named": _epoch_is_not_named,
    "any-abort-is-the-coordinators": _any_abort_is_the_coordinators,
    "earlier-runs-unknown": _earlier_runs_unknown,
    "held-is-not-asked": _held_is_not_asked,
    "look-always-counts": _look_always_counts,
    "nothing-hangs": _nothing_hangs,
}


def in_driver(bug: str, job: Job, pipe: Connection) -> None:
    """The process of a driver of `lab.real_runs` whose code has this bug."""
    with BUGS[bug]():
        driver.main(job, pipe)


# To be found where drivers often come back late.
LATE_DRIVERS = (
    "no-look",
    "no-look-again",
    "no-owner-check",
    "held-is-not-asked",
    "look-always-counts",
)
