"""Encodes and decodes record batches with few records, without numpy and Arrow, for the ledger.

The process where Spark runs a sink's commit is the only one of a query that loads neither, and a query's first batch
waits for it. They would add 110 ms of CPU time to the 180 of its other imports. The format is that of `wire.encode` and
`wire.decode`, which handle thousands of records at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from spark_kafka_eos.kafka.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import Compression, RecordBatchHeader
from spark_kafka_eos.kafka.wire.record_batch import HEADER, LENGTH_END, MAGIC, Bytes, check_crc, sign
from spark_kafka_eos.kafka.wire.unsigned import read_unsigned, write_unsigned

_VARLONG_BYTES = 10
MAX_BYTES = 64 << 20  # of a batch's records, decompressed

_NOBODY = -1  # producer id, epoch and base sequence of a batch that belongs to no producer
_MARKERS: dict[int, Literal["abort", "commit"]] = {0: "abort", 1: "commit"}

SingleRecord = tuple[int, bytes | None, bytes | None]  # offset, key, value


def encode_record(key: bytes, value: bytes, timestamp: int) -> bytearray:
    """A record batch of one record without headers; `timestamp` in ms since 1970. `stamp` makes it a producer's."""
    record = b"".join((b"\0", _varint(0), _varint(0), _varint(len(key)), key, _varint(len(value)), value, _varint(0)))
    payload = _varint(len(record)) + record
    batch = bytearray(HEADER.size + len(payload))
    batch[HEADER.size :] = payload
    HEADER.pack_into(
        batch, 0, 0, len(batch) - LENGTH_END, -1, MAGIC, 0, 0, 0, timestamp, timestamp, _NOBODY, _NOBODY, _NOBODY, 1
    )
    sign(batch)
    return batch


def records(buffer: Bytes, header: RecordBatchHeader) -> Iterator[SingleRecord]:
    """The records of the batch. Raises CorruptRecordBatch for a truncated record."""
    check_crc(buffer, header)
    view = memoryview(buffer)[header.position + HEADER.size : header.position + header.size]
    if header.record_count and header.compression_code != Compression.NONE:
        from spark_kafka_eos.kafka.wire.compression import decompress  # loads Arrow

        view = memoryview(decompress(header.compression_code, view, limit=MAX_BYTES))
    at = 0
    try:
        for _ in range(header.record_count):
            length, at = _read_varint(view, at)
            end = at + length
            _, at = _read_varint(view, at + 1)  # attributes, timestamp delta
            offset, at = _read_varint(view, at)
            key, at = _read_bytes(view, at)
            value, at = _read_bytes(view, at)
            if at > end or end > len(view):
                raise IndexError
            at = end
            yield header.base_offset + offset, key, value
    except IndexError:
        raise CorruptRecordBatch(f"the record batch at offset {header.base_offset} ends within a record") from None
    except ValueError as error:
        raise CorruptRecordBatch(f"in the record batch at offset {header.base_offset}, {error}") from None


def marker(buffer: Bytes, header: RecordBatchHeader) -> Literal["abort", "commit"] | None:
    """How the control batch ends its producer's transaction; None if it does not."""
    for _, key, _ in records(buffer, header):
        if key is None or len(key) < 4:
            raise CorruptRecordBatch(f"the control batch at offset {header.base_offset} has no control record")
        return _MARKERS.get(int.from_bytes(key[2:4], "big"))
    return None


def _varint(number: int) -> bytes:
    return write_unsigned((number << 1) ^ (number >> 63))


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, and the position of the next field."""
    zigzag, at = read_unsigned(view, at, _VARLONG_BYTES)
    return (zigzag >> 1) ^ -(zigzag & 1), at


def _read_bytes(view: memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(view, at)
    return (None, at) if length < 0 else (bytes(view[at : at + length]), at + length)
