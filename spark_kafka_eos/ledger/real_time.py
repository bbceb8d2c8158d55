"""The verdict on a batch in real time, whose tasks commit by themselves (`real_time`). Pure.

Where its partitions are read on, the buckets' records say (`bucket_record`): each transaction moves that together with
its records. So a batch is never skipped, and its number does not matter. And no word of the operator says `write` or
`skip` of a batch: where there are no such records yet, micro-batches take these words.

Of an entry and a bucket's record, the later one counts, not the higher offset: micro-batches may have read from an
earlier one since, and a log may have been truncated. A driver takes the buckets before it commits the entry that starts
them, so of each bucket all earlier records are before that entry, and all later ones have its serial.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger import batch_refusals, query_refusals, verdicts
from spark_kafka_eos.ledger.bucket_record import BucketRecord, latest
from spark_kafka_eos.ledger.decide import Decide, identity_of
from spark_kafka_eos.ledger.ends import CommittedEnd, CommittedOffsets
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress, UnreadableEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.remedies import BY_MISTAKE, RESTORE_LEDGER
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.source_offset import SinkIdentity

_GOES_ON = "in real time, each partition goes on where its bucket has ended"
_IN_MICRO_BATCHES = (
    "Start the query once in micro-batches, without `real_time`, with this checkpoint: its refusal names the words of "
    "`resolve` with which you can state what is true. When it has committed a batch, stop it and start it in real time "
    "again: it goes on there."
)
_BY_A_COPY = (
    "Or find out how far the query came, for example from the output (of a run in real time, the group has a copy, "
    "which may be a second late), and start there: with startingOffsets, and a new checkpointLocation."
)
_BY_HAND = (
    "If neither is possible, find out how far the query came, for example from the output, and go on under another "
    "kafka.transactional.id."
)


def decide_in_real_time(options: SinkOptions) -> Decide:
    """The verdict on a streaming query's batches in real time."""
    return functools.partial(
        decide, sink=identity_of(options), take_over=options.take_over_query, resolve=options.resolve
    )


def decide(
    entry: LedgerEntry | UnreadableEntry | None,
    batch: MicroBatch,
    committed: CommittedOffsets | None = None,
    *,
    clusters: Sequence[str] = (),
    own: str = "",
    other_ids: Sequence[str] = (),
    ours: bool = False,
    sink: SinkIdentity,
    take_over: str | None = None,
    resolve: str | None = None,
    **_: object,
) -> verdicts.Verdict:
    """What to do with a batch: write or refuse. The arguments are those of `verdicts.decide`; but of an entry's id,
    `committed` has only those of the group's offsets that its transactions have committed.
    """
    if isinstance(entry, UnreadableEntry):
        return _without_words(query_refusals.unreadable(entry), _BY_HAND)
    if entry is not None and entry.query_id == batch.query_id:
        if entry.incomplete:
            return _without_words(batch_refusals.incomplete(entry, batch), _IN_MICRO_BATCHES)
        return verdicts.Write(reason=_GOES_ON)
    taken = verdicts.taken_by_word(entry, batch, replace(sink, cluster=own), other_ids, resolve)
    if isinstance(taken, Refuse):
        return taken
    ended = CommittedEnd.of(entry, batch, clusters, own, committed)
    return verdicts.after_words(_of_new_query(entry, batch, ended, own, ours, take_over), taken)


def _of_new_query(
    entry: LedgerEntry | None,
    batch: MicroBatch,
    ended: CommittedEnd,
    own: str,
    ours: bool,
    take_over: str | None,
) -> verdicts.Verdict:
    """The verdict on a batch of a query that has no entry."""
    if batch.batch_id > 0:
        if entry is not None:
            return _without_words(query_refusals.shared_id(entry, batch))
        refusal = query_refusals.never_written(batch, ended.discontinuity())
        return replace(refusal, actions=(BY_MISTAKE, _IN_MICRO_BATCHES), resolutions=())
    if entry is None:
        verdict = verdicts.without_entry(batch, ended, ours=ours)
        if not isinstance(verdict, Refuse):
            return verdict
        return replace(verdict, actions=(RESTORE_LEDGER, _BY_A_COPY, _IN_MICRO_BATCHES), resolutions=())
    if entry.query_id == take_over:
        return verdicts.taken_over(entry)
    # Of what other buckets have begun to read, an offset may be missing for now: real_time.driver looks into that.
    known = _begun(entry) | ended.known_on(own)
    unknown = sorted(tp for tp in batch.end if tp not in known and not is_new(entry, batch, tp))
    if unknown:
        why = f"no committed offset of {unknown[0]} is known"
        return _without_words(query_refusals.elsewhere(entry, batch, why))
    if entry.incomplete:
        return _without_words(query_refusals.incomplete(entry, batch))
    return verdicts.Write(reason=_GOES_ON)


def _without_words(refusal: Refuse, *actions: str) -> Refuse:
    """The refusal of micro-batches, with these further actions instead of its words."""
    return replace(refusal, actions=(*refusal.actions, *actions), resolutions=())


def is_new(entry: LedgerEntry, batch: MicroBatch, partition: TopicPartition) -> bool:
    """Whether a partition that the batch reads from its beginning was added after the entry's query had read its
    topic: partitions are only added at the end, and the entry names all that the query has begun to read.
    """
    offsets = (source.offsets for source in (*(entry.sources or ()), entry.left) if source is not None)
    numbers = [tp.partition for part in offsets for tp in part if tp.topic == partition.topic]
    return bool(numbers) and partition.partition > max(numbers) and (batch.start or {}).get(partition) == 0


def _begun(entry: LedgerEntry) -> set[TopicPartition]:
    return set() if entry.begun is None else set(entry.begun.offsets)


def left_out(entry: LedgerEntry | UnreadableEntry | None, batch: MicroBatch) -> set[TopicPartition]:
    """The partitions that were begun in real time and that the batch does not read."""
    return _begun(entry) - batch.end.keys() if isinstance(entry, LedgerEntry) else set()


def said(
    entry: LedgerEntry | UnreadableEntry | None, own: str, records: Mapping[int, BucketRecord]
) -> list[BucketRecord]:
    """What is said of where partitions of the cluster with the id `own` are read on, the later after the earlier: by
    the entry, where micro-batches ended or buckets began, and by those of the buckets' last `records`, by their
    numbers, that are not older than it.
    """
    if not isinstance(entry, LedgerEntry):
        return list(records.values())
    read = entry.ends or ()
    by_entry = [
        _record(entry, source) for source in (*read, entry.begun) if source is not None and source.cluster == own
    ]
    return by_entry + [record for number, record in records.items() if record.serial >= entry.started_by(number)]


def impossible(entry: LedgerEntry | UnreadableEntry | None, records: Mapping[int, BucketRecord]) -> int | None:
    """The number of a bucket whose record was started by a later commit than the last `entry`, as its owner has read
    both; None if there is none. Then commits were numbered anew, and which of both is the later one is unknown.
    """
    started = {number: _last_start(entry, number) for number in records}
    return next((number for number, record in sorted(records.items()) if record.serial > started[number]), None)


def _last_start(entry: LedgerEntry | UnreadableEntry | None, bucket: int) -> int:
    """The highest serial that a record of this bucket can have."""
    if not isinstance(entry, LedgerEntry):
        return 0
    if entry.buckets is None or bucket >= entry.buckets:
        return entry.serial - 1
    return entry.started_by(bucket) or entry.serial


def _record(entry: LedgerEntry, source: SourceProgress) -> BucketRecord:
    origin = source.origin
    # Micro-batches have the epochs of when they were planned, which need not be those of records.
    epochs = origin.leader_epochs if origin is not None and source is entry.begun else {}
    ids = {} if origin is None else origin.topic_ids
    return BucketRecord(serial=entry.serial, offsets=source.offsets, topic_ids=ids, epochs=epochs)


def with_records(entry: LedgerEntry, records: Mapping[int, BucketRecord]) -> LedgerEntry:
    """The entry of a query in real time with where its buckets have ended by these records, not where they began."""
    return entry if entry.begun is None else with_ends(entry, latest(said(entry, entry.begun.cluster, records)))


def with_ends(entry: LedgerEntry, ends: BucketRecord) -> LedgerEntry:
    """The entry of a query in real time with these ends, which its buckets have committed, instead of where they began.
    Other partitions of `ends` are left out.
    """
    return replace(entry, sources=tuple(source and _ended(source, ends) for source in entry.sources or ()))


def _ended(source: SourceProgress, ends: BucketRecord) -> SourceProgress:
    moved = {tp: at for tp, at in ends.offsets.items() if tp in source.offsets}
    origin = source.origin
    if origin is not None:
        kept = {tp: epoch for tp, epoch in origin.leader_epochs.items() if tp not in moved}
        epochs = {tp: epoch for tp, epoch in ends.epochs.items() if tp in moved}
        origin = replace(origin, leader_epochs=kept | epochs)
    return replace(source, offsets={**source.offsets, **moved}, origin=origin)
