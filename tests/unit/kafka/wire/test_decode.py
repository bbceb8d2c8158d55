from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader
from spark_kafka_eos.kafka.wire.decode import SCHEMA, SCHEMA_WITH_HEADERS, control_marker, decode, decode_in_parts
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.kafka.wire.record_batch import CRC_AT, HEADER, crc_of, read_header, scan, stamp

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
T = 1_700_000_000_000


def table(rows: int, seed: int = 0) -> tuple[pa.Array, pa.Array, np.ndarray, pa.Array]:
    """Keys, values, timestamps and headers of every kind."""
    random = np.random.default_rng(seed)
    keys = [None if i % 7 == 3 else b"key-%d" % i for i in range(rows)]
    values = [None if i % 11 == 5 else random.bytes(int(random.integers(0, 200))) for i in range(rows)]
    headers = [[{"key": f"h{j}", "value": b"x" * j if j else None} for j in range(i % 4)] for i in range(rows)]
    times = T + random.integers(-100_000, 100_000, rows)
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary()), times, pa.array(headers, HEADERS)


def at_offset(batch: bytearray, base_offset: int) -> bytearray:
    struct.pack_into(">q", batch, 0, base_offset)
    return batch


def signed(batch: bytearray) -> bytearray:
    """With the right CRC, so that damage is not noticed by the CRC alone."""
    struct.pack_into(">I", batch, CRC_AT, crc_of(batch, 0, len(batch)))
    return batch


def with_payload(payload: bytes, records: int, attributes: int = 0) -> bytearray:
    batch = bytearray(
        HEADER.pack(0, 49 + len(payload), 0, 2, 0, attributes, max(records - 1, 0), T, T, -1, -1, -1, records)
    )
    return signed(batch + payload)


def check(batch: bytes | bytearray, **options: bool) -> pa.RecordBatch:
    return decode(batch, list(scan(batch)), **options)


def test_many_batches_of_all_codecs_decode_in_one_call() -> None:
    buffer, expected = bytearray(), []
    for number in range(300):
        keys, values, times, headers = table(1 + number % 13, seed=number)
        batch = encode(keys, values, times, headers, compression_type=CODECS[number % 7 % 5])
        buffer += at_offset(batch, 100 * number)
        expected.append(
            pa.RecordBatch.from_arrays(
                [
                    pa.array(100 * number + np.arange(len(keys))),
                    pa.array(times),
                    pa.array(np.zeros(len(keys), np.int32)),
                    keys,
                    values,
                    headers,
                ],
                schema=SCHEMA_WITH_HEADERS,
            )
        )
    decoded = decode(buffer, list(scan(buffer)), include_headers=True)
    decoded.validate(full=True)
    assert pa.Table.from_batches([decoded]).equals(pa.Table.from_batches(expected))
    parts = list(decode_in_parts(buffer, scan(buffer), include_headers=True, part_bytes=10_000))
    assert len(parts) > 10
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([decoded]))


def test_a_buffer_can_be_used_again_once_it_is_decoded() -> None:
    keys, values, times, _ = table(100)
    buffer = encode(keys, values, times)
    decoded = check(buffer)
    buffer[:] = bytes(len(buffer))
    assert decoded["value"].equals(values)
    assert decoded["key"].equals(keys)


def test_only_the_given_batches_are_decoded() -> None:
    buffer = b"".join(encode(pa.array([b"k"]), pa.array([b"%d" % i]), T) for i in range(4))
    batches = list(scan(buffer))
    assert decode(buffer, [batches[1], batches[3]])["value"].to_pylist() == [b"1", b"3"]


@pytest.mark.parametrize(("include_headers", "schema"), [(False, SCHEMA), (True, SCHEMA_WITH_HEADERS)])
def test_no_batches_make_no_rows_of_the_same_columns(include_headers: bool, schema: pa.Schema) -> None:
    decoded = decode(b"", [], include_headers=include_headers)
    assert decoded.num_rows == 0
    assert decoded.schema == schema
    assert list(decode_in_parts(b"", [])) == []


@pytest.mark.parametrize("codec", [0, 1])
def test_what_kafka_python_encodes_is_decoded(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 1, 4711, 3, 17, 1 << 20)
    keys, values, times, headers = table(200)
    rows = list(zip(keys.to_pylist(), values.to_pylist(), times.tolist(), headers.to_pylist(), strict=True))
    for offset, (key, value, time, pairs) in enumerate(rows):
        builder.append(offset, time, key, value, [(pair["key"], pair["value"]) for pair in pairs])
    decoded = check(bytes(builder.build()), include_headers=True)
    assert (
        list(zip(*(decoded[name].to_pylist() for name in ("key", "value", "timestamp", "headers")), strict=True))
        == rows
    )


def test_compacted_batches_keep_their_gaps() -> None:
    """As compaction leaves them: deltas with holes, the last record gone, all at the batch's old end."""
    records = b"".join(bytes([2 * 6, 0, 0, 2 * delta, 1, 1, 0]) for delta in (2, 5, 7))
    batch = bytearray(HEADER.pack(1000, 49 + len(records), 0, 2, 0, 0, 9, T, T, -1, -1, -1, 3)) + records
    (header,) = scan(signed(batch))
    assert decode(batch, [header])["offset"].to_pylist() == [1002, 1005, 1007]
    assert header.next_offset == 1010


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 2), (-1, 0)], ids=str)
def test_offsets_that_do_not_ascend_within_the_batch_are_refused(deltas: tuple[int, int]) -> None:
    records = b"".join(bytes([2 * 6, 0, 0, 2 * delta & 0xFF if delta >= 0 else 1, 1, 1, 0]) for delta in deltas)
    with pytest.raises(CorruptRecordBatch, match="offsets do not ascend"):
        check(with_payload(records, 2))


def test_a_control_batch_is_not_data() -> None:
    batch = with_payload(bytes([2 * 10, 0, 0, 0, 8, 0, 0, 0, 1, 1, 0]), 1, attributes=0x30)
    with pytest.raises(ValueError, match="control batch"):
        check(batch)


@pytest.mark.parametrize(("kind", "marker"), [(0, "abort"), (1, "commit"), (2, "other"), (5, "other"), (-1, "other")])
def test_control_batches_of_all_kinds_are_told_apart(kind: int, marker: str) -> None:
    batch = with_payload(bytes([2 * 10, 0, 0, 0, 8]) + struct.pack(">hh", 0, kind) + b"\x01\x00", 1, attributes=0x30)
    assert control_marker(batch, read_header(batch, 0)) == marker


def test_a_control_batch_whose_marker_was_compacted_away_ends_no_transaction() -> None:
    batch = with_payload(b"", 0, attributes=0x30)
    assert control_marker(batch, read_header(batch, 0)) == "other"


@pytest.mark.parametrize("payload", [bytes([2 * 6, 0, 0, 0, 1, 1, 0]), bytes([2 * 8, 0, 0, 0, 4, 0, 0, 1, 0])])
def test_a_control_record_without_its_key_is_refused(payload: bytes) -> None:
    batch = with_payload(payload, 1, attributes=0x20)
    with pytest.raises(CorruptRecordBatch, match="has no control record"):
        control_marker(batch, read_header(batch, 0))


def test_damage_is_found_by_the_crc() -> None:
    batch = encode(pa.array([b"k"]), pa.array([b"v"]), T)
    batch[-2] ^= 0x01
    with pytest.raises(CorruptRecordBatch, match="has CRC"):
        check(batch)
    assert check(batch, check_crcs=False)["value"].to_pylist() == [b"w"]


def test_a_marker_with_a_wrong_crc_is_refused() -> None:
    batch = with_payload(bytes([2 * 10, 0, 0, 0, 8, 0, 0, 0, 1, 1, 0]), 1, attributes=0x30)
    batch[-1] ^= 1
    with pytest.raises(CorruptRecordBatch, match="has CRC"):
        control_marker(batch, read_header(batch, 0))


@pytest.mark.parametrize("records", [2, 100, 2**31 - 1])
@pytest.mark.parametrize("codec", CODECS)
def test_an_absurd_record_count_takes_no_memory(records: int, codec: str) -> None:
    batch = encode(pa.array([b"k"]), pa.array([b"v"]), T, compression_type=codec)
    struct.pack_into(">i", batch, 57, records)
    with pytest.raises(CorruptRecordBatch, match=f"declares {records} records in 9 bytes"):
        check(signed(batch))


def test_no_records_in_some_bytes_are_refused() -> None:
    with pytest.raises(CorruptRecordBatch, match="declares 0 records in 3 bytes"):
        check(with_payload(b"abc", 0))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ([2 * 6, 0, 0, 0, 1, 1, 2], "headers"),
        ([2 * 6, 0, 0, 0, 1, 1, 1], "headers"),
        ([2 * 7, 0, 0, 0, 1, 1, 0, 0], "after its last field"),
        ([2 * 6, 0, 0, 0, 1, 3, 0], "key or value"),
        ([2 * 6, 0, 0, 0, 3, 1, 0], "key or value"),
        ([2 * 6, 0, 0, 0, 1, 20, 0], "key or value"),
        ([2 * 6, 0, 0, 0, 20, 1, 0], "key or value"),
        ([2 * 6, 0, 0x80, 0x80, 0x80, 0x80, 0x80], "end of its record"),
        ([2 * 6, 0, 0, 0, 1, 1, 0, 0], "do not fill it"),
        ([2 * 8, 0, 0, 0, 1, 1, 0], "do not fill it"),
    ],
)
def test_a_record_with_wrong_lengths_is_refused(payload: list[int], why: str) -> None:
    with pytest.raises(CorruptRecordBatch, match=why):
        check(with_payload(bytes(payload), 1))


def test_bytes_after_a_record_are_refused_even_if_other_records_have_headers() -> None:
    payload = bytes([2 * 8, 0, 0, 0, 1, 1, 2, 0, 1, 2 * 7, 0, 0, 2, 1, 1, 0, 0])
    with pytest.raises(CorruptRecordBatch, match="after its last field"):
        check(with_payload(payload, 2))
    assert check(with_payload(payload[:9], 1), include_headers=True)["headers"].to_pylist() == [
        [{"key": "", "value": None}]
    ]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decompression_is_bounded(codec: str) -> None:
    batch = encode(pa.array([b"k"]), pa.array([bytes(1 << 20)]), T, compression_type=codec)
    with pytest.raises(CorruptRecordBatch, match="more than 1000 bytes"):
        decode(batch, list(scan(batch)), max_bytes=1000)
    with pytest.raises(CorruptRecordBatch, match="more than 1000 bytes"):
        list(decode_in_parts(batch, scan(batch), max_bytes=1000))


def test_the_bound_is_for_each_batch() -> None:
    two = bytes(encode(pa.array([b"k"]), pa.array([bytes(900)]), T, compression_type="zstd")) * 2
    assert [part.num_rows for part in decode_in_parts(two, scan(two), part_bytes=1000, max_bytes=1000)] == [1, 1]


def test_a_batch_that_is_not_whole_is_refused() -> None:
    batch = encode(pa.array([b"k"]), pa.array([b"v"]), T)
    with pytest.raises(CorruptRecordBatch, match="truncated"):
        decode(batch[:-1], [read_header(batch, 0)])


def decode_any(buffer: bytes | bytearray, batches: Iterable[RecordBatchHeader], check_crcs: bool) -> None:
    """Everything that a reader does with a fetched buffer; the result must be valid Arrow data."""
    for header in batches:
        if header.is_control:
            assert control_marker(buffer, header, check_crcs=check_crcs) in {"abort", "commit", "other"}
        else:
            decode(buffer, [header], check_crcs=check_crcs, include_headers=True, max_bytes=1 << 20).validate(full=True)
            decode(buffer, [header], check_crcs=check_crcs, max_bytes=1 << 20).validate(full=True)


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None)
@given(st.data())
def test_damaged_batches_are_refused_or_make_sound_rows(codec: str, data: st.DataObject) -> None:
    keys, values, times, headers = table(data.draw(st.integers(1, 40)))
    batch = encode(keys, values, times, headers, compression_type=codec)
    stamp(batch, producer_id=1, epoch=1, base_sequence=1, transactional=True)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(batch) - 1))
        how = data.draw(st.sampled_from(["flip", "insert", "delete", "varint"]))
        if how == "flip":
            batch[at] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "insert":
            batch[at:at] = data.draw(st.binary(min_size=1, max_size=4))
        elif how == "delete":
            del batch[at : at + data.draw(st.integers(1, 4))]
        else:
            batch[at : at + 5] = b"\xff\xff\xff\xff\x0f"
    if len(batch) >= HEADER.size and data.draw(st.booleans()):
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    with suppress(CorruptRecordBatch):
        for header in list(scan(batch)):
            end = header.position + header.size
            struct.pack_into(">I", batch, header.position + CRC_AT, crc_of(batch, header.position, end))
        decode_any(batch, list(scan(batch)), check_crcs=True)


@pytest.mark.parametrize("codec", CODECS)
def test_every_single_flipped_bit_is_found_by_the_crc_or_makes_sound_rows(codec: str) -> None:
    """Bits of offset and leader epoch are not covered; bits of length and magic end in other errors."""
    keys, values, times, headers = table(3)
    batch = encode(keys, values, times, headers, compression_type=codec)
    for bit in range(len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        covered = bit // 8 >= CRC_AT
        try:
            decode_any(batch, list(scan(batch)), check_crcs=True)
        except CorruptRecordBatch:
            pass
        else:
            assert not covered, bit
        batch[bit // 8] ^= 1 << bit % 8


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_left_alone(data: bytes) -> None:
    with suppress(CorruptRecordBatch):
        assert list(scan(data)) == []


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 50), st.sampled_from([0, 1, 2, 3, 4, 5, 0x20]))
def test_any_payload_is_refused_or_makes_sound_rows(payload: bytes, records: int, attributes: int) -> None:
    batch = with_payload(payload, records, attributes)
    with suppress(CorruptRecordBatch):
        decode_any(batch, scan(batch), check_crcs=True)


def test_a_large_batch_of_noise_comes_back() -> None:
    values = pa.array([os.urandom(1 << 20) for _ in range(5)], pa.binary())
    batch = encode(pa.nulls(5, pa.binary()), values, T)
    decoded = check(batch)
    assert decoded["value"].equals(values)
    assert decoded["key"].null_count == 5
