"""Variable-length integers (zigzag varint and varlong), a column at a time.

A signed number n is first folded to `(n << 1) ^ (n >> 63)`, so that small negatives are small, then written in groups
of seven bits, the lowest first; bit 7 of a byte says that another one follows. Kafka uses the same code for 32-bit
numbers (at most five bytes) and 64-bit ones (at most ten).

Source: Kafka protocol guide, types VARINT and VARLONG; KIP-98.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.errors import CorruptRecordBatch

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10


class Varints(NamedTuple):
    """Numbers ready to be written: their zigzag form and the bytes each takes.

    A number that is the same in every row is kept once (a 0-d array), and so is a width that all rows share (an int):
    record lengths and offset deltas mostly are, and it saves most of the work.
    """

    zigzag: NDArray[np.uint64]
    width: NDArray[np.int64] | int


def varints(values: NDArray[np.int64] | int) -> Varints:
    """Fold `values` and find the bytes each one takes."""
    number = np.asarray(values, np.int64)
    zigzag = np.asarray((number << 1) ^ (number >> 63)).view(np.uint64)
    narrowest, widest = _width(int(zigzag.min())), _width(int(zigzag.max()))
    if narrowest == widest:
        return Varints(zigzag, widest)
    width = np.full(zigzag.shape, narrowest, np.int64)
    for more in range(narrowest, widest):
        width += zigzag >= np.uint64(1 << 7 * more)
    return Varints(zigzag, width)


def _width(zigzag: int) -> int:
    return max(1, -(-zigzag.bit_length() // 7))


def varint_column(fields: list[Varints], rows: int) -> pa.BinaryArray:
    """One binary value per row: the row's numbers, one after the other."""
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.broadcast_to(np.asarray(sum(field.width for field in fields)), rows), out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    at = offsets[:-1].astype(np.int64)
    for field in fields:
        _put(out, at, field)
        at += field.width
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _put(out: NDArray[np.uint8], at: NDArray[np.int64], field: Varints) -> None:
    zigzag, width = field
    if isinstance(width, int):
        for k in range(width):
            # The cut to eight bits may keep a bit of the next group: it is where the "more follows" bit goes.
            byte = (zigzag >> np.uint64(7 * k)).astype(np.uint8)
            out[at + k] = byte | 0x80 if k + 1 < width else byte
        return
    for k in range(int(width.max())):
        rows = np.flatnonzero(width > k)
        byte = (zigzag[rows] >> np.uint64(7 * k)).astype(np.uint8)
        out[at[rows] + k] = np.where(width[rows] > k + 1, byte | 0x80, byte)


def read_varints(
    data: NDArray[np.uint8], at: NDArray[np.int64], end: NDArray[np.int64], max_bytes: int = MAX_VARINT_BYTES
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the number at each position of `at`; returns the numbers and the positions behind them.

    `end` bounds each number (exclusive). A number that runs over its end, or is longer than `max_bytes`, raises
    CorruptRecordBatch; so nothing outside `data` is ever read.
    """
    if (at >= end).any():
        raise CorruptRecordBatch("a record ends where another number should begin")
    byte = data[at]
    value, after = byte.astype(np.int64), at + 1
    more, shift = np.flatnonzero(byte > 0x7F), 7
    if more.size:
        value &= 0x7F
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
    folded = value.view(np.uint64)
    return (folded >> np.uint64(1)).view(np.int64) ^ -(value & 1), after


def read_varint(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Read the one number at `position`, as `read_varints` does."""
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
