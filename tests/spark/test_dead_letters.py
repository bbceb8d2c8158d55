"""Dead letters through Spark: every way to write, limits, both guarantees, and the helpers."""

from __future__ import annotations

import gc
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter, split_errors, to_dead_letters
from spark_kafka_eos.dead_letters.headers import DeadLetter, letter_of, own_headers
from spark_kafka_eos.errors import InvalidSchema
from spark_kafka_eos.spark.rows import SCHEMA_ID
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

_numbers = itertools.count(1)
GOOD, BAD = 40, 10
VALUES = [b"%d" % n if n % 5 else b"\xff%d" % n for n in range(GOOD + BAD)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query from one topic of numbers, every fifth of which is corrupt, to `out` and `dead`."""

    spark: SparkSession
    kafka: EmbeddedKafka
    way: str
    folder: Path
    source: str
    out: str
    dead: str

    def decoded(self) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": self.source, "includeHeaders": "true"}
        frame = self.spark.readStream.format("kafka-eos").options(**options, startingOffsets="earliest").load()
        return frame.withColumn("decoded", number_of("value"))

    def rows(self) -> DataFrame:
        return to_dead_letters(self.decoded(), "decoded", value=F.concat(F.lit("n="), F.col("decoded.value")))

    def write(self, frame: DataFrame, **options: str) -> TransactionalWriter | None:
        given = self.given() | options
        stream = frame.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        writer = None
        if self.way == "sink":
            stream = stream.format("kafka-eos").options(**given)
        else:
            writer = TransactionalWriter(given | {"appendMode": self.way})
            stream = stream.foreachBatch(writer)
        stream.trigger(availableNow=True).start().awaitTermination()
        return writer

    def given(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "kafka.transactional.id": self.out,
            "topic": self.out,
            "deadLetterTopic": self.dead,
        }

    def written(self, topic: str) -> list[bytes]:
        return [message.value() or b"" for message in read_committed(self.kafka.bootstrap, topic)]

    def letters(self) -> dict[bytes, tuple[DeadLetter, list[tuple[str, bytes | None]]]]:
        """By value: what a dead letter's headers say, and its own headers."""
        found = {}
        for message in read_committed(self.kafka.bootstrap, self.dead):
            headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
            letter = letter_of(headers)
            assert letter is not None
            found[message.value() or b""] = letter, own_headers(headers)
        return found


def number_of(column: str) -> Column:
    """A decoder in SQL: the number that a value is in text, or an error."""
    text = F.col(column).cast("string")
    wrong = ~text.rlike("^[0-9]+$")
    error = F.struct(
        F.lit("undecodable").alias("cause"),
        F.lit("it is no number").alias("message"),
        F.lit(7).cast("int").alias("schema_id"),
    )
    return F.struct(F.when(~wrong, text).alias("value"), F.when(wrong, error).alias("error"))


@pytest.fixture
def query(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> Callable[[str], Query]:
    def make(way: str) -> Query:
        number = next(_numbers)
        source, out, dead = (kafka.create_topic(f"dead-{name}-{number}", 2) for name in ("in", "out", "letters"))
        produce(kafka.bootstrap, source, VALUES, headers=[("trace", b"1")])
        return Query(spark=spark, kafka=kafka, way=way, folder=tmp_path, source=source, out=out, dead=dead)

    return make


@pytest.mark.parametrize("way", ["driver", "executors", "sink"])
def test_good_records_and_dead_letters_are_committed_together(query, way, caplog):
    pipe = query(way)
    with caplog.at_level(logging.WARNING, "spark_kafka_eos.writing.commit"):
        writer = pipe.write(pipe.rows())
    assert Counter(pipe.written(pipe.out)) == Counter(b"n=" + value for value in VALUES if value.isdigit())
    letters = pipe.letters()
    assert set(letters) == {value for value in VALUES if not value.isdigit()}
    for letter, own in letters.values():
        assert own == [("trace", b"1")]
        assert (letter.cause, letter.message, letter.schema_id) == ("undecodable", "it is no number", 7)
        assert (letter.topic, letter.batch_id, letter.transactional_id) == (pipe.source, 0, pipe.out)
        assert letter.query_id
    places = [(letter.partition, letter.offset) for letter, _ in letters.values()]
    assert len(set(places)) == BAD
    if writer is not None:
        assert writer.last_commit is not None
        assert (writer.last_commit.records, writer.last_commit.dead_letters) == (GOOD + BAD, {"undecodable": BAD})
        assert f"10 of 50 records are dead letters in {pipe.dead}: undecodable=10" in caplog.text


@pytest.mark.parametrize("way", ["driver", "executors"])
def test_a_batch_with_too_many_dead_letters_leaves_nothing_visible(query, way):
    pipe = query(way)
    with pytest.raises(Exception, match="TooManyDeadLetters|10 of the batch's 50 records") as raised:
        pipe.write(pipe.rows(), maxDeadLetters="1000,10%")
    assert "undecodable=10" in str(raised.value)
    assert "Nothing was committed." in str(raised.value)
    assert pipe.written(pipe.out) == pipe.written(pipe.dead) == []
    pipe.write(pipe.rows(), maxDeadLetters="20%")
    assert (len(pipe.written(pipe.out)), len(pipe.letters())) == (GOOD, BAD)


def test_at_least_once_executors_have_appended_a_batch_with_too_many_dead_letters(query):
    pipe = query("executors")
    options = pipe.given() | {"deliveryGuarantee": "at-least-once", "appendMode": "executors", "maxDeadLetters": "1"}
    del options["kafka.transactional.id"]
    stream = pipe.rows().writeStream.foreachBatch(TransactionalWriter(options))
    stream = stream.option("checkpointLocation", str(pipe.folder / "checkpoint")).trigger(availableNow=True)
    with pytest.raises(Exception, match="TooManyDeadLetters|10 of the batch's 50 records"):
        stream.start().awaitTermination()
    assert (len(pipe.written(pipe.out)), len(pipe.letters())) == (GOOD, BAD)


def test_rows_that_cannot_be_written_are_dead_letters_of_a_batch_write_at_least_once(query):
    pipe = query("batch")
    large = pipe.kafka.create_topic(f"dead-large-{next(_numbers)}", config={"max.message.bytes": "20000"})
    rows = pipe.spark.createDataFrame(
        [("fits", pipe.out, 1), ("x" * 5_000, pipe.out, 0), ("nowhere", None, None), ("no partition", pipe.out, 2)],
        "value string, topic string, partition int",
    )
    options = pipe.given() | {"deliveryGuarantee": "at-least-once", "kafka.max.request.size": "2000"}
    options |= {"outputTopics": pipe.out, "deadLetterTopic": large}
    del options["topic"], options["kafka.transactional.id"]
    rows.write.format("kafka-eos").mode("append").options(**options).save()
    assert pipe.written(pipe.out) == [b"fits"]
    found = {}
    for message in read_committed(pipe.kafka.bootstrap, large):
        letter = letter_of(cast("list[tuple[str, bytes | None]]", message.headers()))
        assert letter is not None
        found[(message.value() or b"")[:7]] = letter.cause, letter.output_topic, letter.transactional_id
    assert found == {
        b"xxxxxxx": ("too-large", pipe.out, None),
        b"nowhere": ("no-topic", None, None),
        b"no part": ("unknown-partition", pipe.out, None),
    }


def test_a_topic_of_an_option_that_does_not_exist_stops_the_query_and_makes_no_dead_letters(query):
    pipe = query("sink")
    for options in ({"topic": f"{pipe.out}-absent"}, {"outputTopics": f"{pipe.out},{pipe.out}-absent"}):
        with pytest.raises(Exception, match=f"topic {pipe.out}-absent: does not exist"):
            pipe.write(pipe.rows(), **options)
    assert pipe.written(pipe.out) == pipe.written(pipe.dead) == []


def test_a_string_of_other_bytes_than_utf_8_stops_no_query(query):
    pipe = query("sink")
    text = F.col("value").cast("string")
    error = F.struct(F.lit("no number").alias("cause"), text.alias("message"), F.lit(7).cast("int").alias("schema_id"))
    rows = pipe.decoded().select(
        "value",
        F.when(F.col("decoded.error").isNull(), F.lit(pipe.out)).otherwise(text).alias("topic"),
        F.when(F.col("decoded.error").isNotNull() & (F.col("offset") % 2 == 0), error).alias("error"),
    )
    given = {name: value for name, value in pipe.given().items() if name != "topic"}
    stream = rows.writeStream.format("kafka-eos").options(**given)
    stream.option("checkpointLocation", str(pipe.folder / "bytes")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert len(pipe.written(pipe.out)) == GOOD
    letters = pipe.letters()
    assert sorted(letters) == sorted(value for value in VALUES if value.startswith(b"\xff"))
    for value, (letter, _) in letters.items():
        shown = value.decode(errors="replace")
        assert (letter.cause, letter.message if letter.cause == "no number" else letter.output_topic) in [
            ("no number", shown),
            ("unknown-topic", shown),
        ]


def test_a_topic_that_write_names_beside_another_one_and_that_does_not_exist_stops_the_query(query):
    pipe = query("driver")
    writer = TransactionalWriter({name: value for name, value in pipe.given().items() if name != "topic"})

    def write(batch: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch, batch_id) as transaction:
            transaction.write(batch.select("value"), topic=pipe.out)
            transaction.write(batch.select("value"), topic=f"{pipe.out}-absent")

    stream = pipe.decoded().writeStream.foreachBatch(write).option("checkpointLocation", str(pipe.folder / "typo"))
    with pytest.raises(Exception, match=f"for topic '{pipe.out}-absent'. Nothing was committed"):
        stream.trigger(availableNow=True).start().awaitTermination()
    assert pipe.written(pipe.out) == pipe.written(pipe.dead) == []


def test_a_query_that_reads_its_own_dead_letters_is_refused(query):
    pipe = query("driver")
    with pytest.raises(Exception, match="the query reads its deadLetterTopic") as raised:
        pipe.write(pipe.rows(), deadLetterTopic=pipe.source)
    assert "Nothing was committed." in str(raised.value)


def test_aside_evaluates_the_decoder_once(spark):
    @F.udf("struct<value:string,error:struct<cause:string,message:string,schema_id:int>>")
    def decode(value):
        raise NotImplementedError("only planned")

    columns = "binary key, binary value, string topic, int partition, bigint offset, timestamp timestamp"
    schema = ", ".join(f"{name} {kind}" for kind, name in (column.split() for column in columns.split(", ")))
    frame = spark.createDataFrame([], schema).withColumn("decoded", decode("value"))
    rows = to_dead_letters(frame, "decoded", value=F.col("decoded.value"), key=F.upper("decoded.value"))
    plan = rows._jdf.queryExecution().executedPlan().toString()
    [evaluation] = [line for line in plan.splitlines() if "EvalPython" in line]
    assert evaluation.count("decode(") == 1


def changes_its_mind(folder: Path) -> Callable[[str], Column]:
    """A decoder that cannot decode a value when it is first asked, and can afterwards, as if its schema had been
    registered meanwhile. `folder` has a file for each value, a byte for each time that it was asked.
    """
    seen = str(folder)

    @F.udf("struct<value:string,error:struct<cause:string,message:string,schema_id:int>>")
    def decode(value):
        with open(f"{seen}/{value.hex()}", "ab") as file:  # noqa: PTH123 - in Spark's process
            file.write(b".")
            asked = file.tell()
        if value.isdigit() or asked > 1:
            return value.hex(), None
        return None, ("unknown-schema", "not yet", 7)

    return decode


def test_each_record_is_good_or_dead_and_not_both_whatever_the_decoder_says_later(query, tmp_path):
    pipe, asked = query("driver"), tmp_path / "asked"
    asked.mkdir()
    writer = TransactionalWriter(pipe.given())
    decode = changes_its_mind(asked)

    def write(batch: DataFrame, batch_id: int) -> None:
        good, dead = split_errors(batch.withColumn("decoded", decode("value")), "decoded")
        with writer.transaction(batch, batch_id) as transaction:
            transaction.write(good.select("key", F.col("decoded.value").alias("value")))
            transaction.write(dead)

    stream = pipe.decoded().drop("decoded").writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", str(pipe.folder / "checkpoint")).trigger(availableNow=True)
    stream.start().awaitTermination()
    assert Counter(pipe.written(pipe.out)) == Counter(value.hex().encode() for value in VALUES if value.isdigit())
    assert Counter(pipe.written(pipe.dead)) == Counter(value for value in VALUES if not value.isdigit())
    assert {file.name: file.stat().st_size for file in asked.iterdir()} == {value.hex(): 1 for value in VALUES}


def test_a_split_keeps_what_columns_say_of_themselves_and_its_rows_are_freed(spark):
    frame = spark.range(10).select(
        F.lit(b"k").alias("key", metadata={SCHEMA_ID: 7}),
        F.col("id").cast("string").cast("binary").alias("value"),
        number_of("id").alias("decoded"),
    )
    persisted = spark.sparkContext._jsc.getPersistentRDDs
    before = persisted().size()
    for _ in range(30):
        good, dead = split_errors(frame, "decoded")
        assert [each.schema["key"].metadata for each in (good, dead)] == [{SCHEMA_ID: 7}] * 2
        assert (good.count(), dead.count()) == (10, 0)
    assert persisted().size() > before
    del good, dead
    deadline = time.monotonic() + 60
    while persisted().size() > before:
        assert time.monotonic() < deadline, persisted().size()
        gc.collect()
        spark._jvm.System.gc()
        time.sleep(0.1)


def test_rows_of_a_split_that_are_lost_fail_the_batch_and_are_not_decoded_again(spark, tmp_path):
    persisted = spark.sparkContext._jsc.getPersistentRDDs
    before = {*persisted()}
    frame = spark.createDataFrame([(b"x",)], "value binary").withColumn("decoded", changes_its_mind(tmp_path)("value"))
    good, dead = split_errors(frame, "decoded")
    (kept,) = {*persisted()} - before
    assert (good.count(), dead.count()) == (0, 1)
    persisted()[kept].unpersist(True)  # as if their executor were lost
    for rows in (good, dead):
        with pytest.raises(Exception, match="Checkpoint block rdd_.* not found"):
            rows.count()
    assert [file.stat().st_size for file in tmp_path.iterdir()] == [1]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_number_does_not_become_its_raw_bytes(spark, ansi):
    """Spark casts a number to binary where ANSI mode is off, and the sink sees binary."""
    strict = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = spark.range(3).select(
            F.col("id").alias("key"), F.lit("v").alias("value"), number_of("id").alias("decoded")
        )
        accepts = "has type bigint, but the sink accepts binary or string"
        with pytest.raises(InvalidSchema, match=f"column 'key' {accepts}"):
            to_dead_letters(frame, "decoded", value=F.col("value"))
        frame = frame.withColumn("key", F.col("key").cast("string"))
        for given in ({"value": F.lit(7).cast("bigint")}, {"value": F.lit("v"), "key": F.lit(7).cast("bigint")}):
            with pytest.raises(InvalidSchema, match=accepts) as refused:
                to_dead_letters(frame, "decoded", **given)
            assert "Cast the column" in refused.value.action
        tombstones = to_dead_letters(frame, "decoded", value=F.lit(None))
        assert tombstones.select("key", "value").collect()[0].asDict() == {"key": b"0", "value": None}
    finally:
        spark.conf.set("spark.sql.ansi.enabled", strict)


def test_the_fields_of_an_error_go_by_their_names(spark):
    error = "named_struct('message', 'no number', 'CAUSE', 'not-a-number')"
    frame = spark.range(2).selectExpr(
        "'k' AS key", "'v' AS value", f"named_struct('error', if(id = 0, {error}, null)) AS decoded"
    )
    rows = to_dead_letters(frame, "decoded", value=F.lit("good"))
    _, dead = split_errors(frame, "decoded")
    expected = {"cause": "not-a-number", "message": "no number", "schema_id": None}
    assert [row.error and row.error.asDict() for row in rows.collect()] == [expected, None]
    assert [row.error.asDict() for row in dead.collect()] == [expected]


def test_an_error_with_other_fields_than_the_sinks_is_refused(spark):
    frame = spark.range(1).selectExpr(
        "'k' AS key", "'v' AS value", "struct(struct('why' AS reason) AS error) AS decoded"
    )
    with pytest.raises(InvalidSchema, match="column 'error' has type struct<reason:string>"):
        to_dead_letters(frame, "decoded", value=F.lit("good"))
