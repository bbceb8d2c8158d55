"""Produces input records for benchmarks, and counts the records of topics."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lab.bench.alternating import Show, silent
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.fetching.visibility import visible_batches
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import stamp

KEY_BYTES = 8
_BATCH_RECORDS, _BATCH_BYTES = 8_192, 900_000  # per record batch, as librdkafka with its largest settings
_SIZES_AT_ONCE = 4_000_000  # of mixed inputs, so that a large one takes no more memory
_OVERHEAD = 32  # bytes of a record in addition to key and value, at most
_TEXT = np.frombuffer(b'{"carrier":"UA","origin":"EWR","destination":"IAH","delayed":false},', np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """Records as many applications send them: sizes differ, and nobody waits until a record batch is full.

    Values have `smallest` to `largest` bytes; their logarithm is uniformly distributed. A record batch has what a
    producer with `linger.ms=0` had at that moment: at least one record, at most `batch_bytes` (`batch.size`), uniformly
    distributed.
    """

    smallest: int = 20
    largest: int = 2_000
    batch_bytes: int = 16_384

    def __str__(self) -> str:
        return f"{self.smallest:,} to {self.largest:,} bytes, linger 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of an input: `records` records in `topics` topics with `partitions` partitions each.

    Keys have 8 bytes, values `value_bytes` random bytes. With `compression`, the second half of each value is
    repetitive text; otherwise there would be nothing to compress. `mixed` replaces `value_bytes` and `batch_records`;
    its values are random bytes.
    """

    records: int
    value_bytes: int = 100
    partitions: int = 4
    topics: int = 1
    compression: str = "none"
    batch_records: int = _BATCH_RECORDS  # at most, in a record batch
    mixed: Mixed | None = None

    @property
    def values(self) -> str:
        """The sizes of values in words."""
        return f"{self.value_bytes:,} bytes" if self.mixed is None else str(self.mixed)

    @property
    def all_partitions(self) -> int:
        return self.partitions * self.topics

    def __str__(self) -> str:
        topics = f"{self.topics} topics, " if self.topics > 1 else ""
        compressed = "" if self.compression == "none" else f", {self.compression}"
        if self.batch_records < _BATCH_RECORDS:
            compressed += f", {self.batch_records} per record batch"
        return f"{self.records:,} records of {self.values}, {topics}{self.partitions} partitions{compressed}"


def fill(cluster: Cluster, topics: Sequence[str], shape: Shape, show: Show = silent) -> None:
    """Append `shape.records` records, spread evenly over all partitions of `topics`, which must exist and be empty."""
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(shape.partitions)]
    identity = idempotent_identity(cluster)
    sequences = dict.fromkeys(partitions, 0)
    sent, now = 0, time.time_ns() // 1_000_000
    with Appender(cluster, identity) as appender:
        for number, (keys, values) in enumerate(rows(shape)):
            partition = partitions[number % len(partitions)]
            batch = encode(keys, values, now, compression_type=shape.compression)
            sequence = sequences[partition]
            stamp(
                batch,
                producer_id=identity.producer_id,
                epoch=identity.epoch,
                base_sequence=sequence,
                transactional=False,
            )
            appender.append(partition, batch, len(keys), sequence)
            sequences[partition] += len(keys)
            sent += len(keys)
            show("producing the input", sent, shape.records)
        appender.flush()


def rows(shape: Shape) -> Iterator[tuple[pa.BinaryArray, pa.BinaryArray]]:
    """Keys and values, one record batch at a time; always the same for the same shape."""
    if shape.mixed is not None:
        yield from _mixed_rows(shape.records, shape.mixed)
        return
    random = np.random.default_rng(shape.value_bytes)
    share = -(-shape.records // shape.all_partitions)
    most = max(1, min(shape.batch_records, _BATCH_BYTES // (shape.value_bytes + KEY_BYTES + _OVERHEAD), share))
    for start in range(0, shape.records, most):
        count = min(most, shape.records - start)
        values = random.integers(0, 256, (count, shape.value_bytes), np.uint8)
        if shape.compression != "none":
            half = shape.value_bytes // 2
            values[:, half:] = np.resize(_TEXT, shape.value_bytes - half)
        yield _column(_digits(start, count)), _column(values)


def _mixed_rows(records: int, mixed: Mixed) -> Iterator[tuple[pa.BinaryArray, pa.BinaryArray]]:
    random = np.random.default_rng(mixed.largest)
    least, most = math.log(mixed.smallest), math.log(mixed.largest + 1)
    for first in range(0, records, _SIZES_AT_ONCE):
        sizes = np.exp(random.uniform(least, most, min(_SIZES_AT_ONCE, records - first))).astype(np.int32)
        ends = np.cumsum(sizes + KEY_BYTES + _OVERHEAD)
        start = 0
        while start < len(sizes):
            before = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, before + random.uniform(0, mixed.batch_bytes), "right"))
            stop = max(start + 1, stop)
            taken = sizes[start:stop]
            values = _binary(random.integers(0, 256, taken.sum(), np.uint8), taken)
            yield _column(_digits(first + start, stop - start)), values
            start = stop


def count(cluster: Cluster, topics: Sequence[str]) -> int:
    """The number of records that a read_committed consumer sees in `topics`."""
    return sum(_visible_records(part) for part in fetch_all(cluster, topics))


def fetch_all(cluster: Cluster, topics: Sequence[str]) -> Iterator[Fetched]:
    """All data in `topics`, as fetched from the broker."""
    yield from Fetcher(cluster).fetch(ranges(cluster, topics))


def ranges(cluster: Cluster, topics: Sequence[str]) -> list[OffsetRange]:
    """The full range of every partition, after waiting until no transaction is open: EndTxn is answered before its
    markers are written. Raises ToolFailed if one stays open.
    """
    partitions = [TopicPartition(topic, number) for topic in topics for number in cluster.topic(topic).partitions]
    budget = cluster.budget()
    while True:
        ends = latest(cluster, partitions, isolation_level="read_committed")
        if ends == latest(cluster, partitions, isolation_level="read_uncommitted"):
            return [OffsetRange(partition=tp, start=0, end=end) for tp, end in ends.items()]
        delay = budget.delay(soon=True)
        if delay is None:
            raise ToolFailed(f"a transaction is still open in {topics[0]}")
        cluster.sleep(delay)


def _visible_records(part: Fetched) -> int:
    headers, visible = visible_batches(part)
    return int(headers["record_count"][visible].sum())


def _digits(start: int, count: int) -> NDArray[np.uint8]:
    """The numbers from `start` on, with 8 decimal digits each."""
    numbers = np.arange(start, start + count)
    powers = 10 ** np.arange(KEY_BYTES - 1, -1, -1)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def _column(cells: NDArray[np.uint8]) -> pa.BinaryArray:
    """An Arrow binary column with one value per row of `cells`."""
    return _binary(cells, np.full(len(cells), cells.shape[1], np.int32))


def _binary(cells: NDArray[np.uint8], sizes: NDArray[np.int32]) -> pa.BinaryArray:
    """An Arrow binary column with values of these sizes, which follow each other in `cells`."""
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(cells))]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
