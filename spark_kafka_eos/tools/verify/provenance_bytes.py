"""The origin of a record, stored in its value, so that a checker can trace every source record.

    magic             uint32  "eos" and a version byte
    source partition  int32
    source offset     int64
    batch             int64   the micro-batch that wrote it
    attempt           int32   distinguishes attempts: of a task, or starts of a driver; -1 if unknown

28 bytes, big-endian as in Kafka; the rest of the value is the payload, which is ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MAGIC = 0x656F7301
PROVENANCE = np.dtype([("magic", ">u4"), ("partition", ">i4"), ("offset", ">i8"), ("batch", ">i8"), ("attempt", ">i4")])
SIZE = PROVENANCE.itemsize

Provenance = NDArray[np.void]  # one element per record, of dtype PROVENANCE


def pack(partition: Any, offset: Any, batch: Any, attempt: Any = -1, *, payload: bytes = b"") -> pa.BinaryArray:
    """Values with provenance. Arguments are integers or arrays of equal length; `payload` is appended to each value."""
    columns = np.broadcast_arrays(*(np.atleast_1d(column) for column in (partition, offset, batch, attempt)))
    rows = len(columns[0])
    values = np.zeros(rows, [("provenance", PROVENANCE), ("payload", f"S{len(payload)}")])
    values["provenance"]["magic"] = MAGIC
    for name, column in zip(("partition", "offset", "batch", "attempt"), columns, strict=True):
        values["provenance"][name] = column
    values["payload"] = payload
    ends = np.arange(rows + 1, dtype=np.int32) * values.itemsize
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(values.tobytes())])


def unpack(values: pa.BinaryArray) -> Provenance:
    """The provenance of each value, copied; all zeros (without the magic) if a value has none."""
    rows = len(values)
    provenance = np.zeros(rows, PROVENANCE)
    _, offsets, data = values.buffers()
    if not rows or data is None:
        return provenance
    edges = np.frombuffer(offsets, np.int32, rows + 1, 4 * values.offset)
    size = np.diff(edges)
    raw = np.frombuffer(data, np.uint8)
    if int(size.min()) == int(size.max()) >= SIZE and not values.null_count:  # as tests and benchmarks write them
        cut = raw[edges[0] : edges[-1]].reshape(rows, -1)[:, :SIZE]
        provenance = cut.copy().view(PROVENANCE)[:, 0]
    else:
        long = size >= SIZE
        if values.null_count:
            long &= values.is_valid().to_numpy(zero_copy_only=False)
        provenance[long] = raw[edges[:-1][long][:, None] + np.arange(SIZE)].view(PROVENANCE)[:, 0]
    provenance[provenance["magic"] != MAGIC] = 0
    return provenance
