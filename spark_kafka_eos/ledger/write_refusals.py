"""Refusals of a batch job's write, which has a txnAppId and a txnVersion. Pure."""

from __future__ import annotations

from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.remedies import lost_records
from spark_kafka_eos.micro_batch import MicroBatch


def other_job(entry: LedgerEntry, write: MicroBatch) -> Refuse:
    """The entry is that of another txnAppId, or of a query."""
    return Refuse(
        reason=f"the last write under this transactional.id was version {entry.batch_id} of {entry.query_id!r}, "
        f"but this one has txnAppId {write.query_id!r}",
        meaning="The ledger only records the writes of one txnAppId, so it is unknown whether this one was committed "
        "before",
        actions=("Set a different `kafka.transactional.id` for each txnAppId.",),
        resolutions=("write", "skip"),
    )


def unknown_destination(write: MicroBatch) -> Refuse:
    """An earlier release did not record where its writes went."""
    return Refuse(
        reason=f"txnVersion {write.batch_id} is not greater than the last one that an earlier release has written, "
        "without recording to which topics",
        meaning="It is unknown whether this write is committed",
        actions=(),
        resolutions=("write", "skip"),
    )


def below(write: MicroBatch, last: int) -> Refuse:
    """A lower version than the last one, which is not known to have run."""
    return Refuse(
        reason=f"txnVersion {write.batch_id} is lower than {last}, the last one that was written to this destination, "
        "and it is not known to be written",
        meaning="Versions may be skipped, so it is unknown whether this write is late or runs again",
        actions=("Give each write a higher version than the one before.",),
        resolutions=("write", "skip"),
    )


def other_topics(write: MicroBatch, before: str, now: str) -> Refuse:
    """The same version went to other topics, which its rows named: `before` are those, `now` these, "" without rows."""
    had = f"with rows for {before}" if before else "without rows"
    has = f"it has rows for {now}" if now else "it has none"
    return Refuse(
        reason=f"txnVersion {write.batch_id} is committed, {had}, and now {has}",
        meaning="It is unknown whether this is the same write with other rows, or another write",
        actions=(
            (
                "Set the option topic or outputTopics, which say where a write goes; or give each write a version of "
                "its own."
            ),
        ),
        resolutions=("write", "skip"),
    )


def topics_created_again(write: MicroBatch) -> Refuse:
    """The same version went to the same names, and not all of these are the same topics."""
    return Refuse(
        reason=f"txnVersion {write.batch_id} is committed, but since then, some of its topics were created again, and "
        "some were not",
        meaning="The new ones do not have it; the others have it, and would have it twice",
        actions=("Write it under another txnAppId to the topics that were created again only.",),
        resolutions=("write", "skip"),
    )


def incomplete_write(entry: LedgerEntry, *, is_same: bool) -> Refuse:
    """Some of what the entry's version should have written is not in the output; `is_same`: it is written again."""
    version, lost = entry.batch_id, lost_records(entry) or "the error of that write says what is lost"
    return Refuse(
        reason=f"version {version} of {entry.query_id!r} is incomplete: an output topic was deleted while it was "
        f"committed; {lost}",
        meaning="Everything else that it wrote is in the output" + (", and would be there twice" if is_same else ""),
        actions=("Write what is missing under another txnAppId, and delete no topic while a job writes it.",),
        resolutions=("write", "skip") if is_same else ("write",),
    )


def too_many_destinations(write: MicroBatch, most: int) -> Refuse:
    """The entry has no room for another destination."""
    return Refuse(
        reason=f"txnAppId {write.query_id!r} has written to {most} destinations, as many as the ledger remembers",
        meaning="A further one could not be recognised when it is written again",
        actions=("Choose another txnAppId and another `kafka.transactional.id` for further destinations.",),
    )
