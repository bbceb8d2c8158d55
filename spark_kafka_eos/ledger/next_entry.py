"""The entry that a batch adds to the ledger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_kafka_eos.ledger.entry import (
    BatchCounts,
    LedgerEntry,
    SourceProgress,
    UnreadableEntry,
    runs_before,
    source_topic_ids,
)
from spark_kafka_eos.ledger.write_verdicts import written as versions_after
from spark_kafka_eos.micro_batch import MicroBatch


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
    # Also by buckets that run on, and of topics that are no longer read.
    begun = {} if last is None else last.begun
    begun_topics = {} if last is None or not begun else source_topic_ids(last)
    return LedgerEntry(
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        digest=batch.digest,
        serial=1 + (0 if entry is None else entry.serial),
        run_id=batch.run_id,
        earlier_runs=runs_before(last, batch.run_id),
        outputs={name: topic_id if topic_id.int else None for name, topic_id in sorted(outputs.items())},
        sources=tuple(
            None
            if source is None
            else SourceProgress(
                cluster=cluster,
                offsets=source.end if batch.buckets is None else {**begun, **source.end},
                origin=source.origin and replace(source.origin, topic_ids={**begun_topics, **source.origin.topic_ids}),
                start=source.start,
            )
            for cluster, source in zip(clusters, batch.sources, strict=True)
        ),
        writes=versions_after(last, batch) if batch.destination else None,
        incomplete=incomplete,
        # Of an incomplete batch, that of the last one: its own rows may not be in the table.
        table=last.table if incomplete and last is not None else table,
        transaction_version=transaction_version,
        written=written,
        buckets=batch.buckets,
        group=None if batch.buckets is None else group,
    )
