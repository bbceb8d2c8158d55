"""Encodes and decodes record batches whose records have equal size, except that the offset delta grows by a byte at 64,
8192, ….

Between two such offsets, the records form a table of bytes: each row is a record, and each field is a range of columns.
So no field's position has to be computed, and the keys and values of all rows are copied at once. Decoding reads or
compares every byte except the attributes, which Kafka does not use yet, so the result is never a guess. If the records
differ in layout, it returns None, and the caller decodes field by field.

Measured on one core with values of 100 bytes, with and without this file: in batches of 9,000 records, a record takes
45 and 78 ns to encode, 53 and 94 ns to decode. Batches of 16 KB are encoded 1.25 times as fast and decoded equally
fast. For records of different sizes there is no difference (0.96 to 1.04). So this file costs nothing if it does not
apply, and records of equal size (fixed-size formats, sensor data) need it to reach 10 million records per second.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.kafka.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.columns import from_offsets, lengths
from spark_kafka_eos.kafka.wire.varint import ZERO, Varints, put, read_varint, varint_column, varints

# For fewer records per batch, decoding field by field is cheaper, because it handles all batches at once.
WORTH_A_TABLE = 800
_DELTA_EDGES = (0, 1 << 6, 1 << 13, 1 << 20, 1 << 27)  # the first offset delta of 1, 2, … bytes

_Field = Varints | NDArray[np.uint8]  # a field of all records in a table: numbers, or bytes with one row per record


class Fields(NamedTuple):
    """The fields of all batches' records; timestamps and offsets are relative to their batch's base."""

    timestamp: NDArray[np.int64]
    offset: NDArray[np.int64]
    key: pa.BinaryArray
    value: pa.BinaryArray


class _Layout(NamedTuple):
    """What the records have in common, taken from the first one: widths in bytes, and bytes that are equal in all."""

    content: int  # what the record's length counts, with an offset delta of one byte
    timestamp: int
    key_length: bytes
    key: int
    value_length: bytes
    value: int
    nulls: tuple[bool, bool]  # no key, no value


def read_alike(
    data: NDArray[np.uint8],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    count: NDArray[np.int64],
    *,
    worth_a_table: int = WORTH_A_TABLE,
) -> Fields | None:
    """The fields of the records in `[start, end)`. None if the batches have fewer than `worth_a_table` records on
    average or are damaged, or if records differ in size or have headers. `count` must be positive.
    """
    records = int(count.sum())
    if records < worth_a_table * len(count):
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
    """The payload of records without headers. None if keys, values or timestamp deltas differ in size, or if the
    payload would exceed `most_bytes`.
    """
    if not isinstance(timestamp.width, int) or len(key_length.zigzag) > 1 or len(value_length.zigzag) > 1:
        return None
    key, value = _rows(keys), _rows(values)
    tables: list[tuple[int, list[_Field]]] = []  # number of records, and their fields
    for first, behind in _parts(len(values)):
        part = slice(first, behind)
        time = timestamp if len(timestamp.zigzag) == 1 else timestamp._replace(zigzag=timestamp.zigzag[part])
        delta = varints(np.arange(first, behind))
        fields: list[_Field] = [ZERO, time, delta, key_length, key[part], value_length, value[part], ZERO]
        tables.append((behind - first, [varints(sum(map(_width, fields))), *fields]))
    size = sum(count * sum(map(_width, fields)) for count, fields in tables)
    if size > most_bytes:
        return None
    payload = pa.allocate_buffer(size)  # from a pool that keeps its pages: a new megabyte can take 300 page faults
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
    """The ranges of records whose offset deltas take one byte, two bytes, …."""
    return pairwise([*(edge for edge in _DELTA_EDGES if edge < rows), rows])


def _rows(column: pa.BinaryArray) -> NDArray[np.uint8]:
    """A column with rows of equal size, as a table; null rows have no columns."""
    size = max(int(lengths(column.slice(0, 1))[0]), 0)
    _, offsets, data = column.buffers()
    start = int(np.frombuffer(offsets, np.int32, 1, 4 * column.offset)[0])
    return np.frombuffer(data or b"", np.uint8, len(column) * size, start).reshape(len(column), size)


def _width(field: _Field) -> int:
    """The number of bytes that the field takes in each record."""
    if not isinstance(field, Varints):
        return int(field.shape[1])
    assert isinstance(field.width, int)
    return field.width


def _layout(data: NDArray[np.uint8], start: int, end: int) -> _Layout | None:
    """The layout of a batch's first record; None if its offset delta or its header count takes more than one byte."""
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
    """A record's length as a varint."""
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
    """Fill in the fields of a table of records whose offset deltas have `width` bytes; False if layouts differ."""
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
    """Decode the varint in each row of `columns`. False if one of them has another width."""
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
