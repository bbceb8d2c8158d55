"""The driver's steps of a shared transaction: begin, let other processes append, commit or abort.

    begin(batch)      look: the owner of the transactional.id and the ledger decide: write, skip, LedgerRefused, or
                      ProducerFenced; only to write, InitProducerId if a new epoch is needed, then the ledger again
    identity          for every process that appends (appending.append)
    commit(batch)     adds the ledger's record, its pointer and the source offsets, then EndTxn(commit)
    abort()           a new epoch; the records of the old one are aborted and its stragglers are fenced

Not obvious:
- An abort is EndTxn(abort), then a new epoch. InitProducerId alone would also abort, but a fenced process that sends it
  aborts the newer producer's open transaction before it learns that it is fenced. With EndTxn(abort), it only learns
  that. And a delayed EndTxn cannot end a later transaction (KAFKA-17754), because that one has another epoch.
- TV2 (KIP-890): EndTxn returns the next epoch. While this process owns the transactional.id, a batch needs neither
  InitProducerId nor the ledger, because a new owner fences the epoch. TV1: InitProducerId for every batch, so that an
  epoch is never used for two batches.
- What the ledger's verdict is based on is confirmed before EndTxn (ledger.keeper). So are the topics' ids, and once
  more after it (transaction.outputs). What a topic that was deleted in between took along makes the batch incomplete:
  the ledger says so, and refuses the next start. The batch must not be written again, as other topics have it.
- If a table takes part, it has the same steps, and those of `two_phase` in between: it looks, too, gives its verdict
  after the ledger's, and commits once the ledger's entry is sent. Then EndTxn follows whatever the table did.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spark_kafka_eos.appending.report import Appended, AppendedTopic
from spark_kafka_eos.errors import BrokerError, IllegalTransactionState, KafkaEosError, ProducerFenced
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.producer import ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.recorder import phase
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import Decide
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry
from spark_kafka_eos.ledger.refusal import Refuse, diagnosis_command
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.transaction import outputs
from spark_kafka_eos.transaction.attempt import OPEN, Event, State
from spark_kafka_eos.transaction.doubt import CommitDoubt
from spark_kafka_eos.transaction.hanging import HangingTransactions
from spark_kafka_eos.transaction.hold import HoldState
from spark_kafka_eos.transaction.owner import Owner
from spark_kafka_eos.transaction.recovery import Recovery
from spark_kafka_eos.transaction.steps import TransactionSteps
from spark_kafka_eos.transaction.takeover import OwnerLook, OwnerTakeover, refused

if TYPE_CHECKING:
    from spark_kafka_eos.participants.participant import Participant
    from spark_kafka_eos.transaction.two_phase import ParticipantSteps

_log = logger(__name__)

# Of a second call in foreachBatch, whose rows can no longer be added.
WRITE_ONCE = (
    "This call's DataFrames are not written. Write all DataFrames of a batch in ONE "
    "`with writer.transaction(batch_df, batch_id)` block."
)


# Not time.monotonic: Linux's leaves out the time in which the machine was suspended, and transactions time out then.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def elapsed() -> float:
    """Seconds since some moment, also those in which this machine was suspended."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class SharedTransaction:
    """One transactional.id, which this process owns from `begin` on. Not thread-safe.

    Every method may raise ProducerFenced (a newer producer exists: stop), BrokerUnreachable and BrokerError; with a
    participant also TableFailed.
    """

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        decide: Decide | None,
        *,
        participant: Participant | None = None,
        planned_under: ProducerEpoch | None = None,
        unsure: bool = False,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        """`decide` maps ledger entry, batch and committed offsets to a verdict. If it is None, there is no ledger, and
        every batch is written. `participant` is a table that takes part, whose key is this query's own; then there must
        be a ledger. `planned_under` is the owner when the write was planned, None if that is not known.
        `unsure`: requests of this process may have raised the epoch since its last commit. `clock` is for tests.
        """
        self.options, self.cluster = options, cluster
        self._decide, self._clock = decide, clock
        self._outputs: Mapping[str, AppendedTopic] = {}  # of the open transaction
        self.participant = participant
        self.table_rows: Any = None  # what the next batch gives to the participant, None for nothing
        self.diagnosis_command = diagnosis_command(options) + (" --table MODULE:NAME" if participant else "")
        self._start(planned_under=planned_under, in_doubt=unsure)

    def _start(self, *, planned_under: ProducerEpoch | None = None, in_doubt: bool) -> None:
        options, cluster, has_ledger = self.options, self.cluster, self._decide is not None
        hanging = HangingTransactions(cluster)
        self.steps = steps = TransactionSteps(
            options, cluster, has_ledger=has_ledger, in_doubt=in_doubt, note=hanging.note, clock=self._clock
        )
        self.owner = Owner(options, steps)
        self.takeover = OwnerTakeover(options, cluster, self._decide, steps, self.owner, planned_under=planned_under)
        self._doubt = CommitDoubt(steps, self.owner, self.takeover, self.diagnosis_command)
        self._recovery = Recovery(options, cluster, steps, self.owner, hanging)
        self._table: ParticipantSteps | None = None
        self._explaining: Callable[..., contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        if self.participant is not None:
            from spark_kafka_eos.transaction.two_phase import ParticipantSteps  # of few queries

            self._table = ParticipantSteps(
                options, cluster, self.participant, steps, self.owner, self.takeover, self.diagnosis_command
            )
            self._explaining = self._table.explaining

    @property
    def identity(self) -> ProducerIdentity:
        """What appending processes need. Only valid between `begin` and `commit` or `abort`."""
        return self.steps.identity

    def begin(self, batch: MicroBatch) -> verdicts.Write | verdicts.Skip:
        """Decide on `batch`, and to write it, get a new epoch. Raises LedgerRefused if going on could lose or repeat
        data, ProducerFenced if another driver has taken over.
        """
        failpoint("begun", batch.batch_id)
        with self._explaining(batch):
            return self._begin(batch)

    def _begin(self, batch: MicroBatch) -> verdicts.Write | verdicts.Skip:
        self.owner.require_not_lost()
        try:
            verdict = self._owned(batch)
        except BrokerError as error:
            if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT or self.steps.hold.identity is None:
                raise
            self._recovery.end_pending_offsets(error)
            verdict = self._owned(batch)
        if isinstance(verdict, verdicts.Write) and self.end_hanging():
            verdict = self.takeover.verdict(batch)
        match verdict:
            case Refuse() as refusal:
                command = self.diagnosis_command + (" --real-time" if batch.buckets is not None else "")
                raise refused(refusal, command)
            case verdicts.Repeat(reason=reason):
                raise IllegalTransactionState(
                    f"a second call for batch {batch.batch_id} of query {batch.query_id} in the same run: {reason}",
                    committed="everything",
                    action=WRITE_ONCE,
                )
        if verdict.by_operator:
            _log.warning("batch %d of query %s: %s", batch.batch_id, batch.query_id, verdict.reason)
        if isinstance(verdict, verdicts.Write):
            failpoint("initialised", batch.batch_id)
        return verdict if self._table is None else self._table.begin(batch, verdict)

    def _owned(self, batch: MicroBatch) -> verdicts.Verdict:
        """The verdict on `batch`; to write it, with the id in a new epoch."""
        verdict = self.takeover.verdict(batch) if self.steps.holds else None
        if isinstance(verdict, verdicts.Write):
            return verdict if self.owner.renew() == "known" else self.takeover.verdict(batch)
        # Nothing is held. Or, which is unusual, another process may have written in between: for example, a query was
        # restarted with the same writer.
        return self.takeover.take(batch, lambda: self.look(batch))

    def end_hanging(self) -> bool:
        """End what hangs of earlier transactions of this id; whether there was anything."""
        return self._recovery.end()

    def abort_source_offsets(self) -> None:
        """Between `begin` and `append`: abort the source's offsets that this id has left pending in the group."""
        self._recovery.abort_source_offsets()

    def start_over(self) -> None:
        """After an error: unless this process knows who owns the id, forget what it knew. Then its requests may have
        raised the epoch.
        """
        hold, state = self.steps.hold, self.steps.attempt.state
        is_known = state in (State.UNINITIALISED, State.READY, State.COMMITTED) and not hold.in_doubt
        if hold.state is not HoldState.LOST and not is_known:
            self._start(in_doubt=True)

    def appending(self) -> None:
        """Record that the transaction may contain records from now on."""
        self._outputs = {}
        self.steps.attempt.apply(Event.APPEND)

    def append(self, write: Callable[[ProducerIdentity], Appended]) -> Appended:
        """Have `write` append to the transaction. Raises TransactionAborted if it lasts longer than its timeout."""
        self.appending()
        with self._explaining(), self.owner.explaining():
            appended = write(self.identity)
        self._outputs = appended.topics
        return appended

    def commit(self, batch: MicroBatch, *, written: BatchCounts | None = None, incomplete: bool = False) -> None:
        """Commit everything that was appended, with the batch's source offsets and ledger entry, or nothing.

        Call it only if the barrier found that every append was acknowledged exactly once. `written` is what they add
        up to, None if unknown. `incomplete`: see LedgerEntry; the table has no part in it. Raises TransactionAborted if
        the transaction was aborted and the batch may be retried, CommitOutcomeUnknown if no broker answers, or the
        table does not say whether it has the batch, OutputLost if a topic was deleted while the rest was committed.
        """
        if (table := self._table) is None or incomplete:
            self._commit_all(batch, written, incomplete=incomplete)
        else:
            with table.explaining():
                version = table.version_with(written)
                self._commit_all(batch, written, incomplete=False, table=table, version=version)
        note = None if self._decide is None else lambda topics: self._note_again(batch, written, topics)
        outputs.require_committed(self.cluster, batch, self._appended_to(), self._outputs, note)

    def _commit_all(
        self,
        batch: MicroBatch,
        written: BatchCounts | None,
        *,
        incomplete: bool,
        table: ParticipantSteps | None = None,
        version: int | None = None,
    ) -> None:
        """Commit, after the `table`. The ledger's entry names the `version` of it that has the batch."""
        self.steps.attempt.apply(Event.ALL_APPENDED)
        failpoint("all appended", batch.batch_id)
        if self._decide is None and written is not None and written.records == 0:
            return  # nothing is open, so EndTxn would fail
        entry: LedgerEntry | None = None
        with phase("offsets"), self.owner.explaining():
            if self._decide is None:
                self.steps.ledger.send_source_offsets(self.identity, batch)
            else:
                entry = self.steps.ledger.send(
                    self.identity, batch, incomplete=incomplete, written=written, table=version
                )
            outputs.require(self.cluster, self._appended_to())
        self.steps.attempt.apply(Event.OFFSETS_SENT)
        failpoint("offsets committed", batch.batch_id)
        doubt: CommitDoubt | ParticipantSteps = self._doubt
        if table is None or table.has_batch:
            self.steps.attempt.apply(Event.COMMIT)
        else:
            table.commit(batch, entry, written, self.table_rows)
            doubt = table
        with phase("end"):
            try:
                following = self.steps.commit()
            except KafkaEosError as error:
                doubt.resolve(batch, entry, error)
            else:
                self.steps.committed(entry, following)
        failpoint("ended", batch.batch_id)

    # -- topics that are deleted meanwhile (transaction.outputs)

    def _appended_to(self) -> dict[str, uuid.UUID]:
        """The topics that the transaction was appended to, with the ids that they had before."""
        ids = {name: topic.id for name, topic in self._outputs.items()}
        return {**ids, **(self.steps.ledger.appended if self._decide is not None else {})}

    def _note_again(
        self, batch: MicroBatch, written: BatchCounts | None, lost: Mapping[str, AppendedTopic]
    ) -> KafkaEosError | None:
        """Commit the entry of the committed batch once more, as incomplete if records in topics are `lost`; the error
        if that failed.
        """
        last = self.steps.ledger.entry
        written = replace(
            written or BatchCounts(records=0, bytes=0, milliseconds=0),
            lost={name: topic.records for name, topic in lost.items()},
        )
        version = last.table if isinstance(last, LedgerEntry) else None
        try:
            if not self.steps.holds or self.owner.renew() == "read":
                raise ProducerFenced("another driver may have taken over")
            self.steps.ledger.topic.ensure_again()
            self.appending()
            self._commit_all(batch, written, incomplete=bool(lost), version=version)
        except KafkaEosError as error:
            with contextlib.suppress(KafkaEosError):  # the first one says why
                self.abort()
            return error
        return None

    def note_incomplete(self, batch: MicroBatch) -> None:
        """Record in the ledger that the committed `batch` lacks DataFrames that came too late. From then on it is
        refused, until an operator resolves that.
        """
        self.owner.require_not_lost()
        if self.steps.holds:
            self.owner.renew()
        else:
            verdict = self.takeover.take(batch, lambda: self.look(batch, to_take=True), without_verdict=True)
            if isinstance(verdict, Refuse):
                raise refused(verdict, self.diagnosis_command)
        self.end_hanging()
        self.appending()
        self.commit(batch, incomplete=True)

    def abort(self) -> None:
        """Abort the transaction: none of it becomes visible, and its epoch is invalid. Does nothing if none is open."""
        if self.steps.attempt.state in OPEN:
            with self._explaining():
                self.owner.abort()

    def look(self, batch: MicroBatch, *, to_take: bool = False) -> OwnerLook:
        """What a process sees that holds no epoch: see `OwnerTakeover.look`."""
        return (self._table or self.takeover).look(batch, to_take=to_take)
