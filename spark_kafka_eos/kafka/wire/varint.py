"""Encodes and decodes variable-length integers (zigzag varint and varlong), a column at a time.

Zigzag maps a signed number n to `(n << 1) ^ (n >> 63)`, so that small negative numbers become small. The result is
written in groups of seven bits, lowest first; bit 7 of a byte states that another byte follows. Kafka uses the same
code for 32-bit numbers (at most five bytes) and 64-bit numbers (at most ten).

Source: Kafka protocol guide, types VARINT and VARLONG; KIP-98.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.kafka.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.columns import from_offsets

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10
_UNFOLDED = np.array([byte >> 1 ^ -(byte & 1) for byte in range(0x80)], np.int64)  # the numbers that take one byte


class Varints(NamedTuple):
    """Numbers ready to be written: their zigzag form and the bytes that each takes.

    If all rows have the same number, `zigzag` is an array of one; if all have the same width, `width` is an int. This
    is usually so for lengths and timestamps, and saves most of the work.
    """

    zigzag: NDArray[np.unsignedinteger[Any]]
    width: NDArray[np.int64] | int


def varints(values: NDArray[np.signedinteger[Any]] | int) -> Varints:
    """Zigzag-encode `values` (int32 or int64) and compute the bytes that each takes."""
    number = np.asarray(values, None if isinstance(values, np.ndarray) else np.int64)
    bits = 8 * number.itemsize
    zigzag = np.asarray((number << 1) ^ (number >> bits - 1)).view(f"u{number.itemsize}")
    smallest, largest = int(zigzag.min()), int(zigzag.max())
    if smallest == largest:
        return Varints(zigzag.reshape(-1)[:1], _width(largest))
    narrowest, widest = _width(smallest), _width(largest)
    if narrowest == widest:
        return Varints(zigzag, widest)
    width = np.full(zigzag.shape, narrowest, np.int64)
    for more in range(narrowest, widest):
        width += zigzag >> 7 * more != 0
    return Varints(zigzag, width)


def _width(zigzag: int) -> int:
    return max(1, -(-zigzag.bit_length() // 7))


ZERO = varints(0)


def varint_column(fields: Sequence[Varints], rows: int) -> pa.BinaryArray:
    """One binary value per row: the row's numbers, concatenated."""
    uniform = [field.width for field in fields if isinstance(field.width, int)]
    if len(uniform) == len(fields):
        table = np.empty((rows, sum(uniform)), np.uint8)
        column = 0
        for field, width in zip(fields, uniform, strict=True):
            put(table, column, field)
            column += width
        return from_offsets(np.arange(0, (rows + 1) * column, column, dtype=np.int32), table.reshape(-1))
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(sum(field.width for field in fields), out=offsets[1:])
    out, at = np.empty(offsets[-1], np.uint8), offsets[:-1].astype(np.int64)
    for field in fields:
        put(out, at, field)
        at += field.width
    return from_offsets(offsets, out)


def put(out: NDArray[np.uint8], at: NDArray[np.int64] | int, field: Varints) -> None:
    """Write `field` from `at` on, which is a column if `out` is a table, or each row's position if `out` is flat. In a
    table, all rows must have the same width.
    """
    zigzag, width = field
    if isinstance(width, int):
        for k in range(width):
            out[..., at + k] = _group(zigzag, k) | 0x80 if k + 1 < width else _group(zigzag, k)
        return
    assert isinstance(at, np.ndarray)
    for k in range(int(width.max())):
        rows = np.flatnonzero(width > k)
        # Offset deltas only grow, so the longer ones come last, and a slice is enough.
        some = slice(rows[0], None) if len(rows) == len(width) - rows[0] else rows
        out[at[some] + k] = _group(zigzag[some], k) | (width[some] > k + 1).view(np.uint8) << 7


def _group(zigzag: NDArray[np.unsignedinteger[Any]], k: int) -> NDArray[np.uint8]:
    """The k-th group of seven bits. Bit 7 may belong to the next group; if there is one, the caller sets it anyway."""
    return (zigzag >> 7 * k).astype(np.uint8)


def read_varints(
    data: NDArray[np.uint8], at: NDArray[np.int64], end: NDArray[np.int64], max_bytes: int = MAX_VARINT_BYTES
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the number at each position of `at`; return the numbers and the positions after them.

    Raises CorruptRecordBatch for a number that reaches beyond its `end` (exclusive) or has more than `max_bytes` bytes,
    so nothing outside `data` is read.
    """
    if (at >= end).any():
        raise CorruptRecordBatch("a record ends where another number should begin")
    byte, after = data[at], at + 1
    wide = byte > 0x7F
    if not wide.any():
        return _UNFOLDED[byte], after
    if (wide & (after >= end)).any():
        raise CorruptRecordBatch("a number runs over the end of its record")
    # Read a second byte for all numbers: this is cheaper than selecting those that have one. Select from the third on.
    second = data.take(after, mode="clip")
    after += wide
    value = (byte & 0x7F).astype(np.int64) | ((second & 0x7F) * wide).astype(np.int64) << 7
    more, shift = np.flatnonzero(wide & (second > 0x7F)), 14
    while more.size:
        if shift == 7 * max_bytes:
            raise CorruptRecordBatch(f"a number takes more than {max_bytes} bytes")
        where = after[more]
        if (where >= end[more]).any():
            raise CorruptRecordBatch("a number runs over the end of its record")
        byte = data[where]
        value[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] = where + 1
        more, shift = more[byte > 0x7F], shift + 7
    return (value.view(np.uint64) >> 1).view(np.int64) ^ -(value & 1), after


def read_varint(data: NDArray[np.uint8] | memoryview, position: int, end: int) -> tuple[int, int]:
    """Read one number, like `read_varints`; return it and the position after it."""
    folded = 0
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        if position >= end:
            raise CorruptRecordBatch("a number runs over the end of its record")
        byte = int(data[position])
        position += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (folded >> 1) ^ -(folded & 1), position
    raise CorruptRecordBatch(f"a number takes more than {MAX_VARINT_BYTES} bytes")
