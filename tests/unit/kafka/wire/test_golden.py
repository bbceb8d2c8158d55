"""Bytes that others made, or that are made by hand from the specification.

JAVA: org.apache.kafka.common.record.internal.MemoryRecords of kafka-clients 4.3.1: `withRecords(Compression.of(type),
ROWS)`; `withTransactionalRecords(NONE, 4711L, 5, 17, HEADER_ROWS)`; a builder with LOG_APPEND_TIME, base offset 42 and
log append time 1700000009999; `withEndTransactionMarker(9L, 1700000000000L, 3, 4711L, 5, …)`;
`DefaultRecordBatch.writeEmptyHeader` for offsets 100 to 120 of producer 4711; a builder with magic 1.
By hand: field by field from KIP-98, the CRC from google-crc32c.
"""

from __future__ import annotations

import struct

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_eos.kafka.wire.batch_header import TimestampType
from spark_kafka_eos.kafka.wire.decode import control_marker, decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.kafka.wire.legacy import as_record_batches
from spark_kafka_eos.kafka.wire.record_batch import read_header, scan, stamp

T = 1_700_000_000_000
ROWS = [(T, b"k1", b"v1"), (T + 100, None, b"v2"), (T - 1, b"", None), (T, b"k4", b"")]
HEADER_ROWS = [
    (T, b"k1", b"v1", [{"key": "é", "value": b"x"}, {"key": "n", "value": None}]),
    (T + 1, b"k2", b"v2", [{"key": "", "value": b""}]),
]

JAVA = {
    "none": """
        000000000000000000000056ffffffff0214c83bd20000000000030000018bcfe568000000018bcfe56864ffffffffffffffffff
        ffffffffff0000000414000000046b31047631001200c8010201047632000c00010400010010000006046b340000
    """,
    "gzip": """
        00000000000000000000006affffffff0283b1822b0001000000030000018bcfe568000000018bcfe56864ffffffffffffffffff
        ffffffffff000000041f8b08000000000000ff1361606060c93664293364106238c1c8c4c85266c4c0c3c0c8c2c0c820c0c0c0c6
        926dc2c00000bb99929125000000
    """,
    "snappy": """
        00000000000000000000006cffffffff029ea1fd4a0002000000030000018bcfe568000000018bcfe56864ffffffffffffffffff
        ffffffffff0000000482534e4150505900000000010000000100000027259014000000046b31047631001200c801020104763200
        0c00010400010010000006046b340000
    """,
    "lz4": """
        000000000000000000000065ffffffff027aac52b20003000000030000018bcfe568000000018bcfe56864ffffffffffffffffff
        ffffffffff0000000404224d186040822500008014000000046b31047631001200c8010201047632000c00010400010010000006
        046b34000000000000
    """,
    "zstd": """
        000000000000000000000062ffffffff02710766820004000000030000018bcfe568000000018bcfe56864ffffffffffffffffff
        ffffffffff0000000428b52ffd005828010014000000046b31047631001200c8010201047632000c00010400010010000006046b
        340000010000
    """,
    "headers": """
        000000000000000000000051ffffffff02afd33b770010000000010000018bcfe568000000018bcfe56801000000000000126700
        05000000110000000224000000046b310476310404c3a90278026e0118000202046b32047632020000
    """,
    "log append time": """
        000000000000002a00000056ffffffff028a3158f10008000000030000018bcfe568000000018bcfe58f0fffffffffffffffffff
        ffffffffff0000000414000000046b31047631001200c8010201047632000c00010400010010000006046b340000
    """,
    "abort": """
        000000000000000900000042000000030245d8dbd10030000000000000018bcfe568000000018bcfe56800000000000000126700
        05ffffffff000000012000000008000000000c00000000000700
    """,
    "commit": """
        0000000000000009000000420000000302b1e60d990030000000000000018bcfe568000000018bcfe56800000000000000126700
        05ffffffff000000012000000008000000010c00000000000700
    """,
    "empty": """
        0000000000000064000000310000000302c0651149001000000014ffffffffffffffff0000018bcfe56800000000000000126700
        050000001100000000
    """,
    "magic 1": """
        00000000000000000000001aa5da6a6201000000018bcfe56800000000026b31000000027631
    """,
}


def java(name: str) -> bytes:
    return bytes.fromhex(JAVA[name])


def rows_of(batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    names = ["timestamp", "key", "value", *(["headers"] if "headers" in batch.schema.names else [])]
    return list(zip(*(batch[name].to_pylist() for name in names), strict=True))


def by_hand() -> bytes:
    """Two records: key "k", value null, one header ("h", "w"); and null, 64 bytes, none, 1,000,000 ms earlier."""
    first = b"\x00\x00\x00\x02k\x01\x02\x02h\x02w"
    second = b"\x00\xff\x88\x7a\x02\x01\x80\x01" + b"x" * 64 + b"\x00"
    records = bytes([2 * len(first)]) + first + bytes([2 * len(second) & 0x7F | 0x80, 2 * len(second) >> 7]) + second
    covered = struct.pack(">hiqqqhii", 0, 1, T, T, -1, -1, -1, 2) + records
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, google_crc32c.value(covered)) + covered


BY_HAND_ROWS = [
    (T, b"k", None, [{"key": "h", "value": b"w"}]),
    (T - 1_000_000, None, b"x" * 64, []),
]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_java_encodes_is_decoded(codec: str) -> None:
    assert rows_of(decode(java(codec), list(scan(java(codec))))) == ROWS


def test_headers_that_java_encodes_are_decoded() -> None:
    (header,) = scan(java("headers"))
    assert rows_of(decode(java("headers"), [header], include_headers=True)) == HEADER_ROWS
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 5, 17)


def test_headers_may_be_left_out() -> None:
    decoded = decode(java("headers"), list(scan(java("headers"))))
    assert rows_of(decoded) == [row[:3] for row in HEADER_ROWS]


def test_with_log_append_time_every_record_has_the_batchs_time() -> None:
    decoded = decode(java("log append time"), list(scan(java("log append time"))))
    assert decoded["timestamp"].to_pylist() == [T + 9_999] * 4
    assert decoded["timestampType"].to_pylist() == [TimestampType.LOG_APPEND_TIME] * 4
    assert decoded["offset"].to_pylist() == [42, 43, 44, 45]


def test_batches_of_both_timestamp_types_and_all_codecs_decode_in_one_call() -> None:
    names = ["snappy", "log append time", "none", "empty", "zstd"]
    together = b"".join(java(name) for name in names)
    decoded = decode(together, list(scan(together)))
    times = [time for time, _, _ in ROWS]
    assert decoded["timestamp"].to_pylist() == [*times, *[T + 9_999] * 4, *times, *times]
    assert decoded["timestampType"].to_pylist() == [0] * 4 + [1] * 4 + [0] * 8
    assert decoded["value"].to_pylist() == [value for _, _, value in ROWS] * 4


def test_a_batch_emptied_by_compaction_has_no_rows_and_keeps_its_offsets() -> None:
    (header,) = scan(java("empty"))
    assert decode(java("empty"), [header], include_headers=True).num_rows == 0
    assert (header.base_offset, header.next_offset) == (100, 121)


@pytest.mark.parametrize("marker", ["abort", "commit"])
def test_control_batches_say_what_java_wrote(marker: str) -> None:
    (header,) = scan(java(marker))
    assert header.is_control
    assert control_marker(java(marker), header) == marker


def test_a_message_of_kafka_0_10_is_read_as_a_record_batch() -> None:
    batch = as_record_batches(java("magic 1"))
    assert decode(batch, list(scan(batch))).to_pylist() == [
        {"offset": 0, "timestamp": T, "timestampType": 0, "key": b"k1", "value": b"v1"}
    ]


def encoded(rows: list[tuple[int, bytes | None, bytes | None]]) -> bytearray:
    times, keys, values = zip(*rows, strict=True)
    return encode(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), np.array(times))


def test_the_encoder_makes_the_same_bytes_as_java() -> None:
    assert encoded(ROWS) == java("none")


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_the_encoder_frames_compressed_records_as_java_does(codec: str) -> None:
    times, keys, values = zip(*ROWS, strict=True)
    ours = encode(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), np.array(times), compression_type=codec)
    assert ours == java(codec)


def test_headers_and_a_producers_stamp_make_the_same_bytes_as_java() -> None:
    times, keys, values, headers = zip(*HEADER_ROWS, strict=True)
    batch = encode(
        pa.array(keys, pa.binary()), pa.array(values, pa.binary()), np.array(times), pa.array(headers, HEADERS)
    )
    stamp(batch, producer_id=4711, epoch=5, base_sequence=17, transactional=True)
    assert batch == java("headers")


def test_a_batch_made_by_hand_is_decoded() -> None:
    assert rows_of(decode(by_hand(), list(scan(by_hand())), include_headers=True)) == BY_HAND_ROWS


def test_the_encoder_makes_the_same_bytes_as_made_by_hand() -> None:
    times, keys, values, headers = zip(*BY_HAND_ROWS, strict=True)
    batch = encode(
        pa.array(keys, pa.binary()), pa.array(values, pa.binary()), np.array(times), pa.array(headers, HEADERS)
    )
    assert batch == by_hand()


def test_every_field_of_the_header_is_read_from_its_place() -> None:
    header = read_header(java("abort"), 0)
    assert (header.base_offset, header.batch_length, header.partition_leader_epoch, header.magic) == (9, 0x42, 3, 2)
    assert (header.crc, header.attributes, header.last_offset_delta) == (0x45D8DBD1, 0x30, 0)
    assert (header.base_timestamp, header.max_timestamp) == (T, T)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (4711, 5, -1, 1)
