"""Record batches whose records are of one size, but for the offset delta that grows by a byte at 64, 8192, ….

As long as the delta's width lasts, such records are a table of bytes with a record in each row, and a field is some of
its columns: nothing is searched for, and keys and values are copied out of all rows, or into them, at once. Of what is
read every byte but that of the attributes, which mean nothing yet, is taken or compared, so what comes out is what the
records say. Where they are not alike nothing comes out, and the caller takes one field after the other.

Measured on one core, values of 100 bytes, with this file and without it: batches of 9,000 records take 45 and 78 ns a
record to write, 53 and 94 ns to read. Batches of 16 KB: 1.25 times as fast to write, no difference to read. Records of
different sizes: no difference (0.96 to 1.04). So it costs nothing where it does not apply, and records of one size
(fixed-size formats, sensor data) need it for 10 million records a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.wire.columns import from_offsets, lengths
from spark_kafka_eos.wire.varint import ZERO, Varints, put, read_varint, varint_column, varints

# Fewer records in a batch cost less one field after the other, with those of all batches at once.
_WORTH_A_TABLE = 800
_DELTA_EDGES = (0, 1 << 6, 1 << 13, 1 << 20, 1 << 27)  # the first delta of each width, in bytes from one on

_Field = Varints | NDArray[np.uint8]  # of records in a table: numbers, or bytes with a record in each row


class Fields(NamedTuple):
    """What is written in each record of all batches; timestamps and offsets are deltas to those of its batch."""

    timestamp: NDArray[np.int64]
    offset: NDArray[np.int64]
    key: pa.BinaryArray
    value: pa.BinaryArray


class _Layout(NamedTuple):
    """What records have in common, read off the first one: widths in bytes, and bytes that are the same in all."""

    content: int  # all that its length counts, with an offset delta of one byte
    timestamp: int
    key_length: bytes
    key: int
    value_length: bytes
    value: int
    nulls: tuple[bool, bool]  # no key, no value


def read_alike(
    data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64], count: NDArray[np.int64]
) -> Fields | None:
    """The fields of the records in `[start, end)`, or None where that takes more than this: small batches, records that
    differ in size, headers, damage. `count` must be positive.
    """
    records = int(count.sum())
    if records < _WORTH_A_TABLE * len(count):
        return None
    layout = _layout(data, int(start[0]), int(end[0]))
    if layout is None or records * (layout.key + layout.value) > int((end - start).sum()):
        return None
    timestamp, offset = np.empty(records, np.int64), np.empty(records, np.int64)
    key = np.empty((records, layout.key), np.uint8)
    value = np.empty((records, layout.value), np.uint8)
    done = 0
    for at, stop, rows in zip(start.tolist(), end.tolist(), count.tolist(), strict=True):
        position = at
        for width, (first, behind) in enumerate(_parts(rows), start=1):
            size = behind - first
            length = _length(layout.content + width - 1)
            step = len(length) + layout.content + width - 1
            if position + size * step > stop:
                return None
            table = data[position : position + size * step].reshape(size, step)
            part = slice(done + first, done + first + size)
            if not _read(table, layout, length, width, timestamp[part], offset[part], key[part], value[part]):
                return None
            position += size * step
        if position != stop:
            return None
        done += rows
    no_key, no_value = layout.nulls
    return Fields(timestamp, offset, _column(key, no_key), _column(value, no_value))


def write_alike(
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    timestamp: Varints,
    key_length: Varints,
    value_length: Varints,
    most_bytes: int,
) -> memoryview | None:
    """The payload of records without headers, or None where keys, values or timestamp deltas differ in size, or where
    it is larger than `most_bytes`.
    """
    if not isinstance(timestamp.width, int) or len(key_length.zigzag) > 1 or len(value_length.zigzag) > 1:
        return None
    key, value = _rows(keys), _rows(values)
    tables: list[tuple[int, list[_Field]]] = []  # how many records, and the fields of each
    for first, behind in _parts(len(values)):
        part = slice(first, behind)
        time = timestamp if len(timestamp.zigzag) == 1 else timestamp._replace(zigzag=timestamp.zigzag[part])
        delta = varints(np.arange(first, behind))
        fields: list[_Field] = [ZERO, time, delta, key_length, key[part], value_length, value[part], ZERO]
        tables.append((behind - first, [varints(sum(map(_width, fields))), *fields]))
    size = sum(count * sum(map(_width, fields)) for count, fields in tables)
    if size > most_bytes:
        return None
    payload = pa.allocate_buffer(size)  # of a pool that keeps its pages: a new megabyte may be 300 page faults
    rest = np.frombuffer(payload, np.uint8)
    for count, fields in tables:
        step = sum(map(_width, fields))
        table, rest = rest[: count * step].reshape(count, step), rest[count * step :]
        at = 0
        for field in fields:
            if isinstance(field, Varints):
                put(table, at, field)
            else:
                table[:, at : at + _width(field)] = field
            at += _width(field)
    return memoryview(payload)


def _parts(rows: int) -> Iterator[tuple[int, int]]:
    """The records, from one up to another, whose offset deltas take one byte, two bytes, …."""
    return pairwise([*(edge for edge in _DELTA_EDGES if edge < rows), rows])


def _rows(column: pa.BinaryArray) -> NDArray[np.uint8]:
    """A column whose rows are of one size as a table; null rows have no columns."""
    size = max(int(lengths(column.slice(0, 1))[0]), 0)
    _, offsets, data = column.buffers()
    start = int(np.frombuffer(offsets, np.int32, 1, 4 * column.offset)[0])
    return np.frombuffer(data or b"", np.uint8, len(column) * size, start).reshape(len(column), size)


def _width(field: _Field) -> int:
    """Bytes of a record that a field takes."""
    if not isinstance(field, Varints):
        return int(field.shape[1])
    assert isinstance(field.width, int)
    return field.width


def _layout(data: NDArray[np.uint8], start: int, end: int) -> _Layout | None:
    """From the first record of a batch; None if its offset delta or its number of headers takes more than a byte."""
    try:
        content, attributes_at = read_varint(data, start, end)
        _, offset_at = read_varint(data, attributes_at + 1, end)
        _, key_length_at = read_varint(data, offset_at, end)
        key, key_at = read_varint(data, key_length_at, end)
        value_length_at = key_at + max(key, 0)
        value, value_at = read_varint(data, value_length_at, end)
        headers_at = value_at + max(value, 0)
    except CorruptRecordBatch:
        return None
    if min(key, value) < -1 or key_length_at != offset_at + 1 or headers_at + 1 != attributes_at + content:
        return None
    return _Layout(
        content=content,
        timestamp=offset_at - attributes_at - 1,
        key_length=data[key_length_at:key_at].tobytes(),
        key=max(key, 0),
        value_length=data[value_length_at:value_at].tobytes(),
        value=max(value, 0),
        nulls=(key < 0, value < 0),
    )


@lru_cache
def _length(content: int) -> bytes:
    """A record's length as it is written: a varint."""
    written: bytes = varint_column([varints(content)], 1)[0].as_py()
    return written


def _read(
    table: NDArray[np.uint8],
    layout: _Layout,
    length: bytes,
    width: int,
    timestamp: NDArray[np.int64],
    offset: NDArray[np.int64],
    key: NDArray[np.uint8],
    value: NDArray[np.uint8],
) -> bool:
    """Fill in the fields of a table's records, whose offset deltas have `width` bytes; whether they are all alike."""
    timestamp_at = len(length) + 1
    offset_at = timestamp_at + layout.timestamp
    key_length_at = offset_at + width
    key_at = key_length_at + len(layout.key_length)
    value_length_at = key_at + layout.key
    value_at = value_length_at + len(layout.value_length)
    headers_at = value_at + layout.value
    same = (
        (0, length),
        (key_length_at, layout.key_length),
        (value_length_at, layout.value_length),
        (headers_at, b"\0"),
    )
    for at, expected in same:
        for column, byte in enumerate(expected, start=at):
            if (table[:, column] != byte).any():
                return False
    if not (
        _numbers(table[:, timestamp_at:offset_at], timestamp) and _numbers(table[:, offset_at:key_length_at], offset)
    ):
        return False
    key[:] = table[:, key_at:value_length_at]
    value[:] = table[:, value_at:headers_at]
    return True


def _numbers(columns: NDArray[np.uint8], out: NDArray[np.int64]) -> bool:
    """Unfold a varint in each row of `columns`; whether each takes just these bytes."""
    *low, high = columns.T
    if (high > 0x7F).any():
        return False
    folded = high.astype(np.uint64)
    for byte in reversed(low):
        if (byte < 0x80).any():
            return False
        folded = folded << 7 | byte & 0x7F
    out[:] = (folded >> 1).view(np.int64) ^ -(folded & 1).view(np.int64)
    return True


def _column(rows: NDArray[np.uint8], is_null: bool) -> pa.BinaryArray:
    count, size = rows.shape
    if is_null:
        return pa.nulls(count, pa.binary())
    return from_offsets(np.arange(count + 1, dtype=np.int32) * np.int32(size), rows.reshape(-1))
