"""`appendMode=executors`: one Spark job encodes, shuffles and appends; then the driver decides about all of it."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.appending.append import WRITTEN_AGAIN
from spark_kafka_eos.appending.append_mode import append_tasks
from spark_kafka_eos.appending.append_task import append_attempt, judge
from spark_kafka_eos.appending.barrier import AppendReport
from spark_kafka_eos.appending.blocks import EncodeSettings
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster, shared_cluster
from spark_kafka_eos.kafka.protocol.recorder import phase
from spark_kafka_eos.kafka.protocol.transactions import add_partitions
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.spark.encode_stage import REPORT, RowBatches, RowsOf, ShufflingTask, report_row, task_context
from spark_kafka_eos.spark.jvm import cannot_run_again, parallelism, stage_attempts
from spark_kafka_eos.spark.shuffled import SHUFFLED, read, shuffle
from spark_kafka_eos.startup.frozen import freeze_gc
from spark_kafka_eos.startup.quickack import QuickAck


def append_stage(
    session: SparkSession,
    rows: DataFrame,
    options: SinkOptions,
    settings: EncodeSettings,
    batch_id: int,
    rows_of: RowsOf | None,
    worth: int | None,
    cluster: Cluster,
    known_partitions: Sequence[TopicPartition],
    identity: ProducerIdentity,
    *,
    anew: bool = False,
) -> Appended:
    """Have the executors append `rows` under `identity`; each task owns some of the partitions. There are at most
    `worth` tasks, None for no limit. The driver adds the `known_partitions` to the transaction, the tasks the others.
    `anew`: see append_attempt.

    Raises TransactionAborted unless every record was appended exactly once, or the error that stopped a task.
    """
    partitions = sum(target.partitions for target in settings.targets.values())
    slots = append_tasks(parallelism(session), partitions, worth)
    blocks = rows.mapInArrow(ShufflingTask(options.client, settings, slots, rows_of), SHUFFLED)
    task = _AppendTask(options, identity, batch_id, tuple(known_partitions), anew)
    appended = shuffle(blocks, slots).mapInArrow(task, REPORT)
    add_partitions(cluster, identity, known_partitions)
    try:
        with phase("job"):
            reports: list[AppendReport] = [pickle.loads(row.report) for row in appended.collect()]
    except Exception as error:
        if not cannot_run_again(error):
            raise
        raise TransactionAborted(
            "Spark lost encoded blocks after an append task had finished and could not rerun the append stage",
            action=WRITTEN_AGAIN,
        ) from error
    return judge(reports, functools.partial(stage_attempts, session), options.max_dead_letters)


@dataclass(frozen=True)
class _AppendTask(QuickAck):
    """For `mapInArrow(…, REPORT)` after the shuffle: one row per task, a pickled AppendReport."""

    options: SinkOptions
    identity: ProducerIdentity
    batch_id: int
    added: tuple[TopicPartition, ...]
    anew: bool

    def __call__(self, batches: RowBatches) -> RowBatches:
        freeze_gc()
        context = task_context()
        report = append_attempt(
            shared_cluster(self.options.client),
            self.identity,
            read(batches),
            stage_id=context.stageId(),
            slot=context.partitionId(),
            attempt=context.attemptNumber(),
            batch_id=self.batch_id,
            ledger_topic=self.options.ledger_topic,
            added=self.added,
            anew=self.anew,
        )
        yield report_row(report)
