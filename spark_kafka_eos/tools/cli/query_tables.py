"""Tables and texts of `kafka-eos query`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Column, Table

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.kafka.words import duration
from spark_kafka_eos.ledger.entry import LedgerEntry, MovedLedger, UnreadableEntry
from spark_kafka_eos.ledger.records import LedgerRecord
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.options.sink import LEDGER_GROUP
from spark_kafka_eos.participants.diagnosis import TableDiagnosis
from spark_kafka_eos.real_time.buckets import bucket_of
from spark_kafka_eos.tools.cli.outputs import output_lines
from spark_kafka_eos.tools.cli.refusal import owner_words, state_words
from spark_kafka_eos.tools.cli.shown import moment, size
from spark_kafka_eos.tools.cli.table import (
    table_lines,
)
from spark_kafka_eos.tools.cli.terminal import Text
from spark_kafka_eos.tools.operators.outputs import Output
from spark_kafka_eos.tools.operators.queries import QueryReader
from spark_kafka_eos.tools.operators.status import Copies, QueryStatus, RecordedEntry, SourceLag


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The queries as Kafka has them at `now_ms`."""

    now_ms: int
    queries: Sequence[QueryStatus]
    copies: Copies | None = None
    table: TableDiagnosis | None = None
    written: Sequence[Output] = ()

    @property
    def status(self) -> QueryStatus:
        return self.queries[0]


def list_table(queries: Sequence[QueryStatus], now_ms: int) -> Table:
    """A row for each query; ages at `now_ms` since 1970."""
    columns = [Column(name, overflow="fold") for name in ("query", "batch", "committed", "transaction")]
    columns[3:3] = [Column(name, justify="right") for name in ("unread", "held")]
    table = Table(*columns)
    for status in queries:
        ago = "" if status.last is None else _ago(now_ms - status.last.record.timestamp_ms)
        ago = f"began {ago}" if status.buckets else ago
        batch = "?" if status.entry is None else str(status.entry.batch_id)
        texts = (
            status.transactional_id,
            batch,
            ago,
            _count(status.unread),
            _count(status.held),
            transaction_words(status),
        )
        table.add_row(*(Text(text) for text in texts))
    return table


def transaction_words(status: QueryStatus) -> str:
    """The state of a query's transaction, or in real time of those of its buckets."""
    if not status.buckets:
        return state_words(status.owner)
    states = [bucket.owner for bucket in status.buckets]
    opened = [owner for owner in states if isinstance(owner, TransactionFacts) and owner.is_open]
    unknown = sum(isinstance(owner, Unavailable) for owner in states)
    words = [_buckets(len(states))]
    if opened:
        oldest = max(opened, key=lambda owner: owner.age_ms or 0)
        words.append(f"{len(opened)} open: {state_words(oldest)}")
    if unknown:
        words.append(f"{unknown} unknown")
    return ", ".join(words)


def remarks(reader: QueryReader, snapshot: Snapshot, skipped: int) -> Iterator[Text]:
    topics = sorted({status.ledger_topic for status in snapshot.queries} - {LEDGER_TOPIC})
    if topics:
        yield Text(f"Ledger topics besides {LEDGER_TOPIC}: {', '.join(topics)}.")
    yield from map(Text, gaps(reader, snapshot, skipped))
    reasons = dict.fromkeys(why for status in snapshot.queries for why in status.unknown)
    for why in list(reasons)[:3]:
        yield Text(f"Unknown lag: {why}.")
    if len(reasons) > 3:
        yield Text(f"Unknown lag: {len(reasons) - 3} more reasons; see `kafka-eos query lag ID`.")


def gaps(reader: QueryReader, snapshot: Snapshot, skipped: int) -> Iterator[str]:
    """Why there may be no query, or not every one; no JSON says it."""
    if not snapshot.queries:
        missing = f": there is no topic {', '.join(reader.missing)}" if reader.missing and not reader.named else ""
        yield f"No query has committed to this cluster{missing}."
    yield from not_looked_into(reader, skipped)


def not_looked_into(reader: QueryReader, skipped: int) -> Iterator[str]:
    """What may have further queries."""
    for topic in reader.lacking:
        yield f"Not looked into: there is no topic {topic}, or this principal may not describe it."
    for node, why in sorted(reader.silent.items()):
        yield f"Broker {node} did not answer, so its groups are unknown: {why}."
    if reader.hidden:
        yield (
            "Groups may be missing: this principal may not describe every one, or not the topic __consumer_offsets, or "
            "a coordinator did not answer; name further ledger topics with --ledger-topic."
        )
    if skipped:
        yield f"{skipped} more groups were not looked into; name further ledger topics with --ledger-topic."


def show_view(snapshot: Snapshot) -> RenderableType:
    status = snapshot.status
    not_seen = f"The pointer is unknown: it needs Describe on Group {status.transactional_id}{LEDGER_GROUP}."
    ledger = not_seen if snapshot.copies is None else snapshot.copies.agreement
    return description(status, snapshot.now_ms, ledger=ledger, table=snapshot.table, written=snapshot.written)


def description(
    status: QueryStatus,
    now_ms: int,
    *,
    ledger: str = "",
    table: TableDiagnosis | None = None,
    written: Sequence[Output] = (),
) -> RenderableType:
    """Everything about a query; `ledger` is how record and pointer agree, if they were compared, `table` what a table
    that takes part holds, if it was asked, `written` what is open in its outputs.
    """
    grid = Table.grid(Column(style="bold"), Column(overflow="fold"), padding=(0, 2))
    facts = (*_facts(status, now_ms, ledger), *output_lines(written, now_ms))
    for name, text in (*facts, *(() if table is None else table_lines(table))):
        grid.add_row(name, Text(text))
    tables: list[RenderableType] = [buckets_table(status, now_ms)] if status.buckets else []
    if any(source is not None for source in status.sources):
        tables.append(lag_view(Snapshot(queries=[status], now_ms=now_ms)))
    return Group(grid, *tables)


def _facts(status: QueryStatus, now_ms: int, ledger: str) -> Iterator[tuple[str, str]]:
    yield "query", status.transactional_id
    yield from _last(status, now_ms)
    if status.pending is not None and isinstance(status.pending.entry, LedgerEntry):
        sent = _ago(now_ms - status.pending.record.timestamp_ms)
        table = "" if status.pending.entry.table is None else ", and its table may have it (--table tells)"
        yield "in doubt", f"batch {status.pending.entry.batch_id}, sent {sent}: its transaction is still open{table}"
    if ledger:
        yield "ledger", ledger
    yield "owner", owner_words(status.owner)
    if status.buckets:
        first, last = status.buckets[0].transactional_id, status.buckets[-1].transactional_id
        more = f" to {last.removeprefix(status.transactional_id)}" if len(status.buckets) > 1 else ""
        yield "real time", f"{_buckets(len(status.buckets))}: {first}{more}"
        yield "group", f"{status.group}, with a copy of the offsets"
    elif not status.sources:
        yield "sources", "The ledger does not contain where they ended."
    if left := _left(status):
        yield "not read now", left


def _last(status: QueryStatus, now_ms: int) -> Iterator[tuple[str, str]]:
    match status.last:
        case None:
            yield "last commit", "none"
        case RecordedEntry(entry=LedgerEntry(buckets=int()) as entry, record=LedgerRecord(timestamp_ms=at_ms)):
            yield "buckets began", f"{_ago(now_ms - at_ms)}, {moment(at_ms)} UTC, number {entry.serial}"
            yield "batch", f"{entry.batch_id} of query {entry.query_id}"
        case RecordedEntry(entry=UnreadableEntry(description=description)):
            yield "last commit", description
        case RecordedEntry(entry=LedgerEntry() as entry, record=LedgerRecord(timestamp_ms=at_ms)):
            yield "last commit", f"{_ago(now_ms - at_ms)}, {moment(at_ms)} UTC, number {entry.serial}"
            yield "batch", f"{entry.batch_id} of query {entry.query_id}"
            if entry.incomplete:
                lost = {} if entry.written is None else entry.written.lost
                why = ", ".join(f"{records:,} records were lost with topic {name}" for name, records in lost.items())
                yield (
                    "",
                    f"incomplete: {why or 'a second call of the writer was refused, or an output topic was deleted'}",
                )
            if entry.table is not None:
                yield "table version", str(entry.table)
            if (written := entry.written) is not None:
                dead = f", {written.dead_letters:,} of them dead letters" if written.dead_letters else ""
                yield (
                    "written",
                    f"{written.records:,} records{dead}, {size(written.bytes)}, in {duration(written.milliseconds)}",
                )


def buckets_table(status: QueryStatus, now_ms: int) -> Table:
    """A row for each bucket of a query in real time: its last transaction, and how far its partitions are behind."""
    names = ("partitions", "unread", "held", "late")
    table = Table(
        Column("bucket", justify="right"),
        Column("producer", justify="right", overflow="fold"),
        Column("transaction", overflow="fold"),
        *(Column(name, justify="right") for name in names),
    )
    for bucket in status.buckets:
        part, owner = status.of_bucket(bucket.number), bucket.owner
        producer = f"{owner.producer_id}/{owner.epoch}" if isinstance(owner, TransactionFacts) else ""
        partitions = sum(len(source.all_partitions) for source in part.sources if source is not None)
        late = part.late_ms(now_ms)
        texts = (
            str(bucket.number),
            producer,
            state_words(owner),
            str(partitions),
            _count(part.unread),
            _count(part.held),
            "?" if late is None else duration(late) if part.unread else "-",
        )
        table.add_row(*(Text(text) for text in texts))
    return table


def lag_view(snapshot: Snapshot) -> RenderableType:
    status = snapshot.status
    names = ("committed", "stable", "end", "unread", "held", "late")
    bucket_names = ("bucket",) if status.buckets else ()
    table = Table(
        Column("partition", overflow="fold"), *(Column(name, justify="right") for name in (*bucket_names, *names))
    )
    remarks: list[Text] = []
    for source in status.sources:
        if source is None:
            remarks.append(Text("A source is not Kafka; its lag is unknown."))
            continue
        for tp in source.all_partitions:
            bucket = [str(bucket_of(tp, len(status.buckets)))] if status.buckets else []
            texts = (str(tp), *bucket, *_lag_row(source, tp, snapshot.now_ms))
            table.add_row(*(Text(text) for text in texts))
    remarks += [Text(f"Unknown: {why}.") for why in status.unknown]
    if status.lost:
        remarks.append(Text(f"{status.lost} offsets were deleted before the query read them.", style="bold red"))
    return Group(table, *remarks)


def _lag_row(source: SourceLag, tp: TopicPartition, now_ms: int) -> Sequence[str]:
    lag = source.partitions.get(tp)
    if lag is None:
        return str(source.offsets.get(tp, "?")), *["?"] * 5
    late = lag.late_ms(now_ms)
    ends = (lag.committed, lag.log_ends.last_stable_offset, lag.log_ends.high_watermark, lag.unread, lag.held)
    return *map(str, ends), "?" if late is None else duration(late) if lag.unread else "-"


def ledger_view(snapshot: Snapshot) -> RenderableType:
    copies = snapshot.copies
    assert copies is not None
    table = Table("", Column("record", overflow="fold"), Column("pointer", overflow="fold"))
    record, pointer = _fields(copies.record), _fields(copies.pointer)
    for name in dict.fromkeys([*record, *pointer]):
        table.add_row(name, Text(record.get(name, "")), Text(pointer.get(name, "")))
    parts: list[RenderableType] = [table, Text(copies.agreement)]
    for status in snapshot.queries:
        if status.last is not None:
            parts.append(Text(f"The record is at offset {status.last.record.offset} of {status.ledger_topic}-0."))
        for number, source in enumerate(status.sources):
            ends = "not Kafka" if source is None else ", ".join(f"{tp}@{at}" for tp, at in source.offsets.items())
            where = "" if source is None else f" of cluster {source.cluster}"
            parts.append(Text(f"Source {number}{where}: {ends}."))
        if left := _left(status):
            parts.append(Text(f"Not read now: {left}."))
    return Group(*parts)


def _left(status: QueryStatus) -> str:
    """Where partitions ended in real time that the query has not read since; empty if there are none."""
    left = status.entry and status.entry.left
    if not left:
        return ""
    ends = ", ".join(f"{tp}@{at}" for tp, at in sorted(left.offsets.items()))
    return f"{ends} of cluster {left.cluster}, where real time ended"


def _fields(entry: LedgerEntry | MovedLedger | UnreadableEntry | None) -> dict[str, str]:
    match entry:
        case LedgerEntry():
            return {
                "commit": str(entry.serial),
                "batch": str(entry.batch_id) + (" (incomplete)" if entry.incomplete else ""),
                "query": entry.query_id,
                "run": entry.run_id or "",
                "digest": entry.digest,
            }
        case MovedLedger():
            return {"commit": str(entry.serial), "moved to": entry.topic}
        case UnreadableEntry():
            return {"unreadable": entry.description}
    return {"": "none"}


def history_view(snapshot: Snapshot) -> RenderableType:
    names = ("commit", "batch", "at (UTC)", "records", "bytes", "took", "producer")
    table = Table(*(Column(name, justify="right", overflow="fold") for name in names))
    commits = snapshot.status.commits
    for commit in commits:
        record = commit.record
        match commit.entry:
            case LedgerEntry() as entry:
                written = entry.written
                size_of = ("?", "?", "?") if written is None else (
                    f"{written.records:,}", size(written.bytes), duration(written.milliseconds)
                )  # fmt: skip
                numbers = (str(entry.serial), str(entry.batch_id))
                row = (*numbers, moment(record.timestamp_ms), *size_of, f"{record.producer_id}/{record.epoch}")
                table.add_row(*(Text(text) for text in row))
            case UnreadableEntry():
                table.add_row("?", "?", moment(record.timestamp_ms), "?", "?", "?", "unreadable")
    missing = snapshot.status.commits_missing
    remark = f"{missing:,} earlier commits are not shown: see --limit; the log cleaner removes old ones."
    return Group(table, *([Text(remark)] if missing else []))


def _ago(milliseconds: int) -> str:
    return "just now" if milliseconds < 2_000 else f"{duration(milliseconds)} ago"


def _buckets(count: int) -> str:
    return "1 bucket" if count == 1 else f"{count} buckets"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
