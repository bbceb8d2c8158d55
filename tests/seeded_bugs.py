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
from spark_kafka_eos.ledger.answers import BrokerAnswers
from spark_kafka_eos.ledger.bucket_reader import BucketReader
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.keeper import LedgerKeeper
from spark_kafka_eos.ledger.signing import UNSIGNED
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.real_time import cycle
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.transaction import takeover
from spark_kafka_eos.transaction.attempt import TRANSITIONS, Event, State
from spark_kafka_eos.transaction.buckets import Buckets
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
        mock.patch.object(BrokerAnswers, "confirm", return_value=None),
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
        mock.patch.object(BrokerAnswers, "confirm", return_value=None),
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


# -- of queries in real time


@contextlib.contextmanager
def _requests_are_sent_again() -> Iterator[None]:
    """In the older protocol too, where a late copy of a request can change the bucket's next transaction."""
    with mock.patch.object(cycle, "_sent_once", return_value=None):
        yield


@contextlib.contextmanager
def _offsets_before_the_buckets() -> Iterator[None]:
    """Where the buckets ended is read before they are taken, so that what a task commits in between is not seen."""
    start = RealTimeDriver._start

    def read_first(self: RealTimeDriver, batch: MicroBatch, *args: Any, **options: Any) -> Any:
        reader = BucketReader(self._cluster, self._options.transactional_id, UNSIGNED)
        before = reader.read(range(8), [self._options.ledger_topic])

        def read(numbers: Any, _topics: Any) -> Any:
            return {number: before[number] for number in numbers if number in before}

        own = self._transaction.steps.ledger._buckets  # drivers take turns: a patch of the class would outlive one
        with mock.patch.object(own, "read", read):
            return start(self, batch, *args, **options)

    with mock.patch.object(RealTimeDriver, "_start", read_first):
        yield


@contextlib.contextmanager
def _offsets_are_not_confirmed() -> Iterator[None]:
    """What the ledger's leader answers counts, even if it was paused and has a successor."""
    with mock.patch.object(BrokerAnswers, "add", return_value=None):
        yield


@contextlib.contextmanager
def _the_group_says_where_it_goes_on() -> Iterator[None]:
    """And not the ledger: also the offsets of a coordinator that has not loaded all."""

    def read(self: LedgerKeeper, _numbers: Any, partitions: Any) -> Any:
        return {tp: at for tp, at in self.read_source_offsets(partitions).items() if at is not None}

    with mock.patch.object(LedgerKeeper, "read_buckets", read):
        yield


@contextlib.contextmanager
def _buckets_keep_their_epochs() -> Iterator[None]:
    """A bucket that is started again goes on in the epoch of the task before, which may still run."""
    take = Buckets.take

    def take_once(self: Buckets, numbers: Any) -> None:
        take(self, [number for number in numbers if number not in self.identities])

    with mock.patch.object(Buckets, "take", take_once):
        yield


@contextlib.contextmanager
def _only_the_new_buckets_are_taken() -> Iterator[None]:
    """When their number falls, the buckets that are no longer used stay with their tasks."""
    start = RealTimeDriver._start

    def chosen(self: RealTimeDriver, batch: MicroBatch, count: Any, *args: Any, **options: Any) -> Any:
        take = self._buckets.take

        def below(numbers: Any) -> None:
            take([number for number in numbers if count is None or number < count])

        with mock.patch.object(self._buckets, "take", below):
            return start(self, batch, count, *args, **options)

    with mock.patch.object(RealTimeDriver, "_start", chosen):
        yield


@contextlib.contextmanager
def _micro_batches_take_no_bucket() -> Iterator[None]:
    """Micro-batches begin while tasks in real time still run."""
    with mock.patch.object(takeover, "Buckets"):
        yield


@contextlib.contextmanager
def _nothing_is_committed_before_the_tasks() -> Iterator[None]:
    """Tasks start without the proof that the query is still this driver's."""
    start = RealTimeDriver._start

    def without_commit(self: RealTimeDriver, *args: Any, **options: Any) -> Any:
        with (
            mock.patch.object(self._transaction, "append", return_value=None),
            mock.patch.object(self._transaction, "commit", return_value=None),
        ):
            return start(self, *args, **options)

    with mock.patch.object(RealTimeDriver, "_start", without_commit):
        yield


@contextlib.contextmanager
def _markers_are_not_required() -> Iterator[None]:
    """A bucket's next transaction begins while the one before lacks a marker, which that one's marker replaces."""
    with mock.patch.object(cycle.BucketTransactions, "_require_ended", return_value=None):
        yield


@contextlib.contextmanager
def _whoever_ends_takes_the_buckets() -> Iterator[None]:
    """After an error, a driver ends its tasks by taking their buckets, whoever has the query."""

    def end(self: RealTimeDriver, _batch: MicroBatch) -> None:
        self._buckets.take(range(self._count))

    with mock.patch.object(RealTimeDriver, "end", end):
        yield


@contextlib.contextmanager
def _what_hangs_is_ended_once() -> Iterator[None]:
    """Nobody looks whether the marker that ends what hangs of a bucket was left out, too."""
    with mock.patch.object(Buckets, "_end_hanging", Buckets._end_once):
        yield


@contextlib.contextmanager
def _what_is_open_hangs() -> Iterator[None]:
    """A driver that is late when it looks what hangs ends the open transaction of the live one's task."""
    with mock.patch.object(Buckets, "_require_untaken", return_value=None):
        yield


REAL_TIME_BUGS: Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "requests-are-sent-again": _requests_are_sent_again,
    "offsets-before-the-buckets": _offsets_before_the_buckets,
    "offsets-are-not-confirmed": _offsets_are_not_confirmed,
    "buckets-keep-their-epochs": _buckets_keep_their_epochs,
    "only-the-new-buckets-are-taken": _only_the_new_buckets_are_taken,
    "micro-batches-take-no-bucket": _micro_batches_take_no_bucket,
    "nothing-is-committed-before-the-tasks": _nothing_is_committed_before_the_tasks,
    "held-is-not-asked": _held_is_not_asked,
    "markers-are-not-required": _markers_are_not_required,
    "whoever-ends-takes-the-buckets": _whoever_ends_takes_the_buckets,
    "what-hangs-is-ended-once": _what_hangs_is_ended_once,
    "what-is-open-hangs": _what_is_open_hangs,
    "the-group-says-where-it-goes-on": _the_group_says_where_it_goes_on,
}
