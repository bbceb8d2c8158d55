"""The encode stage: encodes the partitions of a DataFrame as blocks, which are staged for the driver or shuffled.

Runs in Spark's Python workers. An invalid row's error is returned to the driver as a value. If it were raised, Spark
would retry the task in vain and show a worker's traceback instead of the error. An error of the source, which such a
task may read itself (`RowsOf`), is raised: it may not come again.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_eos.appending.blocks import Block, BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.appending.encode_settings import target
from spark_kafka_eos.appending.report import EncodedBlock, EncodeReport, encoded
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.protocol.cluster import shared_cluster
from spark_kafka_eos.kafka.wire.columns import from_offsets
from spark_kafka_eos.observe.links import Traceparents
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.spark.rows import arrow_rows, without_stale_ids
from spark_kafka_eos.spark.shuffled import block_row, report_rows
from spark_kafka_eos.startup.frozen import freeze_gc
from spark_kafka_eos.startup.quickack import QuickAck

RowBatches = Iterator[pa.RecordBatch]

# From the batches that Spark passes to an encode task to rows with columns of the sink.
RowsOf = Callable[[RowBatches, EncodeSettings], RowBatches]

_REPORT = pa.schema([("report", pa.binary())])

# For `mapInArrow`. As a type, because the JVM would parse a string in each micro-batch.
REPORT = from_arrow_schema(_REPORT)


def stage_rows(
    batches: RowBatches, client: ClientOptions, settings: EncodeSettings, staging: Staging, folder: str, task: int
) -> EncodeReport:
    """Encode the rows of a `task` and stage the blocks. The report contains a KafkaEosError instead of raising it."""
    started = time.perf_counter()
    sample = Traceparents(settings.links)
    encoder = _encoder(client, settings, task)
    try:
        report = staging.stage(folder, task, _encode(batches, encoder, settings, sample))
    except KafkaEosError as error:
        return _refused(task, error)
    elapsed = (time.perf_counter() - started) * 1e3
    return replace(report, dead_letters=encoder.dead_letters, milliseconds=elapsed, links=sample.values)


@dataclass(frozen=True)
class StagingTask(QuickAck):
    """For `mapInArrow(…, REPORT)`: one row per task, a pickled EncodeReport."""

    client: ClientOptions
    settings: EncodeSettings
    staging: Staging
    folder: str
    rows_of: RowsOf | None = None

    def __call__(self, batches: RowBatches) -> RowBatches:
        freeze_gc()
        yield report_row(self.stage(_rows(batches, self.rows_of, self.settings), task_context().partitionId()))

    def stage(self, rows: RowBatches, task: int) -> EncodeReport:
        """Do the same with rows that are here, as this `task`."""
        return stage_rows(rows, self.client, self.settings, self.staging, self.folder, task)


@dataclass(frozen=True)
class ShufflingTask(QuickAck):
    """For `mapInArrow(…, SHUFFLED)`: the rows of the task's blocks, then of its report."""

    client: ClientOptions
    settings: EncodeSettings
    slots: int
    rows_of: RowsOf | None = None

    def __call__(self, batches: RowBatches) -> RowBatches:
        freeze_gc()
        task = task_context().partitionId()
        started = time.perf_counter()
        rows = _rows(batches, self.rows_of, self.settings)
        blocks: list[EncodedBlock] = []
        sample = Traceparents(self.settings.links)
        encoder = _encoder(self.client, self.settings, task)
        try:
            for block in _encode(rows, encoder, self.settings, sample):
                blocks.append(encoded(block))
                yield block_row(block, self.slots)
        except KafkaEosError as error:
            report = _refused(task, error)
        else:
            elapsed = (time.perf_counter() - started) * 1e3
            report = EncodeReport(
                task=task,
                blocks=tuple(blocks),
                dead_letters=encoder.dead_letters,
                milliseconds=elapsed,
                links=sample.values,
            )
        yield from report_rows(report, self.slots)


def report_row(report: object) -> pa.RecordBatch:
    """The output of a task with schema REPORT: one row, the pickled report."""
    data = pickle.dumps(report)
    return pa.record_batch([from_offsets(np.array([0, len(data)], np.int32), memoryview(data))], schema=_REPORT)


def task_context() -> TaskContext:
    """The running task's context. Only for use in a Spark task."""
    context = TaskContext.get()
    assert context is not None, "runs in a Spark task only"
    return context


def _rows(batches: RowBatches, rows_of: RowsOf | None, settings: EncodeSettings) -> RowBatches:
    return batches if rows_of is None else rows_of(batches, settings)


def _refused(task: int, error: KafkaEosError) -> EncodeReport:
    if error.committed is None:  # the source's
        raise error
    return EncodeReport(task=task, error=error)


def _encoder(client: ClientOptions, settings: EncodeSettings, task: int) -> BlockEncoder:
    def lookup(topic: str) -> Target:
        return target(shared_cluster(client), topic, settings.ledger_topic)

    return BlockEncoder(settings, task, lookup, lambda: time.time_ns() // 1_000_000)


def _encode(
    batches: RowBatches, encoder: BlockEncoder, settings: EncodeSettings, sample: Traceparents
) -> Iterator[Block]:
    for converted in arrow_rows(batches, dead_letters=settings.dead_letters is not None):
        rows = without_stale_ids(converted, settings.schema_ids)
        sample.add(rows)
        yield from encoder.add(rows)
    yield from encoder.finish()
