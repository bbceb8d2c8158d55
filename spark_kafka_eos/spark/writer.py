"""`TransactionalWriter`: foreachBatch's micro-batches, each in one Kafka transaction.

    writer = TransactionalWriter({"kafka.bootstrap.servers": …, "kafka.transactional.id": "orders", "topic":
    "orders-clean"}) orders.writeStream.foreachBatch(writer).option("checkpointLocation", path).start()

Two ways for the records to get into the transaction (option `appendMode`; core.append_mode chooses):
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
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.broker.cluster import Cluster, shared_cluster
from spark_kafka_eos.core.append_mode import (
    FIRST_BYTES_PER_OFFSET,
    SMALL_BYTES,
    Choice,
    SessionKind,
    choose,
    larger_than_expected,
    offsets,
)
from spark_kafka_eos.eos.blocks import Layout
from spark_kafka_eos.eos.distributed import decide_micro_batch
from spark_kafka_eos.eos.layout import layout
from spark_kafka_eos.eos.preflight import preflight
from spark_kafka_eos.eos.report import CommitReport
from spark_kafka_eos.eos.settle import Appended, Owner, StagedWrite, owner, settle
from spark_kafka_eos.eos.staging import StageReport, Staging, TooLargeToTravel, staging_of
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.model import MicroBatch, ProducerIdentity
from spark_kafka_eos.options import SinkOptions, sink_options
from spark_kafka_eos.spark.append_stage import append_stage
from spark_kafka_eos.spark.encoding import REPORT, staging_task
from spark_kafka_eos.spark.rows import check_schema, sink_rows
from spark_kafka_eos.spark.session import RunningQuery, is_classic, is_local, speculates


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
        self._bytes_per_offset = FIRST_BYTES_PER_OFFSET

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
        """What the last batch left behind: outcome, records, producer id and epoch, who appended and why, milliseconds
        per step, tries."""
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
        choice = _choose(self._options, session, batch, self._bytes_per_offset)
        if choice.small:
            staging = Staging(None, inline_bytes=SMALL_BYTES)
        else:
            staging = staging_of(self._options, query.checkpoint_location)
        write = self._way(session, rows, topic, choice, staging, batch_id)
        try:
            report = settle(
                self._transaction,
                batch,
                write,
                max_tries=self._options.max_tries,
                append_mode=choice.mode,
                append_reason=choice.reason,
            )
        except BaseException:
            # The identity's state may be anything now; whoever comes next begins with InitProducerId.
            self._transaction = self._own(self._cluster)
            raise
        finally:
            if choice.mode == "driver":
                staging.clean(str(batch_id))
        if report.outcome == "committed" and (count := offsets(batch)):
            self._bytes_per_offset = report.bytes / count
        return report

    def _way(
        self,
        session: SparkSession,
        rows: DataFrame | None,
        topic: str | None,
        choice: Choice,
        staging: Staging,
        batch_id: int,
    ) -> Callable[[ProducerIdentity], Appended]:
        """What brings the rows into the transaction as was chosen."""
        assert self._cluster is not None
        if rows is None:
            return StagedWrite(self._cluster, self._options, staging, list, batch_id)
        where = layout(self._options, topic, self._cluster)
        by_executors = functools.partial(append_stage, session, rows, self._options, where, batch_id)
        if choice.mode == "executors":
            return by_executors
        stage = functools.partial(self._stage, rows, where, staging, str(batch_id))
        by_driver = StagedWrite(self._cluster, self._options, staging, stage, batch_id)

        def as_it_comes(identity: ProducerIdentity) -> Appended:
            try:
                return by_driver(identity)
            except TooLargeToTravel:
                return replace(by_executors(identity), choice=larger_than_expected())

        return as_it_comes if choice.small else by_driver

    def _own(self, cluster: Cluster) -> Owner:
        return owner(self._options, cluster, decide_micro_batch(self._options))

    def _stage(self, rows: DataFrame, where: Layout, staging: Staging, batch: str) -> Sequence[StageReport]:
        staged = rows.mapInArrow(staging_task(self._options.client, where, staging, batch), REPORT)
        return [pickle.loads(row.report) for row in staged.collect()]


def _choose(options: SinkOptions, session: SparkSession, batch: MicroBatch, bytes_per_offset: float) -> Choice:
    kind = SessionKind(classic=is_classic(session), local=is_local(session), speculates=speculates(session))
    if options.append_mode == "executors" and not kind.classic:
        raise KafkaEosError(
            "appendMode=executors needs a classic Spark session: Spark Connect does not tell whether a task ran twice",
            action="Use appendMode=driver (or auto).",
        )
    return choose(options.append_mode, kind, batch, bytes_per_offset)
