"""The driver's steps of a shared transaction: begin, let other processes append, commit or abort.

    begin(batch)      look: the owner of the transactional.id and the ledger decide: write, skip, LedgerRefused, or
                      ProducerFenced; only to write, InitProducerId if a new epoch is needed, then the ledger again
    identity          for every process that appends (appending.append)
    commit(batch)     adds the ledger's record, its pointer and the source offsets, then EndTxn(commit)
    abort()           a new epoch; the records of the old one are aborted and its stragglers are fenced

Not obvious:
- Look before you take. InitProducerId aborts the open transaction of whoever owns the id and fences it. A driver that
  comes back late, after another one took over, must end by itself, without the live one noticing. So nothing sends
  InitProducerId, or adds anything under the epoch of another owner (the fence), before it has asked who owns the id and
  what is committed:
  - A process that holds an epoch knows who must own the id (`_require_held`).
  - One that does not, as the sink's commit process, uses the ledger: if its own run committed the last entry, the id
    must be as that commit left it. If another run did, and this one had committed before it, another driver has taken
    over. Otherwise this run starts, and takes the id. A batch write has no earlier commit, but knows whose the id was
    when it was planned (`planned_under`); so does a replay of dead letters.
  - An InitProducerId without an answer may have been applied, or lost, and meanwhile somebody may have taken the id. So
    whoever sends it again looks again (`_require_only_ours`).
  Only what happens between the answer and InitProducerId remains unseen. Then the last one that takes the id wins, and
  the other one is fenced.
- Who held the id names an epoch in InitProducerId, which then is a compare-and-set (KIP-360): the coordinator gives a
  new epoch only if nobody else got one since, and recognizes a resend. Name an epoch only if nobody else can name it,
  since two processes would get the same new one: the held one, or the one after it, if the coordinator raised it to
  abort the transaction (`_hold_next`). In TV1, that is known only of a transaction of which the coordinator has said
  that it is open (`is_given_up`). After the fence, nothing is named: the fence opens a transaction, and the epoch that
  its abort will leave is not the current one yet. Kafka's coordinator aborts it nevertheless, others refuse.
- If an InitProducerId without an epoch is not answered, another driver's first one looks like it. A process that
  held an epoch stops. A starting process continues; so does the sink, which keeps no epoch between batches.
- The look waits for no open transaction: that of a crashed owner must not delay a restart until its timeout. So the
  ledger is read again after InitProducerId, when nothing can be committed any more.
- An abort is EndTxn(abort), then a new epoch. InitProducerId alone would also abort, but a fenced process that sends it
  aborts the newer producer's open transaction before it learns that it is fenced. With EndTxn(abort), it only learns
  that. And a delayed EndTxn cannot end a later transaction (KAFKA-17754), because that one has another epoch.
- TV2 (KIP-890): EndTxn returns the next epoch. While this process owns the transactional.id, a batch needs neither
  InitProducerId nor the ledger, because a new owner fences the epoch. TV1: InitProducerId for every batch, so that an
  epoch is never used for two batches.
- TV1 with brokers that do not verify which partitions are in a transaction: the fence (transaction.fence) precedes a
  new epoch. A process that was fenced gets an error from the first of its requests.
- What the ledger's verdict is based on is confirmed before EndTxn (ledger.keeper). So are the topics' ids, and once
  more after it (transaction.outputs). What a topic that was deleted in between took along makes the batch incomplete:
  the ledger says so, and refuses the next start. The batch must not be written again, as other topics have it.
- A commit with an unknown outcome is settled by the coordinator if it shows what the commit left behind. Otherwise by
  InitProducerId, which waits until the coordinator has finished the transaction, and then by the ledger.
- A request of our own that may have raised the epoch and was not answered leaves us without knowing our epoch. Then the
  owner cannot be distinguished from another one, and the ledger alone decides.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from spark_kafka_eos.appending.report import Appended, AppendedTopic
from spark_kafka_eos.errors import (
    BrokerError,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    Committed,
    IllegalTransactionState,
    KafkaEosError,
    LedgerRefused,
    OutputLost,
    ProducerFenced,
    TransactionAborted,
    UnknownTopic,
)
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.facts import ProducerState, TransactionFacts, Unavailable
from spark_kafka_eos.kafka.protocol.recorder import phase
from spark_kafka_eos.kafka.protocol.topics import deleted
from spark_kafka_eos.kafka.protocol.transactions import TransactionCoordinator
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import Decide
from spark_kafka_eos.ledger.entry import LedgerEntry, Written
from spark_kafka_eos.ledger.keeper import CommittedEntry, LedgerKeeper
from spark_kafka_eos.ledger.refusal import Refuse, diagnosis_command, owner_command
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import groups, written_topics
from spark_kafka_eos.transaction import outputs
from spark_kafka_eos.transaction.fence import Fence
from spark_kafka_eos.transaction.hanging import CAUSE, HangingTransactions, undecided
from spark_kafka_eos.transaction.outcome import outcome
from spark_kafka_eos.transaction.ownership import (
    after_abort,
    is_given_up,
    is_left_by_run,
    is_left_by_take,
    is_shown_committed,
    may_be_given_up,
    owner_in,
    taken_from,
    taken_since,
)
from spark_kafka_eos.transaction.states import Event, State, Transaction

_log = logger(__name__)

# Of a second call in foreachBatch, whose rows can no longer be added.
WRITE_ONCE = (
    "This call's DataFrames are not written. Write all DataFrames of a batch in ONE "
    "`with writer.transaction(batch_df, batch_id)` block."
)

_OPEN = (State.APPENDING, State.APPENDED, State.OFFSETS_SENT, State.ABORTING)
_MAY_BE_OPEN = (*_OPEN, State.COMMITTING, State.UNKNOWN, State.DECIDED)

_Facts = TransactionFacts | Unavailable | None  # None: the coordinator does not know the transactional.id


def owner_of(cluster: Cluster, transactional_id: str) -> ProducerEpoch | None:
    """Who owns the id now; None if the coordinator does not say."""
    return _owner(_described(cluster, transactional_id))


def _owner(facts: _Facts) -> ProducerEpoch | None:
    return None if isinstance(facts, Unavailable) else owner_in(facts)


def _described(cluster: Cluster, transactional_id: str) -> _Facts:
    try:
        return describe.transaction(cluster, transactional_id, now_ms=int(time.time() * 1e3))
    except BrokerError as error:
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return Unavailable(reason="the brokers lack DescribeTransactions")


class _OwnerChanged(Exception):
    """Between the look and the fence, somebody took the id, or a transaction began or ended."""


def _same(before: _Facts, now: _Facts) -> bool:
    """Whether no transaction began or ended in between."""
    if not isinstance(before, TransactionFacts) or not isinstance(now, TransactionFacts):
        return type(before) is type(now)
    return (before.producer, before.state) == (now.producer, now.state)


class SharedTransaction:
    """One transactional.id, which this process owns from `begin` on. Not thread-safe.

    Every method may raise ProducerFenced (a newer producer exists: stop), BrokerUnreachable and BrokerError.
    """

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        decide: Decide | None,
        *,
        planned_under: ProducerEpoch | None = None,
        unsure: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`decide` maps ledger entry, batch and committed offsets to a verdict. If it is None, there is no ledger, and
        every batch is written. `planned_under` is the owner when the write was planned, None if that is not known.
        `unsure`: requests of this process may have raised the epoch since its last commit. `clock` is for tests.
        """
        self._options = options
        self._cluster = cluster
        self._decide = decide
        self._planned_under = planned_under
        self._clock = clock
        self._appending_since = clock()
        self._transaction = Transaction()
        self._coordinator = TransactionCoordinator(cluster, options.transactional_id, options.timeout_ms)
        self._ledger = LedgerKeeper(options, cluster, self._coordinator)
        ledger_topic = None if decide is None else self._ledger.topic
        self._fence = Fence(options, cluster, self._coordinator, ledger_topic)
        self._hanging = HangingTransactions(options, cluster)
        self._outputs: Mapping[str, AppendedTopic] = {}  # of the open transaction
        self._seen_open: set[str] = set()  # topics in which the id had a transaction open
        self._seen_ids: set[int] = set()  # its producer ids
        self._identity: ProducerIdentity | None = None
        self._let_go_of: ProducerIdentity | None = None  # whose id it still is, unless somebody took it
        self._given_up = False  # the coordinator aborted: the epoch is invalid, and EndTxn would fail with "fenced"
        self._unsure = unsure  # a request of ours that raises the epoch was sent and not answered

    @property
    def identity(self) -> ProducerIdentity:
        """What appending processes need. Only valid between `begin` and `commit` or `abort`."""
        assert self._identity is not None, "begin() comes first"
        return self._identity

    def begin(self, batch: MicroBatch) -> verdicts.Write | verdicts.Skip:
        """Decide on `batch`, and to write it, get a new epoch. Raises LedgerRefused if going on could lose or repeat
        data, ProducerFenced if another driver has taken over.
        """
        failpoint("begun", batch.batch_id)
        self._require_not_fenced()
        try:
            verdict = self._owned(batch)
        except BrokerError as error:
            if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT or self._identity is None:
                raise
            self._end_pending_offsets(error)
            verdict = self._owned(batch)
        if isinstance(verdict, verdicts.Write) and self._end_hanging():
            verdict = self._verdict(batch)
        match verdict:
            case Refuse() as refusal:
                raise self._refused(refusal)
            case verdicts.Repeat(reason=reason):
                raise IllegalTransactionState(
                    f"a second call for batch {batch.batch_id} of query {batch.query_id} in the same run: {reason}",
                    committed="everything",
                    action=WRITE_ONCE,
                )
            case verdicts.Skip():
                self._warn_if_resolved(verdict, batch)
                return verdict
            case verdicts.Write():
                self._warn_if_resolved(verdict, batch)
                failpoint("initialised", batch.batch_id)
                return verdict

    def _owned(self, batch: MicroBatch) -> verdicts.Verdict:
        """The verdict on `batch`; to write it, with the id in a new epoch."""
        verdict = self._verdict(batch) if self._holds else None
        if isinstance(verdict, verdicts.Write):
            return verdict if self._renew() else self._verdict(batch)
        # Nothing is held. Or, which is unusual, another process may have written in between: for example, a query was
        # restarted with the same writer.
        return self._take(batch)

    @staticmethod
    def _warn_if_resolved(verdict: verdicts.Write | verdicts.Skip, batch: MicroBatch) -> None:
        if verdict.reason.startswith("resolve="):
            _log.warning("batch %d of query %s: %s", batch.batch_id, batch.query_id, verdict.reason)

    def anew(self) -> SharedTransaction:
        """What goes on in this process after an error: this object, if it knows who owns the id. Otherwise another one,
        which knows that requests of this process may have raised the epoch.
        """
        state, known = self._transaction.state, (State.UNINITIALISED, State.READY, State.COMMITTED)
        if state is State.FENCED or (state in known and not self._unsure):
            return self
        return self._unsure_one()

    def _unsure_one(self) -> SharedTransaction:
        return SharedTransaction(self._options, self._cluster, self._decide, unsure=True, clock=self._clock)

    def appending(self) -> None:
        """Record that the transaction may contain records from now on."""
        self._outputs = {}
        self._transaction.apply(Event.APPEND)
        self._appending_since = self._clock()

    def append(self, write: Callable[[ProducerIdentity], Appended]) -> Appended:
        """Have `write` append to the transaction. Raises TransactionAborted if it lasts longer than its timeout."""
        self.appending()
        with self._explaining():
            appended = write(self.identity)
        self._outputs = appended.topics
        return appended

    def commit(self, batch: MicroBatch, *, written: Written | None = None, incomplete: bool = False) -> None:
        """Commit everything that was appended, with the batch's source offsets and ledger entry, or nothing.

        Call it only if the barrier found that every append was acknowledged exactly once. `written` is what they add
        up to, None if unknown. `incomplete`: see LedgerEntry. Raises TransactionAborted if the transaction was aborted
        and the batch may be retried, CommitOutcomeUnknown if no broker answers, OutputLost if a topic was deleted while
        the rest was committed.
        """
        self._commit_all(batch, written, incomplete=incomplete)
        self._require_outputs(batch, written)

    def _commit_all(
        self, batch: MicroBatch, written: Written | None, *, incomplete: bool, table: int | None = None
    ) -> None:
        self._transaction.apply(Event.ALL_APPENDED)
        failpoint("all appended", batch.batch_id)
        if self._decide is None and written is not None and written.records == 0:
            return  # nothing is open, so EndTxn would fail
        entry: LedgerEntry | None = None
        with self._sending_offsets(batch):
            if self._decide is None:
                self._ledger.send_source_offsets(self.identity, batch)
            else:
                entry = self._ledger.send(self.identity, batch, incomplete=incomplete, written=written, table=table)
        self._commit_prepared(batch, entry)

    @contextlib.contextmanager
    def _sending_offsets(self, batch: MicroBatch) -> Iterator[None]:
        with phase("offsets"), self._explaining():
            yield
            outputs.require(self._cluster, self._appended_to())
        self._transaction.apply(Event.OFFSETS_SENT)
        failpoint("offsets committed", batch.batch_id)

    def _commit_prepared(self, batch: MicroBatch, entry: LedgerEntry | None) -> None:
        """Commit the transaction, which has everything that it needs."""
        self._transaction.apply(Event.COMMIT)
        with phase("end"):
            self._end(batch, entry)
        failpoint("ended", batch.batch_id)

    def _end(self, batch: MicroBatch, entry: LedgerEntry | None) -> None:
        """Send EndTxn(commit), and settle its outcome if it is in doubt."""
        self._unsure = True
        try:
            following = self._coordinator.end(self.identity, commit=True)
        except ProducerFenced as error:
            if not self._timed_out():
                raise self._fenced(error) from error
            self._resolve_doubt(batch, entry, self._after_timeout(error))
        except KafkaEosError as error:
            # Even an error response does not mean that the commit failed: an earlier attempt may have been applied.
            silent = any(isinstance(each, BrokerUnreachable) for each in (error, error.__cause__))
            why = self._after_timeout(error) if not silent and self._timed_out() else error
            self._resolve_doubt(batch, entry, why)
        else:
            self._committed(entry, following)

    def _committed(self, entry: LedgerEntry | None, following: ProducerIdentity) -> None:
        self._unsure = False
        self._transaction.apply(Event.COMMIT_ANSWERED)
        if entry is not None:
            self._ledger.keep(entry, self.identity)
        if following != self._identity:
            self._identity = following
            self._transaction.apply(Event.NEXT_EPOCH)

    # -- topics that are deleted meanwhile (transaction.outputs)

    def _appended_to(self) -> dict[str, uuid.UUID]:
        """The topics that the transaction was appended to, with the ids that they had before."""
        ids = {name: topic.id for name, topic in self._outputs.items()}
        return {**ids, **(self._ledger.appended if self._decide is not None else {})}

    def _require_outputs(self, batch: MicroBatch, written: Written | None) -> None:
        """Raise OutputLost if a topic is no longer the one that the committed batch was appended to. The ledger then
        has it as incomplete. If only the ledger's topic was deleted, it gets the entry once more.
        """
        try:
            gone = deleted(self._cluster, self._appended_to())
        except KafkaEosError as error:
            raise error.replaced(
                what=f"batch {batch.batch_id} was committed, but whether its topics are still there is not known: "
                f"{error.what}",
                committed="everything",
            ) from error
        if not gone:
            return
        topics = {name: topic for name, topic in self._outputs.items() if name in gone}
        lost = outputs.lost_records(topics)
        noted = self._decide is not None
        failure = self._note_again(batch, written, topics) if noted else None
        if not lost and failure is None:
            _log.warning("topic %s was deleted; the entry of batch %d is written again", gone[0], batch.batch_id)
            return
        which = f"batch {batch.batch_id} of query {batch.query_id}" if batch.query_id else "the batch write"
        action = "Write what is missing with a batch job, and delete no topic that a running query writes."
        if failure is not None:
            lost = lost or "the ledger's entry"
            action = (
                f"That could not be noted in the ledger ({failure.what}), so do not start the query or job again "
                f"before you have looked at what its output has of this batch. {action}"
            )
        elif noted:
            action = (
                "The ledger has the batch as incomplete: the next start is refused, and goes on with the word that its "
                f"message names. {action}"
            )
        else:
            action = f"If other topics have the batch, do not write the batch again: they would have it twice. {action}"
        raise OutputLost(
            f"{which} was committed, and while it was, topic {gone[0]!r} was deleted: lost are {lost}", action=action
        )

    def _note_again(
        self, batch: MicroBatch, written: Written | None, lost: Mapping[str, AppendedTopic]
    ) -> KafkaEosError | None:
        """Commit the entry of the committed batch once more, as incomplete if records in topics are `lost`; the error
        if that failed.
        """
        last = self._ledger.entry
        written = replace(
            written or Written(records=0, bytes=0, milliseconds=0),
            lost={name: topic.records for name, topic in lost.items()},
        )
        table = last.table if isinstance(last, LedgerEntry) else None
        try:
            if not self._holds or not self._renew():
                raise ProducerFenced("another driver may have taken over")
            self._ledger.topic.ensure_again()
            self.appending()
            self._commit_all(batch, written, incomplete=bool(lost), table=table)
        except KafkaEosError as error:
            with contextlib.suppress(KafkaEosError):  # the first one says why
                self.abort()
            return error
        return None

    def note_incomplete(self, batch: MicroBatch) -> None:
        """Record in the ledger that the committed `batch` lacks DataFrames that came too late. From then on it is
        refused, until an operator resolves that.
        """
        self._require_not_fenced()
        if self._holds:
            self._renew()
        else:
            verdict = self._take(batch, anyway=True)
            if isinstance(verdict, Refuse):
                raise self._refused(verdict)
        self._end_hanging()
        self.appending()
        self.commit(batch, incomplete=True)

    def abort(self) -> None:
        """Abort the transaction: none of it becomes visible, and its epoch is invalid. Does nothing if none is open."""
        if self._transaction.state not in _OPEN:
            return
        if self._given_up:
            self._hold_next()
        elif not self._fence.needed():  # the fence also aborts
            self._unsure = True
            try:
                self._identity = self._coordinator.end(self.identity, commit=False)
            except ProducerFenced as error:
                if not self._timed_out():
                    raise self._fenced(error) from error
                self._hold_next()
            except TransactionAborted:
                _log.info("the coordinator has already aborted the transaction")
        self._require_held()
        self._initialise()

    # -- what hangs (transaction.hanging)

    def _end_hanging(self) -> bool:
        """End what hangs in any partition that an earlier transaction may have written; whether there was anything."""
        for number in range(describe.MOST_LOOKS):
            if not (left := self._find_hanging()):
                return number > 0
            self._require_held()
            entry, under = self._ledger.entry, self._ledger.committed_under
            outcomes = {each: outcome(each, entry, under) for each in left}
            for each, how in outcomes.items():
                if self._decide is None:
                    raise undecided(each, "Without txnAppId there is no ledger")
                if how == "unknown" and each.producer_id == self.identity.producer_id:
                    raise undecided(each, "Another batch has been committed since")
                if how == "unknown":
                    self._hanging.leave(each, "The ledger does not say how it ended.")
            for each in (each for each, how in outcomes.items() if how == "committed"):
                self._hanging.commit(each)
            if aborted := [each for each, how in outcomes.items() if how == "aborted"]:
                self._abort_hanging(aborted)
        raise undecided(left[0], "Its marker was written, and does not help")

    def _find_hanging(self) -> list[ProducerState]:
        """What is open although the last transaction has ended: not what waits for markers that are on their way."""
        where = self._written()
        if not self._hanging.find(self._ids(), where):
            return []
        if not isinstance(self._settled_facts(), TransactionFacts):
            self._initialise(
                self.identity.producer
            )  # the coordinator does not say, but this waits for all markers, too
        return self._hanging.find(self._ids(), where)

    def _ids(self) -> set[int]:
        """The producer ids of this id's next transaction, of its last commit, and of what else this process saw."""
        return {self.identity.producer_id, self._ledger.committed_under.producer_id, *self._seen_ids}

    def _written(self) -> list[TopicPartition]:
        """Every partition that an earlier transaction of this id may have written, as far as that is known."""
        entry = self._ledger.entry
        outputs = entry.outputs.keys() if isinstance(entry, LedgerEntry) else ()
        topics = {*written_topics(self._options), *outputs, *self._seen_open}
        try:
            self._cluster.look_up(topics)
        except UnknownTopic:
            topics = set(self._cluster.existing(topics, patience_ms=0))
        partitions = [TopicPartition(topic, n) for topic in topics for n in self._cluster.topic(topic).partitions]
        return partitions if self._decide is None else [*partitions, self._ledger.topic.at]

    def _end_pending_offsets(self, error: BrokerError) -> None:
        """Abort the offsets that are still pending after InitProducerId, for which `error` was the answer. Of what was
        committed, the ledger has a record, which then counts.
        """
        if self._decide is None:
            raise error
        if self._ledger.topic.read(None).pending:
            raise LedgerRefused(
                f"whether the last batch was committed is not known: its record in {self._ledger.topic.at} has no "
                f"marker, and its pointer in group {self._options.ledger_group} has none either, as {CAUSE}",
                action="Look at the output: are its records of that batch visible? `kafka-eos transactions hanging` "
                "shows where markers are missing. Then see docs/runbook.md, LedgerRefused.",
            ) from error
        self._require_held()
        self._abort_in_own([], groups(self._options))
        self._initialise()

    def _abort_hanging(self, hanging: list[ProducerState]) -> None:
        held = self.identity
        for former in (each for each in hanging if each.producer_id != held.producer_id):
            self._hanging.abort_former(former)
        if own := [each for each in hanging if each.producer_id == held.producer_id]:
            self._abort_in_own(own)
            self._initialise(held.producer)

    def _abort_in_own(self, hanging: list[ProducerState], groups: Iterable[str] = ()) -> None:
        """Abort it in a transaction of this process; a new epoch must follow."""
        try:
            self._hanging.abort(self.identity, hanging, groups)
        except ProducerFenced as error:
            raise self._fenced(error) from error

    # -- looking

    @property
    def _holds(self) -> bool:
        """Whether this process has an epoch of its own, as far as it knows, and no transaction is open."""
        held = self._identity is not None and not self._unsure
        return held and self._transaction.state in (State.READY, State.COMMITTED)

    def _renew(self) -> bool:
        """Get the next epoch of a held identity, unless EndTxn returned it. Returns what `_initialise` returns."""
        if self._transaction.state is State.READY:
            return True
        held = self.identity.producer
        self._require_held()
        return self._initialise(held)

    def _take(self, batch: MicroBatch, *, anyway: bool = False) -> verdicts.Verdict:
        """Look, and take the id if the verdict is to write, or `anyway`: the verdict once the id is ours. Raises
        ProducerFenced if this process must not take it.
        """
        for _ in range(describe.MOST_LOOKS):
            verdict, facts, read_under = self._look(batch, to_take=anyway)
            if isinstance(verdict, Refuse) or not (anyway or isinstance(verdict, verdicts.Write)):
                return verdict
            self._identity = self._let_go_of = None
            with contextlib.suppress(_OwnerChanged):
                if self._initialise(read_under, looked=(facts,)):
                    return verdict
                break
        else:
            self._initialise()
        verdict = self._verdict(batch)
        if not isinstance(verdict, verdicts.Write):  # committed since the look, by a predecessor or a successor
            self._require_held()
        return verdict

    def _look(
        self, batch: MicroBatch, *, to_take: bool = False
    ) -> tuple[verdicts.Verdict, _Facts, ProducerEpoch | None]:
        """The verdict on `batch` for a process that holds no epoch, who owns the id, and under whose epoch the ledger
        was read. Raises ProducerFenced if this process must not take the id, to write the batch or `to_take` it anyway.
        """
        facts, glance, verdict = self._looked(batch)
        if isinstance(verdict, Refuse) and isinstance(facts, Unavailable) and glance.pending:
            verdict = verdicts.Write(reason="only after InitProducerId it is known whether a predecessor has committed")
        if to_take or isinstance(verdict, verdicts.Write):
            self._require_untaken(facts, glance, batch)
        # Where a record is pending although the transaction has ended, its marker may have been left out.
        settled = glance.agreed and not glance.pending
        if isinstance(facts, TransactionFacts) and facts.state in ("CompleteCommit", "CompleteAbort") and settled:
            return verdict, facts, facts.producer
        return verdict, facts, None

    def _looked(self, batch: MicroBatch) -> tuple[_Facts, CommittedEntry, verdicts.Verdict]:
        """Who owns the id, what is committed, and the verdict on that.

        A commit may come between the answers, and then they do not fit together. What is written is decided on again,
        and what is committed stays so. But a refusal only counts if the owner did not change meanwhile.
        """
        facts, budget = self._settled_facts(), self._cluster.budget()
        while True:
            glance, verdict = CommittedEntry(entry=None), self._verdict_without_ledger()
            if self._decide is not None:
                glance = self._ledger.glance()
                verdict = self._verdict(batch)
            if not isinstance(verdict, Refuse):
                return facts, glance, verdict
            before, facts = facts, self._settled_facts()
            if _same(before, facts):
                return facts, glance, verdict
            if budget.spent:  # this process was paused, and what it knows is old: no reason to give up
                budget.restart()
            self._cluster.sleep(budget.delay(soon=True) or 0.0)

    def _require_untaken(self, facts: _Facts, glance: CommittedEntry, batch: MicroBatch) -> None:
        """Raise ProducerFenced if somebody took the id since this run committed, or since the write was planned."""
        entry = glance.entry
        if isinstance(entry, LedgerEntry) and not batch.destination and batch.run_id in entry.earlier_runs:
            run = entry.run_id or "of another release"
            raise self._taken_over(f": since this run committed, run {run} has committed batch {entry.batch_id}")
        if self._unsure or isinstance(facts, Unavailable) or facts is None:
            return
        if isinstance(entry, LedgerEntry) and entry.run_id is not None and entry.run_id == batch.run_id:
            under, version = glance.producer, entry.transaction_version
            if under.producer_id >= 0 and not is_left_by_run(under, facts, transaction_version=version):
                last = ProducerIdentity(transactional_id=self._options.transactional_id, **under._asdict())
                raise self._overtaken(facts, f", since this run committed batch {entry.batch_id}", last=last)
        elif self._planned_under is not None and taken_since(self._planned_under, facts):
            raise self._overtaken(facts, ", since this write was planned")

    def _require_held(self) -> None:
        """Raise ProducerFenced if the id is no longer that of the identity that this process holds, if it holds one."""
        if self._identity is None:
            return
        facts = self._facts()
        if isinstance(facts, TransactionFacts) and taken_from(self._identity, facts) and facts.is_prepared:
            facts = self._settled_facts()
        if facts is None and self._decide is not None:
            self._require_last()
        if not isinstance(facts, TransactionFacts) or not taken_from(self._identity, facts):
            return
        if self._is_given_up(self._identity, facts):  # by its timeout
            self._hold_next()
            return
        raise self._overtaken(facts)

    def _require_last(self) -> None:
        """Raise ProducerFenced if another driver has committed since this one read the ledger: of an id that the
        brokers have forgotten (`transactional.id.expiration.ms`), only the ledger knows who had it last.
        """
        known, found = self._ledger.entry, self._ledger.glance().entry
        if known == found:
            return
        number = f" batch {found.batch_id}" if isinstance(found, LedgerEntry) else ""
        raise self._taken_over(
            f" and committed{number}, before the brokers forgot the id because nobody used it "
            "(transactional.id.expiration.ms)"
        )

    def _require_not_fenced(self) -> None:
        if self._transaction.state is State.FENCED:
            raise ProducerFenced(
                f"a newer producer took over transactional.id {self._options.transactional_id!r}",
                action=self._leave_it,
            )

    def _facts(self) -> _Facts:
        facts = _described(self._cluster, self._options.transactional_id)
        if isinstance(facts, TransactionFacts):
            self._seen_open |= {tp.topic for tp in facts.partitions} - {OFFSETS_TOPIC}
            self._seen_ids.add(facts.producer_id)
        return facts

    def _settled_facts(self) -> _Facts:
        """The same, after the end of a transaction that is already decided."""
        return describe.settled(self._cluster, self._facts)

    # -- owning the transactional.id

    def _initialise(self, read_under: ProducerEpoch | None = None, *, looked: tuple[_Facts] | None = None) -> bool:
        """Take the id, or get the next epoch of the one that is held; then read the ledger. Returns False if it was
        read, true if what is known of it counts.

        It counts if it was read while the last transaction `read_under` this producer had ended, and the
        new epoch is the next one: each commit needs an epoch of its own, so there was none in between.

        `looked` is what a look found. The fence asks again, and raises _OwnerChanged if the answer is another one.
        """
        self._require_not_fenced()
        named, before = self._identity, self._known_before(looked)
        has_held = named is not None or self._unsure or self._let_go_of is not None
        try:
            if (self._identity is None or self._transaction.state in _MAY_BE_OPEN) and self._fence.needed():
                named, before = None, self._shut_stragglers_out(looked)
            self._unsure = True
            self._identity = self._coordinator.init_producer_id(
                named, again=lambda: self._require_only_ours(before, may_doubt=named is not None or not has_held)
            )
        except ProducerFenced as error:
            raise self._fenced(error) from error
        self._given_up, self._let_go_of = False, None
        self._transaction.apply(Event.INITIALISED)
        counts = read_under is not None and self._identity.producer == read_under._replace(epoch=read_under.epoch + 1)
        if self._decide is not None and not counts:
            self._ledger.read()
        self._transaction.apply(Event.LEDGER_READ)
        self._unsure = False
        return counts

    def _require_only_ours(self, before: ProducerEpoch | None, *, may_doubt: bool) -> None:
        """Raise ProducerFenced if the id, which was `before`'s when InitProducerId was sent, is now neither that one's
        nor as this request leaves it. If `before` is None, that is not known. Another driver's first InitProducerId
        leaves the same: raise CommitOutcomeUnknown if that may be so, unless it `may_doubt`.
        """
        facts = self._facts()
        if before is None or not isinstance(facts, TransactionFacts):
            return
        if not is_left_by_take(before, facts):
            raise self._overtaken(facts, ", since this driver's InitProducerId, which was not answered")
        if not may_doubt and not is_left_by_take(before, facts, in_doubt=False):
            raise CommitOutcomeUnknown(
                f"InitProducerId was not answered, and transactional.id {self._options.transactional_id!r} now belongs "
                f"to {facts.producer}: by this request, or by another driver",
                action="Start the query again, unless another driver runs, because a start takes the id from it. "
                f"`{owner_command(self._options)}` shows the owner.",
            ).replaced(committed="nothing" if self._transaction.state in _OPEN else "unknown")

    def _known_before(self, looked: tuple[_Facts] | None) -> ProducerEpoch | None:
        """The owner as far as this process knows, None if it does not."""
        if (held := self._identity or self._let_go_of) is not None:
            return held.producer
        return None if looked is None else _owner(*looked)

    def _shut_stragglers_out(self, looked: tuple[_Facts] | None) -> ProducerEpoch | None:
        """Apply the fence, and return the owner before it. InitProducerId of a new producer must follow."""
        facts, held = self._facts(), self._identity
        if looked is not None and not _same(*looked, facts):
            raise _OwnerChanged
        if isinstance(facts, TransactionFacts) and (last := self._fence.last_owner(facts)) is not None:
            known = held or self._let_go_of
            if known is not None and taken_from(known, facts) and not self._is_given_up(known, facts):
                raise self._overtaken(facts)
            try:
                self._fence.apply(last, was_committed=facts.state == "CompleteCommit")
            except ProducerFenced:
                if known is not None:
                    raise
                _log.info("another new producer has fenced the old epoch already")
            else:
                if held is not None:
                    self._identity = last
        return _owner(facts)

    def _is_given_up(self, held: ProducerIdentity, facts: TransactionFacts) -> bool:
        """See ownership.is_given_up."""
        return is_given_up(held, facts, was_open=self._coordinator.is_open(held))

    def _hold_next(self) -> None:
        """Go on from the epoch with which the coordinator aborted the transaction of the held one (`_is_given_up`). It
        was given to nobody, and only the holder of the one before can name it.
        """
        self._identity, self._given_up = after_abort(self.identity), False

    def _let_go(self) -> None:
        """Take the id with InitProducerId of a new producer next. The fence, which asks again before that, adds nothing
        to the transaction of somebody who took the id meanwhile.
        """
        self._let_go_of, self._identity = self._identity or self._let_go_of, None

    @property
    def _leave_it(self) -> str:
        """What to do about another owner of the id."""
        return (
            "This driver has ended, and the other one goes on unharmed: do not start this one again while it runs, "
            "because a start takes the id from it. If two queries have this id, give each its own. "
            f"`{owner_command(self._options)}` shows the owner."
        )

    def _taken_over(self, how: str) -> ProducerFenced:
        """What to raise if the ledger shows that another driver has gone on, and what to stop with."""
        self._transaction.apply(Event.FENCED)
        return ProducerFenced(
            f"another driver has taken over transactional.id {self._options.transactional_id!r}{how}",
            committed="nothing",
            action=self._leave_it,
        )

    def _overtaken(
        self, facts: TransactionFacts, why: str = "", *, last: ProducerIdentity | None = None
    ) -> ProducerFenced:
        """What to raise if another producer has the id, and what to stop with. `last` is what this run had last, if not
        in this process, which then does not know since when.
        """
        committed: Committed = "unknown" if self._transaction.state is State.UNKNOWN else "nothing"
        self._transaction.apply(Event.FENCED)
        what = (
            f"transactional.id {self._options.transactional_id!r} now belongs to producer {facts.producer_id}, epoch "
            f"{facts.epoch}{why}"
        )
        action, held = self._leave_it, last or self._identity or self._let_go_of
        if held is not None and may_be_given_up(held, facts) and (last is not None or self._is_overdue()):
            what = f"{what}: to another driver, or the coordinator aborted a transaction of this one after its timeout"
            action = f"If no other query uses this transactional.id, start the query again. {action}"
        return ProducerFenced(what, action=action).replaced(committed=committed)

    def _timed_out(self) -> bool:
        """Whether the coordinator aborted our transaction because of its timeout, and no other producer took over
        since.

        The coordinator then fences the epoch, and the error does not say why (KAFKA-20785).
        """
        identity = self._identity
        if identity is None:  # it was let go of, so the error comes from somebody who took the id since
            return False
        if self._transaction.state not in _MAY_BE_OPEN or not self._is_overdue():
            return False
        with contextlib.suppress(KafkaEosError):  # then the original error stands
            facts = self._facts()
            self._given_up = isinstance(facts, TransactionFacts) and self._is_given_up(identity, facts)
        return self._given_up

    def _is_overdue(self) -> bool:
        """Whether the transaction has lasted so long that the coordinator may have aborted it."""
        timeout_ms = self._options.timeout_ms
        return timeout_ms is not None and (self._clock() - self._appending_since) * 1e3 >= timeout_ms

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Ask why the open transaction is over, if a broker says that it is. It does not say why."""
        try:
            yield
        except ProducerFenced as error:
            raise self._fenced(error) from error
        except TransactionAborted as error:
            if self._timed_out():
                raise self._after_timeout(error) from error
            raise

    def _after_timeout(self, error: KafkaEosError) -> TransactionAborted:
        """What to raise or say for `error` if it came because of the timeout: the same wherever it is noticed."""
        return TransactionAborted(
            f"the coordinator aborted the transaction after kafka.transaction.timeout.ms "
            f"({self._options.transaction_timeout_ms}): {error.what}",
            action="The batch is written again; increase the timeout if this happens repeatedly.",
        )

    def _fenced(self, error: ProducerFenced) -> KafkaEosError:
        """What to raise for `error`: itself, or TransactionAborted if only the coordinator fenced us."""
        if self._transaction.state is State.FENCED:  # it was found by a look, and says everything
            return error
        if self._transaction.state in _OPEN and self._timed_out():
            return self._after_timeout(error)
        # If the last transaction has ended, the error refers to the next batch.
        is_over = self._transaction.state is State.COMMITTED
        committed: Committed = "nothing" if is_over else self._transaction.committed
        said = error.replaced(action=self._leave_it, committed=committed)
        timeout, took = self._options.timeout_ms, self._clock() - self._appending_since
        if self._transaction.state in _MAY_BE_OPEN and self._is_overdue():
            # The coordinator also fences after a timeout, and the error does not distinguish the two.
            action = (
                f"This attempt took {took:.0f} s, longer than kafka.transaction.timeout.ms ({timeout}): if no other "
                f"query uses this transactional.id, restart the query, if necessary with a longer timeout. "
                f"{said.action}"
            )
            said = said.replaced(action=action)
        self._transaction.apply(Event.FENCED)
        return said

    def _verdict(self, batch: MicroBatch) -> verdicts.Verdict:
        if self._decide is None:
            return self._verdict_without_ledger()
        return self._ledger.verdict(self._decide, batch)

    @staticmethod
    def _verdict_without_ledger() -> verdicts.Verdict:
        return verdicts.Write(reason="without txnAppId, every write is new")

    # -- a commit with an unknown outcome

    def _resolve_doubt(self, batch: MicroBatch, entry: LedgerEntry | None, error: KafkaEosError) -> None:
        """Find out the outcome of a commit that failed with `error`."""
        self._transaction.apply(Event.COMMIT_IN_DOUBT)
        try:
            facts = None if self._given_up else self._settled_facts()
            if isinstance(facts, TransactionFacts) and (following := self._after_commit(facts, error)) is not None:
                return self._committed(entry, following)
            if self._given_up or (isinstance(facts, TransactionFacts) and self._is_given_up(self.identity, facts)):
                self._hold_next()
            elif self._coordinator.transaction_version < 2:
                # It would fence us with our identity, because the transaction may still be open.
                self._let_go()
            self._initialise()
            verdict = self._verdict(batch)
        except ProducerFenced:
            raise
        except KafkaEosError as second:
            raise CommitOutcomeUnknown(
                f"the commit of batch {batch.batch_id} failed ({error.what}), and its outcome could not be determined "
                f"({second.what})",
                action=second.action,
            ) from second
        if self._decide is None:
            raise CommitOutcomeUnknown(
                f"the commit request failed ({error.what}), and without txnAppId there is no ledger entry to check",
                action="Check the topic before you run the job again; with txnAppId, a rerun is safe.",
            ) from error
        match verdict:
            case verdicts.Write():
                raise TransactionAborted(
                    f"the commit of batch {batch.batch_id} failed ({error.what}); according to the ledger, the batch "
                    "is not committed",
                    action="The batch is written again.",
                ) from error
            case Refuse():
                raise self._refused(verdict, committed="unknown") from error
            case verdicts.Skip() if not isinstance(facts, Unavailable):
                # Applied only just now. A process that does not hold our new epoch would take it for another owner's.
                raise CommitOutcomeUnknown(
                    f"the commit of batch {batch.batch_id} failed ({error.what}), and was applied later: according to "
                    "the ledger, the batch is committed",
                    action="Start the query again: it goes on after this batch.",
                ) from error

    def _refused(self, refusal: Refuse, committed: Committed = "nothing") -> LedgerRefused:
        remedy = refusal.remedy
        if refusal.resolutions:
            remedy += f"\n- `{self._diagnosis_command()}` shows both sides and the choices."
        return LedgerRefused(f"{refusal.reason}. {refusal.meaning}", action=remedy, committed=committed)

    def _diagnosis_command(self) -> str:
        return diagnosis_command(self._options)

    def _after_commit(self, facts: TransactionFacts, error: KafkaEosError) -> ProducerIdentity | None:
        """What to go on with if the coordinator shows that our commit was applied; None if it may still be open, or was
        aborted. Raises ProducerFenced if another producer owns the transactional.id now.
        """
        identity = self.identity
        if is_shown_committed(identity, facts):
            return replace(identity, producer_id=facts.producer_id, epoch=facts.epoch)
        # Before the timeout, only the InitProducerId of somebody who starts can have aborted it: do not take it back.
        if taken_from(identity, facts) and not (self._is_given_up(identity, facts) and self._is_overdue()):
            raise self._overtaken(facts, f" ({error.what})")
        return None
