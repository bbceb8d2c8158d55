"""The record batch v2: its 61-byte header, the positions of batches in a buffer, and their checksum.

    baseOffset            int64       attributes       int16    bits 0-2 compression, 3 timestamp type,
    batchLength           int32                                 4 transactional, 5 control
    partitionLeaderEpoch  int32       lastOffsetDelta  int32
    magic                 int8  (2)   baseTimestamp    int64
    crc                   uint32      maxTimestamp     int64
                                      producerId       int64
                                      producerEpoch    int16
                                      baseSequence     int32
                                      recordCount      int32

All big-endian. `batchLength` counts what follows it. The CRC-32C covers everything from `attributes` on, so a broker
can set the offset and the leader epoch without computing it again.

Source: KIP-98, "Message Format"; Kafka documentation, section "Record Batch".
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from typing import overload

import google_crc32c

from spark_kafka_eos.kafka.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import TRANSACTIONAL, RecordBatchHeader

Bytes = bytes | bytearray | memoryview

MAGIC = 2
HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_END = 12  # `batchLength` counts the bytes from here
MAGIC_AT = 16
CRC_AT = 17
CRC_START = 21  # the CRC covers the bytes from here
# A record without key, value and headers: length, attributes, timestamp delta, offset delta, -1, -1, 0 headers.
SMALLEST_RECORD = 7
_SHORTEST = HEADER.size - LENGTH_END  # the length of a batch without records
_EXTENT = struct.Struct(">qi4xb6xi30xi")  # baseOffset, batchLength, magic, lastOffsetDelta, recordCount
_MESSAGE = struct.Struct(">qi4xb")  # offset, size, magic
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")  # producerId, producerEpoch, baseSequence
_PRODUCER_AT = HEADER.size - 4 - _PRODUCER.size  # before recordCount


def read_header(buffer: Bytes, position: int) -> RecordBatchHeader:
    """The header at `position`. Raises CorruptRecordBatch if it is truncated, invalid, or has another magic."""
    if len(buffer) - position < HEADER.size:
        raise CorruptRecordBatch(f"{len(buffer) - position} bytes are too few for the header of a record batch")
    _check_magic(buffer, position)
    (base_offset, batch_length, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
     producer_id, producer_epoch, base_sequence, record_count) = HEADER.unpack_from(buffer, position)  # fmt: skip
    if batch_length < _SHORTEST or record_count < 0 or last_offset_delta < 0:
        raise CorruptRecordBatch(
            f"record batch at offset {base_offset} declares length {batch_length}, {record_count} records and last "
            f"offset delta {last_offset_delta}"
        )
    return RecordBatchHeader(
        position=position,
        base_offset=base_offset,
        batch_length=batch_length,
        partition_leader_epoch=leader_epoch,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )


def _check_magic(buffer: Bytes, position: int) -> None:
    magic = buffer[position + MAGIC_AT]
    if magic != MAGIC:
        (base_offset,) = struct.unpack_from(">q", buffer, position)
        raise CorruptRecordBatch(f"unknown magic {magic} at offset {base_offset} (byte {position} of the fetched data)")


class RecordBatches(Sequence[RecordBatchHeader]):
    """The record batches at `positions` of a buffer. A header is read when it is asked for: of thousands of small
    batches, `wire.header_table` reads all headers at once.
    """

    __slots__ = ("_buffer", "positions")

    def __init__(self, buffer: Bytes, positions: Sequence[int]) -> None:
        self._buffer, self.positions = buffer, positions

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> RecordBatchHeader: ...
    @overload
    def __getitem__(self, index: slice) -> RecordBatches: ...
    def __getitem__(self, index: int | slice) -> RecordBatchHeader | RecordBatches:
        if isinstance(index, slice):
            return RecordBatches(self._buffer, self.positions[index])
        return read_header(self._buffer, self.positions[index])


def scan(buffer: Bytes, *, whole: bool = True) -> Iterator[RecordBatchHeader]:
    """The header of each record batch, in order; stops and raises as `extents` does."""
    return (read_header(buffer, position) for position, _, _ in extents(buffer, whole=whole))


def extents(buffer: Bytes, *, whole: bool = True) -> Iterator[tuple[int, int, int]]:
    """Of each whole record batch, in order: its position, its base offset, and the offset after its last one.

    Stops before a truncated batch (a broker fills a Fetch response to the last byte), without `whole` after it, if its
    header is there. A corrupt length that is too large looks the same, so the caller must raise an error if the next
    fetch from there returns no whole batch either. Raises CorruptRecordBatch for anything else that is not a record
    batch.
    """
    position, size = 0, len(buffer)
    while size - position >= HEADER.size:
        base_offset, length, magic, last_offset_delta, records = _EXTENT.unpack_from(buffer, position)
        if magic != MAGIC or length < _SHORTEST or last_offset_delta < 0 or records < 0:
            read_header(buffer, position)  # raises
        end = position + length + LENGTH_END
        if end > size and whole:
            return
        yield position, base_offset, base_offset + last_offset_delta + 1
        position = end
    if size - position > MAGIC_AT:
        _check_magic(buffer, position)


def has_messages(buffer: Bytes) -> bool:
    """Whether a fetched buffer has messages of the format before Kafka 0.11, which `wire.legacy` reads; the last one
    may be truncated.
    """
    position = 0
    while len(buffer) - position > MAGIC_AT:
        _, length, magic = _MESSAGE.unpack_from(buffer, position)
        if magic in (0, 1):
            return True
        position += max(length, 0) + LENGTH_END
    return False


def crc_of(buffer: Bytes, position: int, end: int) -> int:
    """The CRC-32C that the record batch in `[position, end)` should have."""
    # google-crc32c accepts neither memoryview nor bytearray. An array avoids a copy, which costs as much as the CRC.
    # But if numpy is not loaded (in the process of a sink's commit), loading it costs more than copying 200 MB.
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return int(google_crc32c.value(bytes(memoryview(buffer)[position + CRC_START : end])))
    return int(google_crc32c.value(numpy.frombuffer(buffer, "u1", end - position - CRC_START, position + CRC_START)))


def stamp(
    batch: bytearray | memoryview, *, producer_id: int, epoch: int, base_sequence: int, transactional: bool
) -> None:
    """Write the producer's identity and base sequence into the record batch `batch`, in place, and update its CRC.

    Raises CorruptRecordBatch, without changing it, unless it has the CRC that it carries: a new one would hide damage
    from the broker.
    """
    header = read_header(batch, 0)
    if header.size != len(batch):
        raise CorruptRecordBatch(f"a record batch of {header.size} bytes does not fill the {len(batch)} bytes it is in")
    check_crc(batch, header)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, epoch, base_sequence)
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_START)
    attributes = attributes | TRANSACTIONAL if transactional else attributes & ~TRANSACTIONAL
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes)
    sign(batch)


def stamp_without_producer_id(batch: bytearray | memoryview) -> None:
    """Take producer id, epoch and sequence out of the record batch, as `stamp` puts them in."""
    stamp(batch, producer_id=-1, epoch=-1, base_sequence=-1, transactional=False)


def sign(batch: bytearray | memoryview) -> None:
    """Write the CRC of the record batch in `batch` into it."""
    _CRC.pack_into(batch, CRC_AT, crc_of(batch, 0, len(batch)))


def check_crc(buffer: Bytes, header: RecordBatchHeader) -> None:
    """Raise CorruptRecordBatch if the CRC of the record batch, which must be complete, differs from its header's."""
    crc = crc_of(buffer, header.position, header.position + header.size)
    if crc != header.crc:
        raise CorruptRecordBatch(
            f"record batch at offset {header.base_offset} has CRC {crc:#010x}, but its header has {header.crc:#010x}",
            action="It was corrupted on the network or on the broker's disk; reading it again may help.",
        )
