"""`format("kafka-eos")` as a sink: streaming and batch, through Spark's Python Data Source API.

Executors encode and stage; the commit appends what their messages refer to and ends the transaction. Spark runs the
commit in a Python worker, whichever is idle, on a new writer, without a session: the writer knows the batch id, the
options and the messages, and reads the rest from the checkpoint. So every micro-batch starts with a look at the ledger
and the owner of the transactional.id, then InitProducerId. Spark also plans each micro-batch in such a worker. A
query's first batch waits until each process has imported what it needs, so none imports what only another one does:
tasks have `encode_stage`, the commit `sink_commit`. The preflight runs when Spark plans a write, before its tasks.

The plan that the tasks worked for is the one that is committed, or nothing is. In a store that lets two drivers replace
each other's files, `offsets/<batch>` may change while the batch runs. So the planning process notes its digest, which
travels with the tasks' messages, and the commit compares. What remains is the moment between Spark's write of the plan
and the planning of the write: no code of ours runs in between, and neither process sees the plan that Spark has in
memory. TransactionalWriter does, and has no such moment.

A batch write is one transaction, too. With `txnAppId` and `txnVersion` (Delta's names), a rerun of the same job writes
nothing twice.
"""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_kafka_eos.appending.files import files_at, through_spark
from spark_kafka_eos.appending.staging import Staging, folder_of_run, staging_of
from spark_kafka_eos.errors import CheckpointUnusable, ConfigurationError
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.spark.commit_log import show
from spark_kafka_eos.spark.features import StreamArrowWriter
from spark_kafka_eos.spark.plans import PlanDigest, may_run, newest_plan, plan_of
from spark_kafka_eos.spark.rows import check_schema, schema_ids
from spark_kafka_eos.spark.staged_message import StagedMessage, staged
from spark_kafka_eos.spark.worker import STATS_ENDPOINT
from spark_kafka_eos.startup.frozen import freeze_gc
from spark_kafka_eos.startup.quickack import QuickAck

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_eos.appending.report import EncodeReport
    from spark_kafka_eos.kafka.producer import ProducerEpoch
    from spark_kafka_eos.micro_batch import MicroBatch
    from spark_kafka_eos.options import ClientOptions, SinkOptions
    from spark_kafka_eos.spark.offset_log import ReadFile

_JOB_GROUP = "spark.jobGroup.id"  # StreamExecution sets it to the id of the query's run


def _uuid(text: str | None) -> str | None:
    """The text if it is a UUID, as a run's id is: a platform's own job group may be the same in each run."""
    try:
        return str(uuid.UUID(text or ""))
    except ValueError:
        return None


# What this process has checked. Spark plans a query's micro-batches in one process unless a minute passes between them
# (PythonWorkerFactory's idle workers) or spark.python.worker.reuse is off. So a query pays for its preflight once, or
# when it hardly matters.
_checked: set[SinkOptions] = set()
# By checkpoint: the number of the batch that was planned here last. Others may have been planned in another process
# since, where several queries run.
_planned: dict[str, int] = {}


def _preflight(cluster: Cluster, options: SinkOptions, staging: Staging) -> None:
    from spark_kafka_eos.preflight.run import preflight

    preflight(cluster, options, staging)


class _Sink(QuickAck):
    """Common base of the streaming and the batch writer. The constructor opens no connections, because Spark creates a
    writer for planning and another one for the commit.
    """

    _staging: Staging

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        connect: Callable[[ClientOptions], Cluster],
        preflight: Callable[[Cluster, SinkOptions, Staging], None],
    ) -> None:
        check_schema(schema, topic=options.topic, dead_letters=options.dead_letter_topic is not None)
        self._connect, self._preflight = connect, preflight
        self._options = options
        self._schema_ids = schema_ids(schema)

    def check(self) -> None:
        """Run the preflight, for the process that plans the write. Raises what is wrong before any task runs."""
        show(self._options.log_level, self._options.log_format)
        with self._connect(self._options.client) as cluster:
            self._preflight(cluster, self._options, self._staging)
            self._note_owner(cluster)

    def _note_owner(self, cluster: Cluster) -> None:
        """Note who owns the transactional.id, if only that shows the commit that another process took it."""

    def _stage(
        self, batches: Iterator[pa.RecordBatch], folder: str, query_id: str | None, batch_id: int | None
    ) -> EncodeReport:
        freeze_gc()  # before the imports, so that it does not scan PySpark and PyArrow meanwhile
        from spark_kafka_eos.appending.encode_settings import encode_settings
        from spark_kafka_eos.spark.encode_stage import stage_rows, task_context

        # At the task's end, Spark passes the message to `pyarrow.array`, which imports pandas, if it is installed. Now
        # it costs no time: another process still reads the rows.
        with suppress(ImportError):
            importlib.import_module("pandas")
        # The task looks up the topics, because none of our code runs on the driver before it.
        settings = encode_settings(
            self._options,
            self._options.topic,
            query_id=query_id,
            batch_id=batch_id,
            schema_ids=self._schema_ids,
            batch_name=folder,
        )
        task = task_context().partitionId()
        return stage_rows(batches, self._options.client, settings, self._staging, folder, task)


class KafkaEosStreamWriter(_Sink, StreamArrowWriter):
    """A streaming query's sink. Raises ConfigurationError unless checkpointLocation is set on the query."""

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        connect: Callable[[ClientOptions], Cluster] = Cluster,
        preflight: Callable[[Cluster, SinkOptions, Staging], None] = _preflight,
    ) -> None:
        if options.checkpoint_location is None:
            raise ConfigurationError(
                "checkpointLocation",
                "is required: the sink reads each batch's source offsets from the checkpoint",
                action="Set it on the query with .option('checkpointLocation', …).",
            )
        self._checkpoint: str = options.checkpoint_location
        self._call = uuid.uuid4().hex  # per planning: tasks get this object, the commit creates another one
        self._plan: PlanDigest | None = None
        super().__init__(options, schema, connect, preflight)
        self._staging = staging_of(options, self._checkpoint)

    def check(self) -> None:
        """Note the plan. Once per process: the preflight, whether the checkpoint can be read here, and the first
        batch's source.
        """
        try:
            read = self._read_checkpoint("metadata") if self._options not in _checked else None
            self._note_plan()
        except OSError as error:
            raise self._elsewhere(
                f"cannot read {self._checkpoint} ({error}); if that is so only for the moment, start the query again"
            ) from error
        if read is None:
            return
        show(self._options.log_level, self._options.log_format)
        with self._connect(self._options.client) as cluster:
            self._preflight(cluster, self._options, self._staging)
            if read("commits/0") is None and read("offsets/0") is not None:
                from spark_kafka_eos.preflight.sources import check_source_cluster, refuse_loop  # of the first batch
                from spark_kafka_eos.spark.checkpoint import micro_batch

                batch = micro_batch(read, 0)
                refuse_loop(cluster, self._options, batch)
                check_source_cluster(cluster, self._options, batch)
        _checked.add(self._options)

    def _note_plan(self) -> None:
        files = files_at(self._checkpoint, "checkpointLocation")
        earlier = _planned.get(self._checkpoint)
        self._plan = newest_plan(files, earlier)
        # trigger(continuous=…). Spark would ignore what the commits raise there, and leave the query alive.
        planned = (
            files.read_text("offsets/0") is not None if self._plan is None else may_run(files, self._plan, earlier)
        )
        if not planned:
            raise ConfigurationError(
                "trigger",
                "the sink writes in micro-batches, and Spark has planned none for this write, as with continuous=…",
                action="Start the query with processingTime=… or availableNow=True. If it has such a trigger, the "
                f"checkpoint at {self._checkpoint} is not the one that Spark writes, but of another file system. "
                f"{self._another_file_system()}",
            )
        if self._plan is not None:
            _planned[self._checkpoint] = self._plan.batch_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode and stage one task's rows; runs in an executor's Python worker."""
        from spark_kafka_eos.spark.encode_stage import task_context

        context = task_context()
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        query_id = context.getLocalProperty("sql.streaming.queryId")
        folder = f"{batch_id or 'unnumbered'}-{self._call}"
        report = self._stage(iterator, folder, query_id, None if batch_id is None else int(batch_id))
        return StagedMessage(
            report,
            folder,
            query_id,
            run_id=_uuid(context.getLocalProperty(_JOB_GROUP)),
            plan=self._plan,
            collector=context.getLocalProperty(STATS_ENDPOINT) or None,
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the micro-batch: its records, source offsets and ledger entry in one transaction."""
        from spark_kafka_eos.spark.sink_commit import commit_micro_batch  # here alone: half of what the sink can load

        try:
            batch = self._micro_batch(messages, batchId)
        except OSError as error:  # it could be read when Spark planned the write
            raise CheckpointUnusable(
                f"the checkpoint {self._checkpoint} cannot be read: {error}",
                action="Start the query again once it can be read: it writes the batch then.",
            ).replaced(committed="nothing") from error
        earlier = self._staging.folders_before(batchId)
        report = commit_micro_batch(self._options, self._connect, self._staging, messages, batch)
        self._clean(messages)
        if report.outcome == "committed":
            self._staging.clean_all(earlier)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged files. There is no transaction to abort, because it starts in `commit`."""
        self._clean(messages)

    def _clean(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files that the tasks of these messages wrote."""
        for folder in {message.folder for message in staged(messages) if message.report.path or message.report.error}:
            self._staging.clean(folder)

    def _micro_batch(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> MicroBatch:
        """The batch as recorded in the checkpoint of the query that the tasks worked for, by the plan that they worked
        for.
        """
        from spark_kafka_eos.spark.checkpoint import micro_batch  # of the commit, as `commit_micro_batch`
        from spark_kafka_eos.spark.plan_registry import conflicts

        before = [f"offsets/{batch_id - 1}"] if batch_id else []
        read = self._read_checkpoint("metadata", f"offsets/{batch_id}", also=before)
        batch = micro_batch(read, batch_id)
        by_tasks = staged(messages)
        queries = {message.query_id for message in by_tasks} - {None}
        if queries - {batch.query_id}:
            raise self._elsewhere(
                f"{self._checkpoint} contains the checkpoint of query {batch.query_id}, but this is "
                f"query {', '.join(map(str, queries))}"
            )
        now = plan_of(batch_id, read(f"offsets/{batch_id}") or "")
        if other := next((plan for plan in (message.plan for message in by_tasks) if plan not in (None, now)), None):
            raise self._replaced(
                f"had plan {other} when Spark planned the write of batch {batch_id}, but now it has {now}"
            )
        if conflicts(read, batch_id):
            raise self._replaced(f"has plan {now}, but Spark has planned batch {batch_id} here with other offsets")
        return replace(batch, run_id=next((message.run_id for message in by_tasks if message.run_id), None))

    def _read_checkpoint(self, *expected: str, also: Sequence[str] = ()) -> ReadFile:
        """Reads the checkpoint's files; those that are expected, or needed `also`, only once. Raises ConfigurationError
        if one that is expected shows that the checkpoint is elsewhere.

        Without a session, a path without a scheme is ambiguous: Spark uses the cluster's default file system, but this
        process uses its local disk, where another query's checkpoint may be. With a scheme, Spark's settings of the
        file system may lead elsewhere than Python's.
        """
        files = files_at(self._checkpoint, "checkpointLocation")
        texts = files.read_texts([*expected, *also])
        missing = [name for name in expected if texts[name] is None]
        if missing:
            here = "as Python opens it" if urlsplit(self._checkpoint).scheme else "on the driver's local disk"
            raise self._elsewhere(f"{self._checkpoint}, {here}, does not contain {missing[0]} of this query")
        return lambda name: texts[name] if name in texts else files.read_text(name)

    def _replaced(self, how: str) -> CheckpointUnusable:
        return CheckpointUnusable(
            f"the checkpoint {self._checkpoint} {how}: another driver writes to this checkpoint, in a store that lets "
            "it replace files",
            action="Stop the other driver, then start the query again: it writes the batch as it is planned then.",
        ).replaced(committed="nothing")

    def _elsewhere(self, what: str) -> ConfigurationError:
        return ConfigurationError("checkpointLocation", what, action=self._another_file_system())

    def _another_file_system(self) -> str:
        """What to do if Spark opens `checkpointLocation` in another file system than Python."""
        if not urlsplit(self._checkpoint).scheme:
            return "Add the scheme of the file system to the path (hdfs://…, s3://…, file:///…)."
        return (
            "Give Python the credentials and settings that Spark has for this file system, or choose another one."
            + through_spark("checkpointLocation")
        )


class KafkaEosBatchWriter(_Sink, DataSourceArrowWriter):
    """A batch write in one transaction. Spark pickles this object for the tasks and for the commit."""

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        connect: Callable[[ClientOptions], Cluster] = Cluster,
        preflight: Callable[[Cluster, SinkOptions, Staging], None] = _preflight,
    ) -> None:
        super().__init__(options, schema, connect, preflight)
        now = time.time()
        # Each run has its own folder. Folders by transactional.id would be left behind where the id is random.
        self._run = folder_of_run(now)
        self._planned_under: ProducerEpoch | None = None
        shared = options.staging_dir
        from spark_kafka_eos.appending.temporary import TemporaryStaging  # of a batch write alone

        self._staging = Staging(f"{shared}/kafka-eos-staging/batch-writes") if shared else TemporaryStaging(now)

    def check(self) -> None:
        try:
            super().check()
        except BaseException:
            self._staging.clean(self._run)  # Spark does not call `abort` before it has a writer
            raise

    def _note_owner(self, cluster: Cluster) -> None:
        from spark_kafka_eos.transaction.owner import owner_of  # of a batch write alone

        if self._options.transactional_id:
            self._planned_under = owner_of(cluster, self._options.transactional_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode and stage one task's rows; runs in an executor's Python worker."""
        return StagedMessage(self._stage(iterator, self._run, self._options.txn_app_id, self._options.txn_version))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the whole write or nothing. With `txnAppId`, skip it if the ledger shows it as committed."""
        from spark_kafka_eos.spark.sink_commit import commit_batch_write  # as for a stream

        commit_batch_write(
            self._options,
            self._connect,
            self._staging,
            messages,
            run=self._run,
            planned_under=self._planned_under,
        )
        self._staging.clean(self._run)
        self._staging.clean_old(time.time())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files. There is no transaction to abort, because it starts in `commit`."""
        self._staging.clean(self._run)
