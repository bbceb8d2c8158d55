"""Which control batches end a transaction with an abort, for thousands of them at once.

A topic may have a marker for each record, so they are read as columns, like the headers (`header_table`). A marker as
Kafka writes it has a record whose numbers all fit into one byte:

    length  attributes  timestamp delta  offset delta  key length  version  type   value length  value  headers
    1       1           1                1 (0)         1 (4)       2        2      1             …      1 (0)

Any other control batch is left to `decode.control_marker`, which checks everything. Source: Kafka documentation,
"Control Batches"; KIP-98.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spark_kafka_eos.kafka.wire.batch_header import CODEC
from spark_kafka_eos.kafka.wire.header_table import HeaderTable, ends, verify_crcs
from spark_kafka_eos.kafka.wire.record_batch import HEADER, Bytes, read_header

_RECORD = np.dtype(
    [
        ("length", "u1"),
        ("attributes", "u1"),
        ("timestamp_delta", "u1"),
        ("offset_delta", "u1"),
        ("key_length", "u1"),
        ("version", ">i2"),
        ("type", ">i2"),
        ("value_length", "u1"),
    ]
)
_ABORT = 0
_SMALLEST = _RECORD.itemsize + 1  # with the number of headers


def aborts(buffer: Bytes, headers: HeaderTable, *, check_crcs: bool = True) -> NDArray[np.bool_]:
    """Of each of these control batches (rows of `header_table`), whether it is an abort marker. Raises
    CorruptRecordBatch as `decode.control_marker` does.
    """
    size = ends(headers) - headers["position"] - HEADER.size
    usual = (
        (headers["record_count"] == 1)
        & (headers["last_offset_delta"] == 0)
        & (headers["attributes"] & CODEC == 0)
        & (size >= _SMALLEST)
        & (ends(headers) <= len(buffer))
    )
    is_abort = np.zeros(len(headers), np.bool_)
    rows = np.flatnonzero(usual)
    if rows.size:
        start = headers["position"][rows] + HEADER.size
        # Of each byte of the buffer the record that would begin there.
        records: NDArray[np.void] = np.ndarray((len(buffer) - _RECORD.itemsize + 1,), _RECORD, buffer, strides=(1,))
        record = records[start]
        value = np.where(record["value_length"] == 1, 0, record["value_length"] >> 1)  # zigzag; -1 for null
        whole = (
            (record["length"] == 2 * (size[rows] - 1))
            & (record["timestamp_delta"] < 0x80)
            & (record["offset_delta"] == 0)
            & (record["key_length"] == 2 * 4)
            & ((record["value_length"] & 0x81 == 0) | (record["value_length"] == 1))
            & (size[rows] == _SMALLEST + value)
            & (np.frombuffer(buffer, np.uint8)[start + size[rows] - 1] == 0)
        )
        rows = rows[whole]
        if check_crcs:
            verify_crcs(buffer, headers[rows])
        is_abort[rows] = record["type"][whole] == _ABORT
        usual[:] = False
        usual[rows] = True
    for row in np.flatnonzero(~usual).tolist():
        from spark_kafka_eos.kafka.wire.decode import control_marker  # loads Arrow

        header = read_header(buffer, int(headers["position"][row]))
        is_abort[row] = control_marker(buffer, header, check_crcs=check_crcs) == "abort"
    return is_abort
