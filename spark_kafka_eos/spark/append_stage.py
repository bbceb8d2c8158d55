"""The `executors` way, as the driver runs it: encode, shuffle and append in one job, then the barrier."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.core import barrier
from spark_kafka_eos.eos.blocks import Layout
from spark_kafka_eos.eos.settle import Appended
from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.model import ProducerIdentity, TopicPartition
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.spark.appending import AppendTaskReport, append_task
from spark_kafka_eos.spark.encoding import REPORT, SHUFFLED, shuffling_task
from spark_kafka_eos.spark.session import cannot_run_again, parallelism, stage_attempts

_WRITTEN_AGAIN = "The whole batch is written again under a new epoch."


def append_stage(
    session: SparkSession,
    rows: DataFrame,
    options: SinkOptions,
    where: Layout,
    batch_id: int,
    identity: ProducerIdentity,
) -> Appended:
    """Let the executors append `rows` under `identity`, each some of the partitions.

    Raises TransactionAborted unless every record was appended exactly once; else what stopped a task.
    """
    partitions = sum(target.partitions for target in where.targets.values())
    slots = max(1, min(partitions or parallelism(session), parallelism(session)))
    appended = (
        rows.mapInArrow(shuffling_task(options.client, where, slots), SHUFFLED)
        .repartitionById(slots, "slot")
        # Notes first, so that an encode error stops the first append; then each partition's blocks in the source's
        # order.
        .sortWithinPartitions(F.col("note").isNull(), "task", "number")
        .mapInArrow(append_task(options, identity, batch_id), REPORT)
    )
    try:
        reports: list[AppendTaskReport] = [pickle.loads(row.report) for row in appended.collect()]
    except Exception as error:
        if not cannot_run_again(error):
            raise
        raise TransactionAborted(
            "Spark lost encoded blocks after an append task had ended, and could not run the append stage again",
            action=_WRITTEN_AGAIN,
        ) from error
    return _judge(session, reports)


def _judge(session: SparkSession, reports: Sequence[AppendTaskReport]) -> Appended:
    """The barrier: every record appended exactly once, or TransactionAborted, or the error a task reported."""
    errors = [report.error for report in reports if report.error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, TransactionAborted)):
        raise error  # one that no further try mends comes first
    notes = [note for report in reports for note in report.notes]
    expected: dict[TopicPartition, int] = {}
    for note in notes:
        for partition, records in note.records.items():
            expected[partition] = expected.get(partition, 0) + records
    stages = stage_attempts(session, {report.report.stage_id for report in reports})
    match barrier.decide([report.report for report in reports], stages, expected):
        case barrier.Redo(reason=reason):
            raise TransactionAborted(reason, action=_WRITTEN_AGAIN)
        case barrier.Commit(records=records):
            return Appended(
                partitions=len(expected),
                records=records,
                bytes=sum(report.bytes for report in reports),
                milliseconds={
                    "encode": max((note.milliseconds for note in notes), default=0.0),
                    "append": max((report.milliseconds for report in reports), default=0.0),
                },
            )
