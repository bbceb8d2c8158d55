"""Refusals of a batch whose query has no entry in the ledger: there is none, or it is another query's. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_eos.kafka.words import first_three
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.remedies import (
    BY_MISTAKE,
    MAKE_READABLE,
    OWN_ID,
    RESTORE,
    RESTORE_LEDGER,
    RESUME,
    RESUME_BY_GROUP,
    RETURNED,
    TAKEN_OVER,
    TWO_DRIVERS,
    take_over_option,
    why_incomplete,
)
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.source_offset import SinkIdentity

# -- the ledger cannot be used


def unreadable(entry: UnreadableEntry) -> Refuse:
    """There is content, but no entry."""
    return Refuse(
        reason=entry.description,
        meaning="It is unknown whether this batch is committed",
        actions=(
            *MAKE_READABLE,
            "Only this sink may write to the ledger topic or commit to the group `<kafka.transactional.id>.ledger`.",
        ),
        resolutions=("write", "skip"),
    )


def shared_group(others: str) -> Refuse:
    """Other sinks' transactions commit offsets to the group."""
    return Refuse(
        reason=f"the group's offsets were committed by the transactions of {others!r}",
        meaning="Two sinks that share a consumer group overwrite each other's offsets: each would resume where the "
        "other is",
        actions=("Set a different `kafka.group.id` for each query (default: the transactional.id).",),
        fingerprint=others,
        resolutions=("take-group",),
    )


# -- the source goes by another ledger


def another_sink(sink: SinkIdentity, others: str) -> Refuse:
    """Batch 0, of a source that names other sinks than this one, or starts at their offsets."""
    writes = f"writes under {sink.transactional_id!r}" if sink.ledger_topic else "keeps no ledger (at-least-once)"
    return Refuse(
        reason=f"the source goes by what transactional.id {others!r} has committed, but this sink {writes}",
        meaning="What that one has committed would be missing in this sink's output, now or at the next start",
        actions=(
            (
                f"Set the source's `sink.kafka.transactional.id` to {sink.transactional_id!r}"
                if sink.ledger_topic
                else "Remove the source's options `sink.…`"
            )
            + f" (or, without it, let the source's `kafka.group.id` be another group than that of {others!r}), and "
            "start the query with a new checkpointLocation: this one has the start that the other sink's commits gave.",
        ),
        fingerprint=others,
        resolutions=("take-ledger",) if sink.ledger_topic else (),
    )


def another_cluster(sink: SinkIdentity, expected: SinkIdentity) -> Refuse:
    """Batch 0, of a source that looked for the sink's ledger on another cluster."""
    return Refuse(
        reason=f"the source looked for the ledger of {sink.transactional_id!r} on cluster {expected.cluster}, but this "
        f"sink writes to cluster {sink.cluster}",
        meaning="Each sink has its ledger on its own cluster: the source would start where another one ended, or every "
        "time at the beginning",
        actions=(
            (
                "Set `sink.kafka.bootstrap.servers` on the source to the brokers of the sink, and start the query with "
                "a new checkpointLocation."
            ),
        ),
    )


def another_ledger_topic(sink: SinkIdentity, expected: SinkIdentity) -> Refuse:
    """Batch 0, of a source that looked for the sink's ledger in another topic."""
    return Refuse(
        reason=f"the source looked for the ledger of {sink.transactional_id!r} in topic {expected.ledger_topic!r}, but "
        f"this sink keeps it in {sink.ledger_topic!r}, where it has no entry",
        meaning="The source would not find what this sink commits",
        actions=(
            (
                f"Set `sink.ledgerTopic` on the source to {sink.ledger_topic!r}, or `ledgerTopic` on the sink to "
                f"{expected.ledger_topic!r}, and start the query with a new checkpointLocation."
            ),
        ),
    )


# -- the ledger has no entry


def deleted(batch: MicroBatch, discontinuity: str | None) -> Refuse:
    """Batch 0, though this transactional.id has committed before."""
    return Refuse(
        reason="the ledger has no entry, but the group's offsets were committed under this transactional.id, and "
        f"the new query {batch.query_id} does not start there: {discontinuity}",
        meaning="The ledger topic and its group were deleted, or ledgerTopic was changed. Starting earlier repeats "
        "records in the output, starting later skips some",
        actions=(RESTORE_LEDGER, f"Or {RESUME_BY_GROUP}."),
        resolutions=("write",),
    )


def never_written(batch: MicroBatch, discontinuity: str | None) -> Refuse:
    """A later batch than 0."""
    fits = " (it starts at the group's committed offsets)" if discontinuity is None else ""
    return Refuse(
        reason=f"the ledger has no entry, but the checkpoint is at batch {batch.batch_id}{fits}",
        meaning="Its earlier batches did not call the writer, or were written with another sink, cluster, "
        "transactional.id or ledgerTopic, or the ledger topic was deleted; it is unknown whether this batch has been "
        "written",
        actions=(*RETURNED, BY_MISTAKE, TAKEN_OVER),
        resolutions=("write", "skip"),
    )


# -- the entry is another query's


def _last(entry: LedgerEntry) -> str:
    # Each of these refusals has a way out with which the new query's entry replaces this one, and what it lacks would
    # be forgotten.
    lacks = f", which is incomplete ({why_incomplete(entry)})" if entry.incomplete else ""
    return f"the last commit under this transactional.id is batch {entry.batch_id} of query {entry.query_id}{lacks}"


def shared_id(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """A later batch than 0."""
    return Refuse(
        reason=f"{_last(entry)}, but this is batch {batch.batch_id} of query {batch.query_id}",
        meaning="Two queries use the same transactional.id, or another checkpoint has replaced this one; it is "
        "unknown whether this batch is already committed",
        actions=(
            TWO_DRIVERS,
            (
                "If this checkpoint was left behind, for example on the disk of a node that returns, or if this query "
                f"replaces the other, {RESUME}."
            ),
            f"To run both queries, {OWN_ID}.",
        ),
        resolutions=("write", "skip"),
    )


def unknown_start(entry: LedgerEntry, batch: MicroBatch, why: str) -> Refuse:
    """Batch 0, whose start the sink does not know."""
    return Refuse(
        reason=f"{_last(entry)}, and this is a new query {batch.query_id} {why}",
        meaning="It is unknown whether it starts where the other one ended; it could repeat or lose records",
        actions=(
            f"If it does, set takeOverQuery={entry.query_id} (a Kafka source with startingOffsets=committed does).",
            "Otherwise, set another `kafka.transactional.id` for the new query, or restore the old query's checkpoint.",
        ),
        resolutions=("write",),
    )


def outdated(entry: LedgerEntry, batch: MicroBatch, regressions: Sequence[str]) -> Refuse:
    """Batch 0, which starts where the other query ended, but ends before that."""
    return Refuse(
        reason=f"{_last(entry)}, and batch 0 of query {batch.query_id} was planned before that: it ends before the "
        f"committed offsets ({first_three(regressions)})",
        meaning="Its records are already committed. Committing it would reset the group's offsets, and the next "
        "batch would repeat records",
        actions=(
            f"This checkpoint is outdated, because another one has replaced it: {RESUME}.",
            f"If instead a topic was created again and failOnDataLoss is false, {take_over_option(entry)}.",
        ),
        resolutions=("skip",),
    )


def incomplete(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """Batch 0, which starts where the other query ended, but that one's last batch lacks something."""
    return Refuse(
        reason=f"{_last(entry)}, and the new query {batch.query_id} goes on after it",
        meaning="What that batch lacks is not in the output, and no later batch has it. Everything else that it wrote "
        "is in the output",
        actions=(
            "Write what is missing with a batch job.",
            f"Then {take_over_option(entry)}.",
            (
                "Write all DataFrames of a batch in one `with writer.transaction(...)` block, and delete no topic that "
                "a running query writes."
            ),
        ),
        resolutions=("write",),
    )


def state_lost(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """Batch 0, which starts where the other query ended, but without its state."""
    return Refuse(
        reason=f"{_last(entry)}, and the new query {batch.query_id} starts exactly where it ended, but without its "
        "state",
        meaning="The state was lost with the checkpoint: aggregates, joins and deduplication would begin anew, and "
        "the output would have wrong results",
        actions=(
            RESTORE,
            "A query with state needs one on storage that survives the driver.",
            f"To continue without the state, {take_over_option(entry)}.",
        ),
        resolutions=("write",),
    )


def elsewhere(entry: LedgerEntry, batch: MicroBatch, discontinuity: str) -> Refuse:
    """Batch 0, which starts elsewhere."""
    return Refuse(
        reason=f"{_last(entry)}, and the new query {batch.query_id} does not start where it ended: {discontinuity}",
        meaning="Starting earlier repeats records in the output, starting later skips some",
        actions=(
            f"To start where the last transaction ended, {RESUME}.",
            f"If this is another pipeline, {OWN_ID}.",
            f"If this start is correct, for example because a topic is new, {take_over_option(entry)}.",
        ),
        resolutions=("write",),
    )
