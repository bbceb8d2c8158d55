"""Decodes a Fetch response (versions 13 to 16) without copying the records from the receive buffer.

Layout: Kafka's FetchResponse.json. In flexible versions, lengths are unsigned varints of n + 1, and every structure
ends with tagged fields, most of which are skipped.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

from spark_kafka_eos.kafka.fetching.fetch_steps import EpochEndOffset
from spark_kafka_eos.kafka.wire.batch_header import AbortedTransaction
from spark_kafka_eos.kafka.wire.unsigned import read_unsigned

_HEADER = struct.Struct(">i")  # correlation id
_TOP = struct.Struct(">ihi")  # throttle time, error code, session id
_PARTITION = struct.Struct(">ihqqq")  # index, error code, high watermark, last stable offset, log start offset
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_PREFERRED_READ_REPLICA = struct.Struct(">i")
_EPOCH_END_OFFSET = struct.Struct(">iq")  # epoch, end offset
_DIVERGING_EPOCH_TAG = 0
_VARINT_BYTES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData:
    """One partition's part of a Fetch response; `records` is a slice of its buffer; its last batch may be incomplete.

    `diverging` is set instead of records if the last fetched records are not in the broker's log.
    `preferred_read_replica` is the node id of a follower to ask instead, -1 for none (KIP-392).
    """

    topic_id: uuid.UUID
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]
    records: memoryview
    preferred_read_replica: int = -1
    diverging: EpochEndOffset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """`error_code` refers to the whole request (fetch sessions); partitions have their own."""

    throttle_ms: int
    error_code: int
    partitions: tuple[PartitionData, ...]


def read_fetch_response(frame: memoryview) -> FetchResponse:
    """The response in `frame`, which starts with the correlation id. Raises struct.error or IndexError if it is
    truncated, ValueError for a number that is too long.
    """
    read = _ResponseReader(frame)
    read.fields(_HEADER)
    read.skip_tags()
    throttle_ms, error_code, _ = read.fields(_TOP)
    partitions = []
    for _ in range(read.count()):
        topic_id = uuid.UUID(bytes=bytes(read.slice(16)))
        partitions += [_partition(read, topic_id) for _ in range(read.count())]
        read.skip_tags()
    read.skip_tags()
    return FetchResponse(throttle_ms=throttle_ms, error_code=error_code, partitions=tuple(partitions))


def _partition(read: _ResponseReader, topic_id: uuid.UUID) -> PartitionData:
    index, error_code, high_watermark, last_stable_offset, log_start_offset = read.fields(_PARTITION)
    aborted = []
    for _ in range(read.count()):
        producer_id, first_offset = read.fields(_ABORTED)
        read.skip_tags()
        aborted.append(AbortedTransaction(producer_id=producer_id, first_offset=first_offset))
    (preferred_read_replica,) = read.fields(_PREFERRED_READ_REPLICA)
    records = read.slice(read.count())
    diverging = read.tags().get(_DIVERGING_EPOCH_TAG)
    return PartitionData(
        topic_id=topic_id,
        partition=index,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted=tuple(aborted),
        records=records,
        preferred_read_replica=preferred_read_replica,
        diverging=None if diverging is None else _epoch_end_offset(diverging),
    )


def _epoch_end_offset(structure: memoryview) -> EpochEndOffset:
    epoch, end_offset = _EPOCH_END_OFFSET.unpack_from(structure)
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)


class _ResponseReader:
    __slots__ = ("_position", "_view")

    def __init__(self, view: memoryview) -> None:
        self._view, self._position = view, 0

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._view, self._position)
        self._position += layout.size
        return values

    def slice(self, size: int) -> memoryview:
        start, self._position = self._position, self._position + size
        if self._position > len(self._view):
            raise IndexError(f"{size} bytes at {start} exceed the length {len(self._view)}")
        return self._view[start : self._position]

    def varint(self) -> int:
        value, self._position = read_unsigned(self._view, self._position, _VARINT_BYTES)
        return value

    def count(self) -> int:
        """The length of a compact array or of compact bytes; null counts as empty."""
        return max(self.varint() - 1, 0)

    def tags(self) -> dict[int, memoryview]:
        """The tagged fields at the end of a structure, not decoded."""
        return {self.varint(): self.slice(self.varint()) for _ in range(self.varint())}

    def skip_tags(self) -> None:
        self.tags()
