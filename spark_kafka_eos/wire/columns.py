"""Binary columns and plain bytes: lay columns end to end, cut columns out of a buffer. Both move the bytes in C.

pa.binary() has 32-bit offsets, so whatever passes here at once stays below 2 GiB; callers check that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MAX_BYTES = 2**31 - 1


def lengths(column: pa.BinaryArray) -> NDArray[np.int64]:
    """Bytes of each row; -1 for null."""
    length = pc.binary_length(column)
    if length.null_count:
        length = length.fill_null(-1)
    return length.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def interleave(columns: Sequence[pa.BinaryArray]) -> tuple[memoryview, NDArray[np.int32]]:
    """All bytes of row 0, column by column, then of row 1, …; and where each row begins (one more than there are rows).

    Columns are pa.binary() of one length, slices welcome; a null takes no bytes.
    """
    rows, width = len(columns[0]), len(columns)
    order = np.arange(rows, dtype=np.int32)[:, None] + np.arange(width, dtype=np.int32) * np.int32(rows)
    pieces = pa.concat_arrays(columns).take(pa.array(order.reshape(-1)))
    _, offsets, data = pieces.buffers()
    starts = np.frombuffer(offsets, np.int32, rows * width + 1)[::width]
    return memoryview(data)[: starts[-1]], starts


def from_offsets(offsets: NDArray[np.int32], data: memoryview | NDArray[np.uint8]) -> pa.BinaryArray:
    """The column whose row i is `data[offsets[i]:offsets[i + 1]]`, without a copy."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def cut(data: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]) -> pa.BinaryArray:
    """The column whose row i is `length[i]` bytes of `data` from `start[i]` on, copied; null where the length is -1.

    The ranges must lie within `data`, in ascending order.
    """
    rows = len(start)
    # The buffer as one column whose even values are the ranges and whose odd values are the gaps between them.
    offsets = np.empty(2 * rows + 1, np.int32)
    offsets[:-1:2] = start
    offsets[1::2] = start + np.maximum(length, 0)
    offsets[-1] = offsets[-2] if rows else 0
    column = from_offsets(offsets, data).take(pa.array(np.arange(0, 2 * rows, 2)))
    present = length >= 0
    if present.all():
        return column
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [validity, *column.buffers()[1:]])
