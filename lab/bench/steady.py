"""Measures queries in steady state, by default with Spark's own settings: what a user starts with, and runs for weeks.

A query reads an input in full micro-batches. Its first ones and the last, partial one do not count. The sides take
turns, in an order that is reversed each round. The built-in connector reads read_committed with
`kafka.fetch.max.wait.ms=10` and writes at-least-once; ours is exactly-once with its own defaults.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lab.bench.alternating import Side, alternate
from lab.bench.apart import SparkApart
from lab.bench.figures import Comparison, phases
from lab.bench.inputs import Mixed, Shape
from lab.bench.lab import (
    CHECKPOINT_MANAGER,
    LOCAL_CHECKPOINTS,
    LOCAL_FILES,
    NUMPY_THREADS,
    PLAIN,
    RECOMMENDED,
    UNIX_SOCKETS,
    WITHOUT_CHECKSUMS,
    Lab,
    Settings,
    temporary_directory,
)
from lab.bench.nothing import Nothing, count
from lab.bench.ready_made import dropping
from lab.bench.sides import BUILT_IN_FORMAT, FETCH_WAIT, OUR_FORMAT, columns_of
from lab.bench.steady_figures import (
    BUILT_IN,
    LAUNCHED_PYTHON,
    NOTHING,
    OURS,
    OURS_SCHEMA,
    PLAIN_SETTINGS,
    SETTINGS,
    SKIPPED,
    STEADY,
    Progress,
    Used,
    Way,
    counted,
    first_batch_name,
    setting_side,
    trigger_seconds,
)
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.observe.lag import kafka_offsets
from spark_kafka_eos.spark.arrow_stream import arrow_stream
from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.process_tree import process_tree

_POLL_SECONDS = 0.002  # between two looks at the checkpoint
_ALIVE = 500  # looks, after which the query is asked whether it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a query reads: micro-batches of `rows` records, of which `batches` count. `records`: their kind. `schema`:
    whether ours is also measured with schema(…).
    """

    rows: int
    batches: int
    records: Shape
    schema: bool = False

    @property
    def shape(self) -> Shape:
        """The whole input, which ends with half a micro-batch."""
        return replace(self.records, records=(SKIPPED + self.batches) * self.rows + self.rows // 2)


_MAIN = Shape(records=0)
LOADS: Mapping[str, Load] = {
    "1k": Load(rows=1_000, batches=20, records=_MAIN),
    "100k": Load(rows=100_000, batches=8, records=_MAIN, schema=True),
    "500k": Load(rows=500_000, batches=3, records=_MAIN, schema=True),
    "1kb": Load(rows=100_000, batches=3, records=replace(_MAIN, value_bytes=1_000)),
    "10kb": Load(rows=10_000, batches=3, records=replace(_MAIN, value_bytes=10_000)),
    "mixed": Load(rows=100_000, batches=3, records=replace(_MAIN, mixed=Mixed())),
}

# Each setting alone. Those of conf/spark-defaults.conf that change nothing here (time zone, speculation) are left out.
EACH_SETTING: Mapping[str, Settings] = {
    PLAIN_SETTINGS: PLAIN,
    "Unix sockets": Settings(conf={UNIX_SOCKETS: "true"}),
    "checkpoint manager": Settings(conf={CHECKPOINT_MANAGER: LOCAL_CHECKPOINTS}),
    "no checksums in the checkpoint": Settings(conf={LOCAL_FILES: WITHOUT_CHECKSUMS}),
    "OPENBLAS_NUM_THREADS=1": Settings(environment={NUMPY_THREADS: "1"}),
    "pyspark.zip unpacked": Settings(unpacked=True),
    "no maxBytesPerBatch": Settings(conf={"spark.sql.execution.arrow.maxBytesPerBatch": "2147483647"}),
    "no checks of Arrow buffers": Settings(
        conf={"spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true"}
    ),
    "all of conf/ that is on": RECOMMENDED,
    "executors of their own": Settings(master="local-cluster[2,1,1024]"),
}
_SCHEMA = "schema(…)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query of one side, as it is sent to a session's process. `batches`: how many full micro-batches count."""

    way: Way
    ours: bool
    columns: str | None
    source: Mapping[str, Any]
    sink: Mapping[str, str]
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a query showed. `first_batch`: the seconds from start() to the end of batch 0; `since_session`: from before
    the source was loaded, to the same. `used`: by the micro-batches that count.
    """

    first_batch: float
    since_session: float
    progress: Progress
    used: Used


def steady(
    lab: Lab, name: str, load: Load, *, ways: Collection[Way] = tuple(Way), rounds: int = 5
) -> Iterator[tuple[str, Comparison]]:
    """Steady state on plain settings, by the name of the file. A series' seconds are the median triggers of its rounds.

    `settings` has, by side, a value for each round: `cpu_seconds` of a micro-batch, the share of the cores that was
    `idle`, `first_batch_seconds` from start() to the end of batch 0.
    """
    with SparkApart(PLAIN) as spark:
        for way in ways:
            title = f"{way.words}, steady, plain settings"
            sides = {OURS: Participant(spark=spark), BUILT_IN: Participant(spark=spark, ours=False)}
            if load.schema and way is not Way.ARROW:  # which reads only keys and values in any case
                sides[OURS_SCHEMA] = Participant(spark=spark, schema=True)
            yield f"{STEADY}-{name}-{way}", compare(lab, title, way, load, sides, rounds)
        lab.drop(lab.input(load.shape))


def each_setting(
    lab: Lab, way: Way, load: Load, *, rounds: int = 3, names: Collection[str] = tuple(EACH_SETTING)
) -> tuple[str, Comparison]:
    """What each of these settings brings alone: all sessions are alive at once, and take turns."""
    with ExitStack() as stack:
        selected = {name: settings for name, settings in EACH_SETTING.items() if name in {PLAIN_SETTINGS, *names}}
        sessions = {name: stack.enter_context(SparkApart(settings)) for name, settings in selected.items()}
        sides = {
            setting_side(who, name): Participant(spark=spark, ours=who == OURS)
            for name, spark in sessions.items()
            for who in (OURS, BUILT_IN)
        }
        sides[setting_side(OURS, _SCHEMA)] = Participant(spark=sessions[PLAIN_SETTINGS], schema=True)
        title = f"{way.words}, steady, each setting alone"
        return f"{SETTINGS}-{way}", compare(lab, title, way, load, sides, rounds)


def first_batches(
    lab: Lab, way: Way, load: Load, *, rounds: int = 3, settings: Settings = PLAIN
) -> tuple[str, Comparison]:
    """The time from start() to the end of batch 0 of the first query of a fresh session. NOTHING: of one whose source
    and sink in Python do nothing, if Spark starts its Python processes as it does on its own.
    """
    load = replace(load, batches=0)

    def fresh(query: Query) -> float:
        with SparkApart(settings) as spark:
            return spark.run(functools.partial(run_query, query=query)).first_batch

    def of_nothing() -> float:
        with SparkApart(settings) as spark:
            return spark.run(functools.partial(run_nothing, way=way))

    sides = [side_of(lab, name, way, load, fresh, ours=name == OURS) for name in (OURS, BUILT_IN)]
    if not settings.launched:
        sides.append(Side(name=NOTHING, run=of_nothing))
    series = alternate(sides, records=load.rows, runs=rounds, warm_up=0, show=lab.show)
    words = LAUNCHED_PYTHON if settings.launched else PLAIN_SETTINGS
    title = f"{way.words}, first batch of a fresh session, {words}: {load.rows:,} records of {load.records.values}"
    name = first_batch_name(way, launched=settings.launched)
    return name, Comparison(title=title, series=series, settings=_described(way, load) | {"python": words})


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """Whose query, in which session; `schema`: with only the two columns that a copy needs. `way` and `run`: if it runs
    another query than the others.
    """

    spark: SparkApart
    ours: bool = True
    schema: bool = False
    way: Way | None = None
    run: Callable[[SparkSession, Query], Ran] | None = None


def compare(
    lab: Lab, title: str, way: Way, load: Load, participants: Mapping[str, Participant], rounds: int
) -> Comparison:
    """Run their queries in turn. A series' seconds are the median triggers of its rounds; see `steady`."""
    seen: dict[str, list[Ran]] = {name: [] for name in participants}

    def side(name: str, who: Participant) -> Side:
        def run(query: Query) -> float:
            ran = who.spark.run(functools.partial(_in_session, run=who.run or run_query, query=query))
            _check_rows(ran.progress, load.shape.records, name)
            seen[name].append(ran)
            return trigger_seconds(ran.progress, load.rows)

        return side_of(lab, name, who.way or way, load, run, ours=who.ours, schema=who.schema)

    sides = [side(name, who) for name, who in participants.items()]
    series = alternate(sides, records=load.rows, runs=rounds, show=lab.show)
    measured = {name: runs[-rounds:] for name, runs in seen.items()}
    figures = {
        "cpu_seconds": {name: [ran.used.cpu / load.batches for ran in runs] for name, runs in measured.items()},
        "idle": {name: [ran.used.idle_share for ran in runs] for name, runs in measured.items()},
        "first_batch_seconds": {name: [ran.first_batch for ran in runs] for name, runs in measured.items()},
        "phases_ms": {
            name: phases([batch for ran in runs for batch in counted(ran.progress, load.rows)])
            for name, runs in measured.items()
        },
    }
    title = f"{title}: {load.rows:,} records of {load.records.values} a trigger"
    return Comparison(title=title, series=series, settings=_described(way, load) | figures)


def _described(way: Way, load: Load) -> dict[str, Any]:
    records = load.records
    largest = records.value_bytes if records.mixed is None else records.mixed.largest
    return {
        "way": way,
        "rows": load.rows,
        "batches": load.batches,
        "value_bytes": largest,
        "values": records.values,
        "partitions": records.partitions,
    }


def side_of(
    lab: Lab,
    name: str,
    way: Way,
    load: Load,
    run: Callable[[Query], float],
    *,
    ours: bool,
    schema: bool = False,
    whole: bool = False,
) -> Side:
    """A side whose `run` takes a query with a new output topic, which is counted and deleted afterwards. `whole`: its
    first micro-batch has all of `load.rows`, and there is no other.
    """
    shape = replace(load.records, records=load.rows) if whole else load.shape
    data, kafka = lab.input(shape), {"kafka.bootstrap.servers": lab.bootstrap}
    source: dict[str, Any] = kafka | {"subscribe": data.topics[0], "startingOffsets": "earliest"}
    if not whole:
        source["maxOffsetsPerTrigger"] = load.rows
    output: list[str] = []

    def before() -> None:
        if way is not Way.NOOP:
            output[:] = lab.topics("out", 1, data.shape.partitions)

    def ask() -> float:
        sink = kafka | {"topic": output[0]} if output else {}
        return run(
            Query(
                way=way,
                ours=ours,
                columns=columns_of(data.shape) if schema else None,
                source=source if ours else source | FETCH_WAIT | {"kafka.isolation.level": "read_committed"},
                sink=sink | {"kafka.transactional.id": lab.name("id")} if ours else sink,
                batches=load.batches,
            )
        )

    def after() -> None:
        if output:
            lab.check(output, data.shape.records, name)

    return Side(name=name, before=before, run=ask, after=after)


def _check_rows(progress: Progress, records: int, who: str) -> None:
    if (read := sum(batch["numInputRows"] for batch in progress)) != records:
        raise ToolFailed(f"{who}: {read:,} records were read, but the input has {records:,}")


# -- in the session's process


def _in_session(spark: SparkSession, run: Callable[[SparkSession, Query], Ran], query: Query) -> Ran:
    return run(spark, query)


def run_query(spark: SparkSession, query: Query, writer_of: Callable[[SparkSession, Query], Any] | None = None) -> Ran:
    """Run it to its end, in the session's process. `writer_of`: what it is, instead of what its way says."""
    loading = time.perf_counter()
    writer = (writer_of or way_writer)(spark, query)
    with temporary_directory() as checkpoint:
        started = time.perf_counter()
        running = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            await_commit(running, checkpoint, 0)
            committed = time.perf_counter()
            await_commit(running, checkpoint, SKIPPED - 1)
            before = _used()
            await_commit(running, checkpoint, SKIPPED - 1 + query.batches)
            after = _used()
            running.awaitTermination()
            progress = tuple(_with_records(json.loads(trigger.json), query) for trigger in running.recentProgress)
        finally:
            running.stop()
    used = Used(
        wall=after.wall - before.wall, cpu=after.cpu - before.cpu, idle=after.idle - before.idle, cores=after.cores
    )
    return Ran(first_batch=committed - started, since_session=committed - loading, progress=progress, used=used)


def run_batch(spark: SparkSession, query: Query) -> float:
    """Run a query of one micro-batch to its end; the seconds from start() to its commit."""
    with temporary_directory() as checkpoint:
        writer = way_writer(spark, query).option("checkpointLocation", str(checkpoint))
        started = time.perf_counter()
        running = writer.trigger(availableNow=True).start()
        try:
            await_commit(running, checkpoint, 0)
            committed = time.perf_counter()
            running.awaitTermination()
        finally:
            running.stop()
    return committed - started


def run_nothing(spark: SparkSession, way: Way) -> float:
    """The seconds from start() to the end of batch 0 of a query whose source and sink do nothing."""
    spark.dataSource.register(Nothing)
    rows = spark.readStream.format(Nothing.name()).load()
    writer = written(rows, way, sink=Nothing.name(), function=lambda: dropping(count))
    with temporary_directory() as checkpoint:
        started = time.perf_counter()
        running = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            await_commit(running, checkpoint, 0)
            return time.perf_counter() - started
        finally:
            running.stop()


def _with_records(progress: dict[str, Any], query: Query) -> dict[str, Any]:
    """A micro-batch's progress. Spark counts the ranges of a stream of offset ranges: then with the number of offsets,
    each of which has a record in an input. The first micro-batch starts at offset 0.
    """
    if query.way is not Way.ARROW or not query.ours:
        return progress
    start, end = (kafka_offsets(progress["sources"][0][name]) or {} for name in ("startOffset", "endOffset"))
    return progress | {"numInputRows": sum(end.values()) - sum(start.values())}


def way_writer(spark: SparkSession, query: Query) -> Any:
    """The writer of the query that its way says."""
    if query.ours and query.way is Way.ARROW:
        return arrow_stream(spark, query.source, TransactionalWriter(dict(query.sink)))
    kind = OUR_FORMAT if query.ours else BUILT_IN_FORMAT
    reader = spark.readStream.format(kind).options(**query.source)
    if query.columns is not None:
        reader = reader.schema(query.columns)
    write = (lambda: TransactionalWriter(dict(query.sink))) if query.ours else (lambda: _built_in_batch(query.sink))
    return written(reader.load(), query.way, sink=kind, options=query.sink, function=write)


def written(
    rows: DataFrame,
    way: Way,
    *,
    sink: str,
    function: Callable[[], Callable[[DataFrame, int], None]],
    options: Mapping[str, str] | None = None,
) -> Any:
    """The writer of these rows: into noop, or of their keys and values, into a `sink` or by foreachBatch, with what
    `function` returns.
    """
    if way is Way.NOOP:
        return rows.writeStream.format("noop")
    copied = rows.select("key", "value").writeStream
    return copied.format(sink).options(**(options or {})) if way is Way.SINK else copied.foreachBatch(function())


def _built_in_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    return lambda batch, _: batch.write.format(BUILT_IN_FORMAT).options(**options).save()


def await_commit(query: StreamingQuery, checkpoint: Path, batch: int) -> None:
    """Wait until the micro-batch is committed in the checkpoint. To ask Spark each time would cost its CPU time."""
    file = checkpoint / "commits" / str(batch)
    for look in itertools.count(1):
        if file.exists():
            return
        if look % _ALIVE == 0 and not query.isActive and not file.exists():
            query.awaitTermination()  # raises what the query failed with
            raise ToolFailed(f"the query ended before batch {batch}")
        time.sleep(_POLL_SECONDS)


def _used() -> Used:
    """What has been used since this process or the machine started; only differences mean something."""
    idle = psutil.cpu_times()
    return Used(
        wall=time.perf_counter(),
        cpu=sum(map(cpu_of, process_tree(os.getpid()))),
        idle=idle.idle + getattr(idle, "iowait", 0.0),
        cores=psutil.cpu_count() or 1,
    )


def cpu_of(process: psutil.Process) -> float:
    """The CPU seconds of a process, and of those that it started and that have ended."""
    try:
        used = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(used.user + used.system + used.children_user + used.children_system)
