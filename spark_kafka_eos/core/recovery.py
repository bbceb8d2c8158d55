"""Write, skip or refuse: what a (re)started batch must do, given the ledger. A pure function, scenario by scenario.

| the ledger says | the batch | verdict |
|---|---|---|
| nothing | 0 | write: the first batch under this transactional.id |
| nothing | > 0 | refuse: the ledger expired, was deleted, or is looked for in the wrong place |
| this query, the batch before | n | write: the normal course |
| this query, this batch, same range | n | skip: committed, then the driver died before Spark noted it |
| this query, this batch, another range | n | refuse: the checkpoint planned this batch anew |
| this query, an earlier batch | n | refuse: batches in between were never committed here |
| this query, a later batch | n | refuse: the checkpoint was rewound, or this driver is a zombie |
| another query | 0, starting exactly at the group's committed offsets | write: a lost checkpoint goes on |
| another query | 0, starting there but planned to end before | refuse: this checkpoint was left behind |
| another query, named in `takeOverQuery` | 0 | write: the operator says that this query goes on where that one ended |
| another query | 0, starting elsewhere, or nobody can tell where | refuse |
| another query | > 0 | refuse: two queries share a transactional.id |

"Starting exactly at the group's committed offsets" holds when at least one source partition has a committed offset,
each one that has starts there, and each one that has none is new and starts at offset 0: partitions are only ever added
at a topic's end, so the number of a new one is above all that the group knows of its topic. A topic of which the group
knows nothing is not taken for a new one: its offsets may have been deleted, and reading it again would repeat it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_kafka_eos.model import LedgerEntry, MicroBatch, Offsets, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """The batch is not committed and follows what is: write it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Exactly this batch is committed: write nothing and let Spark note it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Going on could lose or repeat data: what was found (`reason`), what it means for the data, what resolves it."""

    reason: str
    meaning: str
    action: str


Verdict = Write | Skip | Refuse
CommittedOffsets = Mapping[TopicPartition, int | None]

_RESUME = (
    "start the query with a new checkpointLocation and startingOffsets=committed: it goes on exactly where the last "
    "committed transaction ended (a stateful query loses its state with the checkpoint)"
)
_OWN_ID = "give each query its own `kafka.transactional.id`"


def decide(
    entry: LedgerEntry | None,
    batch: MicroBatch,
    committed: CommittedOffsets | None,
    *,
    take_over: str | None = None,
) -> Verdict:
    """What to do with a micro-batch. `committed` are the group's offsets of the batch's partitions (None: has none).

    `take_over` is the id of a query that this one continues on its operator's word.
    """
    if entry is None:
        return _without_entry(batch, committed)
    if entry.query_id == batch.query_id:
        return _own_entry(entry, batch)
    if batch.batch_id == 0 and entry.query_id == take_over:
        return Write(reason=f"takeOverQuery says that this query goes on where {take_over} ended")
    return _foreign_entry(entry, batch, committed)


def decide_batch_write(entry: LedgerEntry | None, write: MicroBatch) -> Verdict:
    """What to do with a batch write of `txnAppId` (query id) and `txnVersion` (batch id), by Delta's rule.

    A version not above the last committed one is skipped; versions need not be consecutive and have no offsets.
    """
    if entry is None:
        return Write(reason="nothing was committed under this transactional.id before")
    if entry.query_id != write.query_id:
        return Refuse(
            reason=f"the last write under this transactional.id was version {entry.batch_id} of {entry.query_id!r}, "
            f"this one belongs to txnAppId {write.query_id!r}",
            meaning="The ledger remembers the last write only, so whether this one was committed before cannot be told",
            action="Give each txnAppId its own `kafka.transactional.id`.",
        )
    if write.batch_id <= entry.batch_id:
        return Skip(reason=f"txnVersion {write.batch_id} is not above the committed version {entry.batch_id}")
    return Write(reason=f"txnVersion {write.batch_id} follows the committed version {entry.batch_id}")


def _without_entry(batch: MicroBatch, committed: CommittedOffsets | None) -> Verdict:
    if batch.batch_id == 0:
        return Write(reason="the first batch under this transactional.id")
    fits = "" if _why_not_resuming(batch.start, committed) else " (the group's committed offsets equal its start)"
    return Refuse(
        reason=f"the ledger has no entry, but the checkpoint is at batch {batch.batch_id}",
        meaning="The entry expired (`offsets.retention.minutes`, 7 days by default), was deleted, or was written under "
        "another transactional.id or ledgerTopic; whether this batch is already committed cannot be told",
        action="If `kafka.transactional.id`, `topic`, `outputTopics` or `ledgerTopic` changed since the last run, "
        f"change it back. Otherwise {_RESUME}{fits}; where the group's offsets expired too, give startingOffsets as "
        "JSON.",
    )


def _own_entry(entry: LedgerEntry, batch: MicroBatch) -> Verdict:
    if entry.batch_id == batch.batch_id - 1:
        return Write(reason=f"batch {entry.batch_id} is committed, this is the next one")
    if entry.batch_id == batch.batch_id and entry.digest == batch.digest:
        return Skip(reason=f"batch {batch.batch_id} with exactly these offsets is already committed")
    if entry.batch_id == batch.batch_id:
        return Refuse(
            reason=f"batch {batch.batch_id} is committed, but with other source offsets than the checkpoint now says "
            f"(digest {entry.digest}, now {batch.digest})",
            meaning="The checkpoint lost this batch's offsets or was restored from an older copy, and the batch was "
            "planned anew; writing it would repeat the records of the committed one",
            action=f"Restore the newest checkpoint, or {_RESUME}.",
        )
    if entry.batch_id < batch.batch_id:
        missing = _batches(entry.batch_id + 1, batch.batch_id - 1)
        return Refuse(
            reason=f"the last committed batch is {entry.batch_id}, but the checkpoint is at batch {batch.batch_id}",
            meaning=f"The checkpoint says that {missing} done, yet under this transactional.id nothing of it was "
            "committed: it was written to another sink, cluster or transactional.id, or the ledger was set back",
            action="Go back to the sink options of the last run. If the missing output is to be written here, "
            f"{_RESUME}.",
        )
    return Refuse(
        reason=f"the last committed batch is {entry.batch_id}, but this driver is at batch {batch.batch_id}",
        meaning="The checkpoint was restored from an older copy, or this driver was overtaken by a newer one; "
        f"{_batches(batch.batch_id, entry.batch_id)} committed, and writing it again would repeat it",
        action="If another driver runs this query, stop this one. Otherwise restore the newest checkpoint, or "
        f"{_RESUME}.",
    )


def _foreign_entry(entry: LedgerEntry, batch: MicroBatch, committed: CommittedOffsets | None) -> Verdict:
    found = f"the last commit under this transactional.id is batch {entry.batch_id} of query {entry.query_id}"
    if batch.batch_id > 0:
        return Refuse(
            reason=f"{found}, but this is batch {batch.batch_id} of query {batch.query_id}",
            meaning="Two queries use the same transactional.id, or this checkpoint was replaced by another one since; "
            "whether this batch is already committed cannot be told",
            action=f"If both queries are to run, {_OWN_ID}. If this one takes over from the other, {_RESUME}.",
        )
    if not batch.start:
        unknown = "whose first offsets the sink cannot see" if batch.start is None else "without a Kafka source"
        return Refuse(
            reason=f"{found}, and this is a new query {batch.query_id} {unknown}",
            meaning="Nobody can tell whether it starts where the other one ended; it could repeat or lose some",
            action=f"If it does, say so with takeOverQuery={entry.query_id} (a Kafka source with "
            "startingOffsets=committed does). Otherwise choose another `kafka.transactional.id` for the new query, or "
            "restore the old query's checkpoint.",
        )
    obstacle = _why_not_resuming(batch.start, committed)
    behind = [tp for tp in sorted(batch.start) if batch.end.get(tp, batch.start[tp]) < batch.start[tp]]
    if obstacle is None and behind:
        shown = _some(f"{tp} at {batch.end[tp]} (starts at {batch.start[tp]})" for tp in behind)
        return Refuse(
            reason=f"{found}, and batch 0 of query {batch.query_id} was planned before that: it ends before the "
            f"committed offsets, {shown}",
            meaning="Its records are committed already. Its own commit would set the group's offsets back, and the "
            "next batch would repeat what follows them",
            action=f"This checkpoint was left behind by another one: {_RESUME}.",
        )
    if obstacle is None:
        return Write(reason=f"{found}; this query starts exactly where it ended")
    return Refuse(
        reason=f"{found}, and the new query {batch.query_id} does not start where it ended: {obstacle}",
        meaning="Starting earlier repeats records in the output, starting later leaves some out",
        action="To go on where the last transaction ended, use a new checkpointLocation with "
        f"startingOffsets=committed. If this is another pipeline, {_OWN_ID}.",
    )


def _why_not_resuming(start: Offsets | None, committed: CommittedOffsets | None) -> str | None:
    """Why a batch at `start` does not follow the group's committed offsets exactly; None if it does."""
    start = start or {}
    known = {tp: offset for tp, offset in (committed or {}).items() if offset is not None and tp in start}
    if not known:
        return "the group has no committed offsets for its partitions"
    moved = [tp for tp in sorted(known) if known[tp] != start[tp]]
    if moved:
        return _some(f"{tp} at {start[tp]} (committed {known[tp]})" for tp in moved)
    last_known: dict[str, int] = {}
    for tp in known:
        last_known[tp.topic] = max(tp.partition, last_known.get(tp.topic, -1))
    for tp in sorted(start.keys() - known.keys()):
        if tp.topic not in last_known:
            return (
                f"the group knows nothing of topic {tp.topic} (if it is new, commit its starting offsets to the group)"
            )
        if tp.partition < last_known[tp.topic]:
            return f"the group has no committed offset for {tp}, which is not a new partition"
        if start[tp] != 0:
            return f"the new partition {tp} starts at {start[tp]}, not at its beginning"
    return None


def _some(items: Iterable[str]) -> str:
    shown = list(items)
    return ", ".join(shown[:3]) + (" and others" if len(shown) > 3 else "")


def _batches(first: int, last: int) -> str:
    return f"batch {first} is" if first == last else f"batches {first} to {last} are"
