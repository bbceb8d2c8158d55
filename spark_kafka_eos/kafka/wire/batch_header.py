"""The header of a record batch, and what its attributes mean: frozen, picklable values.

Source: Kafka's documentation, Message Format; KIP-98.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class TimestampType(IntEnum):
    """What set the record's timestamp, as in the built-in source's column `timestampType`."""

    NO_TIMESTAMP = -1  # a message of the format before Kafka 0.10
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Compression(IntEnum):
    """The codes of a record batch's attributes, bits 0 to 2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Bits of a record batch's attributes.
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
# Not on the wire, where these bits are unused, but of records that come from messages (`wire.legacy`): they had no
# timestamp; each has its own timestamp although the broker set it.
NO_TIMESTAMP, OWN_TIMESTAMPS = 0x4000, 0x2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatchHeader:
    """The 61 bytes before a record batch's records (KIP-98, "Message Format"); timestamps in milliseconds.

    `position` is where the batch begins in the buffer that it was read from.
    """

    position: int
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression_code(self) -> int:
        return self.attributes & CODEC

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(bool(self.attributes & LOG_APPEND_TIME))

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Bytes of the whole batch, the header included."""
        return self.batch_length + 12


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """An aborted transaction in a Fetch response: the batches of `producer_id` from `first_offset` to its abort marker
    are invisible.
    """

    producer_id: int
    first_offset: int
