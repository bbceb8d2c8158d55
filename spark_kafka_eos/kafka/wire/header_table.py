"""The headers of many record batches as one array, with `RecordBatchHeader`'s fields as its fields.

A topic written with linger.ms=0 has a record per batch, so what is done for each batch decides how fast it is read: a
`RecordBatchHeader` takes 2 µs, a row of the array a tenth of that.
"""

from __future__ import annotations

from collections.abc import Iterable

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from spark_kafka_eos.kafka.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader
from spark_kafka_eos.kafka.wire.record_batch import CRC_START, LENGTH_END, Bytes, RecordBatches, check_crc, read_header

_WIRE = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", ">i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
# All fields have 64 bits, so that no sum of two of them overflows.
_TABLE = np.dtype([(name, np.int64) for name in ("position", *(_WIRE.names or ()))])
_SMALL = 4096

HeaderTable = NDArray[np.void]


def header_table(buffer: Bytes, batches: Iterable[RecordBatchHeader]) -> HeaderTable:
    """A row for each of `batches`, which `extents` or `scan` found in `buffer`, in that order."""
    positions = batches.positions if isinstance(batches, RecordBatches) else [header.position for header in batches]
    position = np.array(positions, np.int64)
    table = np.empty(len(position), _TABLE)
    if len(position):
        # Of each byte of the buffer the header that would begin there.
        headers: HeaderTable = np.ndarray((len(buffer) - _WIRE.itemsize + 1,), _WIRE, buffer, strides=(1,))[position]
        table["position"] = position
        for name in _WIRE.names or ():
            table[name] = headers[name]
    return table


def ends(headers: HeaderTable) -> NDArray[np.int64]:
    """Where each record batch ends in the buffer."""
    return headers["position"] + headers["batch_length"] + LENGTH_END  # type: ignore[no-any-return]


def verify_crcs(buffer: Bytes, headers: HeaderTable) -> None:
    """CorruptRecordBatch unless each of the record batches, which must be whole, has the CRC it carries."""
    if not len(headers):
        return
    start, end = headers["position"] + CRC_START, ends(headers)
    # A slice of bytes takes half as long as one of an array, but is a copy.
    few_bytes = int((end - start).sum()) < _SMALL * len(headers)
    data = bytes(buffer) if few_bytes else np.frombuffer(buffer, np.uint8)
    crc = google_crc32c.value
    crcs = (crc(data[first:after]) for first, after in zip(start.tolist(), end.tolist(), strict=True))
    wrong = np.flatnonzero(np.fromiter(crcs, np.int64, len(headers)) != headers["crc"])
    if wrong.size:
        header = read_header(buffer, int(headers["position"][wrong[0]]))
        check_crc(buffer, header)
        raise CorruptRecordBatch(f"record batch at offset {header.base_offset} changed while it was read")
