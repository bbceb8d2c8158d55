"""The driver's side of `appendMode=executors`: one job encodes, shuffles and appends; then the barrier decides."""

from __future__ import annotations

import functools
import pickle

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.model import ProducerIdentity
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.spark.append_task import append_task
from spark_kafka_eos.spark.encode_stage import REPORT, SHUFFLED, shuffling_task
from spark_kafka_eos.spark.jvm import cannot_run_again, parallelism, stage_attempts
from spark_kafka_eos.writing.blocks import Layout
from spark_kafka_eos.writing.commit import Appended
from spark_kafka_eos.writing.executor_append import WRITTEN_AGAIN, AppendTaskReport, judge


def append_stage(
    session: SparkSession,
    rows: DataFrame,
    options: SinkOptions,
    where: Layout,
    batch_id: int,
    identity: ProducerIdentity,
) -> Appended:
    """Have the executors append `rows` under `identity`; each task owns some of the partitions.

    Raises TransactionAborted unless every record was appended exactly once, or the error that stopped a task.
    """
    partitions = sum(target.partitions for target in where.targets.values())
    slots = max(1, min(partitions or parallelism(session), parallelism(session)))
    appended = (
        rows.mapInArrow(shuffling_task(options.client, where, slots), SHUFFLED)
        .repartitionById(slots, "slot")
        # Notes first, so that an encode error prevents the first append; then each partition's blocks in input order.
        .sortWithinPartitions(F.col("note").isNull(), "task", "number")
        .mapInArrow(append_task(options, identity, batch_id), REPORT)
    )
    try:
        reports: list[AppendTaskReport] = [pickle.loads(row.report) for row in appended.collect()]
    except Exception as error:
        if not cannot_run_again(error):
            raise
        raise TransactionAborted(
            "Spark lost encoded blocks after an append task had finished and could not rerun the append stage",
            action=WRITTEN_AGAIN,
        ) from error
    return judge(reports, functools.partial(stage_attempts, session))
