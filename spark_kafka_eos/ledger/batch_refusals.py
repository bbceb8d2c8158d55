"""Refusals of a batch whose query has the last entry of the ledger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_kafka_eos.kafka.words import first_three
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.refusal import Refuse, Resolution, name_of
from spark_kafka_eos.ledger.remedies import (
    BY_MISTAKE,
    RESTORE,
    RESUME,
    RETURNED,
    TAKEN_OVER,
    TWO_DRIVERS,
    lost_records,
    why_incomplete,
)
from spark_kafka_eos.micro_batch import MicroBatch


def incomplete(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """Some of what the entry's batch should have written is not in the output."""
    resolutions: tuple[Resolution, ...] = ("skip",) if entry.batch_id == batch.batch_id else ("write",)
    reason = f"batch {entry.batch_id} is incomplete: {why_incomplete(entry)}"
    if lost_records(entry):
        return Refuse(
            reason=reason,
            meaning="Everything else that it wrote is in the output",
            actions=("Write what is missing with a batch job, and delete no topic that a running query writes.",),
            resolutions=resolutions,
        )
    return Refuse(
        reason=reason,
        meaning="The DataFrames of the second call, or the records in that topic, are not in the output; the query's "
        "last error says which",
        actions=(
            (
                "Write all DataFrames of a batch in one `with writer.transaction(...)` block, do not delete topics "
                "that a running query writes, and write what is missing with a batch job."
            ),
        ),
        resolutions=resolutions,
    )


def also_incomplete(refusal: Refuse, entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """A refusal for another reason, after an entry whose batch is incomplete: its ways out replace the entry, and what
    the batch lacks would be forgotten.
    """
    if entry.batch_id == batch.batch_id and "skip-to" in refusal.resolutions:
        # That word would hold for all batches that read what is committed, and not all of it was written.
        refusal = replace(refusal, fingerprint="", resolutions=("skip",))
    return replace(
        refusal,
        reason=f"{refusal.reason}. Besides, batch {entry.batch_id} is incomplete: {why_incomplete(entry)}",
        actions=(*refusal.actions, f"Write what batch {entry.batch_id} lacks with a batch job: no other batch has it."),
    )


def without_topics(entry: LedgerEntry, topics: Sequence[str]) -> Refuse:
    """The entry's batch, which would be skipped, after topics with its records were deleted."""
    names = first_three(map(repr, topics))
    return Refuse(
        reason=f"batch {entry.batch_id} is committed, but topic {names} was deleted since, with the batch's records",
        meaning="That may have been while the batch was committed, unnoticed because the driver ended at that moment. "
        "Everything else that it wrote is in the output",
        actions=(
            "If it was deleted later, on purpose, nothing is missing, and `skip` is correct.",
            "Otherwise, write what is missing with a batch job.",
            "Delete no topic that a running query writes.",
        ),
        resolutions=("skip",),
    )


def moved(entry: LedgerEntry, batch: MicroBatch, differences: str) -> Refuse:
    """The next batch, which does not start where the entry's batch ended."""
    return Refuse(
        reason=f"batch {entry.batch_id} is committed, but batch {batch.batch_id} does not start where it ended: "
        f"{differences}",
        meaning="The checkpoint was changed, or its sources now read another cluster or other topics; writing this "
        "batch would repeat or skip records",
        actions=(RESTORE, f"Or {RESUME}."),
        resolutions=("write", "skip"),
    )


def planned_again(entry: LedgerEntry, batch: MicroBatch, *, covered: bool) -> Refuse:
    """The entry's batch, with other offsets."""
    return Refuse(
        reason=f"batch {batch.batch_id} is committed, but with other source offsets than in the checkpoint "
        f"(digest {entry.digest}, now {batch.digest})",
        meaning="The checkpoint lost this batch's offsets or was restored from an older copy, and the batch was "
        "planned again; writing it would repeat the records of the committed one",
        actions=(RESTORE, *(() if covered else _catch_up(entry, batch)), f"Or {RESUME}."),
        fingerprint=name_of(entry) if covered else "",
        resolutions=("skip-to",) if covered else ("write", "skip"),
    )


def ran_in_real_time(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    return Refuse(
        reason=f"batch {batch.batch_id} of query {batch.query_id} is one of micro-batches, but since batch "
        f"{entry.batch_id} the query has run in real time",
        meaning="In real time, how far the query came is in the records of its buckets, and not in this checkpoint: "
        "the batch would repeat records",
        actions=(
            "Start the query in real time again.",
            f"Or {RESUME}.",
        ),
    )


def rewound(entry: LedgerEntry, batch: MicroBatch, *, covered: bool) -> Refuse:
    """An earlier batch than the entry's."""
    return Refuse(
        reason=f"the last committed batch is {entry.batch_id}, but this driver is at batch {batch.batch_id}",
        meaning="The checkpoint was restored from an older copy, or a newer driver replaced this one; "
        f"{_batches(batch.batch_id, entry.batch_id)} committed, and writing again would repeat records",
        actions=(
            TWO_DRIVERS,
            "Otherwise, restore the newest checkpoint.",
            *(() if covered else _catch_up(entry, batch)),
            f"Or {RESUME}.",
        ),
        fingerprint=name_of(entry) if covered else "",
        resolutions=("skip-to",) if covered else ("write", "skip"),
    )


def unfinished(batch: MicroBatch, *, ledger: bool = True) -> Refuse:
    """A batch after one that this run has begun to write, and not committed; at-least-once, without a `ledger`."""
    missing = f"batch {batch.failed[0]}"
    if len(batch.failed) > 1:
        missing = f"batches {first_three(map(str, batch.failed))}"
    return Refuse(
        reason=f"in this run, {missing} began and did not end in a commit: the writer, or the code in its `with` "
        "block, raised an error that did not end the query, or has not ended yet in another thread",
        meaning="Spark considers every batch whose function has returned as done, so going on would lose those records",
        actions=(
            "Find the error in the log of that batch.",
            (
                "Let every error of the writer and of its block end the query, and wait for a thread that calls the "
                "writer: Spark then runs the batch again."
            ),
            *((f"To write the missing records with this sink, {RESUME}.",) if ledger else ()),
        ),
        resolutions=("write", "skip") if ledger else (),
    )


def gap(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """A later batch than the next one."""
    missing = _batches(entry.batch_id + 1, batch.batch_id - 1)
    return Refuse(
        reason=f"the last committed batch is {entry.batch_id}, but the checkpoint is at batch {batch.batch_id}",
        meaning=f"According to the checkpoint, {missing} done, but this was not committed under this "
        "transactional.id: the function did not call the writer, it was written with another sink, cluster or "
        "transactional.id, or the ledger was reset",
        actions=(*RETURNED, BY_MISTAKE, TAKEN_OVER, f"To write the missing records with this sink, {RESUME}."),
        resolutions=("write", "skip"),
    )


def _catch_up(entry: LedgerEntry, batch: MicroBatch) -> tuple[str, ...]:
    """The way out for an old copy of a checkpoint whose next batch reads what is committed, and more."""
    if entry.sources is None or any(source and source.start is None for source in entry.sources):
        return ()
    planned = batch.batch_id
    repeat = (
        f"Or have the query repeat what is committed and then go on, with its state: delete `offsets/{planned}` (on a "
        f"local disk also `offsets/.{planned}.crc`) from the checkpoint (this batch is planned, and nothing of it is "
        "committed), set this sink's sink.kafka.transactional.id on the kafka-eos source, which then plans up to the "
        f"ledger's end, and set resolve='skip-to:{name_of(entry)}' on the sink."
    )
    return (repeat,)


def _batches(first: int, last: int) -> str:
    return f"batch {first} is" if first == last else f"batches {first} to {last} are"
