"""Messages of the format before Kafka 0.11 are read as Kafka's consumer reads them."""

from __future__ import annotations

import struct
from contextlib import suppress
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import Compression
from spark_kafka_eos.kafka.wire.compression import compress
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.legacy import _xxh32, as_record_batches
from spark_kafka_eos.kafka.wire.record_batch import has_messages, scan
from tests.messages import BY_BROKER, T0, message, wrapper

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


class Row(NamedTuple):
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


def rows(buffer: bytes) -> list[Row]:
    batches = as_record_batches(buffer)
    columns = decode(batches, list(scan(batches)))
    names = ("offset", "timestamp", "timestampType", "key", "value")
    return [Row(*row) for row in zip(*(columns[name].to_pylist() for name in names), strict=True)]


def offsets(buffer: bytes) -> list[int]:
    return [row.offset for row in rows(buffer)]


def test_a_message_of_kafka_0_9_has_no_timestamp():
    assert rows(message(7, b"v", magic=0, key=b"k")) == [Row(7, -1, -1, b"k", b"v")]


def test_a_message_of_kafka_0_10_has_the_timestamp_of_its_producer_or_its_broker():
    by_both = message(7, b"v", magic=1) + message(8, None, magic=1, attributes=BY_BROKER, timestamp=T0 + 5)
    assert rows(by_both) == [Row(7, T0, 0, None, b"v"), Row(8, T0 + 5, 1, None, None)]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_in_sequence_keep_their_offsets_with_the_holes_that_compaction_left(magic):
    where = [3, 4, 9, 1 << 20, 1 << 40]
    assert offsets(b"".join(message(at, magic=magic, key=b"k" * at.bit_length()) for at in where)) == where


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_inside_a_wrapper_of_magic_0_are_absolute(codec):
    inside = b"".join(message(at, magic=0) for at in (10, 12, 15))
    assert offsets(wrapper(15, inside, magic=0, codec=codec)) == [10, 12, 15]


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_inside_a_wrapper_of_magic_1_are_relative_to_the_first_also_after_compaction(codec):
    inside = b"".join(message(at, magic=1, timestamp=T0 + at) for at in (1, 4))  # 0, 2 and 3 were removed
    assert rows(wrapper(104, inside, magic=1, codec=codec)) == [
        Row(101, T0 + 1, 0, None, b"value"),
        Row(104, T0 + 4, 0, None, b"value"),
    ]


def test_a_wrapper_with_log_append_time_sets_the_timestamp_of_all_that_it_holds():
    inside = message(0, magic=1, timestamp=1) + message(1, magic=1, timestamp=2)
    stamped = [
        wrapper(at, inside, magic=1, codec=Compression.GZIP, attributes=BY_BROKER, timestamp=T0 + at) for at in (1, 3)
    ]
    read = rows(b"".join(stamped) + message(4, magic=1, attributes=BY_BROKER, timestamp=T0 + 4))
    assert [row.timestamp - T0 for row in read] == [1, 1, 3, 3, 4]
    assert [row.timestamp_type for row in read] == [1] * 5


def test_snappy_is_read_with_javas_framing_and_without():
    inside = message(0, b"v" * 100, magic=1)
    framed = compress(Compression.SNAPPY, inside)
    bare = pa.Codec("snappy").compress(inside, asbytes=True)
    for value in (framed, bare):
        assert offsets(message(0, value, magic=1, attributes=Compression.SNAPPY)) == [0]


def test_the_wrong_checksum_of_an_lz4_frame_is_refused_with_magic_1():
    """With magic 0 it is accepted, because the Java client gave it a wrong one (KAFKA-3160)."""
    frame = compress(Compression.LZ4, message(0, magic=1))
    with pytest.raises(CorruptRecordBatch, match="at offset 0.*lz4"):
        rows(message(0, frame[:6] + bytes([frame[6] ^ 0xFF]) + frame[7:], magic=1, attributes=Compression.LZ4))


@pytest.mark.parametrize(("data", "expected"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_the_hash_is_xxh32(data, expected):
    """Published values. The second byte of the hash of a frame's descriptor is the checksum that the frame carries."""
    assert _xxh32(data) == expected
    assert _xxh32(b"\x60\x40") >> 8 & 0xFF == compress(Compression.LZ4, b"")[6]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_what_another_implementation_writes_is_read(magic, codec):
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    written = [(b"k%d" % number if number % 3 else None, b"v" * number) for number in range(50)]
    for number, (key, value) in enumerate(written):
        builder.append(number, timestamp=T0 + number if magic else None, key=key, value=value)
    buffer = bytearray(builder.build())
    if codec:  # the broker sets the offset of a wrapper
        struct.pack_into(">q", buffer, 0, 49)
    read = rows(bytes(buffer))
    assert [(row.key, row.value) for row in read] == written
    assert [row.offset for row in read] == list(range(50))
    assert [row.timestamp for row in read] == [T0 + number if magic else -1 for number in range(50)]


def test_a_log_of_three_formats_is_read_as_one():
    modern = encode(pa.array([b"k"]), pa.array([b"v"]), T0, offsets=np.array([30]))
    log = message(1, magic=0) + wrapper(12, two(11, 12, magic=0), magic=0, codec=Compression.GZIP)
    log += message(20, magic=1) + message(21, magic=1) + bytes(modern) + message(40, magic=1)
    assert offsets(log) == [1, 11, 12, 20, 21, 30, 40]
    batches = as_record_batches(log)
    assert [header.record_count for header in scan(batches)] == [3, 2, 1, 1]
    assert bytes(modern) in batches


@pytest.mark.parametrize("codec", [None, *CODECS])
def test_wrappers_and_messages_of_many_sizes_and_of_one_are_read_a_megabyte_at_a_time(codec):
    """Among them more of one size than are looked for at once, and messages between wrappers."""
    log, at, of = b"", 0, Random(1)
    for size, number in ((100, 9_000), (101, 3_000), (700_000, 3), (0, 20), (7, 17)):
        for first in range(at, at + number, 500):
            last = min(first + 500, at + number) - 1
            base = first if codec else 0
            inside = b"".join(message(n - base, of.randbytes(size), magic=1) for n in range(first, last + 1))
            log += inside if codec is None else wrapper(last, inside, magic=1, codec=codec)
        at += number
        log += message(at, magic=1)
        at += 1
    assert offsets(log) == list(range(at))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_truncated_message_is_left_for_the_next_fetch(magic):
    whole = message(0, magic=magic)
    for kept in range(len(whole)):
        assert offsets(whole + message(1, magic=magic)[:kept]) == [0]


@pytest.mark.parametrize("kept", [0, 12, 25, 34])
def test_a_buffer_without_a_whole_message_has_no_record_batch(kept):
    assert as_record_batches(message(0, magic=1)[:kept]) == b""


def test_a_buffer_that_is_much_larger_when_decompressed_is_rewritten_in_part():
    one = [wrapper(at, message(0, bytes(1 << 20), magic=1), magic=1, codec=Compression.GZIP) for at in range(10)]
    assert offsets(b"".join(one)) == [0]


def test_a_wrapper_of_more_than_the_limit_is_refused_and_named():
    large = wrapper(77, message(0, bytes(1 << 20), magic=1), magic=1, codec=Compression.GZIP)
    with pytest.raises(CorruptRecordBatch, match="compressed message at offset 77: .* more than 1000 bytes"):
        as_record_batches(large, max_bytes=1000)


def two(first: int = 0, second: int = 1, magic: int = 1) -> bytes:
    return message(first, magic=magic) + message(second, magic=magic)


@pytest.mark.parametrize(
    ("buffer", "reason"),
    [
        (two(5, 5), "do not ascend after offset 5"),
        (wrapper(9, two(1, 0), magic=1, codec=Compression.GZIP), "at offset 9: .* do not ascend"),
        (wrapper(9, two(0, 1, 0), magic=0, codec=Compression.GZIP), "at offset 9: its offsets end at 1"),
        (wrapper(0, two(0, 1), magic=1, codec=Compression.GZIP), "at offset 0: .* do not ascend after offset -1"),
        (wrapper(9, b"", magic=1, codec=Compression.GZIP), "at offset 9: it holds no message"),
        (wrapper(9, two(magic=0), magic=1, codec=Compression.GZIP), "messages of another format"),
        (wrapper(9, wrapper(0, two(), magic=1, codec=Compression.GZIP), magic=1, codec=Compression.GZIP), "compressed"),
        (wrapper(9, two()[:-1], magic=1, codec=Compression.GZIP), "do not fill it exactly"),
        (message(9, None, magic=1, attributes=Compression.GZIP), "at offset 9: it has no value"),
        (message(9, b"junk", magic=1, attributes=Compression.GZIP), "at offset 9: cannot decompress gzip"),
        (message(9, b"junk", magic=1, attributes=Compression.ZSTD), "type 4 is none of the old format"),
        (message(9, b"", magic=0, attributes=Compression.LZ4), "too short for an LZ4 frame"),
        (message(0, magic=1) + struct.pack(">qi", 1, 3) + bytes(40), "declares a size of 3"),
        (message(0, magic=1) + message(1, magic=3), "unknown magic 3 at offset 1"),
    ],
)
def test_what_the_format_does_not_have_is_refused_with_its_offset(buffer, reason):
    with pytest.raises(CorruptRecordBatch, match=reason):
        as_record_batches(buffer)


@pytest.mark.parametrize("where", ["plain", "wrapper", "inside"])
def test_a_changed_byte_is_refused(where):
    def changed(whole: bytes, at: int) -> bytes:
        return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]

    plain = message(4, b"a value", magic=1)
    if where == "inside":
        damaged = wrapper(4, changed(plain, len(plain) - 1), magic=1, codec=Compression.GZIP)
    else:
        whole = plain if where == "plain" else wrapper(4, plain, magic=1, codec=Compression.SNAPPY)
        damaged = changed(whole, len(whole) - 1)
    with pytest.raises(CorruptRecordBatch, match="offset 4.*CRC"):
        as_record_batches(damaged)


def test_old_messages_are_noticed_anywhere_in_a_buffer_also_if_only_a_part_of_one_is_there():
    modern = bytes(encode(pa.array([b"k"]), pa.array([b"v"]), T0))
    assert not has_messages(b"") and not has_messages(modern * 3) and not has_messages(modern + modern[:20])
    for buffer in (message(0, magic=0), modern + message(1, magic=1), modern + message(1, magic=0)[:17]):
        assert has_messages(buffer)


KEYS = st.none() | st.binary(max_size=20)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 1 << 33), KEYS, KEYS, st.integers(0, 1 << 42)), min_size=1, max_size=30),
    st.sampled_from([0, 1]),
    st.integers(1, 8),
    st.sampled_from([None, *CODECS]),
)
def test_any_messages_are_read_as_they_were_written(written, magic, together, codec):
    at = np.cumsum([gap for gap, *_ in written]).tolist()
    log, expected = b"", []
    for start in range(0, len(written), together):
        some = list(zip(at, written, strict=True))[start : start + together]
        base = some[0][0] if magic and codec else 0
        if codec and some[-1][0] - some[0][0] >= 1 << 31:
            some = some[:1]
        inside = b"".join(
            message(offset - base, value, magic=magic, key=key, timestamp=when)
            for offset, (_, key, value, when) in some
        )
        log += inside if codec is None else wrapper(some[-1][0], inside, magic=magic, codec=codec)
        expected += [
            Row(offset, when if magic else -1, 0 if magic else -1, key, value) for offset, (_, key, value, when) in some
        ]
    assert rows(log) == expected


@settings(max_examples=300, deadline=None)
@given(st.data(), st.binary(max_size=60))
def test_damaged_bytes_end_in_one_error_only(data, junk):
    whole = two() + wrapper(9, two(), magic=1, codec=Compression.SNAPPY) + message(11, magic=0)
    at = data.draw(st.integers(0, len(whole)))
    damaged = whole[:at] + junk + whole[at + len(junk) :]
    with suppress(CorruptRecordBatch):  # and no other error
        # No checksum covers an offset: `kafka.fetching.fetch` compares those of different record batches.
        assert all(row.offset >= 0 for row in rows(damaged))
