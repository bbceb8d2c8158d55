"""The JSON of `kafka-eos query --json`."""

from __future__ import annotations

from typing import Any

from spark_kafka_eos.kafka.partitions import offsets_to_json
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.ledger.entry import LedgerEntry, MovedLedger, SourceProgress, UnreadableEntry
from spark_kafka_eos.tools.cli.outputs import outputs_json
from spark_kafka_eos.tools.cli.query_tables import Snapshot
from spark_kafka_eos.tools.cli.table import (
    table_json,
)
from spark_kafka_eos.tools.operators.status import Copies, PartitionLag, QueryStatus, RecordedEntry, SourceLag


def query_json(status: QueryStatus, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "transactional_id": status.transactional_id,
        "ledger_topic": status.ledger_topic,
        "last_commit": None if status.last is None else commit_json(status.last),
        "pending": None if status.pending is None else commit_json(status.pending),
        **lag_json(status, snapshot.now_ms),
        "owner": _owner_json(status.owner),
        **buckets_json(status, snapshot.now_ms),
    }


def show_json(snapshot: Snapshot) -> dict[str, Any]:
    table = {} if snapshot.table is None else {"table": table_json(snapshot.table)}
    written = {"outputs": outputs_json(snapshot.written)}
    return {**query_json(snapshot.status, snapshot), **written, **copies_json(snapshot.copies), **table}


def ledger_json(snapshot: Snapshot) -> dict[str, Any]:
    at = snapshot.queries[0].last if snapshot.queries else None
    return {"commit": None if at is None else commit_json(at), **copies_json(snapshot.copies)}


def copies_json(copies: Copies | None) -> dict[str, Any]:
    if copies is None:
        return {}
    sides = {"record": copies.record, "pointer": copies.pointer}
    entries = {name: None if entry is None else entry_json(entry) for name, entry in sides.items()}
    return {"ledger": {**entries, "agreement": copies.agreement}}


def lag_json(status: QueryStatus, now_ms: int) -> dict[str, Any]:
    sources = [None if source is None else _source_json(source, now_ms) for source in status.sources]
    totals = {"unread": status.unread, "held": status.held, "lost": status.lost, "late_ms": status.late_ms(now_ms)}
    return {"at_ms": now_ms, **totals, "sources": sources}


def buckets_json(status: QueryStatus, now_ms: int) -> dict[str, Any]:
    """The buckets of a query in real time, and their group."""
    if not status.buckets:
        return {}
    buckets = []
    for bucket in status.buckets:
        part = status.of_bucket(bucket.number)
        partitions = [tp for source in part.sources if source is not None for tp in source.all_partitions]
        buckets.append(
            {
                "number": bucket.number,
                "transactional_id": bucket.transactional_id,
                "owner": _owner_json(bucket.owner),
                "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions],
                "unread": part.unread,
                "held": part.held,
                "late_ms": part.late_ms(now_ms),
            }
        )
    return {"group": status.group, "buckets": buckets}


def _source_json(source: SourceLag, now_ms: int) -> dict[str, Any]:
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "committed": source.offsets.get(tp)}
        | (_partition_json(source.partitions[tp], now_ms) if tp in source.partitions else {})
        | ({"unknown": source.unknown[tp]} if tp in source.unknown else {})
        for tp in source.all_partitions
    ]
    return {"cluster": source.cluster, "partitions": partitions}


def _partition_json(lag: PartitionLag, now_ms: int) -> dict[str, Any]:
    return {
        "earliest": lag.earliest,
        "last_stable_offset": lag.log_ends.last_stable_offset,
        "high_watermark": lag.log_ends.high_watermark,
        "unread": lag.unread,
        "held": lag.held,
        "lost": lag.lost,
        "oldest_unread_ms": lag.oldest_unread_ms,
        "late_ms": lag.late_ms(now_ms),
    }


def commit_json(commit: RecordedEntry) -> dict[str, Any]:
    record = commit.record
    place = {"offset": record.offset, "at_ms": record.timestamp_ms}
    return {**place, "producer_id": record.producer_id, "epoch": record.epoch, **entry_json(commit.entry)}


def entry_json(entry: LedgerEntry | MovedLedger | UnreadableEntry) -> dict[str, Any]:
    if isinstance(entry, UnreadableEntry):
        return {"unreadable": entry.description}
    if isinstance(entry, MovedLedger):
        return {"serial": entry.serial, "moved": entry.topic}
    written = entry.written
    return {
        "query_id": entry.query_id,
        "batch_id": entry.batch_id,
        "digest": entry.digest,
        "serial": entry.serial,
        "run_id": entry.run_id,
        "outputs": {name: topic_id and str(topic_id) for name, topic_id in entry.outputs.items()},
        "writes": None if entry.writes is None else dict(entry.writes),
        "incomplete": entry.incomplete,
        "table": entry.table,
        "transaction_version": entry.transaction_version,
        "records": None if written is None else written.records,
        "dead_letters": None if written is None else written.dead_letters,
        "lost": None if written is None else dict(written.lost),
        "bytes": None if written is None else written.bytes,
        "milliseconds": None if written is None else written.milliseconds,
        "sources": None if entry.ends is None else [
            source and _progress_json(source) for source in entry.ends
        ],
        "buckets": entry.buckets,
        "group": entry.group,
        "starts": list(entry.starts),
        "left": None if entry.left is None else _progress_json(entry.left),
    }  # fmt: skip


def _progress_json(source: SourceProgress) -> dict[str, Any]:
    return {"cluster": source.cluster, "offsets": offsets_to_json(source.offsets)}


def _owner_json(owner: TransactionFacts | Unavailable | None) -> dict[str, Any] | None:
    match owner:
        case TransactionFacts():
            owner_fields = {"producer_id": owner.producer_id, "epoch": owner.epoch, "state": owner.state}
            return {**owner_fields, "timeout_ms": owner.timeout_ms, "started_ms": owner.started_ms}
        case Unavailable():
            return {"unknown": owner.reason}
    return None
