"""Many small record batches at once are what they are one by one."""

from __future__ import annotations

import struct
from dataclasses import fields

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire import single
from spark_kafka_eos.kafka.wire.batch_header import Compression, RecordBatchHeader
from spark_kafka_eos.kafka.wire.compression import Decompressor, compress
from spark_kafka_eos.kafka.wire.decode import decode, decode_in_parts
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.header_table import header_table
from spark_kafka_eos.kafka.wire.record_batch import RecordBatches, extents, scan, stamp

NULLABLE = st.none() | st.binary(max_size=200)
BATCH = st.tuples(
    st.lists(st.tuples(NULLABLE, NULLABLE), min_size=1, max_size=4), st.sampled_from(Compression), st.integers(0, 9)
)
STREAMED = [Compression.GZIP, Compression.LZ4, Compression.ZSTD]


def log(batches: list[tuple[list[tuple[bytes | None, bytes | None]], Compression, int]]) -> bytes:
    """The batches one after the other, with gaps of so many offsets before them."""
    buffer, offset = bytearray(), 0
    for records, codec, gap in batches:
        keys, values = (pa.array(column, pa.binary()) for column in zip(*records, strict=True))
        batch = encode(keys, values, 1_700_000_000_000 + offset, compression_type=codec.name.lower())
        stamp(batch, producer_id=gap, epoch=gap, base_sequence=offset, transactional=bool(gap % 2))
        struct.pack_into(">q", batch, 0, offset + gap)
        buffer += batch
        offset += gap + len(records)
    return bytes(buffer)


@settings(deadline=None)
@given(st.lists(BATCH, max_size=40), st.integers(1, 4000))
def test_many_small_batches_hold_the_records_that_they_hold_one_by_one(
    batches: list[tuple[list[tuple[bytes | None, bytes | None]], Compression, int]], part_bytes: int
) -> None:
    buffer = log(batches)
    found = RecordBatches(buffer, [position for position, _, _ in extents(buffer)])
    expected = [record for header in scan(buffer) for record in single.records(buffer, header)]
    parts = list(decode_in_parts(buffer, found, part_bytes=part_bytes))
    rows = [row for part in parts for row in part.select(["offset", "key", "value"]).to_pylist()]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == expected


@given(st.lists(BATCH, max_size=10))
def test_the_table_has_the_fields_of_the_headers(
    batches: list[tuple[list[tuple[bytes | None, bytes | None]], Compression, int]],
) -> None:
    buffer = log(batches)
    table = header_table(buffer, scan(buffer))
    for row, header in zip(table, scan(buffer), strict=True):
        assert all(row[each.name] == getattr(header, each.name) for each in fields(RecordBatchHeader))


@pytest.mark.parametrize("damaged", [0, 57, 199])
@pytest.mark.parametrize("size", [10, 10_000])
def test_the_crc_of_each_batch_is_checked(damaged: int, size: int) -> None:
    buffer = bytearray(log([([(b"k", bytes(size))], Compression.NONE, 0)] * 200))
    headers = list(scan(buffer))
    buffer[headers[damaged].position + headers[damaged].size - 2] ^= 1
    with pytest.raises(CorruptRecordBatch, match=f"at offset {damaged} has CRC"):
        decode(buffer, headers)


@pytest.mark.parametrize("codec", list(Compression))
def test_damage_that_a_crc_hides_is_named_by_the_offset_of_its_batch(codec: Compression) -> None:
    buffer = bytearray(log([([(b"k", b"v")], codec, 0)] * 100))
    header = list(scan(buffer))[42]
    struct.pack_into(">i", buffer, header.position + 23, 7)  # lastOffsetDelta, and more records than there are
    struct.pack_into(">i", buffer, header.position + 57, 8)
    with pytest.raises(CorruptRecordBatch, match="the record batch at offset 42 declares 8 records in 9 bytes"):
        decode(buffer, scan(buffer), check_crcs=False)


@pytest.mark.parametrize("codec", STREAMED)
def test_a_stream_that_has_failed_is_not_used_again(codec: Compression) -> None:
    decompressor, plain = Decompressor(), b"some text that repeats itself, " * 100
    data = compress(codec, plain)
    for damaged in (data[:-3], data + b"more", b"no such thing"):
        assert decompressor.decompress(codec, data, limit=len(plain)) == plain
        with pytest.raises(CorruptRecordBatch):
            decompressor.decompress(codec, damaged, limit=len(plain))
        with pytest.raises(CorruptRecordBatch, match="more than"):
            decompressor.decompress(codec, data, limit=len(plain) - 1)
    assert decompressor.decompress(codec, data, limit=len(plain)) == plain
