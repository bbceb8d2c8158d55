"""Record batches v2 -> Arrow columns, all batches of a buffer in one pass.

`chain` finds where each record begins; from there on every field is read for all records at once, and keys and values
are cut out of the buffer in C.

Everything read from the bytes is checked before it is used as a position, so damaged bytes end in CorruptRecordBatch
whatever they say, and memory stays in proportion to the bytes at hand.

Source: KIP-98, "Message Format"; Kafka documentation, sections "Record Batch" and "Control Batches".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.model import Compression, RecordBatchHeader, TimestampType
from spark_kafka_eos.wire.chain import record_bounds
from spark_kafka_eos.wire.columns import MAX_BYTES, cut
from spark_kafka_eos.wire.compression import decompress
from spark_kafka_eos.wire.headers import HEADERS, SMALLEST_HEADER, decode_headers
from spark_kafka_eos.wire.record_batch import HEADER, SMALLEST_RECORD, Bytes
from spark_kafka_eos.wire.record_batch import check_crc as check_crc_of
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
_CONTROL_KEY = struct.Struct(">hh")  # version, type
_MARKERS: dict[int, Literal["abort", "commit"]] = {0: "abort", 1: "commit"}


def decode(
    buffer: Bytes,
    batches: Sequence[tuple[int, RecordBatchHeader]],
    *,
    check_crc: bool = True,
    include_headers: bool = False,
    max_bytes: int = MAX_BYTES,
) -> pa.RecordBatch:
    """The records of `batches` (positions in `buffer` and headers, as `scan` yields them) as columns, in that order.

    Columns: `SCHEMA` or `SCHEMA_WITH_HEADERS`, timestamps in milliseconds. They hold copies: `buffer` may be reused.
    CorruptRecordBatch for a wrong CRC, for bytes that do not make the records a header promises, and for more than
    `max_bytes` after decompression. ValueError for control batches (they are not data) and for a buffer of 2 GiB.
    """
    if any(header.is_control for _, header in batches):
        raise ValueError("control batches hold no data: leave them out, see control_marker")
    for position, header in batches:
        _check_bounds(buffer, position, header)
        if check_crc:
            check_crc_of(buffer, position, header)
    filled = [(position, header) for position, header in batches if header.record_count]
    data, start, end = _payloads(buffer, filled, max_bytes)
    return _columns(data, start, end, [header for _, header in filled], include_headers)


def control_marker(
    buffer: Bytes, position: int, header: RecordBatchHeader, *, check_crc: bool = True
) -> Literal["abort", "commit", "other"]:
    """What the control batch at `position` says of its producer's transaction; "other" for markers that end none.

    Its one record's key is version int16, type int16 (0 abort, 1 commit). Source: Kafka documentation, "Control
    Batches".
    """
    _check_bounds(buffer, position, header)
    if check_crc:
        check_crc_of(buffer, position, header)
    data, start, end = _payloads(buffer, [(position, header)], MAX_BYTES)
    key = _columns(data, start, end, [header], False)["key"][0].as_py() if header.record_count else None
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptRecordBatch(f"the control batch at offset {header.base_offset} has no control record")
    _, kind = _CONTROL_KEY.unpack_from(key)
    return _MARKERS.get(kind, "other")


def _check_bounds(buffer: Bytes, position: int, header: RecordBatchHeader) -> None:
    if position + header.size > len(buffer):
        raise CorruptRecordBatch(f"the record batch at offset {header.base_offset} is cut short")
    if not header.record_count and header.size > HEADER.size:
        raise CorruptRecordBatch(f"the record batch at offset {header.base_offset} claims no records and has some")


def _payloads(
    buffer: Bytes, batches: Sequence[tuple[int, RecordBatchHeader]], max_bytes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """An array that holds the records of all batches (`buffer` itself if none is compressed), each batch's range."""
    start = np.array([position + HEADER.size for position, _ in batches], np.int64)
    end = np.array([position + header.size for position, header in batches], np.int64)
    data = np.frombuffer(buffer, np.uint8)
    if any(header.compression_code != Compression.NONE for _, header in batches):
        parts, room = [], min(max_bytes, MAX_BYTES)
        for (_, header), first, behind in zip(batches, start.tolist(), end.tolist(), strict=True):
            parts.append(decompress(header.compression_code, data.data[first:behind], limit=room))
            room -= len(parts[-1])
        data = np.frombuffer(b"".join(parts), np.uint8)
        size = np.array([len(part) for part in parts], np.int64)
        end = np.cumsum(size)
        start = end - size
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data)} bytes in one call: the columns' 32-bit offsets end at 2 GiB")
    for (_, header), first, behind in zip(batches, start.tolist(), end.tolist(), strict=True):
        if header.record_count * SMALLEST_RECORD > behind - first:
            raise CorruptRecordBatch(
                f"the record batch at offset {header.base_offset} claims {header.record_count} records "
                f"in {behind - first} bytes"
            )
    return data, start, end


def _columns(
    data: NDArray[np.uint8],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    headers: Sequence[RecordBatchHeader],
    include_headers: bool,
) -> pa.RecordBatch:
    count = np.array([header.record_count for header in headers], np.int64)

    def per_record(values: list[int]) -> NDArray[np.int64]:
        return np.repeat(np.array(values, np.int64), count)

    at, stop = record_bounds(data, start, end, count)
    timestamp, at = read_varints(data, at + 1, stop, MAX_VARLONG_BYTES)  # behind the attributes, which mean nothing yet
    offset, at = read_varints(data, at, stop)
    key_length, key_at = read_varints(data, at, stop)
    value_length, value_at = read_varints(data, _behind(key_at, key_length, stop), stop)
    header_count, at = read_varints(data, _behind(value_at, value_length, stop), stop)
    if (offset < 0).any() or (offset > per_record([header.last_offset_delta for header in headers])).any():
        raise CorruptRecordBatch("a record's offset lies outside its batch")
    if (header_count < 0).any() or (header_count * SMALLEST_HEADER > stop - at).any():
        raise CorruptRecordBatch("a record claims more headers than its bytes can hold")
    if ((header_count == 0) & (at != stop)).any():
        raise CorruptRecordBatch("bytes are left behind a record's last field")
    offset += per_record([header.base_offset for header in headers])
    if any(header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in headers):
        # Then the records' own times, whatever they are, no longer count.
        timestamp[per_record([header.timestamp_type for header in headers]) == TimestampType.LOG_APPEND_TIME] = 0
    timestamp += per_record([_timestamp_origin(header) for header in headers])
    columns = [
        pa.array(offset),
        pa.array(timestamp),
        pa.array(per_record([header.timestamp_type for header in headers]).astype(np.int32)),
        cut(data, key_at, key_length),
        cut(data, value_at, value_length),
    ]
    if not include_headers:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return pa.RecordBatch.from_arrays(
        [*columns, decode_headers(data, at, stop, header_count)], schema=SCHEMA_WITH_HEADERS
    )


def _timestamp_origin(header: RecordBatchHeader) -> int:
    return header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else header.base_timestamp


def _behind(at: NDArray[np.int64], length: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the key or value that begins `at` ends; null has length -1 and no bytes."""
    behind = at + np.maximum(length, 0)
    if (length < -1).any() or (behind > stop).any():
        raise CorruptRecordBatch("a key or value runs over the end of its record")
    return behind
