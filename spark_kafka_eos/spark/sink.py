"""`format("kafka-eos")` as a sink: streaming and batch, through Spark's Python Data Source API.

Executors encode and stage; the commit appends what their messages point at and ends the transaction. Spark runs the
commit in a process of its own, on a writer made anew, without a session: it knows the batch id, the options and the
messages, and reads the rest from the checkpoint. So every micro-batch begins with InitProducerId and the ledger. It
plans each micro-batch in a process of its own as well: what only executors need is imported there, not here.

Batch writes are one transaction too. With `txnAppId` and `txnVersion` (Delta's names) a rerun of the same job writes
nothing twice.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.core.ledger import digest
from spark_kafka_eos.eos.checkpoint import micro_batch
from spark_kafka_eos.eos.distributed import Decide, decide_batch_write, decide_micro_batch
from spark_kafka_eos.eos.files import files_at
from spark_kafka_eos.eos.settle import StagedWrite, owner, settle
from spark_kafka_eos.eos.staging import StageReport, Staging, staging_of
from spark_kafka_eos.errors import ConfigurationError, KafkaEosError
from spark_kafka_eos.model import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.spark.commit_log import show
from spark_kafka_eos.spark.rows import check_schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """What a write task tells the commit: where its blocks are, not the blocks."""

    report: StageReport


class _Sink:
    """What the streaming and the batch writer share. Opens nothing when made: Spark makes it at planning and again for
    the commit."""

    def __init__(self, options: SinkOptions, schema: StructType, staging: Staging) -> None:
        check_schema(schema, topic=options.topic)
        self._options = options
        self._staging = staging

    def _stage(self, batches: Iterator[pa.RecordBatch], files: str) -> StagedMessage:
        from spark_kafka_eos.eos.layout import layout
        from spark_kafka_eos.spark.encoding import stage_rows

        # Topics are looked up by the task: no code of ours runs on the driver before it.
        where = layout(self._options, self._options.topic)
        return StagedMessage(stage_rows(batches, self._options.client, where, self._staging, files))

    def _settle(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch: MicroBatch,
        files: str,
        decide: Decide | None,
        *,
        first: bool,
    ) -> None:
        show(self._options.log_level)
        reports = [message.report for message in messages if isinstance(message, StagedMessage)]
        if len(reports) != len(messages):
            raise KafkaEosError(
                f"{len(messages) - len(reports)} of {len(messages)} write tasks sent no message",
                action="Start the query or job again: it writes the whole batch.",
            )
        if batch.start is None and not any(report.blocks for report in reports):
            # Nobody told where this first batch starts; as it writes nothing, all that counts is where it ends.
            batch = replace(batch, start=batch.end)
        with Cluster(self._options.client) as cluster:
            if first:  # each batch has a process of its own, so a later one would pay for it again and again
                from spark_kafka_eos.eos.preflight import preflight

                preflight(cluster, self._options)
            settle(
                owner(self._options, cluster, decide),
                batch,
                StagedWrite(cluster, self._options, self._staging, lambda: reports, batch.batch_id),
                max_tries=self._options.max_tries,
                append_mode="driver",
                append_reason="as the sink always does",
            )
        self._staging.clean(files)


class KafkaEosStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """A streaming query's sink. Raises ConfigurationError without a checkpointLocation of the query's own."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.checkpoint_location is None:
            raise ConfigurationError(
                "checkpointLocation",
                "is required: the sink reads each batch's source offsets from the checkpoint",
                action="Set it on the query: .option('checkpointLocation', …).",
            )
        self._checkpoint: str = options.checkpoint_location
        super().__init__(options, schema, staging_of(options, self._checkpoint))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode and stage one task's rows; runs in an executor's Python worker."""
        from spark_kafka_eos.spark.encoding import task_context

        return self._stage(iterator, task_context().getLocalProperty("streaming.sql.batchId") or "unnumbered")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the micro-batch: its records, source offsets and ledger entry in one transaction."""
        batch = micro_batch(files_at(self._checkpoint, "checkpointLocation").read_text, batchId)
        self._settle(messages, batch, str(batchId), decide_micro_batch(self._options), first=batchId == 0)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged files. There is no transaction to abort: it opens in `commit` only."""
        self._staging.clean(str(batchId))


class KafkaEosBatchWriter(_Sink, DataSourceArrowWriter):
    """A batch write: one transaction. Spark pickles this very object to the tasks and to the commit."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._run = uuid.uuid4().hex
        # Each run has its own folder in it; one for each transactional.id would stay behind where that is random.
        staging = Staging(f"{options.staging_dir or tempfile.gettempdir()}/kafka-eos-staging/batch-writes")
        super().__init__(options, schema, staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode and stage one task's rows; runs in an executor's Python worker."""
        return self._stage(iterator, self._run)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the whole write, or nothing; with `txnAppId` not again what the ledger shows as committed."""
        app_id, version = self._options.txn_app_id, self._options.txn_version
        batch = MicroBatch(
            query_id=app_id or self._run,
            batch_id=version or 0,
            digest=digest({"txnAppId": app_id, "txnVersion": version}),
            start={},
            end={},
        )
        self._settle(messages, batch, self._run, None if app_id is None else decide_batch_write, first=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files. There is no transaction to abort: it opens in `commit` only."""
        self._staging.clean(self._run)
