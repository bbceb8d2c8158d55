"""Decides from the ledger whether a batch job's write is written, skipped or refused. Pure.

A batch write is known by txnAppId, txnVersion and its destination: the topics that the options name, or else those that
its rows name, with their ids. Another destination is another write, so several may have the same version. But if only
some of its topics were created again, the others have the version. An incomplete version stops all that are not written
yet, until the operator decides.
"""

from __future__ import annotations

from spark_kafka_eos.ledger import query_refusals, versions, write_refusals
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.refusal import Refuse, name_of
from spark_kafka_eos.ledger.verdicts import Skip, Verdict, Write, resolved
from spark_kafka_eos.micro_batch import MicroBatch

MOST_DESTINATIONS = 1_000
# The destination of writes of earlier releases, which did not record it; no topic has this name.
UNKNOWN_DESTINATION = "?"
NAMED_BY_ROWS = "*"  # before the topics of a destination that rows have named


def decide_batch_write(
    entry: LedgerEntry | UnreadableEntry | None, write: MicroBatch, *, resolve: str | None = None
) -> Verdict:
    """What to do with a batch write with `txnAppId` (query id) and `txnVersion` (batch id) to its destination.

    A version that is known to be written there is skipped, and a higher one than all of these is written. Versions need
    not be consecutive.
    """
    verdict = _decide_batch_write(entry, write)
    return resolved(verdict, f"{name_of(entry)}/{name_of(write)}", resolve) if isinstance(verdict, Refuse) else verdict


def written(entry: LedgerEntry | None, write: MicroBatch) -> dict[str, str]:
    """The versions of each destination, once `write` is committed after `entry`."""
    before = {} if entry is None or entry.query_id != write.query_id else _writes(entry)
    return {**before, write.destination: versions.added(before.get(write.destination, ""), write.batch_id)}


def _writes(entry: LedgerEntry) -> dict[str, str]:
    """The versions of each destination; of earlier releases it is only known that there were none above the last."""
    return {UNKNOWN_DESTINATION: f"0-{entry.batch_id}"} if entry.writes is None else dict(entry.writes)


def _decide_batch_write(entry: LedgerEntry | UnreadableEntry | None, write: MicroBatch) -> Verdict:
    if entry is None:
        return Write(reason="nothing has been committed under this transactional.id")
    if isinstance(entry, UnreadableEntry):
        return query_refusals.unreadable(entry)
    if entry.query_id != write.query_id:
        return write_refusals.other_job(entry, write)
    version, destinations = write.batch_id, _writes(entry)
    committed = destinations.get(write.destination, "")
    is_incomplete = entry.incomplete and entry.digest == write.digest
    if versions.contains(committed, version) and not is_incomplete:
        return Skip(reason=f"txnVersion {version} is committed to this destination")
    if entry.incomplete:
        return write_refusals.incomplete_write(entry, is_same=is_incomplete)
    if any(
        versions.contains(destinations[name], version) for name in destinations if _overlap(name, write.destination)
    ):
        return write_refusals.topics_created_again(write)
    if write.destination.startswith(NAMED_BY_ROWS):
        others = (name for name in destinations if name.startswith(NAMED_BY_ROWS))
        if other := next((name for name in others if versions.contains(destinations[name], version)), None):
            before, now = (name.removeprefix(NAMED_BY_ROWS) for name in (other, write.destination))
            return write_refusals.other_topics(write, before, now)
    if versions.contains(destinations.get(UNKNOWN_DESTINATION, ""), version):
        return write_refusals.unknown_destination(write)
    if version < versions.last(committed):
        return write_refusals.below(write, versions.last(committed))
    if not committed and len(destinations) >= MOST_DESTINATIONS:
        return write_refusals.too_many_destinations(write, MOST_DESTINATIONS)
    return Write(reason=f"txnVersion {version} is not written to this destination yet")


def _overlap(destination: str, other: str) -> bool:
    """Whether two destinations have the same names, and some of the topics are the same and some are not."""
    topics, others = (text.removeprefix(NAMED_BY_ROWS).split(",") for text in (destination, other))
    names, other_names = ([topic.partition("@")[0] for topic in listing] for listing in (topics, others))
    return names == other_names and not set(topics).isdisjoint(others) and topics != others
