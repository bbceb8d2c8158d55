"""Reads from the JVM of a classic SparkSession: the running query, its checkpoint, and the attempts of its stages; and
runs a function before the JVM ends.

All use of py4j is in this file, but what calls the table of `iceberg_table`. Spark Connect gives no access to the JVM;
callers then rely on options.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import JStreamingQueryListener, QueryProgressEvent, StreamingQueryListener

from spark_kafka_eos.appending.append_mode import SessionKind
from spark_kafka_eos.appending.barrier import StageAttempts
from spark_kafka_eos.appending.files import files_at
from spark_kafka_eos.errors import ConfigurationError, IllegalTransactionState
from spark_kafka_eos.kafka.protocol.backoff import Budget
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.spark.checkpoint import ReadFile, keeps_state, micro_batch, starts_where_the_query_began
from spark_kafka_eos.spark.worker import STATS_ENDPOINT

try:
    from py4j.java_gateway import is_instance_of
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started
except ImportError:  # the package pyspark-client: every session is one of Spark Connect
    _ERRORS_OF_SPARK: tuple[type[Exception], ...] = (PySparkException,)
else:
    _ERRORS_OF_SPARK = (Py4JError, PySparkException)

_SCAN = "StreamingDataSourceV2ScanRelation"
_PROCESS = uuid.uuid4().hex
_STATUS_BUDGET_MS = 10_000
_BEFORE_SPARK = 100  # Spark's hook has priority 40 (ShutdownHookManager in spark-core); higher ones run first
_INDETERMINATE = "shuffle map stage with indeterminate output"  # in DAGScheduler's message; there is no error class


def is_classic(session: SparkSession) -> bool:
    """Whether the session gives access to its JVM (not Spark Connect)."""
    return hasattr(session, "_jsparkSession")


def cloned(session: SparkSession) -> SparkSession:
    """A session with the settings and the temporary views that this one has now. Over Spark Connect from 4.1 on."""
    if is_classic(session):
        return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    clone: SparkSession = session.cloneSession()  # type: ignore[attr-defined]  # only Connect's sessions have it
    return clone


def is_local(session: SparkSession) -> bool:
    """Whether driver and executors are one process (`local[…]`)."""
    return is_classic(session) and str(session.sparkContext.master).split("[")[0] == "local"


def driver_addresses(session: SparkSession) -> tuple[str, str]:
    """The address that the driver binds to, and the one that executors use. For a classic session."""
    if is_local(session):
        return "127.0.0.1", "127.0.0.1"
    configuration = session.sparkContext.getConf()
    host = configuration.get("spark.driver.host", "localhost")
    return configuration.get("spark.driver.bindAddress", host), host


def redact_in_event_log(session: SparkSession, name: str) -> None:
    """Have Spark redact the session's setting `name` in what it logs of jobs and stages, too. For a classic session.

    Of a job's properties, which contain the session's settings, it redacts only those that its own configuration has
    (EventLoggingListener.redactProperties). There, the setting is empty; sessions that begin later inherit that.
    """
    session.sparkContext._jsc.sc().conf().set(name, "")


def speculates(session: SparkSession) -> bool:
    """Whether Spark starts speculative copies of slow tasks; the barrier would abort the transaction because of
    them.
    """
    # Called in each micro-batch. The Python getConf() would copy all settings, with one JVM call each.
    return is_classic(session) and bool(session.sparkContext._jsc.getConf().getBoolean("spark.speculation", False))


def session_kind(session: SparkSession) -> SessionKind:
    """What the choice of the append mode depends on."""
    return SessionKind(classic=is_classic(session), local=is_local(session), speculates=speculates(session))


def parallelism(session: SparkSession) -> int:
    """How many tasks the cluster runs at once, according to Spark."""
    return int(session.sparkContext.defaultParallelism) if is_classic(session) else 1


def executors(session: SparkSession) -> int:
    """How many executors have registered, at least 1: in `local[…]` mode the driver is one. For a classic session."""
    block_managers: int = session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()  # the driver, too
    return max(1, block_managers - 1)


class RunningQuery:
    """The streaming query whose foreachBatch function is running."""

    def __init__(self, frame: DataFrame, checkpoint_location: str | None) -> None:
        self._session = frame.sparkSession
        classic = is_classic(self._session)
        self._execution = (_execution(self._session) or _execution_of(self._session)) if classic else None
        self._location = checkpoint_location if self._execution is None else self._execution.resolvedCheckpointRoot()
        # `key` distinguishes the query from others of this process. Spark Connect starts one for each run of a query's
        # function: there all writers are of that run, whatever they call its checkpoint.
        self.key, self.run_id = ((self._location or "") if classic else _PROCESS), (None if classic else _PROCESS)
        if self._execution is not None:
            self.key, self.run_id = (str(id_.toString()) for id_ in (self._execution.id(), self._execution.runId()))

    @property
    def checkpoint_location(self) -> str:
        """Raises ConfigurationError if it is unknown."""
        if self._location is None:
            raise ConfigurationError(
                "checkpointLocation",
                "the streaming query of this batch was not found in this session, so its checkpoint is unknown",
                action="Call the writer inside foreachBatch, and set the writer's option checkpointLocation.",
            )
        return str(self._location)

    def micro_batch(self, batch_id: int) -> MicroBatch:
        """The batch as recorded in the checkpoint. The start of batch 0 is read from the running plan.

        Raises IllegalTransactionState unless the query is running this batch.
        """
        read = _reader(self._session, self.checkpoint_location, self._execution)
        self._require_running(batch_id, read)
        return micro_batch(read, batch_id, first_start=self._planned_starts() if batch_id == 0 else None)

    def first_batch_of_run(self, batch_id: int) -> int | None:
        """The first of the batches up to `batch_id` that Spark knows to have run in this run, without a gap; None if
        it does not know. It remembers some progress of each run (`spark.sql.streaming.numRecentProgressUpdates`).
        """
        if self._execution is None:
            return None
        ran = {int(progress.batchId()) for progress in self._execution.recentProgress()}
        first = batch_id
        while first - 1 in ran:
            first -= 1
        return first

    def after_others(self, batch: MicroBatch) -> MicroBatch:
        """The batch, with what is known of those before it, for one that does not follow the last call of the writer.

        A batch's function may return without a call (`if df.isEmpty(): return`).
        """
        read = _reader(self._session, self.checkpoint_location, self._execution)
        return replace(
            batch,
            first_batch_of_run=self.first_batch_of_run(batch.batch_id),
            is_first_with_data=starts_where_the_query_began(read, batch),
            stateful=keeps_state(read),
        )

    def collector(self) -> str | None:
        """Where the session's listener hears how a batch ended (`worker.STATS_ENDPOINT`); None if there is none."""
        return None if self._execution is None else self._session.conf.get(STATS_ENDPOINT, None) or None

    def ends_with_what_is_available(self) -> bool:
        """Whether the query's trigger is availableNow. For a classic session."""
        return self._trigger().startswith("AvailableNow")

    def runs_on(self) -> bool:
        """Whether there is always a next batch, by the query's trigger. For a classic session."""
        return self._trigger().startswith("ProcessingTime")

    def _trigger(self) -> str:
        trigger = None if self._execution is None else self._execution.trigger()
        return "" if trigger is None else str(trigger.getClass().getSimpleName())

    def is_stopped(self) -> bool:
        """Whether this run has ended, or `stop` was called for it: also after Spark has forgotten the query, which
        the function below cannot know. False where there is no JVM to ask.
        """
        with contextlib.suppress(Py4JError):  # the JVM has ended
            return _has_ended(self._execution)
        return False

    def needs_evaluation(self) -> bool:
        """Whether Spark needs this batch to be computed even if its rows are not written: state and watermark only
        advance that way. Always true on Spark Connect, where the plan is not accessible, and before Spark 4.2, whose
        plans do not tell.
        """
        if self._execution is None:
            return True
        plan = self._execution.lastExecution().logical()
        try:
            stateful = plan.containsStatefulOperator()
        except Py4JError as error:
            if "does not exist" in str(error):
                return True
            raise
        watermark = _jvm(self._session).org.apache.spark.sql.catalyst.trees.TreePattern.EVENT_TIME_WATERMARK()
        return bool(stateful or plan.containsPattern(watermark))

    def _require_running(self, batch_id: int, read: ReadFile) -> None:
        """Raise IllegalTransactionState if the query runs another batch, according to Spark or else to the checkpoint,
        whose last planned batch is the running one.
        """
        running = None
        if self._execution is not None:
            running = self._session.sparkContext.getLocalProperty("streaming.sql.batchId")
        if running is not None:
            why = None if running == str(batch_id) else f"but the query runs batch {running}"
        elif read(f"offsets/{batch_id}") is None:
            why = f"but the checkpoint {self.checkpoint_location} has no file 'offsets/{batch_id}'"
        else:
            later = read(f"offsets/{batch_id + 1}") is not None
            why = (
                f"but the checkpoint {self.checkpoint_location} is at batch {batch_id + 1} or later" if later else None
            )
        if why is not None:
            raise IllegalTransactionState(
                f"the writer was called with batch_id {batch_id}, {why}",
                action="Pass the batch_id that foreachBatch passes to your function.",
            )

    def _planned_starts(self) -> list[str] | None:
        """Each source's start offset in the running plan; None if the plan does not contain all of them."""
        if self._execution is None:
            return None
        leaves = self._execution.lastExecution().logical().collectLeaves()
        scans = [
            leaf for leaf in (leaves.apply(i) for i in range(leaves.size())) if leaf.getClass().getSimpleName() == _SCAN
        ]
        starts = [scan.startOffset() for scan in scans]
        if not starts or any(start.isEmpty() for start in starts):
            return None
        return [str(start.get().json()) for start in starts]


def running_batch() -> tuple[str, str, int] | None:
    """Query id, run id and batch of the foreachBatch function that this thread runs. None elsewhere, and where there is
    no JVM to ask.
    """
    session = SparkSession.getActiveSession()
    if session is None or not is_classic(session):
        return None
    with contextlib.suppress(Py4JError):  # the JVM has ended
        execution = _execution(session)
        batch_id = session.sparkContext.getLocalProperty("streaming.sql.batchId")
        if execution is not None and batch_id is not None:
            return str(execution.id().toString()), str(execution.runId().toString()), int(batch_id)
    return None


class QuickListener(JStreamingQueryListener):
    """Gives a listener the events of batches as JSON, in two calls of py4j.

    PySpark reads each field with a call of its own, about a hundred. That took 33 ms of CPU time per batch, and 0.3 ms
    this way. The next batch runs meanwhile, on the same cores and with the same GIL.
    """

    def onQueryProgress(self, jevent: Any) -> None:
        try:
            event = QueryProgressEvent.fromJson({"progress": json.loads(jevent.progress().json())})
        except KeyError:  # before Spark 4.0, if a figure is missing: a batch's rate may be unknown
            super().onQueryProgress(jevent)
        else:
            self.pylistener.onQueryProgress(event)


def quick(listener: StreamingQueryListener) -> Any:
    """What the JVM calls in the place of `listener._jlistener`."""
    return SparkContext._jvm.PythonStreamingQueryListenerWrapper(QuickListener(listener))  # type: ignore[union-attr]


def stage_attempts(session: SparkSession, stages: Iterable[int]) -> dict[int, StageAttempts]:
    """The attempts of each finished stage; stages that Spark does not know are left out.

    The status store lags behind the job's result, so this waits for each stage until its first attempt is complete,
    for ten seconds at most.
    """
    tracker = session.sparkContext._jsc.statusTracker()  # the Python one hides the counts of a None
    budget = Budget(
        milliseconds=_STATUS_BUDGET_MS,
        backoff_ms=2,
        backoff_max_ms=100,
        clock=time.monotonic,
        jitter=random.random,
    )
    attempts: dict[int, StageAttempts] = {}
    for stage in stages:
        info = tracker.getStageInfo(stage)
        while (info is None or _unfinished(info)) and (pause := budget.delay()) is not None:
            time.sleep(pause)
            info = tracker.getStageInfo(stage)
        if info is not None:
            attempts[stage] = StageAttempts(
                current_attempt=info.currentAttemptId(),
                completed_tasks=info.numCompletedTasks(),
                failed_tasks=info.numFailedTasks(),
                num_tasks=info.numTasks(),
            )
    return attempts


def cannot_run_again(error: Exception) -> bool:
    """Whether Spark failed a job only because lost shuffle output may differ when it is recomputed.

    Spark detects that by a checksum or by the plan, and cannot recompute once a part of the result exists.
    """
    return _INDETERMINATE in str(error)


def comes_from_spark(error: BaseException | None) -> bool:
    """Whether a call of Spark raised `error` or one of the errors that led to it."""
    while error is not None:
        if isinstance(error, _ERRORS_OF_SPARK):
            return True
        error = error.__cause__ or error.__context__
    return False


def reason_of(error: Exception) -> str:
    """What Spark says of a job that has failed, with its task's traceback, and without the frames of the JVM."""
    text: str = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return text.partition("\n\tat ")[0].strip()


def is_stopped(session: SparkSession) -> bool:
    """Whether `stop` was called for the query that this thread works for. False where there is no JVM to ask."""
    if not is_classic(session):
        return False
    with contextlib.suppress(Py4JError):  # the JVM has ended
        return _has_ended(_execution(session))
    return False


def _has_ended(execution: Any) -> bool:
    return execution is not None and not execution.isActive()


class _Runnable:
    """A java.lang.Runnable."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run

    class Java:
        implements = ("java.lang.Runnable",)


def before_shutdown(session: SparkSession, run: Callable[[], None], seconds: float) -> Callable[[], None]:
    """Have the JVM call `run` when it begins to end, for example at SIGTERM, while Spark still works.

    The JVM goes on after `seconds`, even if `run` has not returned. Returns a function that takes this back: the JVM
    must not call this process when it is gone. For a classic session.
    """
    ensure_callback_server_started(session.sparkContext._gateway)  # type: ignore[no-untyped-call]
    java, hooks = _jvm(session).java, _jvm(session).org.apache.hadoop.util.ShutdownHookManager.get()
    hook = java.lang.Thread(_Runnable(run))
    hooks.addShutdownHook(hook, _BEFORE_SPARK, round(seconds + 1), java.util.concurrent.TimeUnit.SECONDS)

    def forget() -> None:
        with contextlib.suppress(Py4JError, OSError):  # the JVM is ending, or has ended
            hooks.removeShutdownHook(hook)

    return forget


def _unfinished(info: Any) -> bool:
    return bool(info.currentAttemptId() == 0 and info.numCompletedTasks() + info.numFailedTasks() < info.numTasks())


def iceberg_table(session: SparkSession, name: str) -> Any:
    """Apache Iceberg's Table, the one that the session's catalog has. For a classic session."""
    session.table(name)  # else a catalog that nothing has used yet is not found from another thread
    return _jvm(session).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, name)


def file_system(session: SparkSession, location: str) -> str:
    """The scheme of Hadoop's FileSystem for `location`. For a classic session."""
    path = _jvm(session).org.apache.hadoop.fs.Path(location)
    return str(path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()).getScheme())


@contextlib.contextmanager
def raising(exception: type[Exception], java: str) -> Iterator[None]:
    """Raise `exception` for Java's of this class."""
    try:
        yield
    except Py4JJavaError as error:
        if not is_instance_of(SparkContext._gateway, error.java_exception, java):
            raise
        raise exception from error


def _execution(session: SparkSession) -> Any:
    """The JVM's StreamExecution of the query that this thread works for, or None.

    foreachBatch gets a clone of the query's session, whose list of streams is empty; the shared state lists them all.
    """
    query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query_id is None:
        return None
    queries = session._jsparkSession.sharedState().activeStreamingQueries()
    return queries.get(_uuid(_jvm(session), query_id))


def _execution_of(session: SparkSession) -> Any:
    """The StreamExecution whose batches run in this session, which foreachBatch's DataFrame has; None if there is none.

    For a thread that the function has started: it does not have the local property that `_execution` reads.
    """
    with contextlib.suppress(Py4JError):  # a Spark that has it elsewhere, as platforms may
        for execution in list(session._jsparkSession.sharedState().activeStreamingQueries().values()):
            if execution.sparkSessionForStream().equals(session._jsparkSession):
                return execution
    return None


@functools.cache
def _uuid(jvm: Any, text: str) -> Any:
    """A java.util.UUID. Cached, because py4j first looks for a class `java` in every package that it imports."""
    return jvm.java.util.UUID.fromString(text)


def _jvm(session: SparkSession) -> Any:
    return session._jvm


def _reader(session: SparkSession, location: str, execution: Any) -> ReadFile:
    if urlsplit(location).scheme in ("", "file") or not is_classic(session):
        return files_at(location, "checkpointLocation").read_text
    from_store = _hadoop_reader(session, location)
    return from_store if execution is None else _memory_reader(session, execution, from_store)


def _memory_reader(session: SparkSession, execution: Any, from_store: ReadFile) -> ReadFile:
    """Reads what the query has in memory of its checkpoint: its id, and its last two plans (HDFSMetadataLog's cache).

    An object store would need a round trip for each file. It is also safer: in a store that replaces files, another
    driver may have replaced the plan of the batch that runs here. What the query does not have comes `from_store`.
    """

    def read(name: str) -> str | None:
        folder, _, number = name.partition("/")
        with contextlib.suppress(Py4JError):  # a Spark that has it elsewhere, as platforms may
            if name == "metadata":
                return json.dumps({"id": execution.id().toString()})
            if folder == "offsets":
                return _planned(execution.offsetLog(), int(number))
        return from_store(name)

    def _planned(log: Any, batch_id: int) -> str | None:
        planned = log.get(batch_id)
        if planned.isEmpty():
            return None
        text = _jvm(session).java.io.ByteArrayOutputStream()
        log.serialize(planned.get(), text)
        return str(text.toString("UTF-8"))

    return read


def _hadoop_reader(session: SparkSession, location: str) -> ReadFile:
    """Reads through Hadoop's FileSystem, which is already configured for the checkpoint.

    It does not ask whether a file exists before it opens it: in an object store, each of both is a round trip.
    """

    def read(name: str) -> str | None:
        # In here, because most batches read nothing: their plans are in memory.
        jvm, configuration = _jvm(session), session._jsparkSession.sessionState().newHadoopConf()
        missing = jvm.java.lang.Class.forName("java.io.FileNotFoundException")
        path = jvm.org.apache.hadoop.fs.Path(f"{location}/{name}")
        try:
            stream = path.getFileSystem(configuration).open(path)
            try:
                return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JJavaError as error:
            if not missing.isInstance(error.java_exception):
                raise
            return None

    return read
