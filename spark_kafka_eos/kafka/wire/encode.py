"""Encodes Arrow columns as one record batch v2.

    Record: length varint, attributes int8 (0), timestampDelta varlong, offsetDelta varint,
            keyLength varint, key, valueLength varint, value, headerCount varint, headers

Every field becomes a binary column: numbers as varints, keys and values unchanged. Concatenated row by row, the columns
are the payload. C code copies the bytes, so the work in Python hardly depends on the number of rows. A null has length
-1.

Source: KIP-98, "Message Format"; Kafka documentation, section "Record Batch".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.kafka.wire.batch_header import Compression
from spark_kafka_eos.kafka.wire.columns import MAX_BYTES, interleave, lengths
from spark_kafka_eos.kafka.wire.compression import codec_of, compress
from spark_kafka_eos.kafka.wire.headers import encode_headers
from spark_kafka_eos.kafka.wire.record_batch import HEADER, LENGTH_END, MAGIC, sign
from spark_kafka_eos.kafka.wire.stride import write_alike
from spark_kafka_eos.kafka.wire.varint import MAX_VARINT_BYTES, ZERO, varint_column, varints

_NOBODY = -1  # producer id, epoch and base sequence of a batch that belongs to no producer
_LARGEST_PAYLOAD = MAX_BYTES - HEADER.size


def encode(
    keys: pa.Array,
    values: pa.Array,
    timestamps: NDArray[np.int64] | int,
    headers: pa.Array | None = None,
    *,
    compression_type: str = "none",
    offsets: NDArray[np.int64] | None = None,
    attributes: int = 0,
) -> bytearray:
    """One complete, valid record batch: no producer (all -1), correct CRC. `stamp` sets a producer.

    `keys`, `values`: binary or string arrays of equal length, with at least one row; nulls and slices are allowed.
    `timestamps`: CreateTime in milliseconds since the epoch, per row or one for all. `headers`: list<struct<key:
    string, value: binary>>; a null list is an empty one. `compression_type`: none, gzip, snappy, lz4 or zstd.
    `offsets`: ascending, below 2**31 from first to last; by default 0, 1, 2, …. `attributes`: further bits. Raises
    InvalidRow for a header without a key, ValueError for no rows or for 2 GiB and more.
    """
    rows = len(values)
    if rows == 0:
        raise ValueError("a record batch must have at least one record")
    if any(len(column) != rows for column in (keys, timestamps, headers) if isinstance(column, pa.Array | np.ndarray)):
        raise ValueError(f"columns of different lengths for {rows} values")
    codec = codec_of(compression_type)
    first, last = (0, rows - 1) if offsets is None else (int(offsets[0]), int(offsets[-1]))
    payload = _payload(_binary(keys), _binary(values), timestamps, headers, offsets if last - first >= rows else None)
    if codec is not Compression.NONE:
        payload = memoryview(compress(codec, payload))
    batch = bytearray(HEADER.size + len(payload))
    # Assigning to a slice of the bytearray would copy the payload twice.
    np.frombuffer(batch, np.uint8)[HEADER.size :] = np.frombuffer(payload, np.uint8)
    base_timestamp, max_timestamp = (
        (timestamps, timestamps) if isinstance(timestamps, int) else (int(timestamps[0]), int(timestamps.max()))
    )
    HEADER.pack_into(
        batch, 0, first, len(batch) - LENGTH_END, -1, MAGIC, 0, codec | attributes, last - first,
        base_timestamp, max_timestamp, _NOBODY, _NOBODY, _NOBODY, rows,
    )  # fmt: skip
    sign(batch)
    return batch


def _payload(
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    timestamps: NDArray[np.int64] | int,
    headers: pa.Array | None,
    offsets: NDArray[np.int64] | None,
) -> memoryview:
    """The records; `offsets` if there are gaps between them."""
    rows = len(values)
    key_length, value_length = lengths(keys), lengths(values)
    before_key, before_value = varints(key_length), varints(value_length)
    delta = ZERO if isinstance(timestamps, int) else varints(timestamps - timestamps[0])
    header_count, header_bytes = encode_headers(headers)
    if header_bytes is None and offsets is None:
        alike = write_alike(keys, values, delta, before_key, before_value, _LARGEST_PAYLOAD)
        if alike is not None:
            return alike
    attributes = ZERO  # one byte, 0, like the varint 0
    offset_delta = np.arange(rows, dtype=np.int32) if offsets is None else (offsets - offsets[0]).astype(np.int32)
    first = [attributes, delta, varints(offset_delta), before_key]
    length = np.maximum(key_length, 0, dtype=np.int64) + np.maximum(value_length, 0)
    if header_bytes is not None:
        length += lengths(header_bytes)
    for field in (*first, before_value, header_count):
        length += field.width
    if int(length.sum()) + MAX_VARINT_BYTES * rows > _LARGEST_PAYLOAD:
        raise ValueError(
            f"{rows} records have {int(length.sum())} bytes in total, but a record batch must be below 2 GiB"
        )
    columns = [
        varint_column([varints(length), *first], rows),
        keys,
        varint_column([before_value], rows),
        values,
        varint_column([header_count], rows),
    ]
    if header_bytes is not None:
        columns.append(header_bytes)
    return interleave(columns)[0]


def _binary(column: pa.Array) -> pa.BinaryArray:
    return column if column.type == pa.binary() else column.cast(pa.binary())
