"""Rows of bytes that are decoded a field at a time: all rows' cursors advance together.

Nothing here raises for a record that is malformed. The first fault of a row is noted and the row goes on as well as it
can, so that the other rows keep their speed; its result is thrown away at the end. Three rules keep this safe. A
cursor only grows, so a row that once ran over its end is seen to be beyond it at the end. Reads outside the buffer are
clipped. And a length or a count that exceeds what is left of the row is noted and taken as 0, so no row makes the
decoder allocate more than a multiple of its size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.kafka.wire.columns import Int64s, cut

Mask = NDArray[np.bool_]

_CAUSES = list(Cause)
_UNFOLDED = np.array([byte >> 1 ^ -(byte & 1) for byte in range(0x100)], np.int64)
_SPARE = np.zeros(16, np.uint8)  # after the last row, so that a value of fixed size can be read anywhere


class Faults:
    """The first fault of each row: `cause` is 0, or 1 + its number in Cause; `at` is the position in the buffer."""

    def __init__(self, rows: int) -> None:
        self.cause = np.zeros(rows, np.uint8)
        self.at = np.zeros(rows, np.int64)
        self.reasons: dict[int, str] = {}  # by row, where the schemas alone say why

    def note(self, rows: Int64s, at: Int64s, cause: Cause, reason: str = "") -> None:
        new = self.cause[rows] == 0
        self.cause[rows[new]] = 1 + _CAUSES.index(cause)
        self.at[rows[new]] = at[new]
        if reason:
            self.reasons |= dict.fromkeys(rows[new].tolist(), reason)

    def of(self, row: int) -> Cause | None:
        number = int(self.cause[row])
        return _CAUSES[number - 1] if number else None


@dataclass(slots=True)
class Rows:
    """`at` and `end` (exclusive) are positions in `data`; `row` is each one's number in `faults`."""

    data: NDArray[np.uint8]
    at: Int64s
    end: Int64s
    row: Int64s
    faults: Faults = field(repr=False)

    def __len__(self) -> int:
        return len(self.at)

    def some(self, which: Int64s | Mask) -> Rows:
        """Copies of the cursors of some rows; write them back with `join`."""
        return Rows(self.data, self.at[which], self.end[which], self.row[which], self.faults)

    def join(self, which: Int64s | Mask, part: Rows) -> None:
        self.at[which] = part.at

    def note(self, wrong: Mask, cause: Cause = Cause.UNDECODABLE, reason: str = "") -> None:
        self.faults.note(self.row[wrong], self.at[wrong], cause, reason)

    def note_one(self, number: int, cause: Cause) -> None:
        self.faults.note(self.row[[number]], self.at[[number]], cause)

    def finish(self) -> None:
        """Every byte must have been read, and none after the end."""
        self.note(self.at != self.end)


ReadColumn = Callable[[Rows], pa.Array]  # reads one value of each row


def rows_of(column: pa.BinaryArray) -> Rows:
    """The column's rows; null rows are empty. Slices are fine."""
    _, offsets, values = column.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    data = np.concatenate([np.frombuffer(values or b"", np.uint8, bounds[-1]), _SPARE])
    return Rows(data, bounds[:-1].copy(), bounds[1:], np.arange(len(column)), Faults(len(column)))


def longs(rows: Rows, most_bytes: int = 10) -> Int64s:
    """A zigzag varint of each row. A row whose number has more than `most_bytes` bytes is noted."""
    byte = rows.data.take(rows.at, mode="clip")
    rows.at += 1
    if not (byte > 0x7F).any():
        return _UNFOLDED[byte]
    return unfold(_more(rows, byte, most_bytes))


def unfold(folded: NDArray[np.uint64]) -> Int64s:
    """From zigzag to signed."""
    return (folded >> 1).view(np.int64) ^ -(folded & 1).view(np.int64)


def _more(rows: Rows, byte: NDArray[np.uint8], most_bytes: int) -> NDArray[np.uint64]:
    """The numbers whose first `byte` was read, some of which go on."""
    value = (byte & 0x7F).astype(np.uint64)
    which, shift = np.flatnonzero(byte > 0x7F), 7
    while which.size:
        if shift == 7 * most_bytes:
            wrong = np.zeros(len(rows), np.bool_)
            wrong[which] = True
            rows.note(wrong)
            break
        byte = rows.data.take(rows.at[which], mode="clip")
        rows.at[which] += 1
        value[which] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        which, shift = which[byte > 0x7F], shift + 7
    return value


def within(rows: Rows, length: Int64s) -> Int64s:
    """`length`, where as many bytes are left; elsewhere the row is noted, and it is 0."""
    wrong = (length < 0) | (length > rows.end - rows.at)
    if wrong.any():
        rows.note(wrong)
        return np.where(wrong, 0, length)
    return length


def fixed(rows: Rows, kind: str) -> NDArray[np.generic]:
    """A little-endian number of each row, of NumPy's type `kind`."""
    size = np.dtype(kind).itemsize
    view = np.ndarray(len(rows.data) - size + 1, kind, rows.data.data, strides=(1,))
    rows_at = np.minimum(rows.at, len(view) - 1)
    rows.at += size
    return view[rows_at]


def texts(rows: Rows, length: Int64s, *, utf8: bool) -> pa.Array:
    """The next `length` bytes of each row, as binary or, checked, as strings. `length` comes from `within`."""
    start = np.minimum(rows.at, rows.end)  # a row that ran over its end must not leave the order that `cut` needs
    rows.at += length
    column = cut(rows.data, start, length)
    if not utf8:
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = np.array([not _is_utf8(value) for value in column.to_pylist()], np.bool_)
        rows.note(wrong)
        return cut(rows.data, start, np.where(wrong, 0, length)).cast(pa.string())


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
