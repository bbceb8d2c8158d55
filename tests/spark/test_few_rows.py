"""Few rows of foreachBatch are encoded in the driver: exactly what an encode task makes of them, without a task."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from spark_kafka_eos.appending.encode_settings import encode_settings
from spark_kafka_eos.appending.report import EncodedBlock, EncodeReport
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.errors import InvalidSchema
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.spark import micro_batch_writer
from spark_kafka_eos.spark.encode_stage import StagingTask
from spark_kafka_eos.spark.micro_batch_writer import BatchRows, _has_arrow, _stage, _stage_here
from spark_kafka_eos.spark.rows import ERROR, SOURCE, sink_rows
from spark_kafka_eos.spark.schema import HEADERS
from spark_kafka_eos.spark.writer import TransactionalWriter
from tests.reading import read_committed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.skipif(not hasattr(DataFrame, "toArrow"), reason="Spark 3.5 has tasks only"),
]

NOON = dt.datetime(2026, 3, 4, 12, 0, 0, 123_456, tzinfo=dt.UTC)
HEADED = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
WHERE = {"topic": "in", "partition": 1, "offset": 7, "timestamp": NOON}
BROKEN = {"cause": "schema", "message": "no such field", "schema_id": 4}
# Name: the rows, their columns.
FRAMES: dict[str, tuple[list[tuple[object, ...]], str]] = {
    "text": ([("a", "ä", NOON), (None, "", NOON), ("b", None, NOON)], "key string, value string, timestamp timestamp"),
    "binary": ([(b"\x00", b"\xff" * 300, NOON), (None, None, NOON)], "key binary, value binary, timestamp timestamp"),
    "only values": ([("v", NOON)] * 5, "value string, timestamp timestamp"),
    "partitions": ([("v", p, NOON) for p in (2, 0, 1, 0)], "value string, partition int, timestamp timestamp"),
    "no rows": ([], "value string, timestamp timestamp"),
}


@pytest.fixture
def options(bootstrap: str, topic: Callable[..., str]) -> dict[str, str]:
    name = topic("out", partitions=3)
    return {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": name, "topic": name}


@pytest.fixture
def both(options: dict[str, str]) -> Callable[..., list[EncodeReport]]:
    """`both(frame)` encodes the frame in the driver and in a task: both reports, without times."""

    def encode(frame: DataFrame, **more: str) -> list[EncodeReport]:
        sink = sink_options(options | more)
        rows = sink_rows(frame, topic=sink.topic, dead_letters=sink.dead_letter_topic is not None)
        with Cluster(sink.client) as cluster:
            settings = encode_settings(sink, sink.topic, cluster, query_id="query", batch_id=3)
        task = StagingTask(sink.client, settings, Staging(None, inline_bytes=1_000_000), "3")
        reports = [*_stage_here(rows, task), *_stage(rows, task)]
        return [
            replace(
                report,
                milliseconds=0.0,
                blocks=tuple(
                    block if block.partition.topic == sink.topic else without_times(block) for block in report.blocks
                ),
            )
            for report in reports
        ]

    return encode


def without_times(block: EncodedBlock) -> EncodedBlock:
    """A block of dead letters, which have the time of writing, with the rest of its records as text."""
    assert block.data is not None
    records = decode(block.data, list(scan(block.data)), include_headers=True).to_pylist()
    for record in records:
        del record["timestamp"]
    return replace(block, data=repr(records).encode())


@pytest.mark.parametrize("name", FRAMES)
def test_the_driver_makes_of_the_rows_what_a_task_makes(spark: SparkSession, both, name: str) -> None:
    rows, columns = FRAMES[name]
    here, by_task = both(spark.createDataFrame(rows, columns).coalesce(1))
    assert here == by_task
    assert sum(here.records.values()) == len(rows)


def test_so_it_does_of_headers(spark: SparkSession, both) -> None:
    schema = StructType([StructField("value", StringType()), StructField("headers", HEADERS)])
    schema = schema.add("timestamp", TimestampType())
    here, by_task = both(spark.createDataFrame([("v", HEADED, NOON), ("w", None, NOON)], schema).coalesce(1))
    assert here == by_task
    assert sum(here.records.values()) == 2


def test_so_it_does_of_dead_letters(spark: SparkSession, both, topic) -> None:
    schema = StructType(
        [StructField("value", StringType()), StructField("error", ERROR), StructField("source", SOURCE)]
    )
    schema = schema.add("timestamp", TimestampType())
    rows = [("good", None, WHERE, NOON), ("bad", BROKEN, WHERE, NOON)]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    here, by_task = both(frame, deadLetterTopic=topic("dead", partitions=1))
    assert here == by_task
    assert dict(here.dead_letters) == {"schema": 1}


_ERROR = "named_struct('cause', 'mine', 'message', 'm', 'schema_id', 1)"
_HEADER = "named_struct('key', 'k', 'value', X'01')"
_SOURCE = "named_struct('topic', 'in', 'partition', 0, 'offset', id, 'timestamp', timestamp'2026-03-04')"
# Columns made of literals, which Spark declares NOT NULL, of which every other row lacks one; the dead letters.
LITERALS = {
    "errors": ([f"if(id % 2 = 0, {_ERROR}, NULL) AS error"], {"mine": 2}),
    "sources": ([f"{_ERROR} AS error", f"if(id % 2 = 0, {_SOURCE}, NULL) AS source"], {"mine": 4}),
    "lists of headers": ([f"if(id % 2 = 0, array({_HEADER}), NULL) AS headers"], {}),
    "headers": ([f"array({_HEADER}, if(id % 2 = 0, {_HEADER}, NULL)) AS headers"], {"invalid-headers": 2}),
}


@pytest.mark.parametrize("name", LITERALS)
def test_so_it_does_of_literals_that_some_rows_lack(spark: SparkSession, both, topic, name: str) -> None:
    columns, dead_letters = LITERALS[name]
    ready = ["CAST(NULL AS BINARY) AS key", "CAST(STRING(id) AS BINARY) AS value", "timestamp'2026-03-04' AS timestamp"]
    here, by_task = both(
        spark.range(4).coalesce(1).selectExpr(*ready, *columns), deadLetterTopic=topic("dead", partitions=1)
    )
    assert here == by_task
    assert (dict(here.dead_letters), sum(here.records.values())) == (dead_letters, 4)


def test_so_it_does_of_a_row_that_cannot_be_sent(spark: SparkSession, both) -> None:
    here, by_task = both(spark.createDataFrame([("v", 99)], "value string, partition int").coalesce(1))
    assert str(here.error) == str(by_task.error)
    assert "99" in str(here.error)


def test_a_table_is_not_fetched_for_rows_that_the_tasks_make(spark: SparkSession) -> None:
    frame = spark.range(1)
    assert _has_arrow(BatchRows(frame=frame))
    assert not _has_arrow(BatchRows(frame=frame, rows_of=lambda batches, _: batches))


def in_one_batch(spark: SparkSession, bootstrap: str, source: str, folder: Path, write) -> None:
    """A query of one micro-batch, in which foreachBatch calls `write`."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(source, value=b"one")
    assert producer.flush(30) == 0
    stream = spark.readStream.format("kafka-eos").option("kafka.bootstrap.servers", bootstrap)
    rows = stream.options(subscribe=source, startingOffsets="earliest").load()
    query = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder)).start().awaitTermination()


# Microseconds: in 1970, on and beside milliseconds, and 2023.
INSTANTS = [
    *(base + offset for base in (1_000, 86_400_000_000) for offset in (-1_000, -501, -500, -1, 0, 1, 499, 500)),
    1_700_000_000_123_999,
]
# The millisecond before 1970, 1960-06-01 00:00:00.123456, and what stands for no time in many databases.
EARLY = [-1, -1_000, -302_486_399_876_544, -62_135_596_800_000_000]


def test_both_sinks_write_the_millisecond_that_spark_sees_in_an_instant(
    spark: SparkSession, bootstrap: str, topic, options: dict[str, str], tmp_path: Path
) -> None:
    rows = spark.createDataFrame([(instant,) for instant in INSTANTS], "instant long").coalesce(1)
    rows = rows.selectExpr("string(instant) AS value", "timestamp_micros(instant) AS timestamp")
    spark_sees = {row.value: row.ms for row in rows.selectExpr("value", "unix_millis(timestamp) AS ms").collect()}
    by_format, by_writer = (topic(name, config={"retention.ms": -1}) for name in ("by-format", "by-writer"))
    rows.write.format("kafka-eos").mode("append").options(**options | {"topic": by_format}).save()
    writer = TransactionalWriter(options | {"topic": by_writer})
    in_one_batch(spark, bootstrap, topic("one", partitions=1), tmp_path, lambda _, batch_id: writer(rows, batch_id))
    for name in (by_format, by_writer):
        built_in = (
            spark.read.format("kafka").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": name}).load()
        )
        read = built_in.selectExpr("string(value) AS value", "unix_millis(timestamp) AS ms").collect()
        assert {row.value: row.ms for row in read} == spark_sees, name


@pytest.mark.parametrize("instant", EARLY)
def test_an_instant_before_1970_is_refused_by_both_sinks(
    spark: SparkSession, bootstrap: str, topic, options: dict[str, str], tmp_path: Path, instant: int
) -> None:
    rows = spark.range(2).selectExpr("string(id) AS value", f"timestamp_micros(id * {instant}L) AS timestamp")
    refused = "a row has a 'timestamp' before 1970"
    with pytest.raises(Exception, match=refused) as raised:
        rows.write.format("kafka-eos").mode("append").options(**options).save()
    assert "Nothing was committed." in str(raised.value)
    writer = TransactionalWriter(options)
    with pytest.raises(Exception, match=refused) as raised:
        in_one_batch(spark, bootstrap, topic("one", partitions=1), tmp_path, lambda _, batch_id: writer(rows, batch_id))
    assert "Nothing was committed." in str(raised.value)
    assert read_committed(bootstrap, options["topic"]) == []


def test_kafkas_java_producer_takes_no_record_from_before_1970(spark: SparkSession) -> None:
    assert spark._jvm is not None
    record = spark._jvm.org.apache.kafka.clients.producer.ProducerRecord
    assert record("orders", None, 1_700_000_000_123, None, None).timestamp() == 1_700_000_000_123
    with pytest.raises(Exception, match="Invalid timestamp: -62135596800000"):
        record("orders", None, -62_135_596_800_000, None, None)


@pytest.mark.parametrize("column", ["key", "value", "topic", "partition", "headers"])
def test_a_column_of_nulls_without_a_type_is_refused_by_both_sinks_as_by_the_built_in_one(
    spark: SparkSession, options: dict[str, str], column: str
) -> None:
    untyped = spark.range(1).selectExpr("'v' AS value" if column != "value" else "1", f"NULL AS {column}")
    of_built_in = {"kafka.bootstrap.servers": options["kafka.bootstrap.servers"]}
    named = {} if column == "topic" else {"topic": options["topic"]}
    with pytest.raises(Exception, match="(?i)void"):
        untyped.write.format("kafka").options(**of_built_in, **named).save()
    sink = options if named else {name: value for name, value in options.items() if name != "topic"}
    with pytest.raises(Exception, match=f"column '{column}' has type void"):
        untyped.write.format("kafka-eos").mode("append").options(**sink).save()
    with pytest.raises(InvalidSchema, match=f"column '{column}' has type void"):
        sink_rows(untyped, topic=named.get("topic"))


@pytest.fixture
def small_results(spark: SparkSession) -> Iterator[None]:
    """Tasks may return 1 MB to the driver. Spark reads this where it begins a stage."""
    conf, name = spark.sparkContext._jsc.sc().conf(), "spark.driver.maxResultSize"
    before = conf.get(name, "1g")
    conf.set(name, "1m")
    yield
    conf.set(name, before)


@pytest.mark.usefixtures("small_results")
def test_rows_that_spark_does_not_give_to_the_driver_get_tasks_that_encode_them(spark: SparkSession, both) -> None:
    rows = spark.range(3_000).coalesce(1).selectExpr("repeat('x', 1000) AS value", "timestamp'2026-03-04' AS timestamp")
    with pytest.raises(Exception, match="maxResultSize"):
        rows.toArrow()
    here, by_task = both(rows, **{"kafka.compression.type": "gzip"})
    assert here == by_task
    assert sum(here.records.values()) == 3_000


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What encodes each batch, as far as it has begun."""
    names: list[str] = []

    def note(name: str) -> None:
        stage = getattr(micro_batch_writer, name)

        def noted(rows: DataFrame, task: StagingTask) -> Sequence[EncodeReport]:
            names.append(name)
            reports: Sequence[EncodeReport] = stage(rows, task)
            return reports

        monkeypatch.setattr(micro_batch_writer, name, noted)

    note("_stage")
    note("_stage_here")
    return names


@pytest.mark.usefixtures("small_results")
def test_what_a_filter_lets_through_after_batches_without_output_goes_to_no_driver(
    spark: SparkSession, bootstrap: str, topic, options, tmp_path: Path, encoded: list[str]
) -> None:
    name, producer = topic("in", partitions=1), Producer({"bootstrap.servers": bootstrap})
    for number in range(400):
        producer.produce(name, value=b"%d" % number)
    assert producer.flush(30) == 0
    stream = spark.readStream.format("kafka-eos").option("kafka.bootstrap.servers", bootstrap)
    stream = stream.options(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    rows = stream.load().where("offset >= 200").selectExpr("value AS key", "repeat('x', 20000) AS value")
    writer = TransactionalWriter(options | {"kafka.compression.type": "gzip"})
    query = rows.writeStream.foreachBatch(writer).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    keys = [int(message.key() or b"") for message in read_committed(bootstrap, options["topic"])]
    assert sorted(keys) == list(range(200, 400))
    assert encoded[:3] == ["_stage"] * 3, "nothing was measured"
    assert encoded[3:] == ["_stage_here", "_stage"], "gzip leaves less of it than Spark returns"


def test_only_the_first_batch_of_a_writer_has_an_encode_task_if_the_others_are_small(
    spark: SparkSession, bootstrap: str, topic, options, tmp_path: Path, encoded: list[str]
) -> None:
    """The fourth batch is not as small as its number of offsets says: what is too large for a message is staged."""
    name = topic("in", partitions=1)
    stream = spark.readStream.format("kafka-eos").option("kafka.bootstrap.servers", bootstrap)
    frame = stream.options(subscribe=name, startingOffsets="earliest").load()
    large = F.expr("if(int(string(value)) < 30, '', repeat('x', 300000))")
    frame = frame.select(F.col("value").alias("key"), F.concat("value", large).alias("value"))
    writer, producer = TransactionalWriter(options), Producer({"bootstrap.servers": bootstrap})
    for first in range(0, 40, 10):
        for number in range(first, first + 10):
            producer.produce(name, value=b"%d" % number)
        assert producer.flush(30) == 0
        query = frame.writeStream.foreachBatch(writer).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert encoded == ["_stage", "_stage_here", "_stage_here", "_stage_here"]
    messages = read_committed(bootstrap, options["topic"])
    assert sorted(int(message.key() or b"") for message in messages) == list(range(40))
    assert not list((tmp_path / "checkpoint" / "kafka-eos-staging").glob("*/*"))
