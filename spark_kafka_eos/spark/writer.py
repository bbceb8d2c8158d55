"""`TransactionalWriter`: foreachBatch's micro-batches, each in one Kafka transaction.

    writer = TransactionalWriter({"kafka.bootstrap.servers": …, "kafka.transactional.id": "orders", "topic":
    "orders-clean"}) orders.writeStream.foreachBatch(writer).option("checkpointLocation", path).start()

Two ways for the records to get into the transaction (option `appendMode`):
- `driver`: the encode tasks stage their blocks in files, the driver appends them. No shuffle and one Python stage: the
  fastest on one machine and for small batches; bounded by the driver's network on a cluster.
- `executors`: the blocks go through a shuffle to append tasks, each of which owns some partitions. Scales with the
  cluster; needs a classic session, because only its status store tells whether a task ran twice.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.broker.cluster import Cluster, shared_cluster
from spark_kafka_eos.core import barrier
from spark_kafka_eos.eos.blocks import Layout
from spark_kafka_eos.eos.distributed import decide_micro_batch
from spark_kafka_eos.eos.layout import layout
from spark_kafka_eos.eos.preflight import preflight
from spark_kafka_eos.eos.report import CommitReport
from spark_kafka_eos.eos.settle import Appended, Owner, StagedWrite, owner, settle
from spark_kafka_eos.eos.staging import StageReport, Staging, staging_of
from spark_kafka_eos.errors import KafkaEosError, TransactionAborted
from spark_kafka_eos.model import ProducerIdentity, TopicPartition
from spark_kafka_eos.options import SinkOptions, sink_options
from spark_kafka_eos.spark.appending import AppendTaskReport, append_task
from spark_kafka_eos.spark.encoding import REPORT, SHUFFLED, shuffling_task, staging_task
from spark_kafka_eos.spark.rows import check_schema, sink_rows
from spark_kafka_eos.spark.session import (
    RunningQuery,
    cannot_run_again,
    is_classic,
    is_local,
    parallelism,
    speculates,
    stage_attempts,
)

_WRITTEN_AGAIN = "The whole batch is written again under a new epoch."


class BatchTransaction:
    """The frames of one micro-batch. They are evaluated when the `with` block ends, all into one transaction."""

    def __init__(self, topic: str | None) -> None:
        self._topic = topic
        self._writes: list[tuple[DataFrame, str | None]] = []

    def write(self, frame: DataFrame, topic: str | None = None) -> None:
        """Add a frame with the sink's columns. `topic` wins over the option of that name, and both over the column."""
        topic = topic or self._topic
        check_schema(frame.schema, topic=topic)
        self._writes.append((frame, topic))

    def rows(self) -> tuple[DataFrame | None, str | None]:
        """All rows as one frame, and the topic if they all have the same."""
        if not self._writes:
            return None, None
        topics = {topic for _, topic in self._writes}
        constant = topics.pop() if len(topics) == 1 else None
        frames = [
            sink_rows(frame, topic=topic, constant_topic=constant is None and topic is not None)
            for frame, topic in self._writes
        ]
        return functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames), constant


class TransactionalWriter:
    """Writes each micro-batch of one query, its source offsets and its ledger entry in one transaction.

    Takes the options of the `kafka-eos` sink (checked here: ConfigurationError). Call it as foreachBatch's function, or
    use `transaction` inside yours for several frames and topics. Pickles without its connections. Not safe for threads:
    one writer per query.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        self._options = sink_options(options)
        self._cluster: Cluster | None = None
        self._transaction: Owner | None = None
        self._last_commit: CommitReport | None = None

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        with self.transaction(batch_df, batch_id) as transaction:
            transaction.write(batch_df)

    @contextmanager
    def transaction(self, batch_df: DataFrame, batch_id: int) -> Iterator[BatchTransaction]:
        """Collect frames to write; at the end of the block commit them all, or nothing.

        If the block raises, nothing is written. Raises LedgerRefused where going on could lose or repeat data, and any
        other KafkaEosError after the transaction was aborted, or with what is known of its outcome.
        """
        collected = BatchTransaction(self._options.topic)
        yield collected
        self._last_commit = self._commit(batch_df, batch_id, *collected.rows())

    @property
    def last_commit(self) -> CommitReport | None:
        """What the last batch left behind: outcome, records, producer id and epoch, milliseconds per step, tries."""
        return self._last_commit

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_cluster": None, "_transaction": None}

    def _commit(self, batch_df: DataFrame, batch_id: int, rows: DataFrame | None, topic: str | None) -> CommitReport:
        session = batch_df.sparkSession
        query = RunningQuery(batch_df, self._options.checkpoint_location)
        batch = query.micro_batch(batch_id)
        if self._cluster is None or self._transaction is None:
            cluster = shared_cluster(self._options.client)
            preflight(cluster, self._options)
            self._cluster, self._transaction = cluster, self._own(cluster)
        mode = _append_mode(self._options, session)
        staging = staging_of(self._options, query.checkpoint_location)
        write: Callable[[ProducerIdentity], Appended]
        if rows is None:
            write = StagedWrite(self._cluster, self._options, staging, list, batch_id)
        elif mode == "driver":
            stage = functools.partial(
                self._stage, rows, layout(self._cluster, self._options, topic), staging, str(batch_id)
            )
            write = StagedWrite(self._cluster, self._options, staging, stage, batch_id)
        else:
            write = functools.partial(
                self._append, session, rows, layout(self._cluster, self._options, topic), batch_id
            )
        try:
            return settle(self._transaction, batch, write, max_tries=self._options.max_tries, append_mode=mode)
        except BaseException:
            # The identity's state may be anything now; whoever comes next begins with InitProducerId.
            self._transaction = self._own(self._cluster)
            raise
        finally:
            if mode == "driver":
                staging.clean(str(batch_id))

    def _own(self, cluster: Cluster) -> Owner:
        return owner(self._options, cluster, decide_micro_batch(self._options))

    def _stage(self, rows: DataFrame, where: Layout, staging: Staging, batch: str) -> Sequence[StageReport]:
        staged = rows.mapInArrow(staging_task(self._options.client, where, staging, batch), REPORT)
        return [pickle.loads(row.report) for row in staged.collect()]

    def _append(
        self, session: SparkSession, rows: DataFrame, where: Layout, batch_id: int, identity: ProducerIdentity
    ) -> Appended:
        slots = max(1, min(sum(where.partitions.values()) or parallelism(session), parallelism(session)))
        appended = (
            rows.mapInArrow(shuffling_task(self._options.client, where, slots), SHUFFLED)
            .repartitionById(slots, "slot")
            # Notes first, so that an encode error stops the first append; then each partition's blocks in the source's
            # order.
            .sortWithinPartitions(F.col("note").isNull(), "task", "number")
            .mapInArrow(append_task(self._options, identity, batch_id), REPORT)
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


def _append_mode(options: SinkOptions, session: SparkSession) -> str:
    if options.append_mode == "auto":
        several = is_classic(session) and not is_local(session) and not speculates(session)
        return "executors" if several else "driver"
    if options.append_mode == "executors" and not is_classic(session):
        raise KafkaEosError(
            "appendMode=executors needs a classic Spark session: Spark Connect does not tell whether a task ran twice",
            action="Use appendMode=driver (or auto).",
        )
    return options.append_mode
