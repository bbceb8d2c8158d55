"""Abort markers of many control batches at once: the same as one by one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import CONTROL, TRANSACTIONAL
from spark_kafka_eos.kafka.wire.control import aborts
from spark_kafka_eos.kafka.wire.decode import control_marker
from spark_kafka_eos.kafka.wire.header_table import header_table
from spark_kafka_eos.kafka.wire.record_batch import HEADER, LENGTH_END, MAGIC, RecordBatches, extents, scan, sign


def control(payload: bytes, records: int = 1, *, attributes: int = TRANSACTIONAL | CONTROL, last: int = 0) -> bytes:
    """A control batch with this payload."""
    size = HEADER.size + len(payload) - LENGTH_END
    batch = bytearray(HEADER.pack(7, size, -1, MAGIC, 0, attributes, last, 5, 5, 1, 0, -1, records) + payload)
    sign(batch)
    return bytes(batch)


def record(
    *,
    kind: int = 0,
    version: int = 0,
    timestamp: bytes = b"\0",
    offset: int = 0,
    more_key: bytes = b"",
    value: bytes | None = bytes(6),
    headers: bytes = b"\0",
) -> bytes:
    """A control record; by default as Kafka writes it."""
    key = struct.pack(">hh", version, kind) + more_key
    values = b"\1" if value is None else varint(len(value)) + value
    body = b"\0" + timestamp + varint(offset) + varint(len(key)) + key + values + headers
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    """Zigzag, for numbers below 8,192 that are not negative."""
    return bytes([2 * number]) if number < 64 else bytes([2 * number & 0x7F | 0x80, 2 * number >> 7])


ABORT, COMMIT = record(), record(kind=1)


def together(buffer: bytes, *, check_crcs: bool = True) -> list[bool]:
    batches = RecordBatches(buffer, [position for position, _, _ in extents(buffer)])
    return [bool(each) for each in aborts(buffer, header_table(buffer, batches), check_crcs=check_crcs)]


def one_by_one(buffer: bytes, *, check_crcs: bool = True) -> list[bool]:
    return [control_marker(buffer, header, check_crcs=check_crcs) == "abort" for header in scan(buffer)]


def test_markers_as_kafka_writes_them() -> None:
    assert together(control(ABORT) + control(COMMIT) + control(ABORT)) == [True, False, True]


def test_no_batches_have_no_markers() -> None:
    assert together(b"") == []


UNUSUAL = {
    "without a record": control(b"", 0),
    "without a value": control(record(value=None)),
    "with a later timestamp": control(record(timestamp=b"\x80\1")),
    "with a longer key": control(record(more_key=b"12")),
    "with a long value": control(record(value=bytes(128))),
    "with a header": control(record(headers=bytes([2, 2, 65, 1]))),
    "with an offset": control(record(offset=1), last=1),
    "of another version": control(record(version=5)),
    "of another type": control(record(kind=3)),
}


@pytest.mark.parametrize("batch", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_unusual_markers_are_read_as_one_by_one(batch: bytes) -> None:
    buffer = control(ABORT) + batch + control(COMMIT)
    assert together(buffer) == one_by_one(buffer)


def test_a_damaged_marker_is_refused() -> None:
    batch = bytearray(control(ABORT))
    batch[-9] ^= 1
    with pytest.raises(CorruptRecordBatch, match="has CRC"):
        together(control(ABORT) + bytes(batch))
    assert together(bytes(batch), check_crcs=False) == [False], "a commit now"


@given(
    which=st.lists(st.sampled_from([control(ABORT), control(COMMIT), *UNUSUAL.values()]), min_size=1, max_size=5),
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4),
)
def test_whatever_bytes_there_are_all_at_once_and_one_by_one_agree(
    which: list[bytes], changes: list[tuple[int, int]]
) -> None:
    buffer = bytearray(b"".join(which))
    starts = [position for position, _, _ in extents(buffer)]
    for place, value in changes:
        at = place % len(buffer)
        if not any(start <= at < start + HEADER.size for start in starts):
            buffer[at] = value
    try:
        expected = one_by_one(bytes(buffer), check_crcs=False)
    except CorruptRecordBatch:
        with pytest.raises(CorruptRecordBatch):
            together(bytes(buffer), check_crcs=False)
    else:
        assert together(bytes(buffer), check_crcs=False) == expected
