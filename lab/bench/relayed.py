"""Bytes that come from the brokers and go to them, without any work on the records: what brokers and network need.

A task fetches what it should read, and gives ready-made rows instead, or none if its rows are offset ranges. Whoever
commits appends as many records that were encoded before, in a transaction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from lab.bench.inputs import Mixed, Shape, rows
from lab.bench.ready_made import Count, DroppingWriter, ReadyMade, ReadyMadeReader, dropped
from spark_kafka_eos.appending.append import append
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import shared_cluster
from spark_kafka_eos.kafka.protocol.transactions import end_transaction, init_producer_id
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.options import SourceOptions, sink_options
from spark_kafka_eos.reading.ranges import from_rows
from spark_kafka_eos.reading.records import fetcher_for
from spark_kafka_eos.startup.frozen import freeze_gc
from spark_kafka_eos.startup.quickack import QuickAck

PARTITIONS, VALUE_BYTES = "partitions", "valuebytes"  # options of the sink: how many, and how large a value is
_TIMEOUT_MS = 60_000


def sink_of(options: Mapping[str, str], records: Shape) -> dict[str, str]:
    """The options of `Relaying` for records like these."""
    value_bytes = records.value_bytes if records.mixed is None else _mean(records.mixed)
    return {**options, PARTITIONS: str(records.partitions), VALUE_BYTES: str(value_bytes)}


def _mean(mixed: Mixed) -> int:
    """The mean size of a value; the logarithm of the sizes is uniformly distributed."""
    return round((mixed.largest - mixed.smallest) / math.log(mixed.largest / mixed.smallest))


# -- reading


class Fetched(ReadyMade):
    """`ReadyMade`, whose tasks also fetch their ranges."""

    @classmethod
    def name(cls) -> str:
        return "fetched"

    def streamReader(self, schema: StructType) -> FetchedReader:  # noqa: N802 - Spark's name
        return FetchedReader(self._source_options(schema, streaming=True))


class FetchedReader(ReadyMadeReader):
    """Its half in the tasks: it gives as many rows as it has fetched."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        fetched, behind = _fetched(partition.value, self._options), 0
        for batch in super().read(partition):
            behind += batch.num_rows
            while behind > 0 and (came := next(fetched, 0)):
                behind -= came
            yield batch


def _fetched(ranges: Sequence[OffsetRange], options: SourceOptions) -> Iterator[int]:
    """The number of offsets of the ranges in each part of a response."""
    fetcher = fetcher_for(options, shared_cluster(options.client))
    rest = {offset_range.partition: offset_range for offset_range in ranges}
    for part in fetcher.fetch(ranges):
        offset_range = rest[part.partition]
        start = min(part.next_offset, offset_range.end)  # a record batch may end after the range
        rest[part.partition] = replace(offset_range, start=start)
        yield start - offset_range.start


class Offsets(QuickAck):
    """For mapInArrow over offset ranges: one row, with the number of their offsets. With `fetch`, it fetches them."""

    def __init__(self, fetch: SourceOptions | None = None) -> None:
        self.fetch = fetch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        ranges = from_rows(batches)
        parts = (
            _fetched(ranges, self.fetch)
            if self.fetch
            else (offset_range.end - offset_range.start for offset_range in ranges)
        )
        yield pa.record_batch({"n": pa.array([sum(parts)], pa.int64())})


# -- writing


class Relaying(DataSource):
    """A sink that drops all rows in Python, and appends as many records that were encoded before."""

    @classmethod
    def name(cls) -> str:
        return "relaying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> RelayingWriter:  # noqa: N802, ARG002 - Spark's signature
        return RelayingWriter(schema, dict(self.options))


@dataclass
class Dropped(WriterCommitMessage):
    """How many rows a task has dropped."""

    rows: int


class RelayingWriter(DroppingWriter):
    """Its halves in the tasks and in the process that commits."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        super().__init__(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        freeze_gc()
        return Dropped(rows=sum(batch.num_rows for batch in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's
        _relay(self._options, sum(message.rows for message in messages if isinstance(message, Dropped)))


def relay(
    options: Mapping[str, str], counting: Count | Offsets, *, few: bool = False
) -> Callable[[DataFrame, int], None]:
    """The same as a function for foreachBatch. `counting`: what the tasks do with their rows; `few`: see `dropped`."""

    def write(batch: DataFrame, _: int) -> None:
        _relay(options, dropped(batch, counting, few=few))

    return write


_ready: dict[tuple[TopicPartition, int], list[tuple[int, bytearray]]] = {}  # of this process, by partition and records
_identities: dict[str, ProducerIdentity] = {}  # of this process, by topic


def _relay(options: Mapping[str, str], records: int) -> None:
    """Append and commit so many records, spread over all partitions."""
    freeze_gc()
    sink = sink_options({name: value for name, value in options.items() if name not in (PARTITIONS, VALUE_BYTES)})
    assert sink.topic is not None
    cluster = shared_cluster(sink.client)
    name = sink.transactional_id
    identity = _identities.get(sink.topic) or init_producer_id(cluster, name, _TIMEOUT_MS)
    partitions = [TopicPartition(sink.topic, number) for number in range(int(options[PARTITIONS]))]
    shares = [-(-(records - number) // len(partitions)) for number in range(len(partitions))]
    encoded = zip(partitions, shares, strict=True)
    blocks = ((tp, *block) for tp, share in encoded for block in _encoded(tp, share, options))
    append(cluster, identity, blocks)
    identity = end_transaction(cluster, identity, commit=True)
    if identity.transaction_version < 2:
        identity = init_producer_id(cluster, name, _TIMEOUT_MS, identity)
    _identities[sink.topic] = identity


def _encoded(partition: TopicPartition, records: int, options: Mapping[str, str]) -> list[tuple[int, bytearray]]:
    """Blocks with so many records, each with its number of records."""
    if (partition, records) not in _ready:
        shape = Shape(records=records, value_bytes=int(options[VALUE_BYTES]), partitions=1)
        now = time.time_ns() // 1_000_000  # brokers delete what is older than the topic's retention
        _ready[partition, records] = [(len(keys), encode(keys, values, now)) for keys, values in rows(shape)]
    return _ready[partition, records]
