"""Decodes record batches v2 as Arrow columns, all batches of a buffer in one pass.

Records of equal size are read as a table (`stride`). For others, `chain` finds where each one starts; then every field
is read for all records at once, and keys and values are cut from the buffer in C.

Every number is validated before it is used as a position, so corrupt bytes always raise CorruptRecordBatch, and memory
is proportional to the size of the input.

Source: KIP-98, "Message Format"; Kafka documentation, sections "Record Batch" and "Control Batches".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.model import Compression, RecordBatchHeader
from spark_kafka_eos.wire.chain import record_bounds
from spark_kafka_eos.wire.columns import MAX_BYTES, cut
from spark_kafka_eos.wire.compression import decompress
from spark_kafka_eos.wire.headers import HEADERS, SMALLEST_HEADER, decode_headers
from spark_kafka_eos.wire.record_batch import HEADER, LOG_APPEND_TIME, SMALLEST_RECORD, Bytes, check_crc
from spark_kafka_eos.wire.stride import Fields, read_alike
from spark_kafka_eos.wire.varint import MAX_VARLONG_BYTES, read_varints

_FIELDS = [
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
    pa.field("timestampType", pa.int32()),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
SCHEMA = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADERS)])
_LARGEST_CONTROL_RECORD = 1 << 16  # far more than any of Kafka's has
_CONTROL_KEY = struct.Struct(">hh")  # version, type
_MARKERS: dict[int, Literal["abort", "commit"]] = {0: "abort", 1: "commit"}


class _Part(NamedTuple):
    """A record batch and the bytes of its records, decompressed."""

    header: RecordBatchHeader
    records: memoryview | bytes


def decode(
    buffer: Bytes,
    batches: Iterable[RecordBatchHeader],
    *,
    check_crcs: bool = True,
    include_headers: bool = False,
    max_bytes: int = MAX_BYTES,
) -> pa.RecordBatch:
    """The records of `batches` (of `buffer`, as `scan` yields them) as columns, in that order.

    Columns: `SCHEMA` or `SCHEMA_WITH_HEADERS`, timestamps in milliseconds. They are copies, so `buffer` may be reused.
    Raises CorruptRecordBatch for a wrong CRC, for records that do not match their header, and for batches that
    decompress to more than `max_bytes` in total. Raises ValueError for control batches, which are not data, and for a
    buffer of 2 GiB or more, because the columns have 32-bit offsets.
    """
    view, parts, room = memoryview(buffer), [], min(max_bytes, MAX_BYTES)
    for header in batches:
        parts.append(_open(view, _data(header), check_crcs, room))
        room -= len(parts[-1].records)
    return _decode(view, parts, include_headers)


def decode_in_parts(
    buffer: Bytes,
    batches: Iterable[RecordBatchHeader],
    *,
    check_crcs: bool = True,
    include_headers: bool = False,
    part_bytes: int = 64 << 20,
    max_bytes: int = MAX_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Like `decode`, but in parts, because a few megabytes may decompress to gigabytes.

    A part has at most `part_bytes` of decompressed records, but at least one record batch, of at most `max_bytes`.
    """
    view, room = memoryview(buffer), min(max_bytes, MAX_BYTES)
    parts: list[_Part] = []
    size = 0
    for header in batches:
        part = _open(view, _data(header), check_crcs, room)
        if parts and size + len(part.records) > part_bytes:
            yield _decode(view, parts, include_headers)
            parts, size = [], 0
        parts.append(part)
        size += len(part.records)
    if parts:
        yield _decode(view, parts, include_headers)


def control_marker(
    buffer: Bytes, header: RecordBatchHeader, *, check_crcs: bool = True
) -> Literal["abort", "commit", "other"]:
    """How the control batch ends its producer's transaction; "other" for a marker that does not.

    The key of its record has version int16 and type int16 (0 abort, 1 commit). Raises CorruptRecordBatch as `decode`
    does, and for a control record without such a key. If compaction has removed the marker, the leader keeps the batch
    without a record; such a batch no longer ends a transaction. Source: Kafka documentation, "Control Batches".
    """
    view = memoryview(buffer)
    part = _open(view, header, check_crcs, _LARGEST_CONTROL_RECORD)
    if not header.record_count:
        return "other"
    key = _decode(view, [part], include_headers=False)["key"][0].as_py()
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptRecordBatch(f"the control batch at offset {header.base_offset} has no control record")
    _, kind = _CONTROL_KEY.unpack_from(key)
    return _MARKERS.get(kind, "other")


def _data(header: RecordBatchHeader) -> RecordBatchHeader:
    if header.is_control:
        raise ValueError(f"the batch at offset {header.base_offset} is a control batch: skip it, see control_marker")
    return header


def _open(view: memoryview, header: RecordBatchHeader, check_crcs: bool, max_bytes: int) -> _Part:
    """The batch after all checks that do not read its records."""
    where, end = f"the record batch at offset {header.base_offset}", header.position + header.size
    if end > len(view):
        raise CorruptRecordBatch(f"{where} is truncated")
    if check_crcs:
        check_crc(view, header)
    records: memoryview | bytes = view[header.position + HEADER.size : end]
    if header.record_count and header.compression_code != Compression.NONE:
        records = decompress(header.compression_code, records, limit=max_bytes)
    if header.record_count * SMALLEST_RECORD > len(records) or (len(records) and not header.record_count):
        raise CorruptRecordBatch(f"{where} declares {header.record_count} records in {len(records)} bytes")
    return _Part(header, records)


def _decode(view: memoryview, parts: Sequence[_Part], include_headers: bool) -> pa.RecordBatch:
    schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    parts = [part for part in parts if part.header.record_count]
    if not parts:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    size = np.array([len(part.records) for part in parts])
    if any(part.header.compression_code != Compression.NONE for part in parts):
        view = memoryview(parts[0].records if len(parts) == 1 else b"".join(part.records for part in parts))
        start = np.cumsum(size) - size
    else:
        start = np.array([part.header.position + HEADER.size for part in parts])
    if len(view) > MAX_BYTES:
        raise ValueError(f"the buffer has {len(view)} bytes, but at most 2 GiB can be decoded at once")
    data = np.frombuffer(view, np.uint8)
    return pa.RecordBatch.from_arrays(
        _columns(data, start, start + size, [part.header for part in parts], include_headers), schema=schema
    )


def _columns(
    data: NDArray[np.uint8],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    headers: Sequence[RecordBatchHeader],
    include_headers: bool,
) -> list[pa.Array]:
    """The columns of all batches' records, which are in `[start, end)` of `data`; there is at least one record."""
    count = np.array([header.record_count for header in headers])

    def per_record(values: Iterable[int]) -> NDArray[np.int64]:
        return np.repeat(np.array(list(values), np.int64), count)

    headers_column: list[pa.Array] = []
    fields = None if include_headers else read_alike(data, start, end, count)
    if fields is None:
        fields, headers_column = _fields(data, start, end, count, include_headers)
    timestamp, offset, key, value = fields
    _check_offsets(offset, per_record(header.last_offset_delta for header in headers), count)
    offset += per_record(header.base_offset for header in headers)
    # With LogAppendTime, the timestamps in the records are not valid.
    timestamp_type = per_record(header.attributes & LOG_APPEND_TIME for header in headers)
    timestamp[timestamp_type != 0] = 0
    timestamp += per_record(
        header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp for header in headers
    )
    return [
        pa.array(offset),
        pa.array(timestamp),
        pa.array((timestamp_type != 0).astype(np.int32)),
        key,
        value,
        *headers_column,
    ]


def _fields(
    data: NDArray[np.uint8],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    count: NDArray[np.int64],
    include_headers: bool,
) -> tuple[Fields, list[pa.Array]]:
    """The fields of records of any layout, and a list with the column of headers if it is included."""
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
    return fields, [decode_headers(data, at, stop, header_count)] if include_headers else []


def _check_offsets(delta: NDArray[np.int64], last: NDArray[np.int64], count: NDArray[np.int64]) -> None:
    """Check that offsets ascend within each batch, up to its last offset: reading a range relies on this."""
    descends = np.diff(delta) <= 0
    descends[np.cumsum(count)[:-1] - 1] = False
    if descends.any() or int(delta.min()) < 0 or (delta > last).any():
        raise CorruptRecordBatch("records' offsets do not ascend, or are outside their batch")


def _behind(at: NDArray[np.int64], length: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ends of the keys or values that start at `at`; null has length -1 and no bytes."""
    behind = at + np.maximum(length, 0)
    if int(length.min()) < -1 or (behind > stop).any():
        raise CorruptRecordBatch("a key or value exceeds the end of its record")
    return behind
