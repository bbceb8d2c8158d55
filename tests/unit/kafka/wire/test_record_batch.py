from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import (
    CRC_AT,
    CRC_START,
    HEADER,
    MAGIC_AT,
    check_crc,
    crc_of,
    read_header,
    scan,
    stamp,
)

ONE = bytes(encode(pa.array([b"k"]), pa.array([b"v" * 50]), 1_700_000_000_000))
TWO = bytes(encode(pa.array([b"k", None]), pa.array([b"v", b"w"]), 1_700_000_000_001))


def with_field(batch: bytes, at: int, layout: str, value: int) -> bytearray:
    changed = bytearray(batch)
    struct.pack_into(layout, changed, at, value)
    return changed


def test_a_buffer_is_scanned_batch_by_batch() -> None:
    found = list(scan(ONE + TWO + ONE))
    assert [header.position for header in found] == [0, len(ONE), len(ONE) + len(TWO)]
    assert [header.record_count for header in found] == [1, 2, 1]
    assert [header.size for header in found] == [len(ONE), len(TWO), len(ONE)]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_can_be_scanned(kind: type) -> None:
    assert len(list(scan(kind(ONE)))) == 1


@pytest.mark.parametrize("kept", range(len(TWO)))
def test_a_truncated_last_batch_is_left_for_the_next_fetch(kept: int) -> None:
    assert [header.position for header in scan(ONE + TWO[:kept])] == [0]


def test_an_empty_buffer_has_no_batches() -> None:
    assert list(scan(b"")) == []


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("kept", [17, 40, len(ONE)])
def test_old_messages_are_refused_even_when_truncated(magic: int, kept: int) -> None:
    with pytest.raises(CorruptRecordBatch, match=rf"unknown magic {magic} at offset 0"):
        list(scan(with_field(ONE, MAGIC_AT, ">b", magic)[:kept]))


def test_an_unknown_magic_is_refused() -> None:
    with pytest.raises(CorruptRecordBatch, match="unknown magic 3 at offset 0"):
        list(scan(with_field(ONE, MAGIC_AT, ">b", 3)))


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_below_a_headers_is_refused(length: int) -> None:
    with pytest.raises(CorruptRecordBatch, match=f"declares length {length}"):
        list(scan(with_field(ONE, 8, ">i", length)))


@pytest.mark.parametrize("at", [23, 57], ids=["last offset delta", "record count"])
def test_negative_counts_are_refused(at: int) -> None:
    with pytest.raises(CorruptRecordBatch, match="-5"):
        list(scan(with_field(ONE, at, ">i", -5)))


def test_a_header_cut_short_is_refused() -> None:
    with pytest.raises(CorruptRecordBatch, match="60 bytes are too few"):
        read_header(ONE[: HEADER.size - 1], 0)


def test_the_crc_of_a_batch_in_the_middle_of_a_buffer_is_checked() -> None:
    buffer = bytearray(ONE + TWO + ONE)
    header = list(scan(buffer))[1]
    check_crc(buffer, header)
    buffer[header.position + header.size - 1] ^= 1
    with pytest.raises(CorruptRecordBatch, match="record batch at offset 0 has CRC 0x"):
        check_crc(buffer, header)


def test_offset_and_leader_epoch_are_not_covered_by_the_crc() -> None:
    moved = with_field(ONE, 0, ">q", 123_456)
    struct.pack_into(">i", moved, 12, 9)
    assert crc_of(moved, 0, len(moved)) == read_header(ONE, 0).crc


@pytest.mark.parametrize("batch", [bytearray(TWO), memoryview(bytearray(TWO))], ids=["bytearray", "memoryview"])
@pytest.mark.parametrize("transactional", [True, False])
def test_a_stamp_changes_the_producer_and_the_crc_in_place(batch: bytearray | memoryview, transactional: bool) -> None:
    stamp(batch, producer_id=2**40, epoch=32_767, base_sequence=2**31 - 1, transactional=True)
    stamp(batch, producer_id=2**41, epoch=1, base_sequence=5, transactional=transactional)
    (header,) = scan(batch)
    check_crc(batch, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**41, 1, 5)
    assert header.is_transactional is transactional
    assert bytes(batch[HEADER.size :]) == TWO[HEADER.size :]
    assert bytes(batch[:CRC_AT]) == TWO[:CRC_AT]


@pytest.mark.parametrize("at", [CRC_AT, CRC_START, HEADER.size - 1, HEADER.size, len(ONE) - 1])
def test_a_damaged_record_batch_is_not_stamped_and_stays_as_it_is(at: int) -> None:
    damaged = bytearray(ONE)
    damaged[at] ^= 4
    before = bytes(damaged)
    with pytest.raises(CorruptRecordBatch, match="has CRC"):
        stamp(damaged, producer_id=1, epoch=0, base_sequence=0, transactional=True)
    assert bytes(damaged) == before


@pytest.mark.parametrize("batch", [ONE[:-1], ONE + b"x", TWO + ONE, ONE[:30], b""])
def test_bytes_that_are_not_one_whole_record_batch_are_not_stamped(batch: bytes) -> None:
    with pytest.raises(CorruptRecordBatch, match="does not fill|too few"):
        stamp(bytearray(batch), producer_id=1, epoch=0, base_sequence=0, transactional=True)
