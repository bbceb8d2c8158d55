"""What each supported release of Spark can do, in one table. Run on the installed PySpark, and by `make test-releases`
on older ones; `.ci/tested.py` makes docs/tested.md of it.
"""

from __future__ import annotations

import inspect
import json
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    StreamingQueryException,
    UnsupportedOperationException,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lab.jars import built_in_connector
from spark_kafka_eos import ProgressListener, TransactionalWriter
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import offsets_from_json
from spark_kafka_eos.spark.features import LIMITS
from spark_kafka_eos.testing.driver import Driver, Kill, python_environment
from spark_kafka_eos.testing.jars import files
from spark_kafka_eos.testing.topic_reader import read_topic
from tests import jvm
from tests.matrix import Cell
from tests.producing import produce
from tests.reading import await_stable, read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

JOB = Path(__file__).parent / "jobs" / "copy_on_any_release.py"
HAS_FORMAT = find_spec("pyspark.sql.datasource") is not None
SOURCES = ["kafka", "kafka-eos"] if HAS_FORMAT else ["kafka"]
WAYS = ["driver", "executors", "sink"] if HAS_FORMAT else ["driver", "executors"]
WAYS_TO_WRITE = ["foreachBatch", "sink"] if HAS_FORMAT else ["foreachBatch"]
STREAMS = [(source, way) for source in SOURCES for way in WAYS]
if HAS_FORMAT:
    STREAMS.append(("kafka-eos", "arrow_stream"))
HERE = Path(pyspark.__file__).parent
# This environment's, whichever release comes first in the path.
NEWEST = Path(sysconfig.get_path("purelib")) / "pyspark"
CORE = ("executors", "half appended")
KILLED = [] if HERE != NEWEST else [pytest.mark.slow]
RUNNING = {"processingTime": "0 seconds"}
CONTINUOUS = {"continuous": "1 second"}
HAS_REAL_TIME = "realTime" in inspect.signature(DataStreamWriter.trigger).parameters
REAL_TIME = {"realTime": "5 minutes"}
NOT_LISTED = "spark.sql.streaming.realTimeMode.allowlistCheck"
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


@pytest.fixture
def note(cell: Cell, kafka_version: str) -> Callable[..., None]:
    """`note(feature, outcome="ok")`: this test's cell in the column of what runs here."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    column = f"Spark {pyspark.__version__}, Kafka {kafka_version}, Python {python}"
    return lambda feature, outcome="ok": cell("Spark releases", feature, column, outcome)


@pytest.mark.parametrize(("source", "way"), STREAMS)
def test_a_stream_writes_each_record_once(spark: SparkSession, bootstrap, topic, tmp_path, note, source, way) -> None:
    inputs, output = topic("release-in", partitions=2), topic("release-out", partitions=3)
    sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": output, "topic": output}
    writer = TransactionalWriter(sink if way in ("sink", "arrow_stream") else sink | {"appendMode": way})

    def run() -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": inputs, "startingOffsets": "earliest"}
        records = spark.readStream.format(source).options(**options).load().select("key", "value")
        if way == "arrow_stream":
            from spark_kafka_eos import arrow_stream  # not before Spark 4.0

            stream = arrow_stream(spark, options, writer)
        elif way == "sink":
            stream = records.writeStream.format("kafka-eos").options(**sink)
        else:
            stream = records.writeStream.foreachBatch(writer)
        stream = stream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c"))
        stream.start().awaitTermination()

    for first in (0, 100):
        produce(bootstrap, inputs, [b"%d" % number for number in range(first, first + 50)])
        produce(bootstrap, inputs, [b"%d" % number for number in range(first + 50, first + 100)], partition=1)
        run()
    run()  # there is nothing new
    assert sorted(int(message.value() or b"") for message in read_committed(bootstrap, output)) == list(range(200))
    note(f"{way if way in ('sink', 'arrow_stream') else f'foreachBatch, {way}'}, from {source}")


# One of them in every run of an older release. On the newest, test_crashes.py kills more.
@pytest.mark.parametrize(
    ("way", "killed_at"),
    [
        pytest.param(way, killed_at, marks=KILLED if (way, killed_at) == CORE else pytest.mark.slow)
        for way in WAYS
        if way != "driver"
        for killed_at in ("half appended", "ended")
    ],
)
def test_a_killed_query_goes_on_with_nothing_lost_and_nothing_twice(kafka, tmp_path, note, way, killed_at) -> None:
    copy_with_a_kill(kafka, tmp_path, way, killed_at, HERE)
    note(f"killed and restarted, {way}")


if HERE != NEWEST:

    @pytest.mark.parametrize("killed_at", ["half appended", pytest.param("ended", marks=pytest.mark.slow)])
    def test_a_checkpoint_of_this_release_goes_on_in_the_newest(kafka, tmp_path, note, killed_at) -> None:
        copy_with_a_kill(kafka, tmp_path, "driver", killed_at, NEWEST)
        note("killed, and restarted on the newest release")


def copy_with_a_kill(
    kafka, folder: Path, way: str, killed_at: str, restarted_with: Path, *, form: str = "kafka"
) -> None:
    source, target = kafka.create_topic(f"kill-{folder.name}-in", 2), kafka.create_topic(f"kill-{folder.name}-out", 3)
    for partition in (0, 1):
        produce(kafka.bootstrap, source, [b"%d" % n for n in range(partition, 1_000, 2)], partition=partition)
    reached = folder / "kill"
    reached.mkdir()

    def driver(home: Path, kill: Kill | None) -> Driver:
        connector = built_in_connector(release_of(home))
        return Driver(
            JOB,
            [kafka.bootstrap, source, target, str(folder / "checkpoint"), form, way, "250"],
            conf=[
                *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
                *("--conf", f"spark.jars={','.join(map(str, files(connector)))}"),
            ],
            env=environment(home) | (kill.environment(reached) if kill else {}),
            log=folder / "driver.log",
            submit=home / "bin" / "spark-submit",
        )

    with driver(HERE, Kill(point=killed_at, batch=1)) as killed:
        killed.wait_until((reached / "reached").exists, timeout=180)
        killed.kill()
    first_run = (folder / "driver.log").read_text()
    # Spark 4.1's own source fails once, after the commit of a batch that runs again: KafkaMicroBatchStream.metrics
    for remaining in (1, 0):
        try:
            with driver(restarted_with, None) as last:
                last.wait(timeout=240)
        except ToolFailed:
            if not remaining or "KafkaMicroBatchStream.metrics" not in (folder / "driver.log").read_text():
                raise
    if way == "sink":
        assert preflights(first_run) == 1
    await_stable(kafka.bootstrap, target)
    values = Counter(int(message.value() or b"") for message in read_topic(kafka.bootstrap, target, "read_committed"))
    assert values == Counter(range(1_000))


def preflights(log: str) -> int:
    """How often the sink has run the preflight."""
    return log.count(" checks in ")


def release_of(home: Path) -> str:
    """The version of the PySpark in this folder."""
    written: dict[str, str] = {}
    exec((home / "version.py").read_text(), written)
    return written["__version__"]


def environment(home: Path) -> dict[str, str]:
    """The variables with which a driver uses this PySpark, and no other one in the path, and starts cheaply."""
    found = python_environment() | jvm.environment(release_of(home))
    others = [part for part in found["PYTHONPATH"].split(":") if not (Path(part) / "pyspark").exists()]
    return found | {"PYTHONPATH": ":".join([str(home.parent), *others] if home != NEWEST else others)}


if HAS_FORMAT:

    def test_a_batch_is_written_and_read(spark, bootstrap, topic, note) -> None:
        name = topic("release-batch", partitions=2)
        rows = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
        rows.write.format("kafka-eos").option("kafka.bootstrap.servers", bootstrap).option("topic", name).mode(
            "append"
        ).save()
        read = (
            spark.read.format("kafka-eos").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name).load()
        )
        assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(100))
        assert sorted(int(message.value() or b"") for message in read_committed(bootstrap, name)) == list(range(100))
        note("batch write and batch read")

    @pytest.fixture
    def start(spark, bootstrap, topic, tmp_path):
        """`start(topic, batches, trigger, **options)`: a query that appends each batch's numbers to `batches`; always
        with the same checkpoint.
        """
        started: list[StreamingQuery] = []

        def begin(name: str, batches: list[list[int]], trigger: dict[str, Any], **options: str) -> StreamingQuery:
            given = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "startingOffsets": "earliest"} | options

            def append(batch: DataFrame, _: int) -> None:
                batches.append(sorted(int(row.value) for row in batch.select("value").collect()))

            stream = spark.readStream.format("kafka-eos").options(**given).load().writeStream.foreachBatch(append)
            started.append(stream.option("checkpointLocation", str(tmp_path / "c")).trigger(**trigger).start())
            return started[-1]

        yield begin
        for query in started:
            query.stop()

    def test_a_limit_holds_in_each_micro_batch_also_after_a_restart(bootstrap, topic, start, note) -> None:
        name = topic("release-limit")
        for first in (0, 100):
            produce(bootstrap, name, [b"%d" % number for number in range(first, first + 100)])
            batches: list[list[int]] = []
            query = start(name, batches, RUNNING, maxOffsetsPerTrigger="40")
            query.processAllAvailable()
            query.stop()
            assert [len(batch) for batch in batches] == [40, 40, 20]
            assert list(chain(*batches)) == list(range(first, first + 100))
        note("maxOffsetsPerTrigger of kafka-eos")

    def test_a_limit_in_bytes_holds(bootstrap, topic, start, note) -> None:
        name = topic("release-weight")
        produce(bootstrap, name, [b"%0100d" % number for number in range(1_000)])
        batches: list[list[int]] = []
        start(name, batches, RUNNING, maxBytesPerTrigger="64k").processAllAvailable()
        assert list(chain(*batches)) == list(range(1_000))
        assert len(batches) == 2
        note("maxBytesPerTrigger of kafka-eos")

    def test_available_now_reads_all_in_limited_batches_or_one_of_them(bootstrap, topic, start, note) -> None:
        name = topic("release-now")
        produce(bootstrap, name, [b"%d" % number for number in range(100)])
        runs: list[list[list[int]]] = [[], [], [], []]
        for batches in runs:
            start(name, batches, {"availableNow": True}, maxOffsetsPerTrigger="40").awaitTermination()
        sizes = [[len(batch) for batch in batches] for batches in runs]
        assert sizes == ([[40, 40, 20], [], [], []] if LIMITS else [[40], [40], [20], []])
        assert list(chain(*chain(*runs))) == list(range(100))
        note("maxOffsetsPerTrigger of kafka-eos, availableNow", "ok" if LIMITS else "one micro-batch")

    @pytest.mark.parametrize(
        ("options", "first"),
        [
            ({"startingOffsets": "latest-30"}, 70),
            ({"startingOffsets": "committed-or-earliest", "kafka.group.id": "never"}, 0),
            ({"startingOffsets": "latest", "startingTimestamp": "1000"}, 0),
        ],
    )
    def test_a_new_query_starts_where_its_options_say(bootstrap, topic, start, note, options, first) -> None:
        name = topic("release-start")
        produce(bootstrap, name, [b"%d" % number for number in range(100)])
        batches: list[list[int]] = []
        start(name, batches, {"availableNow": True}, **options).awaitTermination()
        assert list(chain(*batches)) == list(range(first, 100))
        note("startingOffsets of a new query")

    @pytest.mark.parametrize(
        ("killed_at", "restarted_with"),
        [
            pytest.param("half appended", HERE, marks=KILLED),
            pytest.param("ended", HERE, marks=pytest.mark.slow),
            *([pytest.param("half appended", NEWEST, marks=pytest.mark.slow)] if HERE != NEWEST else []),
        ],
    )
    def test_limits_hold_in_a_query_that_is_killed(kafka, tmp_path, note, killed_at, restarted_with) -> None:
        copy_with_a_kill(kafka, tmp_path, "sink", killed_at, restarted_with, form="kafka-eos")
        ends = [
            sum(offsets_from_json(file.read_text().splitlines()[-1]).values())
            for file in sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]"))
        ]
        assert ends == [250, 500, 750, 1_000]
        note("killed and restarted, sink, from kafka-eos with a limit")

    if not LIMITS:

        def test_where_spark_asks_before_it_shows_where_a_query_is_a_limit_is_refused(
            spark, bootstrap, topic, start
        ) -> None:
            name, now, batches = topic("release-wrapper"), {"availableNow": True}, list[list[int]]()
            produce(bootstrap, name, [b"%d" % number for number in range(200)])
            for _ in range(2):
                start(name, batches, now, maxOffsetsPerTrigger="40").awaitTermination()
            spark.conf.set(WRAPPER, "true")
            try:
                with pytest.raises(StreamingQueryException, match=f"{WRAPPER}.*Nothing was read"):
                    start(name, batches, now, maxOffsetsPerTrigger="40").awaitTermination()
            finally:
                spark.conf.unset(WRAPPER)
            start(name, batches, now).awaitTermination()
            assert list(chain(*batches)) == list(range(200))


@pytest.fixture
def copy(spark, bootstrap, topic, tmp_path):
    """`copy(source, way, trigger)`: starts a query that copies ten records by that way, always the same one; and the
    topic that it writes.
    """
    inputs, output = topic("release-trigger"), topic("release-triggered")
    produce(bootstrap, inputs, [b"%d" % number for number in range(10)])
    sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": output, "topic": output}
    started: list[StreamingQuery] = []

    def start(source: str, way: str, trigger: dict[str, Any], **options: str) -> StreamingQuery:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": inputs, "startingOffsets": "earliest"}
        if source == "rate":
            records = spark.readStream.format(source).load().selectExpr("cast(value as string) as value")
        else:
            records = spark.readStream.format(source).options(**given).load().select("value")
        if way == "sink":
            stream = records.writeStream.format("kafka-eos").options(**sink)
        elif way == "foreachBatch":
            stream = records.writeStream.foreachBatch(TransactionalWriter(sink))
        else:
            stream = records.writeStream.format(way)
        if "realTime" in trigger:
            stream = stream.outputMode("update")
        stream = stream.options(**options).option("checkpointLocation", str(tmp_path / "c"))
        started.append(stream.trigger(**trigger).start())
        return started[-1]

    yield start, output
    for query in started:
        query.stop()


@pytest.mark.parametrize("source", SOURCES)
def test_foreach_batch_has_no_continuous_trigger(copy, source) -> None:
    start, _ = copy
    with pytest.raises(AnalysisException, match="'foreachBatch' is not supported with continuous trigger"):
        start(source, "foreachBatch", CONTINUOUS)


@pytest.mark.parametrize("way", WAYS_TO_WRITE)
@pytest.mark.parametrize(
    "trigger", [RUNNING, {"once": True}, {"availableNow": True}], ids=lambda trigger: next(iter(trigger))
)
def test_every_trigger_of_micro_batches_writes_what_there_is(copy, bootstrap, way, trigger) -> None:
    start, output = copy
    query = start(SOURCES[-1], way, trigger)
    query.processAllAvailable() if trigger is RUNNING else query.awaitTermination()
    assert len(read_committed(bootstrap, output)) == 10


if HAS_FORMAT:
    # The rate source's micro-batches have other offsets than its continuous reader: Spark fails such a restart itself.
    @pytest.mark.parametrize(
        ("source", "before"), [("kafka", "nothing"), ("rate", "nothing"), ("kafka", "micro-batches")]
    )
    def test_a_continuous_query_of_the_sink_fails_when_it_is_planned(copy, tmp_path, source, before) -> None:
        """Sources that can be read in that way. Spark ignores what commits raise there: the query would stay alive."""
        start, _ = copy
        if before == "micro-batches":
            start(source, "sink", {"availableNow": True}).awaitTermination()
        commits = len(list((tmp_path / "c").glob("commits/[0-9]*")))
        with pytest.raises(StreamingQueryException, match="option 'trigger'.*in micro-batches.*Nothing was committed"):
            start(source, "sink", CONTINUOUS).awaitTermination(120)
        assert len(list((tmp_path / "c").glob("commits/[0-9]*"))) == commits

    @pytest.mark.parametrize("way", ["sink", "noop"])
    def test_the_source_cannot_be_read_continuously(copy, way) -> None:
        start, _ = copy
        with pytest.raises(UnsupportedOperationException, match="kafka-eos does not support continuous processing"):
            start("kafka-eos", way, CONTINUOUS)

    @pytest.mark.parametrize("way", ["sink", "foreachBatch"])
    def test_spark_refuses_to_track_the_progress_of_both_sinks_asynchronously(copy, way) -> None:
        start, _ = copy
        with pytest.raises(IllegalArgumentException, match="does not support async progress tracking"):
            start("kafka-eos", way, RUNNING, asyncProgressTrackingEnabled="true")


if HAS_REAL_TIME:

    @pytest.mark.parametrize("listed", ["true", "false"])
    @pytest.mark.parametrize("way", ["sink", "foreachBatch"])
    @pytest.mark.parametrize("source", SOURCES)
    def test_neither_sink_has_a_real_time_mode(copy, spark, source, way, listed) -> None:
        """Also where Spark is told not to look at its list of sinks."""
        start, _ = copy
        spark.conf.set(NOT_LISTED, listed)
        try:
            with pytest.raises(
                (IllegalArgumentException, StreamingQueryException), match="REAL_TIME|async progress|Update mode"
            ):
                start(source, way, REAL_TIME).awaitTermination(120)
        finally:
            spark.conf.unset(NOT_LISTED)

    def test_the_source_has_no_real_time_mode(copy, spark) -> None:
        start, _ = copy
        spark.conf.set(NOT_LISTED, "false")
        try:
            with pytest.raises(StreamingQueryException, match="INPUT_STREAM_NOT_SUPPORTED"):
                start("kafka-eos", "noop", REAL_TIME).awaitTermination(120)
        finally:
            spark.conf.unset(NOT_LISTED)


def test_the_listener_tells_how_far_a_query_is(spark, bootstrap, topic, tmp_path, note) -> None:
    name = topic("release-listener")
    produce(bootstrap, name, [b"%d" % number for number in range(10)])
    listener = ProgressListener({"kafka.bootstrap.servers": bootstrap, "subscribe": name}, spark=spark)
    spark.streams.addListener(listener)
    try:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(subscribe=name, startingOffsets="earliest").load()
        stream = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        query = stream.trigger(availableNow=True).start()
        query.awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(10_000)
        told = listener.last(query.id)
        assert told is not None and json.loads(str(told))
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    note("ProgressListener")
