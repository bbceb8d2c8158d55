"""Ends transactions at an operator's word: a part that hangs, all that an id has open, a batch that a table has.

Whether it may end is decided by `abort` and `settle`; here it is looked at and carried out.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from spark_kafka_eos.errors import BrokerError, ToolFailed
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.kafka.protocol.markers import write_marker
from spark_kafka_eos.kafka.protocol.transactions import end_transaction, init_producer_id
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.participants.diagnosis import TableDiagnosis
from spark_kafka_eos.participants.failure import naming_the_table
from spark_kafka_eos.participants.participant import Conflict, Participant
from spark_kafka_eos.participants.token import Token
from spark_kafka_eos.tools.operators.abort import AbortDecision, abort_whole, end_part
from spark_kafka_eos.tools.operators.open_transactions import survey
from spark_kafka_eos.tools.operators.queries import committed_in, taking_part
from spark_kafka_eos.tools.operators.settle import Settlement
from spark_kafka_eos.tools.operators.survey import Ending, OpenPart
from spark_kafka_eos.transaction.hold import is_left_by_take, owner_in

ABORT_MS = 30_000  # markers may have to wait for an election
_log = logger(__name__)


class HangingPart:
    """What hangs in one partition, which a marker ends there: an abort, or with `commit` a commit. `ledger_topics` are
    those in which an operator says that the ledger is, if it is a query's.
    """

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        start_offset: int,
        *,
        commit: bool,
        ledger_topics: Collection[str] = (),
    ) -> None:
        self.name = f"the transaction in {partition} from offset {start_offset}"
        self.ended = "Committed" if commit else "Aborted"
        self._cluster, self._partition, self._start_offset, self._commit = cluster, partition, start_offset, commit
        self._ledger_topics = ledger_topics
        self._part: OpenPart | None = None

    def judge(self) -> AbortDecision:
        """Look at the partition now; what was found there before must be the same. Raises ToolFailed if it cannot be
        looked at, or if it is not known whether a query committed a batch in it.
        """
        tp, before = self._partition, self._part
        snapshot = survey(self._cluster, [tp], now_ms=int(time.time() * 1e3))
        if tp in snapshot.unavailable:
            raise ToolFailed(f"cannot look at {tp}: {snapshot.unavailable[tp]}")
        starts = {part.producer.start_offset: part for part in snapshot.open_parts}
        self._part = starts.get(self._start_offset)
        if self._part is None:
            others = f"; open ones start at {', '.join(map(str, starts))}" if starts else ", nor anywhere else in it"
            return AbortDecision(abort=False, reason=f"no open transaction of {tp} starts there{others}")
        producer, facts = self._part.producer, self._part.facts
        if before is not None and (producer.producer_id, producer.epoch) != _of(before):
            return AbortDecision(
                abort=False,
                reason=f"another transaction starts there now: of producer {producer.producer_id}, epoch "
                f"{producer.epoch}. The topic was created again, or truncated",
                action="Run the command again.",
            )
        if self._commit or self._part.ending is not Ending.NOBODY:
            return end_part(self._part, commit=self._commit)
        name = None if facts is None else facts.transactional_id
        try:
            committed = committed_in(
                self._cluster, name, producer.producer_id, producer.epoch, ledger_topics=self._ledger_topics
            )
        except ToolFailed:
            decision = end_part(self._part)
            if decision.abort and self._part.outcome is None:  # no coordinator says either that it was aborted
                raise
            return decision
        return end_part(self._part, committed)

    def plan(self) -> str:
        """What `abort` would do, after a `judge` that allows it."""
        part = self._judged()
        producer = part.producer
        consequence = "" if not part.held_offsets else f" It holds back {part.held_offsets} offsets."
        marker, seen = ("a commit", "then") if self._commit else ("an abort", "never")
        return (
            f"Writes {marker} marker to {part.partition}: producer {producer.producer_id}, epoch {producer.epoch}."
            f"{consequence} Its records there are {seen} seen by read_committed consumers."
        )

    def abort(self) -> None:
        """Write the marker."""
        write_marker(self._cluster, self._judged().producer, commit=self._commit)

    def _judged(self) -> OpenPart:
        assert self._part is not None
        return self._part


def _of(part: OpenPart) -> tuple[int, int]:
    return part.producer.producer_id, part.producer.epoch


class OwnedTransaction:
    """What a transactional.id has open, which InitProducerId aborts. `fence_owner`: also if its owner may be alive."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, fence_owner: bool) -> None:
        self.name = f"transactional id {transactional_id!r}"
        self.ended = "Aborted"
        self._cluster, self._id, self._fence_owner = cluster, transactional_id, fence_owner
        self._facts: TransactionFacts | None = None

    def judge(self) -> AbortDecision:
        """Ask the coordinator now. Raises ToolFailed if it may not be asked."""
        self._facts = owner_of(self._cluster, self._id)
        with_table = None if self._facts is None else taking_part(self._cluster, self._facts)
        return abort_whole(self._id, self._facts, fence_owner=self._fence_owner, with_table=with_table)

    def plan(self) -> str:
        """What `abort` would do, after a `judge` that allows it."""
        facts = self._judged()
        where = ", ".join(map(str, facts.partitions)) or "no partition"
        return (
            f"Takes {self.name} from {facts.producer} (InitProducerId), which fences it. State: {facts.state}. "
            f"Aborts its transaction in {where}."
        )

    def abort(self) -> None:
        """Take the id. Raises ToolFailed if another producer has it by then, and if a marker is still missing."""
        facts = self._judged()
        where = ", ".join(map(str, facts.partitions)) or "no partition"
        _log.warning(
            "sending InitProducerId for %s: fences producer %d, epoch %d (%s), and aborts what it has open in %s",
            *(self.name, facts.producer_id, facts.epoch, facts.state, where),
        )
        try:
            timeout_ms = facts.timeout_ms if facts.times_out else ABORT_MS  # of nothing: it only fences
            take_over(self._cluster, self._id, timeout_ms, expected=facts)
        except BrokerError as error:
            if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:  # the previous one still lacks markers
                raise
            raise ToolFailed(
                f"{self.name} is being aborted and its owner is fenced, but its coordinator could not yet write every "
                "marker",
                action="It goes on by itself once the leaders of the partitions are available: kafka-eos transactions "
                f"describe {self._id}",
            ) from error

    def _judged(self) -> TransactionFacts:
        assert self._facts is not None
        return self._facts


def carry_out(
    settlement: Settlement, diagnosis: TableDiagnosis, participant: Participant, cluster: Cluster, options: SinkOptions
) -> None:
    """Do what was decided, as a start would. Raises ToolFailed if another driver has written to the table, or has the
    transactional.id.
    """
    match settlement.step:
        case "commit":
            assert isinstance(diagnosis.token, Token)
            of = diagnosis.token.identity
            _log.warning(
                "sending EndTxn(commit) for producer %d, epoch %d: %s", of.producer_id, of.epoch, diagnosis.token
            )
            end_transaction(cluster, of, commit=True)
        case "fence":
            name, owner = options.transactional_id, diagnosis.kafka.owner
            require_owner(cluster, name, owner)  # a driver that has started since would lose its batch to the fence
            _log.warning("fencing the table at version %d, then sending InitProducerId", diagnosis.table.version)
            try:
                with naming_the_table("cannot be fenced"):
                    participant.commit(None, diagnosis.table.token, after=diagnosis.table.version)
            except Conflict as error:
                raise ToolFailed(
                    f"the table is no longer at version {diagnosis.table.version}: a driver is alive, and has written "
                    "to it",
                    action="Nothing was changed. Run the command again.",
                ) from error
            done = "The table is fenced already, so a batch that was begun before does not get into it."
            take_over(cluster, name, options.transaction_timeout_ms, expected=owner, done=done)


def take_over(
    cluster: Cluster,
    transactional_id: str,
    timeout_ms: int,
    *,
    expected: TransactionFacts | Unavailable | None,
    done: str = "",
) -> None:
    """Send InitProducerId, which fences the `expected` owner, and aborts its transaction.

    Raises ToolFailed if another producer has the id by then; `done` is what was changed before, a sentence. A request
    without an answer is not sent again once the id is another one's: that may be this request's own doing, or a driver
    that has started.
    """

    def again() -> None:
        if whose := _another(cluster, transactional_id, expected):
            sent = "What was open before is aborted; nothing more was sent."
            raise ToolFailed(
                f"InitProducerId was not answered, and {whose}, by this command or by a driver that started",
                action=" ".join(filter(None, (done, sent, _who_has(transactional_id)))),
            )

    require_owner(cluster, transactional_id, expected, done=done)
    init_producer_id(cluster, transactional_id, timeout_ms, again=again)


def require_owner(
    cluster: Cluster, transactional_id: str, expected: TransactionFacts | Unavailable | None, *, done: str = ""
) -> None:
    """Raise ToolFailed if another producer than the `expected` owner has the id now; `done` as of `take_over`."""
    if whose := _another(cluster, transactional_id, expected):
        changed = f"{done} Nothing was sent to Kafka." if done else "Nothing was changed."
        raise ToolFailed(
            f"{whose}, and not to the owner that was found", action=f"{changed} {_who_has(transactional_id)}"
        )


def _another(cluster: Cluster, transactional_id: str, expected: TransactionFacts | Unavailable | None) -> str:
    """To which other producer than the `expected` owner the id belongs now; empty if to none that is known."""
    now = describe.transaction(cluster, transactional_id, now_ms=int(time.time() * 1e3))
    if isinstance(expected, Unavailable) or not isinstance(now, TransactionFacts):
        return ""
    if is_left_by_take(owner_in(expected), now, in_doubt=False):
        return ""
    return f"transactional id {transactional_id!r} now belongs to {now.producer} ({now.state})"


def _who_has(transactional_id: str) -> str:
    return f"See who has it: kafka-eos transactions describe {transactional_id}"


def owner_of(cluster: Cluster, transactional_id: str) -> TransactionFacts | None:
    """What its coordinator says of it; None if it does not know it. Raises ToolFailed if it may not be described."""
    owner = describe.transaction(cluster, transactional_id, now_ms=int(time.time() * 1e3))
    if isinstance(owner, Unavailable):
        raise ToolFailed(
            f"cannot describe the transactional id {transactional_id!r}: {owner.reason}", action=f"Grant {owner.grant}."
        )
    return owner
