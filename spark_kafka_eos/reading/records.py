"""Reads ranges of offsets as Arrow batches with the built-in source's columns: fetch, drop invisible records, decode.

It does not need Spark: a task on an executor passes the batches on. Two fetch responses limit the memory it uses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_eos.errors import CorruptRecordBatch, DataLoss, UndecodableRecord, UnknownTopic
from spark_kafka_eos.kafka.fetching.fetch import Fetcher, estimates_of
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.fetching.visibility import visible_batches
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.columns import from_numpy, from_offsets, to_numpy
from spark_kafka_eos.kafka.wire.decode import decode_in_parts
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.options import SourceOptions
from spark_kafka_eos.reading.columns import ColumnType, source_columns
from spark_kafka_eos.reading.planning import remaining

if TYPE_CHECKING:
    from spark_kafka_eos.reading.read_stats import Tally

log = logger(__name__)

# Measured on local[2], 2 M rows of 100 bytes written to noop: 16 k to 64 k rows per batch are equally fast, 4 k rows
# take a fifth longer.
_FEWEST_ROWS, _MOST_ROWS = 16_384, 65_536
# Batches of large values are not joined: with 10 kB values, the copy took an eighth of a worker's time.
_ENOUGH_BYTES = 4 << 20
_SMALL_BYTES = 1 << 20
# The limit of a record batch's decompressed size, so that a decompression bomb cannot exhaust a worker's memory.
# Producers create batches of a few megabytes; a larger kafka.max.partition.fetch.bytes increases this limit, too.
_DECOMPRESSED_BYTES, _EXPANSION = 256 << 20, 32

_YEAR_NS = 31_556_952 * 10**9
_LAST_MS = ((1 << 63) - 1) // 1000  # as microseconds, the last that 64 bits hold

_HEADERS = pa.list_(pa.field("element", HEADERS.value_type))  # as Spark calls it
TYPES: Mapping[ColumnType, pa.DataType] = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": _HEADERS,
}


def arrow_schema(*, include_headers: bool, columns: Sequence[str] = (), required: Sequence[str] = ()) -> pa.Schema:
    """The schema that Spark expects of each batch, exactly: `to_arrow_schema` of the source's columns.

    `columns` selects columns, in this order; those in `required` are NOT NULL. If it is empty, all columns are
    included.
    """
    kinds = source_columns(include_headers=include_headers)
    return pa.schema([pa.field(name, TYPES[kinds[name]], name not in required) for name in columns or kinds])


def read(
    ranges: Sequence[OffsetRange],
    options: SourceOptions,
    cluster: Cluster,
    tally: Tally | None = None,
    *,
    fetcher: Callable[..., Fetcher] = Fetcher,
    decompressed_bytes: int = _DECOMPRESSED_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The visible records of `ranges` (at most one per partition), in order per partition; see `arrow_schema`.

    Batches have 16 k to 64 k rows, or 4 MiB, if there is enough data. Raises what `Fetcher.fetch` and `decode` raise.
    """
    most_bytes = max(decompressed_bytes, _EXPANSION * options.max_partition_fetch_bytes)
    fetched = _fetch(ranges, options, cluster, fetcher)
    parts = (_rows(part, bounds, options, tally, most_bytes) for part, bounds in fetched)
    return of_decent_size(rows for part in parts for rows in part if rows.num_rows)


def rows_of(
    parts: Sequence[Fetched], ranges: Mapping[TopicPartition, OffsetRange], options: SourceOptions
) -> list[pa.RecordBatch]:
    """The visible records of fetched parts, each inside its partition's range, as `read` returns them, without joining
    small batches. Small parts are decoded together: what few records take is mostly the call's.
    """
    most_bytes = max(_DECOMPRESSED_BYTES, _EXPANSION * options.max_partition_fetch_bytes)

    def one_by_one() -> list[pa.RecordBatch]:
        by_part = (_rows(part, ranges[part.partition], options, None, most_bytes) for part in parts)
        return [rows for part in by_part for rows in part if rows.num_rows]

    if len(parts) == 1 or sum(len(part.buffer) for part in parts) > _SMALL_BYTES:
        return one_by_one()
    try:
        return list(_rows_of_joined(parts, ranges, options, most_bytes))
    except CorruptRecordBatch:
        return one_by_one()  # which finds out whose it is


def _fetch(
    ranges: Sequence[OffsetRange], options: SourceOptions, cluster: Cluster, fetcher_of: Callable[..., Fetcher]
) -> Iterator[tuple[Fetched, OffsetRange]]:
    """Fetch all of `ranges`; each part comes with the range that was still missing of its partition.

    If failOnDataLoss is false, offsets that were lost since planning are skipped and logged.
    """
    fetcher = fetcher_for(options, cluster, fetcher_of)
    remaining = {offset_range.partition: offset_range for offset_range in ranges}
    stopped_at: list[OffsetRange] = []
    while remaining:
        try:
            for part in fetcher.fetch(tuple(remaining.values())):
                offset_range = remaining[part.partition]
                remaining[part.partition] = replace(offset_range, start=part.next_offset)
                yield part, offset_range
            return
        except (DataLoss, UnknownTopic) as error:
            unread = [offset_range for offset_range in remaining.values() if offset_range.start < offset_range.end]
            loss = error if isinstance(error, DataLoss) else _deleted(error, unread)
            if options.fail_on_data_loss or unread == stopped_at:  # a second time, although it should still exist
                raise loss from None
            log.warning("data was lost, the task continues (failOnDataLoss is false): %s", loss.what)
            stopped_at = unread
            remaining = {offset_range.partition: offset_range for offset_range in _still_there(unread, cluster)}


def fetcher_for(options: SourceOptions, cluster: Cluster, fetcher_of: Callable[..., Fetcher] = Fetcher) -> Fetcher:
    """A fetcher as the source's `options` want it, which starts with what this process has learned of `cluster`."""
    return fetcher_of(
        cluster,
        isolation_level=options.isolation_level,
        fetch_max_bytes=options.fetch_max_bytes,
        max_partition_fetch_bytes=options.max_partition_fetch_bytes,
        fetch_max_wait_ms=options.fetch_max_wait_ms,
        rack=_rack(options.client_rack),
        estimates=estimates_of(cluster),
    )


def _rack(option: str) -> str:
    """`kafka.client.rack` in this process; none if the variable that it names is not set here."""
    variable = option.removeprefix("env:")
    return option if variable == option else os.environ.get(variable, "")


def _deleted(error: UnknownTopic, unread: Iterable[OffsetRange]) -> DataLoss:
    ranges = ", ".join(
        f"{offset_range.partition} from {offset_range.start} to {offset_range.end}" for offset_range in unread
    )
    return DataLoss(
        f"a topic was deleted while it was read ({error.what}); not read yet: {ranges}",
        action="Start the query again: it names the topic, and how to go on without it.",
    )


def _still_there(ranges: Sequence[OffsetRange], cluster: Cluster) -> Sequence[OffsetRange]:
    """The ranges, each limited to the offsets that its partition still has of the log for which it was planned."""
    from spark_kafka_eos.kafka.protocol.epochs import log_ends  # on demand: few processes need it

    existing = [offset_range.partition for offset_range in ranges if _exists(offset_range, cluster)]
    # Not the last stable offset: records after it are undecided, but not lost.
    latest = offsets.latest(cluster, existing, isolation_level="read_uncommitted")
    epochs = {each.partition: each.leader_epoch for each in ranges if each.leader_epoch >= 0}
    planned_ends = log_ends(cluster, {tp: epochs[tp] for tp in existing if tp in epochs})
    plan = remaining(ranges, earliest=offsets.earliest(cluster, existing), latest=latest, log_ends=planned_ends)
    for lost in plan.lost:
        log.warning("data was lost and is left out (failOnDataLoss is false): %s", lost)
    return plan.ranges


def _exists(offset_range: OffsetRange, cluster: Cluster) -> bool:
    try:
        topic = cluster.topic(offset_range.partition.topic)
    except UnknownTopic:
        return False
    return offset_range.topic_id in (None, topic.id) and offset_range.partition.partition in topic.partitions


def _rows(
    fetched: Fetched, bounds: OffsetRange, options: SourceOptions, tally: Tally | None, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The visible records inside `bounds`, from one partition's part of a Fetch response."""
    try:
        headers, is_visible = visible_batches(fetched, options.isolation_level, check_crcs=options.check_crcs)
        if tally is not None:
            tally.count(fetched.partition, headers, is_visible)
        # In parts: a compressed response of a few megabytes may contain gigabytes.
        for records in decode_in_parts(
            fetched.buffer,
            headers[is_visible],
            check_crcs=options.check_crcs,
            include_headers=options.include_headers,
            max_bytes=most_bytes,
        ):
            yield _within(records, fetched.partition, bounds, options)
    except CorruptRecordBatch as error:
        raise CorruptRecordBatch(f"{fetched.partition}: {error.what}", action=error.action) from error


def _rows_of_joined(
    parts: Sequence[Fetched], ranges: Mapping[TopicPartition, OffsetRange], options: SourceOptions, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """As `_rows` for each of the parts. A CorruptRecordBatch does not name the partition."""
    tables = []
    position = 0
    for part in parts:
        headers, is_visible = visible_batches(part, options.isolation_level, check_crcs=options.check_crcs)
        headers = headers[is_visible]
        headers["position"] += position
        position += len(part.buffer)
        tables.append(headers)
    behind = np.cumsum([headers["record_count"].sum() for headers in tables]).tolist()
    row = 0
    for records in decode_in_parts(
        b"".join(part.buffer for part in parts),
        np.concatenate(tables),
        check_crcs=options.check_crcs,
        include_headers=options.include_headers,
        max_bytes=most_bytes,
    ):
        for part, first, end in zip(parts, [0, *behind], behind, strict=False):
            own = slice(max(first - row, 0), min(end - row, records.num_rows))
            if own.start < own.stop:
                rows = _within(records[own], part.partition, ranges[part.partition], options)
                yield from [rows] if rows.num_rows else []
        row += records.num_rows


def _within(
    records: pa.RecordBatch, partition: TopicPartition, bounds: OffsetRange, options: SourceOptions
) -> pa.RecordBatch:
    """The records inside `bounds`: a record batch may start before the range or end after it. Offsets are ascending."""
    first, end = np.searchsorted(to_numpy(records["offset"]), [bounds.start, bounds.end])
    records = records.slice(first, end - first)
    schema = arrow_schema(include_headers=options.include_headers, columns=options.columns, required=options.required)
    return pa.RecordBatch.from_arrays([_column(name, records, partition) for name in schema.names], schema=schema)


def _column(name: str, records: pa.RecordBatch, partition: TopicPartition) -> pa.Array:
    """One column of the source for the decoded `records` of a partition."""
    match name:
        case "topic":
            text = partition.topic.encode()
            once = from_offsets(np.array([0, len(text)], np.int32), memoryview(text)).cast(pa.string())
            return pa.repeat(once[0], records.num_rows)
        case "partition":
            return from_numpy(np.full(records.num_rows, partition.partition, np.int32))
        case "timestamp":
            return _timestamps(records, partition)
        case "headers":
            return _null_if_empty(records["headers"])
        case _:
            return records[name]


def _timestamps(records: pa.RecordBatch, partition: TopicPartition) -> pa.Array:
    """Timestamps in Spark's microseconds. Their 64-bit range is smaller than that of Kafka's milliseconds."""
    try:
        return records["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid:
        milliseconds = to_numpy(records["timestamp"])
        first = int(np.flatnonzero((milliseconds > _LAST_MS) | (milliseconds < -_LAST_MS))[0])
        raise UndecodableRecord(
            f"{partition}: the record at offset {records['offset'][first]} has timestamp {milliseconds[first]} ms, "
            f"which is outside the range of Spark's timestamps{_in_nanoseconds(int(milliseconds[first]))}",
            action='Read without this column, for example .schema("key binary, value binary, topic string, partition '
            'int, offset bigint"): the query goes on with its checkpoint. And correct the producer.',
        ) from None


def _in_nanoseconds(timestamp: int) -> str:
    """What the timestamp most likely is, if it is not in milliseconds."""
    year = 1970 + timestamp // _YEAR_NS
    return f" (in nanoseconds it would be in {year}: does the producer set those?)" if 1971 <= year < 2200 else ""


def _null_if_empty(headers: pa.ListArray) -> pa.ListArray:
    """`headers` as in the built-in source: null, not an empty list, if a record has none."""
    # A sliced array has an offset, which from_arrays does not accept together with a mask; recomputing removes it.
    ends = pc.subtract(headers.offsets, headers.offsets[0]).cast(pa.int32())
    none = pc.equal(headers.value_lengths(), 0)
    return pa.ListArray.from_arrays(ends, headers.flatten(), type=_HEADERS, mask=none)


def of_decent_size(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order; small batches are joined and large ones are split."""
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for part in parts:
        small.append(part)
        rows += part.num_rows
        size += part.nbytes
        if rows < _FEWEST_ROWS and size < _ENOUGH_BYTES:
            continue
        yield from _cut(pa.concat_batches(small) if len(small) > 1 else small[0])
        small.clear()
        rows = size = 0
    if small:
        yield pa.concat_batches(small)


def _cut(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows.num_rows, _MOST_ROWS):
        yield rows.slice(start, _MOST_ROWS)
