"""Commits micro-batches in foreachBatch: chooses the append mode, owns the transactional.id, refuses second calls."""

from __future__ import annotations

import contextvars
import functools
import itertools
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.appending.append import BlockAppender, append
from spark_kafka_eos.appending.append_mode import (
    SMALL_BYTES,
    Choice,
    SessionKind,
    choose,
    larger_than_expected,
    offsets,
)
from spark_kafka_eos.appending.encode_settings import encode_settings, known_partitions
from spark_kafka_eos.appending.report import Appended, CommitReport, EncodeReport
from spark_kafka_eos.appending.staging import Staging, TooLargeToTravel, folder_of, staging_of
from spark_kafka_eos.errors import Committed, ConfigurationError, IllegalTransactionState, KafkaEosError, ReplayFailed
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.batch_refusals import unfinished
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.observe.observers import observer
from spark_kafka_eos.options import ClientOptions, SinkOptions
from spark_kafka_eos.options.outputs import OutputTopic, names
from spark_kafka_eos.participants.participant import Participant
from spark_kafka_eos.preflight.run import preflight
from spark_kafka_eos.preflight.sources import check_source_cluster, refuse_loop, refuse_members
from spark_kafka_eos.spark.arrow_batches import small_arrow_batches
from spark_kafka_eos.spark.encode_stage import REPORT, RowsOf, StagingTask
from spark_kafka_eos.spark.executor_append import append_stage
from spark_kafka_eos.spark.jvm import RunningQuery, session_kind
from spark_kafka_eos.spark.stopping import stop_recognized
from spark_kafka_eos.transaction.begun import BatchMark, BegunBatches, begun_batches
from spark_kafka_eos.transaction.calls import Attempt, WriterCall, WriterCalls, calls_of, cluster_of
from spark_kafka_eos.transaction.commit import Committer, commit_batch, committer
from spark_kafka_eos.transaction.shared import SharedTransaction

P = ParamSpec("P")
R = TypeVar("R")

_log = logger(__name__)

# Spark starts a Python thread in the driver for each foreachBatch query, and keeps it after the query has ended (py4j's
# pinned threads). glibc gives each thread a heap of its own, which keeps most of what was ever needed at once: 15 MB
# and more for the record batches on their way. So a driver that runs one query after the other would grow with each.
# An idle thread is used before another one is started, so there are as many as ever appended at the same time.
_threads = ThreadPoolExecutor(max_workers=10_000, thread_name_prefix="kafka-eos-append")

_MEASURED = 8  # batches with output, whose sizes tell what the next one has
_TOO_LARGE = "spark.driver.maxResultSize"  # in Spark's message; there is no error class


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """The output of a micro-batch: the rows of `frame`, None if it has none.

    `topic` is the topic of all rows, None if each row names its own. `topics` are those that calls of `write` name.
    `output_topics` are the topics and partitions that the batch may write; if it is empty, all. With `rows_of`, the
    encode tasks make the output's rows from those of `frame`. `schema_ids` are columns that `to_confluent` has encoded,
    with the ids before their values.
    """

    frame: DataFrame | None = None
    topic: str | None = None
    topics: frozenset[str] = frozenset()
    output_topics: tuple[OutputTopic, ...] = ()
    rows_of: RowsOf | None = None
    schema_ids: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """What a table that takes part gets of a micro-batch: the rows, None for none. They must be there for each attempt
    at its commit, so an iterator is not enough.
    """

    participant: Participant
    rows: Any = None


@dataclass(slots=True)
class BegunBatch:
    """A batch whose function has called the writer: from here on it is known that its rows are to be written."""

    frame: DataFrame
    query: RunningQuery
    batches: BegunBatches
    mark: BatchMark
    attempt: Attempt | None = None

    def failed(self, error: BaseException) -> None:
        """The batch's block ended with `error`."""
        if self.mark.outcome == "committed":  # and then something else failed
            return
        in_doubt = self.attempt is not None and self.attempt.may_have_committed(error)
        second = isinstance(error, IllegalTransactionState) and error.committed != "nothing"  # the first call's outcome
        unknown = (in_doubt or second) and not self.mark.repeatable
        self.batches.end(self.mark, "unknown" if unknown else "failed")

    def committed(self) -> Committed:
        """What may be committed after an error that does not say so: one of Spark."""
        if self.mark.repeatable:  # another call may have written to this batch
            return "acknowledged"
        return "unknown" if self.attempt is not None and self.attempt.committing else "nothing"


class MicroBatchWriter:
    """Commits the micro-batches of one query; see TransactionalWriter. It pickles without its connections."""

    def __init__(
        self,
        options: SinkOptions,
        *,
        connect: Callable[[ClientOptions], Cluster] = Cluster,
        preflight: Callable[[Cluster, SinkOptions, Staging | None], None] = preflight,
        running_query: Callable[[DataFrame, str | None], RunningQuery] = RunningQuery,
        session_kind: Callable[[SparkSession], SessionKind] = session_kind,
    ) -> None:
        self._options = options
        self._connect, self._preflight = connect, preflight
        self._running_query, self._session_kind = running_query, session_kind
        self._first_call = threading.Lock()
        self._calls: WriterCalls | None = None
        self._where: str | None = None  # the cluster
        self._cluster: Cluster | None = None
        self._checked = False  # by the preflight
        self._transaction: Committer | None = None
        self._bytes_per_offset: deque[float] = deque(maxlen=_MEASURED)  # of the last that were committed here

    def __getstate__(self) -> dict[str, object]:
        of_this_process = ("_first_call", "_calls", "_cluster", "_transaction")
        return self.__dict__ | dict.fromkeys(of_this_process) | {"_checked": False}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._first_call = threading.Lock()

    @contextmanager
    def begin(self, batch_df: DataFrame, batch_id: int) -> Iterator[BegunBatch]:
        """Enter it before anything else: unless the batch is committed in the block, the next ones are refused."""
        begun: BegunBatch | None = None
        with stop_recognized(batch_df.sparkSession, lambda: begun.committed() if begun else "nothing"):
            query = self._running_query(batch_df, self._options.checkpoint_location)
            batches = begun_batches(query.key, query.run_id)
            relaxed = self._options.delivery_guarantee == "at-least-once"
            mark = batches.begin(batch_id, self._options.transactional_id, repeatable=relaxed)
            begun = BegunBatch(batch_df, query, batches, mark)
            try:
                yield begun
            except BaseException as error:
                begun.failed(error)
                raise

    def commit(self, begun: BegunBatch, rows: BatchRows, table: TableRows | None = None) -> CommitReport:
        """Commit `rows` as the output of this batch, and with them those of `table`."""
        participant = None if table is None else table.participant
        batch_df, query, batch_id = begun.frame, begun.query, begun.mark.batch_id
        batch = replace(query.micro_batch(batch_id), run_id=query.run_id)
        call = WriterCall(run_id=query.run_id, query_id=batch.query_id, batch_id=batch_id)
        calls = self._known_calls()
        begun.mark.cluster = self._where
        last, failed = begun.batches.last(begun.mark), begun.batches.failed(begun.mark)
        batch = replace(batch, first_batch_without_call=0 if last is None else last + 1, failed=failed)
        if failed and begun.mark.repeatable:
            refusal = unfinished(batch, ledger=False)
            raise IllegalTransactionState(f"{refusal.reason}. {refusal.meaning}", action=refusal.action)
        if batch_id and batch.first_batch_without_call != batch_id:
            batch = query.after_others(batch)
        with calls.enter(call, incomplete=functools.partial(self._note_incomplete, batch, participant)) as attempt:
            begun.attempt = attempt
            try:
                report = self._commit_rows(batch_df.sparkSession, query, batch, rows, table, attempt)
                begun.batches.end(begun.mark, "committed")
            except IllegalTransactionState as error:
                if error.committed == "everything":  # according to the ledger
                    self._note_incomplete(batch, participant, error.committed)
                raise
        if report.outcome == "committed" and report.bytes and (count := offsets(batch)):
            self._bytes_per_offset.append(report.bytes / count)
        if report.outcome == "skipped":
            _evaluate(batch_df, query, batch)
        return report

    def _note_incomplete(self, batch: MicroBatch, participant: Participant | None, committed: Committed) -> None:
        """A call for `batch` is about to be refused, because an earlier call has committed, or may have committed.

        If it has, record that in the ledger, so that a restart does not consider the batch complete. If that is not
        known, the earlier call may still be running in another thread. Never raises: the refusal is more important.
        """
        _log.warning(
            "batch %d of query %s is incomplete: not all of its DataFrames are written", batch.batch_id, batch.query_id
        )
        if committed != "everything":
            return
        try:
            transaction, _ = self._own(participant)
            if isinstance(transaction, SharedTransaction):
                transaction.note_incomplete(batch)
        except KafkaEosError as error:
            self._start_anew()
            _log.warning("cannot record in the ledger that batch %d is incomplete: %s", batch.batch_id, error)

    def _commit_rows(
        self,
        session: SparkSession,
        query: RunningQuery,
        batch: MicroBatch,
        rows: BatchRows,
        table: TableRows | None,
        attempt: Attempt,
    ) -> CommitReport:
        choice = self._choose(session, batch)
        if choice.small:
            staging = Staging(None, inline_bytes=SMALL_BYTES)
        else:
            staging = staging_of(self._options, query.checkpoint_location)
        used = choice.mode == "driver" and not choice.small
        leftovers = self._leftovers(staging, batch) if used else []
        transaction, cluster = self._own(None if table is None else table.participant, staging if used else None)
        if isinstance(transaction, SharedTransaction):
            transaction.table_rows = None if table is None else table.rows
        check_source_cluster(cluster, self._options, batch)
        refuse_members(cluster, self._options, batch)
        named = [*names(rows.output_topics), *rows.topics, *([rows.topic] if rows.topic else [])]
        refuse_loop(cluster, self._options, batch, named)
        folder = folder_of(batch.batch_id)
        way = self._way(session, cluster, rows, choice, staging, folder, batch)

        def write(identity: ProducerIdentity) -> Appended:
            attempt.appending()
            staging.clean_all(leftovers)
            appended = way(identity)
            refuse_loop(cluster, self._options, batch, appended.topics)  # rows may have named others
            attempt.commit_begins()
            return appended

        earlier = staging.folders_before(batch.batch_id) if choice.mode == "driver" else []
        try:
            report = commit_batch(
                transaction,
                batch,
                write,
                max_attempts=self._options.max_attempts,
                choice=choice,
                observe=observer(self._options, query.collector()),
            )
        except BaseException:
            self._start_anew()
            raise
        finally:
            if choice.mode == "driver":
                staging.clean(folder)
        if report.outcome == "committed":  # a late driver, whose batch is skipped, leaves the live one's files alone
            staging.clean_all(earlier)
        return report

    def _start_anew(self) -> None:
        """After an error: what this process knows of the transactional.id's owner stays known."""
        if self._transaction is not None:
            self._transaction.start_over()

    def _own(self, participant: Participant | None = None, staging: Staging | None = None) -> tuple[Committer, Cluster]:
        """The owner of the next batches, with connections of this writer; created when they are first needed, and when
        another participant takes part.

        `staging` is for the preflight: where this batch's tasks will leave files.
        """
        cluster = self._connected()
        if not self._checked:
            try:
                self._preflight(cluster, self._options, staging)
            except BaseException:
                cluster.close()
                self._cluster = None
                raise
            self._checked = True
        current = self._transaction.participant if isinstance(self._transaction, SharedTransaction) else None
        if self._transaction is None or current is not participant:
            decide = decide_micro_batch(self._options, calls=True)
            unsure = self._known_calls().failed
            self._transaction = committer(self._options, cluster, decide, unsure=unsure, participant=participant)
        return self._transaction, cluster

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self._connect(self._options.client)
            weakref.finalize(self, self._cluster.close)
        return self._cluster

    def _known_calls(self) -> WriterCalls:
        with self._first_call:  # another one at the same time would use the same connections
            if self._calls is None:
                exactly_once = self._options.delivery_guarantee == "exactly-once"
                cluster_id = self._connected().cluster_id() if exactly_once else ""
                # At-least-once, an address may be one of the same cluster.
                self._where = cluster_of(self._options, cluster_id) if exactly_once else None
                self._calls = calls_of(self._options, cluster_id)
            return self._calls

    def _way(
        self,
        session: SparkSession,
        cluster: Cluster,
        rows: BatchRows,
        choice: Choice,
        staging: Staging,
        folder: str,
        batch: MicroBatch,
    ) -> Callable[[ProducerIdentity], Appended]:
        """The function that appends the rows to the transaction, according to `choice`."""
        if rows.frame is None:
            return BlockAppender(cluster, self._options, staging, list, batch.batch_id)
        options = replace(self._options, output_topics=rows.output_topics)
        settings = encode_settings(
            options,
            rows.topic,
            cluster,
            topics=rows.topics,
            query_id=batch.query_id,
            batch_id=batch.batch_id,
            schema_ids=rows.schema_ids,
            batch_name=folder,
        )
        frame, attempts = rows.frame, itertools.count()

        def by_executors(identity: ProducerIdentity) -> Appended:
            chosen_by_rows = rows.rows_of is not None or "partition" in map(str.lower, frame.columns)
            partitions = known_partitions(settings, rows=offsets(batch), chosen_by_rows=chosen_by_rows)
            return append_stage(
                session,
                frame,
                self._options,
                settings,
                batch.batch_id,
                rows.rows_of,
                choice.tasks,
                cluster,
                partitions,
                identity,
                anew=next(attempts) > 0,
            )

        if choice.mode == "executors":
            return by_executors
        task = StagingTask(self._options.client, settings, staging, folder, rows.rows_of)
        stage = functools.partial(_stage_here if choice.few and _has_arrow(rows) else _stage, rows.frame, task)
        by_driver = BlockAppender(
            cluster, self._options, staging, stage, batch.batch_id, append=in_shared_thread(append)
        )

        def as_it_comes(identity: ProducerIdentity) -> Appended:
            try:
                return by_driver(identity)
            except TooLargeToTravel:
                return replace(by_executors(identity), choice=larger_than_expected())

        return as_it_comes if choice.small else by_driver

    def _leftovers(self, staging: Staging, batch: MicroBatch) -> list[str]:
        """The folders that killed attempts at this batch, and batches before it, have left behind.

        Call it before InitProducerId, which fences their owners, and remove them after it. Before, a live driver may
        need them, and those that come later are a newer owner's.
        """
        if self._transaction is not None or self._options.delivery_guarantee == "at-least-once":
            return []
        return staging.folders_before(batch.batch_id + 1)

    def _choose(self, session: SparkSession, batch: MicroBatch) -> Choice:
        kind = self._session_kind(session)
        if self._options.append_mode == "executors" and not kind.classic:
            raise ConfigurationError(
                "appendMode",
                "executors requires a classic Spark session: Spark Connect does not show whether a task ran twice",
                action="Set appendMode=driver or appendMode=auto.",
            )
        return choose(self._options.append_mode, kind, batch, max(self._bytes_per_offset, default=None))


def _stage(rows: DataFrame, task: StagingTask) -> Sequence[EncodeReport]:
    with small_arrow_batches(rows.sparkSession):
        return [pickle.loads(row.report) for row in rows.mapInArrow(task, REPORT).collect()]


def _has_arrow(rows: BatchRows) -> bool:
    """Whether the driver can get the rows as Arrow: since Spark 4.0, and unless the tasks make them."""
    return rows.rows_of is None and hasattr(rows.frame, "toArrow")


def _stage_here(rows: DataFrame, task: StagingTask) -> Sequence[EncodeReport]:
    """The same without a task that encodes: few rows are here sooner than at a second Python worker. If they are too
    many for Spark to give them to the driver, they get tasks.
    """
    try:
        table = rows.toArrow()
    except Exception as error:
        if _TOO_LARGE not in str(error):
            raise
        _log.info("the batch has more rows than expected, and is computed again by tasks that encode them")
        return _stage(rows, task)
    return [task.stage(iter(table.to_batches()), 0)]


def _evaluate(batch_df: DataFrame, query: RunningQuery, batch: MicroBatch) -> None:
    """Have Spark compute the rows of a committed batch and discard them, if it needs that.

    Only this advances state store and watermark, and Spark fails a batch that did not write its state.
    """
    try:
        if not query.needs_evaluation():
            return
        _log.info("batch %d of query %s is recomputed to restore the query's state", batch.batch_id, batch.query_id)
        batch_df.write.format("noop").mode("overwrite").save()
    except Exception as error:
        raise ReplayFailed(
            f"batch {batch.batch_id} of query {batch.query_id} was committed in an earlier run, but recomputing it "
            "to restore the query's state failed",
            committed="everything",
            action="Fix the cause, which is the previous error, and restart the query.",
        ) from error


def in_shared_thread(function: Callable[P, R]) -> Callable[P, R]:
    """`function` in a thread that all queries of the driver share, with the caller's context; the caller waits for its
    result or error.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        call = functools.partial(function, *args, **kwargs)
        return _threads.submit(contextvars.copy_context().run, call).result()

    return run
