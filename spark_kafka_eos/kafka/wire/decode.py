"""Decodes record batches v2 as Arrow columns, all batches of a buffer in one pass.

Records of equal size are read as a table (`stride`). For others, `chain` finds where each one starts; then every field
is read for all records at once, and keys and values are cut from the buffer in C.

Every number is validated before it is used as a position, so corrupt bytes always raise CorruptRecordBatch, and memory
is proportional to the size of the input.

Source: KIP-98, "Message Format"; Kafka documentation, sections "Record Batch" and "Control Batches".
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.kafka.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import (
    CODEC,
    CONTROL,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    OWN_TIMESTAMPS,
    RecordBatchHeader,
)
from spark_kafka_eos.kafka.wire.chain import record_bounds, walk
from spark_kafka_eos.kafka.wire.columns import MAX_BYTES, cut, from_numpy, to_numpy
from spark_kafka_eos.kafka.wire.compression import Decompressor
from spark_kafka_eos.kafka.wire.header_table import HeaderTable, ends, header_table, verify_crcs
from spark_kafka_eos.kafka.wire.headers import HEADER_BYTES, HEADERS, SMALLEST_HEADER, decode_headers
from spark_kafka_eos.kafka.wire.record_batch import HEADER, SMALLEST_RECORD, Bytes
from spark_kafka_eos.kafka.wire.stride import Fields, read_alike
from spark_kafka_eos.kafka.wire.varint import MAX_VARLONG_BYTES, read_varints

_FIELDS = [
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
    pa.field("timestampType", pa.int32()),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
SCHEMA = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADERS)])
_ROW_BYTES = 200  # of memory that a record takes while it is decoded, besides its key and value
_LARGEST_CONTROL_RECORD = 1 << 16  # far more than any of Kafka's has
_CONTROL_KEY = struct.Struct(">hh")  # version, type
Marker = Literal["abort", "commit", "other"]
_MARKERS: dict[int, Marker] = {0: "abort", 1: "commit"}


class _DecodePart(NamedTuple):
    """Record batches, at least one, each of at least one record; their records lie in `[start, end)` of `data`."""

    headers: HeaderTable
    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def decode(
    buffer: Bytes,
    batches: Iterable[RecordBatchHeader] | HeaderTable,
    *,
    check_crcs: bool = True,
    include_headers: bool = False,
    max_bytes: int = MAX_BYTES,
) -> pa.RecordBatch:
    """The records of `batches` (of `buffer`, as `scan` yields them) as columns, in that order.

    Like `decode_in_parts`, but in one part, so memory is limited by the size of `buffer` and `max_bytes` only.
    """
    parts = list(
        decode_in_parts(
            buffer,
            batches,
            check_crcs=check_crcs,
            include_headers=include_headers,
            part_bytes=MAX_BYTES,
            max_bytes=max_bytes,
        )
    )
    if len(parts) == 1:
        return parts[0]
    if parts:
        return pa.concat_batches(parts)
    schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def decode_in_parts(
    buffer: Bytes,
    batches: Iterable[RecordBatchHeader] | HeaderTable,
    *,
    check_crcs: bool = True,
    include_headers: bool = False,
    part_bytes: int = 64 << 20,
    max_bytes: int = MAX_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records of `batches` (of `buffer`, as `scan` or `header_table` give them) as columns, in that order.

    Columns: `SCHEMA` or `SCHEMA_WITH_HEADERS`, timestamps in milliseconds. They are copies, so `buffer` may be reused.

    In parts, because some bytes may decompress to gigabytes, and some bytes of records and headers take hundreds as
    columns: decoding a part takes about `part_bytes` of memory, or what its one record takes, besides the decompressed
    record batch. Raises CorruptRecordBatch, which names the offset, for a wrong CRC, for records that do not match
    their header, for a batch that decompresses to more than `max_bytes`, and for a record whose headers would take
    more than `max_bytes`. Raises ValueError for control batches, which are not data, and for a buffer of 2 GiB or more,
    because the columns have 32-bit offsets.
    """
    view = memoryview(buffer)
    headers = batches if isinstance(batches, np.ndarray) else header_table(buffer, batches)
    control = np.flatnonzero(headers["attributes"] & CONTROL)
    if control.size:
        offset = headers["base_offset"][control[0]]
        raise ValueError(f"the batch at offset {offset} is a control batch: skip it, see control_marker")
    _check(view, headers, check_crcs)
    headers = headers[headers["record_count"] > 0]
    decompressor = Decompressor()
    limit = min(max_bytes, MAX_BYTES)
    weight = ends(headers) - headers["position"] + _ROW_BYTES * headers["record_count"]
    for some in _split(weight, part_bytes):
        for part in _parts(view, headers[some], decompressor, part_bytes, limit):
            yield from _decode(part, include_headers, part_bytes, limit)


def control_marker(buffer: Bytes, header: RecordBatchHeader, *, check_crcs: bool = True) -> Marker:
    """How the control batch ends its producer's transaction; "other" for a marker that does not.

    The key of its record has version int16 and type int16 (0 abort, 1 commit). Raises CorruptRecordBatch as
    `decode_in_parts` does, and for a control record without such a key. If compaction has removed the marker, the
    leader keeps the batch without a record; such a batch no longer ends a transaction. Source: Kafka documentation,
    "Control Batches".
    """
    view, headers = memoryview(buffer), header_table(buffer, [header])
    _check(view, headers, check_crcs)
    if not header.record_count:
        return "other"
    (part,) = _parts(view, headers, Decompressor(), MAX_BYTES, _LARGEST_CONTROL_RECORD)
    (records,) = _decode(part, False, MAX_BYTES, MAX_BYTES)
    key = records["key"][0].as_py()
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptRecordBatch(f"the control batch at offset {header.base_offset} has no control record")
    _, kind = _CONTROL_KEY.unpack_from(key)
    return _MARKERS.get(kind, "other")


def _check(view: memoryview, headers: HeaderTable, check_crcs: bool) -> None:
    """Check the batches as far as that goes without reading records."""
    end = ends(headers)
    truncated = np.flatnonzero(end > len(view))
    if truncated.size:
        raise CorruptRecordBatch(f"{_name(headers[truncated[0]])} is truncated")
    if check_crcs:
        verify_crcs(view, headers)
    empty = headers["record_count"] == 0
    _check_count(headers[empty], (end - headers["position"])[empty] - HEADER.size)


def _check_count(headers: HeaderTable, size: NDArray[np.int64]) -> None:
    """`size` are the bytes of each batch's records, decompressed."""
    count = headers["record_count"]
    wrong = np.flatnonzero((count * SMALLEST_RECORD > size) | ((count == 0) & (size > 0)))
    if wrong.size:
        at = wrong[0]
        raise CorruptRecordBatch(f"{_name(headers[at])} declares {count[at]} records in {size[at]} bytes")


def _name(header: np.void) -> str:
    return f"the record batch at offset {header['base_offset']}"


def _split(weight: NDArray[np.int64], limit: int) -> Iterator[slice]:
    """Slices of rows that weigh at most `limit` together, or of one row."""
    total, first = np.cumsum(weight), 0
    while first < len(weight):
        before = int(total[first - 1]) if first else 0
        behind = max(first + 1, int(np.searchsorted(total, before + limit, side="right")))
        yield slice(first, behind)
        first = behind


def _parts(
    view: memoryview, headers: HeaderTable, decompressor: Decompressor, part_bytes: int, max_bytes: int
) -> Iterator[_DecodePart]:
    """The batches with their records decompressed: parts of at most `part_bytes`, or of one batch."""
    start, end = headers["position"] + HEADER.size, ends(headers)
    codec = headers["attributes"] & CODEC
    if not codec.any():
        if len(view) > MAX_BYTES:
            raise ValueError(f"the buffer has {len(view)} bytes, but at most 2 GiB can be decoded at once")
        yield _part(headers, view, start, end)
        return
    payloads: list[Bytes] = []
    weight = first = 0
    extents = zip(start.tolist(), end.tolist(), codec.tolist(), headers["record_count"].tolist(), strict=True)
    for number, (begin, behind, code, count) in enumerate(extents):
        payload: Bytes = view[begin:behind]
        if code:
            try:
                payload = decompressor.decompress(code, payload, limit=max_bytes)
            except CorruptRecordBatch as error:
                raise CorruptRecordBatch(f"{_name(headers[number])}: {error.what}", action=error.action) from error
        own = len(payload) + _ROW_BYTES * count
        if payloads and weight + own > part_bytes:
            yield _joined(headers[first:number], payloads)
            weight, first = 0, number
        payloads.append(payload)
        weight += own
    yield _joined(headers[first:], payloads)


def _joined(headers: HeaderTable, payloads: list[Bytes]) -> _DecodePart:
    """Takes the payloads out of the list, so that their memory is not kept."""
    size = np.array([len(payload) for payload in payloads])
    end = np.cumsum(size)
    data = payloads[0] if len(payloads) == 1 else b"".join(payloads)
    payloads.clear()
    return _part(headers, data, end - size, end)


def _part(headers: HeaderTable, data: Bytes, start: NDArray[np.int64], end: NDArray[np.int64]) -> _DecodePart:
    _check_count(headers, end - start)
    return _DecodePart(headers, np.frombuffer(data, np.uint8), start, end)


def _decode(part: _DecodePart, include_headers: bool, part_bytes: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The part's records, in memory of about `part_bytes`; errors name the batch."""
    above = -1
    try:
        for some in _of_few_records(part, part_bytes):
            for records in _columns(some, include_headers, part_bytes, max_bytes):
                if len(part.headers) == 1:
                    offset = to_numpy(records["offset"])
                    if offset[0] <= above:
                        raise _disorder()
                    above = offset[-1]
                yield records
    except CorruptRecordBatch as error:
        if len(part.headers) > 1:  # one by one, to find out which
            for at in range(len(part.headers)):
                single = _DecodePart(
                    part.headers[at : at + 1], part.data, part.start[at : at + 1], part.end[at : at + 1]
                )
                deque(_decode(single, include_headers, part_bytes, max_bytes), maxlen=0)
            raise
        raise CorruptRecordBatch(f"{_name(part.headers[0])}: {error.what}", action=error.action) from error


def _of_few_records(part: _DecodePart, part_bytes: int) -> Iterator[_DecodePart]:
    """The part, or, if it is one batch that weighs more than `part_bytes`, its records piece by piece."""
    remaining, position, end = int(part.headers["record_count"][0]), int(part.start[0]), part.end[:1]
    size = int(end[0]) - position
    most = max(1, part_bytes * remaining // (size + _ROW_BYTES * remaining))
    if len(part.headers) > 1 or remaining <= most:
        yield part
        return
    headers = part.headers.copy()
    while remaining > most:
        position, behind = walk(part.data[: end[0]], position, most + 1)[[0, most]].tolist()
        headers["record_count"] = most
        yield _DecodePart(headers, part.data, np.array([position]), np.array([behind]))
        remaining, position = remaining - most, behind
    headers["record_count"] = remaining
    yield _DecodePart(headers, part.data, np.array([position]), end)


def _columns(part: _DecodePart, include_headers: bool, part_bytes: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """All records of the part; with headers in pieces, because a header of two bytes takes as much as a row."""
    batches, data, start, end = part
    count = batches["record_count"]

    def per_record(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.repeat(values, count)

    fields = None if include_headers else read_alike(data, start, end, count)
    if fields is None:
        fields, places = _fields(data, start, end, count)
    timestamp, offset, key, value = fields
    _check_offsets(offset, per_record(batches["last_offset_delta"]), count)
    offset += per_record(batches["base_offset"])
    # With LogAppendTime, the timestamps in the records are not valid.
    attributes = batches["attributes"]
    by_broker, no_timestamp = attributes & LOG_APPEND_TIME != 0, attributes & NO_TIMESTAMP != 0
    common = by_broker & (attributes & OWN_TIMESTAMPS == 0)
    timestamp_type = per_record(np.where(no_timestamp, -1, by_broker))
    timestamp[per_record(common | no_timestamp)] = 0
    timestamp += per_record(np.where(common, batches["max_timestamp"], batches["base_timestamp"]))
    columns = [from_numpy(offset), from_numpy(timestamp), from_numpy(timestamp_type.astype(np.int32)), key, value]
    if not include_headers:
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        return
    at, stop, header_count = places
    many = np.flatnonzero(header_count > max_bytes // HEADER_BYTES)
    if many.size:
        raise _too_many_headers(int(offset[many[0]]), int(header_count[many[0]]), max_bytes // HEADER_BYTES)
    for rows in _split(HEADER_BYTES * header_count, part_bytes):
        headers = decode_headers(data, at[rows], stop[rows], header_count[rows])
        some = [column[rows] for column in columns]
        yield pa.RecordBatch.from_arrays([*some, headers], schema=SCHEMA_WITH_HEADERS)


class _HeaderPlaces(NamedTuple):
    """Of each record: where its headers begin and end, and how many they are."""

    at: NDArray[np.int64]
    stop: NDArray[np.int64]
    number: NDArray[np.int64]


def _fields(
    data: NDArray[np.uint8],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    count: NDArray[np.int64],
) -> tuple[Fields, _HeaderPlaces]:
    """The fields of records of any layout."""
    at, stop = record_bounds(data, start, end, count)
    timestamp, at = read_varints(data, at + 1, stop, MAX_VARLONG_BYTES)  # after the attributes, which are not used yet
    offset, at = read_varints(data, at, stop)
    key_length, key_at = read_varints(data, at, stop)
    value_length, value_at = read_varints(data, _behind(key_at, key_length, stop), stop)
    header_count, at = read_varints(data, _behind(value_at, value_length, stop), stop)
    if ((header_count < 0) | (header_count * SMALLEST_HEADER > stop - at)).any():
        raise CorruptRecordBatch("a record declares more headers than fit into its bytes")
    if ((header_count == 0) & (at != stop)).any():
        raise CorruptRecordBatch("a record has bytes after its last field")
    fields = Fields(timestamp, offset, cut(data, key_at, key_length), cut(data, value_at, value_length))
    return fields, _HeaderPlaces(at, stop, header_count)


def _check_offsets(delta: NDArray[np.int64], last: NDArray[np.int64], count: NDArray[np.int64]) -> None:
    """Check that offsets ascend within each batch, up to its last offset: reading a range relies on this."""
    descends = np.diff(delta) <= 0
    descends[np.cumsum(count)[:-1] - 1] = False
    if descends.any() or int(delta.min()) < 0 or (delta > last).any():
        raise _disorder()


def _disorder() -> CorruptRecordBatch:
    return CorruptRecordBatch("records' offsets do not ascend, or are outside their batch")


def _too_many_headers(offset: int, count: int, most: int) -> CorruptRecordBatch:
    return CorruptRecordBatch(
        f"the record at offset {offset} has {count} headers, but at most {most} are decoded",
        action="Read without includeHeaders, or increase kafka.max.partition.fetch.bytes, which increases this limit.",
    )


def _behind(at: NDArray[np.int64], length: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ends of the keys or values that start at `at`; null has length -1 and no bytes."""
    behind = at + np.maximum(length, 0)
    if int(length.min()) < -1 or (behind > stop).any():
        raise CorruptRecordBatch("a key or value exceeds the end of its record")
    return behind
