"""Whether an operator may abort a transaction, or commit the rest of one. Pure.

A marker in one partition ends a transaction only there. If its coordinator still has the transaction, it would be
committed in the other partitions without the records of this one, and no broker refuses such a marker: WriteTxnMarkers
checks the producer epoch and nothing else. So a part may only be aborted where no coordinator will ever end it, and
where no producer could go on with it. Nor if it was committed, and only its marker is missing (KAFKA-20734): the ledger
says so, or the coordinator, whose last transaction it was. A whole transaction is aborted by InitProducerId, which
fences its producer first (KIP-98).
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.words import duration
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.entry import LedgerEntry, MovedLedger, UnreadableEntry
from spark_kafka_eos.tools.operators.survey import Ending, LastOutcome, OpenPart

InLedger = LedgerEntry | BucketRecord | MovedLedger | UnreadableEntry
"""What the ledger has of a transaction that was committed."""

# A timeout that was exceeded by less may still be running by the coordinator's clock, or be acted upon this moment.
CLOCKS_DIFFER_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortDecision:
    """Whether to abort, and why (a sentence without its full stop); if not, what to do instead."""

    abort: bool
    reason: str
    action: str = ""


def end_part(part: OpenPart, committed: InLedger | None = None, *, commit: bool = False) -> AbortDecision:
    """Whether a marker may abort this part of a transaction, or `commit` it. `committed` is what the ledger has of it,
    if it was committed.
    """
    producer, facts = part.producer, part.facts
    name = "" if facts is None else facts.transactional_id
    match part.ending:
        case Ending.UNKNOWN:
            return AbortDecision(
                abort=False,
                reason=f"whether producer {producer.producer_id} still has an owner is unknown: not every coordinator "
                "could be asked, or this principal may not describe every transactional id",
                action="Wait until every broker answers. This principal needs Describe on all transactional ids and "
                "on the topic __transaction_state.",
            )
        case Ending.OWNER:
            return AbortDecision(
                abort=False,
                reason=f"its coordinator has it open as {name!r}{_for(facts)}, and may still commit it in its other "
                "partitions, without the records of this one",
                action=f"{_wait(facts)} To abort the whole transaction, run: kafka-eos transactions abort {name}",
            )
        case Ending.COORDINATOR:
            return AbortDecision(
                abort=False,
                reason=f"it is already decided ({_state(facts)}), and the coordinator is about to write the marker",
                action=f"Find out why broker {'?' if facts is None else facts.coordinator}, which coordinates "
                f"{name!r}, cannot write it: is the leader of {part.partition} available?",
            )
        case Ending.NOBODY:
            if commit and part.outcome is LastOutcome.ABORTED:
                return AbortDecision(
                    abort=False,
                    reason=f"its coordinator says that the last transaction of {name!r}, which this is, was aborted: a "
                    "commit would show records that were taken back, and that may have been written again",
                    action=f"Abort it here, too: {part.abort_command}",
                )
            if not commit and (was := _was_committed(part, committed)):
                return AbortDecision(
                    abort=False,
                    reason=f"{was}, and its coordinator left out the marker here (KAFKA-20734): an abort would lose "
                    "these records",
                    action=_commit_instead(part, committed),
                )
            if facts is not None and facts.producer_id == producer.producer_id and facts.epoch <= producer.epoch:
                return AbortDecision(
                    abort=False,
                    reason=f"no coordinator will end it, but the owner of {name!r} still has its producer epoch, and "
                    "could append to the same partition in its next transaction at any time",
                    action=f"Fence the owner first: kafka-eos transactions abort {name} --fence-owner. Then repeat "
                    f"this command{_unless_committed(facts)}.",
                )
            return AbortDecision(abort=True, reason="it hangs: no coordinator will end it")


def abort_whole(
    transactional_id: str,
    facts: TransactionFacts | None,
    *,
    fence_owner: bool,
    with_table: LedgerEntry | None = None,
) -> AbortDecision:
    """Whether to take the transactional.id from its owner, which aborts what it has open.

    `fence_owner`: also from one that may be alive. The brokers do not know whether it is. `with_table`: the entry in
    its open transaction, if a table takes part.
    """
    if with_table is not None:
        return AbortDecision(
            abort=False,
            reason=f"a table takes part in it, which may have batch {with_table.batch_id} of query "
            f"{with_table.query_id}: Kafka would then lack rows that the table has",
            action="Start the query again, or settle both together: kafka-eos query resolve "
            f"{transactional_id} --table MODULE:NAME --settle",
        )
    if facts is None:
        return AbortDecision(
            abort=False,
            reason=f"no coordinator knows the transactional id {transactional_id!r}",
            action="`kafka-eos transactions list` shows those that there are, `hanging` transactions that no "
            "coordinator knows.",
        )
    timeout_left = facts.timeout_left_ms
    if facts.is_open and facts.state != "Ongoing":
        return AbortDecision(
            abort=False,
            reason=f"its transaction is already decided ({facts.state}), and broker {facts.coordinator} is writing the "
            "markers",
            action="Find out which partitions lack theirs, and whether their leaders are available: "
            f"kafka-eos transactions describe {transactional_id}",
        )
    if fence_owner:
        return AbortDecision(abort=True, reason="the owner is fenced, even if it is running")
    if facts.state != "Ongoing":
        return AbortDecision(
            abort=False,
            reason=f"it has no open transaction ({facts.state})",
            action="There is nothing to abort. To fence its owner nevertheless, add --fence-owner.",
        )
    if timeout_left is None or timeout_left > -CLOCKS_DIFFER_MS:
        return AbortDecision(
            abort=False,
            reason=f"its owner may be alive: the transaction has been open{_for(facts)}, and its timeout is "
            f"{facts.timeout}",
            action=f"{_wait(facts)} Aborting it now stops the owner, if it runs: a query of this package fails with "
            "ProducerFenced, and writes the batch again after a restart. If you are sure, add --fence-owner.",
        )
    return AbortDecision(
        abort=True, reason=f"its timeout passed {duration(-timeout_left)} ago, and its coordinator has not aborted it"
    )


def _was_committed(part: OpenPart, committed: InLedger | None) -> str:
    """Why it is known that this was committed; empty if it is not known."""
    match committed:
        case LedgerEntry():
            return f"batch {committed.batch_id} of query {committed.query_id} was committed in it"
        case BucketRecord():
            return "records of a query in real time were committed in it"
        case MovedLedger() | UnreadableEntry():
            return "by the ledger, a batch was committed in it"
    if part.outcome is LastOutcome.COMMITTED and part.facts is not None:
        name = part.facts.transactional_id
        return f"its coordinator says that the last transaction of {name!r}, which this is, was committed"
    return ""


def _commit_instead(part: OpenPart, committed: InLedger | None) -> str:
    # A query in real time whose bucket was taken since can no longer know it; of a job without a ledger, nobody can.
    if committed is None or isinstance(committed, BucketRecord):
        return f"Commit it here, too: {part.commit_command}"
    return (
        "Start the query: it writes the commit marker before its next batch. It needs ClusterAction on the cluster for "
        "that, or Alter since Kafka 3.8."
    )


def _unless_committed(facts: TransactionFacts) -> str:
    """What to look at, because after the fence the coordinator no longer says how the last transaction ended."""
    if facts.state != "CompleteCommit":
        return ""
    return (
        ", with --commit if this is a part of the owner's last transaction, which was committed: then read_committed "
        "consumers see its records in other partitions, and an abort would lose those of this one"
    )


def _for(facts: TransactionFacts | None) -> str:
    return "" if facts is None or facts.age_ms is None else f" for {duration(facts.age_ms)}"


def _wait(facts: TransactionFacts | None) -> str:
    if facts is not None and not facts.times_out:
        return "The coordinator never aborts it by itself."
    timeout_left = None if facts is None else facts.timeout_left_ms
    if timeout_left is None or timeout_left <= 0:
        return "The coordinator is about to abort it."
    return f"The coordinator aborts it by itself in {duration(timeout_left)}."


def _state(facts: TransactionFacts | None) -> str:
    return "" if facts is None else facts.state
