"""Concatenates binary columns row by row, and cuts columns from a buffer. Both copy the bytes in C.

pa.binary() has 32-bit offsets, so all data must be below 2 GiB; callers check this.

Numbers go from NumPy to Arrow and back by their buffers. `pa.array`, `pa.scalar` and `Array.to_numpy` import pandas at
their first use, which would take longer than all of our own imports in a task that reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MAX_BYTES = 2**31 - 1
Int64s = NDArray[np.int64]


def from_numpy(numbers: NDArray[Any]) -> pa.Array:
    """A column of these numbers, without a copy."""
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def to_numpy(column: pa.Array) -> NDArray[Any]:
    """The numbers of a column without nulls, which may be a slice, without a copy."""
    kind = np.dtype(column.type.to_pandas_dtype())  # NumPy's
    if not len(column):
        return np.empty(0, kind)
    return np.frombuffer(column.buffers()[1], kind, len(column), kind.itemsize * column.offset)


def nulls(column: pa.Array) -> NDArray[np.bool_]:
    """Which rows are null."""
    valid = column.buffers()[0]
    if valid is None:
        return np.zeros(len(column), np.bool_)
    first, end = column.offset // 8, -(-(column.offset + len(column)) // 8)
    bits = np.unpackbits(np.frombuffer(valid, np.uint8)[first:end], bitorder="little")
    is_null: NDArray[np.bool_] = bits[column.offset % 8 :][: len(column)] == 0
    return is_null


def lengths(column: pa.BinaryArray | pa.StringArray | pa.ListArray) -> NDArray[np.int32]:
    """The number of bytes or elements of each row, -1 for null. There must be at least one row."""
    ends = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    length = np.diff(ends)
    if column.null_count:
        length[nulls(column)] = -1
    return length


def interleave(columns: Sequence[pa.BinaryArray]) -> tuple[memoryview, NDArray[np.int32]]:
    """All bytes of row 0, column by column, then of row 1, …; and the start of each row, followed by the end.

    Columns are pa.binary() of equal length, and may be slices; a null has no bytes.
    """
    rows, width = len(columns[0]), len(columns)
    order = np.empty((rows, width), np.int32)
    for number in range(width):
        order[:, number] = np.arange(number * rows, (number + 1) * rows)
    pieces = pc.take(pa.concat_arrays(columns), from_numpy(order.reshape(-1)), boundscheck=False)
    _, offsets, data = pieces.buffers()
    starts = np.frombuffer(offsets, np.int32, rows * width + 1)[::width]
    return memoryview(data)[: starts[-1]], starts


def from_offsets(offsets: NDArray[np.int32], data: memoryview | NDArray[np.uint8]) -> pa.BinaryArray:
    """The column whose row i is `data[offsets[i]:offsets[i + 1]]`, without a copy."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def cut(data: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]) -> pa.BinaryArray:
    """A column whose row i is a copy of `length[i]` bytes of `data` from `start[i]` on; null if the length is -1.

    The ranges must lie within `data`, in ascending order.
    """
    rows = len(start)
    # The buffer as one column whose even values are the ranges and whose odd values are the gaps between them.
    offsets = np.empty(2 * rows + 1, np.int32)
    offsets[:-1:2] = start
    offsets[1::2] = start + np.maximum(length, 0)
    offsets[-1] = offsets[-2] if rows else 0
    column = pc.take(from_offsets(offsets, data), from_numpy(np.arange(0, 2 * rows, 2)), boundscheck=False)
    if not rows or length.min() >= 0:
        return column
    validity = pa.py_buffer(np.packbits(length >= 0, bitorder="little"))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [validity, *column.buffers()[1:]])
