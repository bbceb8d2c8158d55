"""`arrow_stream` on real brokers and Spark: it writes what the same query with DataFrames writes, once."""

from __future__ import annotations

import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos import (
    ProgressListener,
    TransactionalWriter,
    arrow_stream,
    confluent_decoder,
    confluent_encoder,
)
from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.testing import schema_registry
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.tools.verify import verify
from tests.producing import produce
from tests.reading import librdkafkas, read_committed
from tests.spark.test_progress import until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

_numbers = itertools.count(1)
PARTITIONS, EACH = 2, 200
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
Transform = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """A topic with `EACH` numbers in each partition, and a new one to write to, under an id of that name."""

    spark: SparkSession
    kafka: EmbeddedKafka
    folder: Path
    topic: str
    out: str

    @property
    def source(self) -> dict[str, str]:
        servers = {"kafka.bootstrap.servers": self.kafka.bootstrap}
        return servers | {"subscribe": self.topic, "startingOffsets": "earliest", "includeHeaders": "true"}

    def writer(self, out: str = "", **given: str) -> TransactionalWriter:
        out = out or self.out
        servers = {"kafka.bootstrap.servers": self.kafka.bootstrap, "kafka.transactional.id": out}
        return TransactionalWriter(servers | {"topic": out} | given)

    @property
    def frame(self) -> DataFrame:
        """The records as a query with DataFrames has them."""
        reader = self.spark.readStream.format("kafka-eos").options(**self.source)
        return reader.load().select("key", "value", "headers")

    def run(self, transform: Transform | None = None, schema: str | None = None, **sink: str) -> CommitReport:
        """Run the query until nothing is left to read; the report of its last batch."""
        writer = self.writer(**sink)
        self.start(arrow_stream(self.spark, self.source, writer, transform, schema=schema))
        assert writer.last_commit is not None
        return writer.last_commit

    def start(self, stream: Any, name: str = "checkpoint") -> None:
        stream = stream.option("checkpointLocation", str(self.folder / name))
        stream.trigger(availableNow=True).start().awaitTermination()

    def written(self) -> list[bytes]:
        return [message.value() or b"" for message in read_committed(self.kafka.bootstrap, self.out)]


@pytest.fixture
def pipe(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> Pipe:
    number = next(_numbers)
    topic = kafka.create_topic(f"arrow-in-{number}", PARTITIONS)
    for partition in range(PARTITIONS):
        values = [b"%d" % (value * PARTITIONS + partition) for value in range(EACH)]
        headers = [("n", b"1"), ("traceparent", TRACEPARENT.encode())]
        produce(kafka.bootstrap, topic, values, partition=partition, key=b"%d" % partition, headers=headers)
    out = kafka.create_topic(f"arrow-out-{number}", 3)
    return Pipe(spark=spark, kafka=kafka, folder=tmp_path, topic=topic, out=out)


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_a_copy_is_what_the_query_with_dataframes_writes(pipe: Pipe, mode: str) -> None:
    other = pipe.kafka.create_topic(f"{pipe.out}-dataframe", 3)
    pipe.start(pipe.frame.writeStream.foreachBatch(pipe.writer(other)), "dataframe")
    report = pipe.run(appendMode=mode, openTelemetry="true", openTelemetryLinks="16")
    assert (report.records, report.append_mode) == (PARTITIONS * EACH, mode)
    assert report.trace.links == (TRACEPARENT,)

    def rows(topic: str) -> list[tuple[object, ...]]:
        return [(row[1], row[2], *row[4:]) for row in librdkafkas(pipe.kafka.bootstrap, topic, 3)]

    assert rows(pipe.out) == rows(other)
    proof = verify(pipe.kafka.bootstrap, pipe.out, source=pipe.topic, copy=True, transactional_id=pipe.out)
    assert proof.holds, proof


def test_a_transform_may_filter_repeat_and_choose_its_columns(pipe: Pipe) -> None:
    def even_twice(rows: pa.RecordBatch) -> pa.RecordBatch:
        assert rows.schema.names == ["value", "offset"]
        even = rows.filter(pc.equal(pc.bit_wise_and(rows["offset"], 1), 0))
        return pa.concat_batches([even, even])

    report = pipe.run(even_twice, schema="value binary, offset long")
    assert report.records == PARTITIONS * EACH
    assert Counter(map(int, pipe.written())) == dict.fromkeys(
        (value for value in range(PARTITIONS * EACH) if value // PARTITIONS % 2 == 0), 2
    )


def test_rows_with_an_error_are_dead_letters_of_the_same_transaction(pipe: Pipe) -> None:
    dead = pipe.kafka.create_topic(f"{pipe.out}-dead")
    kind = pa.struct([("cause", pa.string()), ("message", pa.string()), ("schema_id", pa.int32())])

    def tenth_aside(rows: pa.RecordBatch) -> pa.RecordBatch:
        causes = [{"cause": "tenth"} if int(value.as_py()) % 10 == 0 else None for value in rows["value"]]
        columns = {name: rows[name] for name in ("key", "value", "headers")}
        return pa.RecordBatch.from_pydict({**columns, "error": pa.array(causes, kind)})

    assert pipe.run(tenth_aside, deadLetterTopic=dead).dead_letters == {"tenth": PARTITIONS * EACH // 10}
    aside = sorted(int(message.value() or b"") for message in read_committed(pipe.kafka.bootstrap, dead))
    assert aside == list(range(0, PARTITIONS * EACH, 10))
    assert sorted(map(int, pipe.written())) == [n for n in range(PARTITIONS * EACH) if n % 10]


def test_sql_reads_and_writes_values_of_a_registry_for_several_topics_with_dead_letters(
    pipe: Pipe,
) -> None:
    schema = '{"type": "record", "name": "Reading", "fields": [{"name": "number", "type": "long"}]}'
    odd, dead = (pipe.kafka.create_topic(f"{pipe.out}-{name}") for name in ("odd", "dead"))
    with schema_registry() as url:
        encoder = confluent_encoder(url, topic="readings", schema=schema, register=True)
        encode = {"value": encoder}
        first = pipe.writer()
        number = "SELECT {'number': decode(value)::bigint} AS value FROM records"
        pipe.start(arrow_stream(pipe.spark, pipe.source, first, sql=number, encode=encode), "first")

        produce(pipe.kafka.bootstrap, pipe.out, [b"not framed"], key=b"bad")
        decode = {"value": confluent_decoder(url, topic="readings", mode="permissive")}
        query = f"""
            SELECT {{'number': value.number * 10}} AS value, encoded_value,
                   CASE value.number % 2 WHEN 1 THEN '{odd}' ELSE '{odd}-none' END AS topic,
                   CASE WHEN value.number = 6 THEN {{'cause': 'six'}} END AS error
            FROM records WHERE value.number % 2 = 1 OR value.number = 6"""
        options = {"kafka.bootstrap.servers": pipe.kafka.bootstrap, "kafka.transactional.id": odd}
        writer = TransactionalWriter(options | {"deadLetterTopic": dead, "outputTopics": odd})
        source = pipe.source | {"subscribe": pipe.out}
        stream = arrow_stream(pipe.spark, source, writer, sql=query, decode=decode, encode=encode)
        pipe.start(stream, "second")
        written = [message.value() for message in read_committed(pipe.kafka.bootstrap, odd)]
        numbers = decode["value"](pa.array(written, pa.binary())).field("value").field("number").to_pylist()
        six = encoder(pa.array([{"number": 6}], encoder.type))[0].as_py()
    assert sorted(numbers) == [10 * n for n in range(1, PARTITIONS * EACH, 2)]
    assert writer.last_commit is not None
    assert writer.last_commit.dead_letters == {"not-framed": 1, "six": 1}
    aside = {message.value(): message.headers() for message in read_committed(pipe.kafka.bootstrap, dead)}
    assert set(aside) == {b"not framed", six}
    assert ("__kafka_eos.errors.topic", pipe.out.encode()) in (aside[b"not framed"] or [])


def test_sql_that_fails_for_a_record_ends_the_query_without_its_value(pipe: Pipe) -> None:
    writer = pipe.writer()
    produce(pipe.kafka.bootstrap, pipe.topic, [b"s3cret"])
    number = "SELECT decode(value)::bigint::varchar AS value FROM records"
    with pytest.raises(
        StreamingQueryException, match="InvalidRow: the sql of arrow_stream failed for a record"
    ) as ended:
        pipe.start(arrow_stream(pipe.spark, pipe.source, writer, sql=number))
    assert "s3cret" not in str(ended.value)
    assert pipe.written() == []


def test_a_query_that_starts_again_skips_what_was_committed_and_goes_on_in_either_way(pipe: Pipe) -> None:
    pipe.run()
    for name in ("0", ".0.crc"):
        (pipe.folder / "checkpoint" / "commits" / name).unlink()  # as if the driver had died before noting the commit
    assert pipe.run().outcome == "skipped"
    produce(pipe.kafka.bootstrap, pipe.topic, [b"400"])
    pipe.start(pipe.frame.writeStream.foreachBatch(pipe.writer()))
    produce(pipe.kafka.bootstrap, pipe.topic, [b"401"])
    assert pipe.run().records == 1
    assert sorted(map(int, pipe.written())) == list(range(PARTITIONS * EACH + 2))


def test_the_progress_listener_says_what_the_encode_tasks_have_read(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    listener = ProgressListener(pipe.source, spark=pipe.spark)
    pipe.spark.streams.addListener(listener)
    try:
        with caplog.at_level(logging.INFO, "spark_kafka_eos.spark.progress"):
            pipe.run()
            until(lambda: "spark_kafka_eos.spark.progress" in {record.name for record in caplog.records})
    finally:
        pipe.spark.streams.removeListener(listener)
        listener.close()
    lines = [record.message for record in caplog.records if record.name == "spark_kafka_eos.spark.progress"]
    [figures] = json.loads(lines[0])["sources"]
    assert figures["bytes_read"] > PARTITIONS * EACH
    assert figures["rows"] < EACH, "the ranges"


def test_a_transform_that_returns_something_else_ends_the_query_with_an_error_that_names_it(pipe: Pipe) -> None:
    with pytest.raises(StreamingQueryException, match="InvalidSchema: transform returned int, not pyarrow.RecordBatch"):
        pipe.run(lambda rows: rows.num_rows)
    assert pipe.written() == []
    assert pipe.run(lambda rows: rows).records == PARTITIONS * EACH, "it goes on from its checkpoint"


def test_an_error_of_the_transform_keeps_its_traceback(pipe: Pipe) -> None:
    def parsed(rows: pa.RecordBatch) -> pa.RecordBatch:
        raise ArithmeticError("no such number")

    with pytest.raises(StreamingQueryException, match=r"(?s)in parsed.*ArithmeticError: no such number"):
        pipe.run(parsed)
    assert pipe.written() == []


def test_a_batch_read_of_offset_ranges_says_what_its_tasks_would_read(pipe: Pipe) -> None:
    frame = pipe.spark.read.format("kafka-eos").options(**pipe.source, rows="offsetRanges").load()
    rows = sorted(frame.select("topic", "partition", "fromOffset", "untilOffset").collect())
    assert rows == [(pipe.topic, partition, 0, EACH) for partition in range(PARTITIONS)]
