"""The rows that `appendMode=executors` shuffles from encode to append tasks: blocks, and the encode tasks' reports."""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from zlib import crc32

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import EncodedBlock, EncodeReport
from spark_kafka_eos.kafka.partitions import TopicPartition

_MASK = 0xFFFFFFFF

# A row is either a block or a pickled EncodeReport, for the append task of `slot`.
_SCHEMA = pa.schema(
    [
        ("slot", pa.int32()),
        ("task", pa.int32()),
        ("number", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int32()),
        ("block", pa.binary()),
        ("report", pa.binary()),
    ]
)

# For `mapInArrow`. As a type, because the JVM would parse a string in each micro-batch.
SHUFFLED = from_arrow_schema(_SCHEMA)


def slot_of(partition: TopicPartition, slots: int) -> int:
    """The append task that owns `partition`; adjacent partitions have different slots."""
    return (crc32(partition.topic.encode()) + partition.partition) % slots


def block_row(block: Block, slots: int) -> pa.RecordBatch:
    """The row that brings `block` to the task that owns its partition."""
    topic, partition = block.partition
    return _row(slot_of(block.partition, slots), block.task, block.number, topic, partition, block.records, block.data)


def report_rows(report: EncodeReport, slots: int) -> Iterator[pa.RecordBatch]:
    """The rows that bring the report to the append tasks: to each one its own blocks' part, so that it knows its
    partitions before it appends; an error to all of them, so that none appends. One of them counts the dead letters.
    """
    by_slot: dict[int, list[EncodedBlock]] = {slot: [] for slot in range(slots) if report.error is not None}
    for block in report.blocks:
        by_slot.setdefault(slot_of(block.partition, slots), []).append(block)
    for slot, blocks in (by_slot or {report.task % slots: []}).items():
        yield _row(slot, report.task, -1, report=pickle.dumps(replace(report, blocks=tuple(blocks))))
        report = replace(report, dead_letters={})


def shuffle(rows: DataFrame, slots: int) -> DataFrame:
    """Each slot's rows in one partition: reports first, so that an encode error prevents the first append; then each
    partition's blocks in input order.
    """
    if hasattr(rows, "repartitionById"):
        parted = rows.repartitionById(slots, "slot")
    else:
        keys = F.array(*map(F.lit, hash_keys(slots)))
        parted = rows.repartition(slots, F.element_at(keys, F.col("slot") + 1))
    return parted.sortWithinPartitions(F.col("report").isNull(), "task", "number")


@functools.cache
def hash_keys(slots: int) -> list[int]:
    """For each slot, a number that `repartition` puts there: for Spark before 4.1, which has no `repartitionById`."""
    keys: dict[int, int] = {}
    for key in itertools.count():
        keys.setdefault(_murmur3(key) % slots, key)
        if len(keys) == slots:
            return [keys[slot] for slot in range(slots)]
    raise AssertionError


def _murmur3(number: int) -> int:
    """Spark's hash of an int, signed. Source: `Murmur3_x86_32.hashInt` with the seed 42 of `HashPartitioning`."""
    mixed = _rotated(number * 0xCC9E2D51, 15) * 0x1B873593
    mixed = _rotated(42 ^ (mixed & _MASK), 13) * 5 + 0xE6546B64 & _MASK
    mixed ^= 4  # the length in bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotated(number: int, bits: int) -> int:
    number &= _MASK
    return (number << bits | number >> 32 - bits) & _MASK


def read(batches: Iterable[pa.RecordBatch]) -> Iterator[Block | EncodeReport]:
    """What the rows contain, in their order."""
    for batch in batches:
        for index in range(batch.num_rows):
            row = {name: batch.column(name)[index] for name in batch.schema.names}
            if row["report"].is_valid:
                yield pickle.loads(row["report"].as_py())
                continue
            yield Block(
                partition=TopicPartition(row["topic"].as_py(), row["partition"].as_py()),
                task=row["task"].as_py(),
                number=row["number"].as_py(),
                records=row["records"].as_py(),
                data=bytearray(row["block"].as_buffer()),
            )


def _row(
    slot: int,
    task: int,
    number: int,
    topic: str | None = None,
    partition: int | None = None,
    records: int | None = None,
    block: bytearray | None = None,
    report: bytes | None = None,
) -> pa.RecordBatch:
    values = (slot, task, number, topic, partition, records, block, report)
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)], schema=_SCHEMA
    )
