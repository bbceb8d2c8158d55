"""Encodes and decodes record headers: list<struct<key: string, value: binary>> <-> bytes.

    Header: keyLength varint, key (UTF-8), valueLength varint (-1: null), value

Source: KIP-82 (record headers), KIP-98, "Message Format".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_eos.kafka.errors import CorruptRecordBatch, InvalidRow
from spark_kafka_eos.kafka.wire.columns import cut, from_numpy, from_offsets, interleave, lengths
from spark_kafka_eos.kafka.wire.varint import ZERO, Varints, read_varint, read_varints, varint_column, varints

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SMALLEST_HEADER = 2  # an empty key and a null value: two lengths
HEADER_BYTES = 80  # of memory that a header takes while it is decoded, besides its key and value
_FEW = 50  # up to this number, records are read one by one, which is cheaper than array operations


class EncodedHeaders(NamedTuple):
    """The end of each record: its header count, and its headers' bytes (None if no record has any)."""

    counts: Varints
    content: pa.BinaryArray | None


def encode_headers(headers: pa.Array | None) -> EncodedHeaders:
    """The end of each record; a null list is an empty one. InvalidRow for a header that is null or has no key."""
    entries = None if headers is None else headers.flatten()
    if entries is None or len(entries) == 0:
        return EncodedHeaders(ZERO, None)
    keys, values = (column.cast(pa.binary()) for column in entries.flatten())
    if keys.null_count:
        raise InvalidRow(
            "a record header is null or has no key", action="Set the key of every header; its value may be null."
        )
    key_lengths, value_lengths = (varint_column([varints(lengths(column))], len(entries)) for column in (keys, values))
    data, starts = interleave([key_lengths, keys, value_lengths, values])
    counts = pc.list_value_length(headers).fill_null(0).to_numpy().astype(np.int64)
    return EncodedHeaders(varints(counts), from_offsets(starts[_firsts(counts)], data))


def without_key(headers: pa.ListArray) -> pa.Array | None:
    """Which rows have a header that is null or has no key, as booleans; None if no row has."""
    key = headers.flatten().flatten()[0]
    if not key.null_count:
        return None
    row = np.repeat(np.arange(len(headers)), pc.list_value_length(headers).fill_null(0).to_numpy())
    keyless = np.zeros(len(headers), bool)
    keyless[row[key.is_null().to_numpy(zero_copy_only=False)]] = True
    return pa.array(keyless)


def decode_headers(
    data: NDArray[np.uint8], at: NDArray[np.int64], end: NDArray[np.int64], counts: NDArray[np.int64]
) -> pa.ListArray:
    """The headers of each record: `counts` of them, from `at` to `end`. Raises CorruptRecordBatch if they do not end
    exactly there.

    All records' first headers are read at once, then all second ones, …; the last few records are read one by one.
    """
    if (counts < 0).any() or (counts * SMALLEST_HEADER > end - at).any():
        raise CorruptRecordBatch("a record declares more headers than fit into its bytes")
    first = _firsts(counts)
    # One column per header: position and length of its key, position and length of its value (-1: null).
    place = np.empty((4, first[-1]), np.int64)
    record, at = np.flatnonzero(counts), at.copy()
    done = 0
    while record.size > _FEW:
        slot, limit = first[record] + done, end[record]
        for where in (0, 2):
            length, start = read_varints(data, at[record], limit)
            place[where, slot], place[where + 1, slot] = start, length
            at[record] = start + np.maximum(length, 0)  # beyond the end, the next read or the check below fails
        done += 1
        record = record[counts[record] > done]
    for index in record.tolist():
        slots = place[:, first[index] + done : first[index + 1]]
        at[index] = _read_one(data[: end[index]].data, int(at[index]), *(row.data for row in slots))
    if (at != end).any():
        raise CorruptRecordBatch("a record's headers do not end at its end")
    if (place[1] < 0).any() or (place[3] < -1).any():
        raise CorruptRecordBatch("a header has a negative length")
    keys, values = strings(cut(data, place[0], place[1])), cut(data, place[2], place[3])
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(from_numpy(first.astype(np.int32)), entries)


def _read_one(
    view: memoryview,
    position: int,
    key_at: memoryview,
    key_length: memoryview,
    value_at: memoryview,
    value_length: memoryview,
) -> int:
    """Fill in one record's headers from `position` on; return the position after them."""
    end = len(view)
    for slot in range(len(key_at)):
        for at, size in ((key_at, key_length), (value_at, value_length)):
            if position < end and (byte := view[position]) < 0x80:
                length, position = byte >> 1 ^ -(byte & 1), position + 1
            else:
                length, position = read_varint(view, position, end)
            at[slot], size[slot] = position, length
            if length > 0:
                position += length
    return position


def _firsts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    first = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    return first


def strings(texts: pa.BinaryArray) -> pa.StringArray:
    """Texts as strings; invalid UTF-8 becomes U+FFFD, as in the Java client."""
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = (text if text is None else text.decode(errors="replace") for text in texts.to_pylist())
        return pa.array(decoded, pa.string())
