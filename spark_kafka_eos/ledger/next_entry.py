"""The entry that a batch adds to the ledger. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry, SourceProgress, UnreadableEntry, runs_before
from spark_kafka_eos.ledger.write_verdicts import written as versions_after
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.source_offset import Origin


def next_entry(
    entry: LedgerEntry | UnreadableEntry | None,
    batch: MicroBatch,
    clusters: Sequence[str],
    *,
    incomplete: bool,
    written: BatchCounts | None,
    table: int | None,
    transaction_version: int,
    group: str,
) -> LedgerEntry:
    """The entry of `batch`, to be committed after `entry`. `clusters` has the cluster id of each of its sources,
    `group` is where their offsets are committed.
    """
    outputs = {} if written is None else written.topic_ids
    last = entry if isinstance(entry, LedgerEntry) else None
    serial = 1 + (0 if entry is None else entry.serial)
    sources = tuple(
        None
        if source is None
        else SourceProgress(cluster=cluster, offsets=source.end, origin=source.origin, start=source.start)
        for cluster, source in zip(clusters, batch.sources, strict=True)
    )
    # Partitions of buckets that run on, and of topics that are no longer read.
    in_real_time = batch.buckets is not None
    others = None if last is None else _without(_all_ended(last, clusters) if in_real_time else last.begun, sources)
    if in_real_time and others is not None:
        sources, others = tuple(source and _with(source, others) for source in sources), None
    return LedgerEntry(
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        digest=batch.digest,
        serial=serial,
        run_id=batch.run_id,
        earlier_runs=runs_before(last, batch.run_id),
        outputs={name: topic_id if topic_id.int else None for name, topic_id in sorted(outputs.items())},
        sources=sources,
        writes=versions_after(last, batch) if batch.destination else None,
        incomplete=incomplete,
        # Of an incomplete batch, that of the last one: its own rows may not be in the table.
        table=last.table if incomplete and last is not None else table,
        transaction_version=transaction_version,
        written=written,
        buckets=batch.buckets,
        group=None if batch.buckets is None else group,
        starts=_starts(last, batch, serial),
        left=others,
    )


def _starts(last: LedgerEntry | None, batch: MicroBatch, serial: int) -> tuple[int, ...]:
    if last is None or batch.buckets is None or batch.started is None:
        return ()
    return tuple(serial if number in batch.started else last.started_by(number) for number in range(batch.buckets))


def _all_ended(last: LedgerEntry, clusters: Sequence[str]) -> SourceProgress | None:
    """What a batch in real time, with sources of these clusters, goes on with: what was begun in real time, and where
    micro-batches have ended, without leader epochs. These are of when it was planned, which need not be those of the
    records.
    """
    ends = [source for source in last.ends or () if source is not None and source.cluster in clusters]
    origins = [Origin(cluster=each.cluster) if each.origin is None else each.origin for each in ends]
    ended = [
        replace(source, origin=replace(origin, leader_epochs={}), start=None)
        for source, origin in zip(ends, origins, strict=True)
    ]
    every = [*([] if last.begun is None else [last.begun]), *ended]
    return functools.reduce(lambda others, source: _with(source, others), every) if every else None


def _without(begun: SourceProgress | None, sources: Iterable[SourceProgress | None]) -> SourceProgress | None:
    """What was begun in real time and is not in these sources; None if that is nothing."""
    if begun is None:
        return None
    read = {tp for source in sources if source is not None and source.cluster == begun.cluster for tp in source.offsets}
    offsets = {tp: at for tp, at in begun.offsets.items() if tp not in read}
    if not offsets:
        return None
    topics, origin = {tp.topic for tp in offsets}, begun.origin
    if origin is not None:
        ids = {name: topic_id for name, topic_id in origin.topic_ids.items() if name in topics}
        epochs = {tp: epoch for tp, epoch in origin.leader_epochs.items() if tp in offsets}
        origin = replace(origin, topic_ids=ids, leader_epochs=epochs)
    return SourceProgress(cluster=begun.cluster, offsets=offsets, origin=origin)


def _with(source: SourceProgress, others: SourceProgress) -> SourceProgress:
    """The source with these partitions, too."""
    origin = source.origin
    if origin is not None and others.origin is not None:
        ids = {**others.origin.topic_ids, **origin.topic_ids}
        epochs = {**others.origin.leader_epochs, **origin.leader_epochs}
        origin = replace(origin, topic_ids=ids, leader_epochs=epochs)
    return replace(source, offsets={**others.offsets, **source.offsets}, origin=origin)
