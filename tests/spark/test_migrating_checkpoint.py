"""A checkpoint that changes its sink: from Spark's built-in one to this package's and back. What the new sink refuses
goes on by the word that its message offers, taken from there as an operator would."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.driver import committed_batches
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.conftest import topic_factory
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

BATCH = 10  # records


class Query:
    """A query that copies numbers from topic to topic, ten in a micro-batch; each run takes what is there and stops."""

    def __init__(self, session: SparkSession, bootstrap: str, topic: Callable[..., str], checkpoint: Path) -> None:
        self._session, self._bootstrap, self.checkpoint = session, bootstrap, checkpoint
        self._source, self._target = topic("in"), topic("out")
        self._fed = 0
        self.distinct, self.read_from = False, bootstrap

    def feed(self, batches: int) -> None:
        """Add the next numbers to the source."""
        self.feed_again(range(self._fed, self._fed + batches * BATCH))

    def feed_again(self, numbers: range) -> None:
        """Add these numbers to the source, after which the next ones follow."""
        produce(self._bootstrap, self._source, [b"%d" % number for number in numbers])
        self._fed = numbers.stop

    def run(self, sink: str, *, source: str = "kafka", fails_at: int | None = None, **options: str) -> None:
        """With `sink`: `kafka`, `kafka-eos` or `foreachBatch`. A task fails where it comes to the number `fails_at`."""
        reader = self._session.readStream.format(source).option("kafka.bootstrap.servers", self.read_from)
        reader = reader.options(subscribe=self._source, startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH))
        value = F.col("value").cast("string")
        if fails_at is not None:
            value = F.when(value == str(fails_at), F.raise_error(F.lit("pulled the plug"))).otherwise(value)
        rows = reader.load().select(value.alias("value"))
        self._write(rows.dropDuplicates() if self.distinct else rows, sink, options)

    def _write(self, frame: DataFrame, sink: str, options: dict[str, str]) -> None:
        options = {"kafka.bootstrap.servers": self._bootstrap, "topic": self._target} | options
        if sink != "kafka":
            options = {"kafka.transactional.id": f"id-{self._target}"} | options
        stream = frame.writeStream.trigger(availableNow=True).option("checkpointLocation", str(self.checkpoint))
        if sink == "foreachBatch":
            stream = stream.foreachBatch(TransactionalWriter(options))
        else:
            stream = stream.format(sink).options(**options)
        stream.start().awaitTermination()

    def word(self, sink: str, way: str, *, source: str = "kafka", **options: str) -> str:
        """The word that the refusal offers for going on in this way."""
        before = self.written()
        with pytest.raises(StreamingQueryException, match="LedgerRefused.*Nothing was committed") as refused:
            self.run(sink, source=source, fails_at=None, **options)
        assert self.written() == before
        (word,) = set(re.findall(rf"resolve='({way}:[^']+)'", str(refused.value)))
        return str(word)

    def forget(self, batch: int) -> None:
        """What a driver leaves that is killed after a commit, before Spark records it."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def move_source(self, kafka: EmbeddedKafka) -> None:
        """From now on, read the topic of that name on this cluster, which has other records."""
        kafka.create_topic(self._source, 1)
        produce(kafka.bootstrap, self._source, [b"-1"] * 50)
        self.read_from = kafka.bootstrap

    def planned_at(self, batch: int) -> int:
        """When Spark planned this micro-batch, in milliseconds: what its file in the checkpoint says for good."""
        _, metadata, *_ = (self.checkpoint / "offsets" / str(batch)).read_text().split("\n")
        return int(json.loads(metadata)["batchTimestampMs"])

    def written(self) -> list[int]:
        messages = read_committed(self._bootstrap, self._target)
        return sorted(int(message.value() or b"") for message in messages)


@pytest.fixture
def query(spark: SparkSession, bootstrap: str, topic: Callable[..., str], tmp_path: Path) -> Query:
    return Query(spark, bootstrap, topic, tmp_path / "checkpoint")


@pytest.mark.parametrize(("sink", "source"), [("kafka-eos", "kafka-eos"), ("foreachBatch", "kafka")])
def test_a_checkpoint_of_the_built_in_sink_continues_by_the_word_and_every_record_is_there_once(query, sink, source):
    query.feed(2)
    query.run("kafka")
    changed = time.time() * 1e3
    query.feed(2)
    word = query.word(sink, "write", source=source)
    assert query.planned_at(2) > changed, "not by the built-in sink's run"
    assert query.word(sink, "write", source=source) == word, "it stays the same until it is said"
    query.run(sink, source=source, resolve=word)
    assert query.written() == list(range(40))
    query.feed(2)
    query.run(sink, source=source, resolve=word)  # left in the code
    query.feed(1)
    query.run(sink, source=source)
    assert query.written() == list(range(70))
    assert committed_batches(query.checkpoint) == 7


@pytest.mark.parametrize("sink", ["kafka-eos", pytest.param("foreachBatch", marks=pytest.mark.slow)])
def test_a_checkpoint_that_goes_back_to_the_built_in_sink_and_comes_again_has_every_record_once(query, sink):
    query.feed(2)
    query.run(sink)
    query.feed(2)
    query.run("kafka")
    assert query.written() == list(range(40))
    query.feed(2)
    query.run(sink, resolve=query.word(sink, "write"))
    assert query.written() == list(range(60))
    query.feed(1)
    query.run(sink)
    assert query.written() == list(range(70))


@pytest.mark.parametrize(
    ("way", "afterwards"),
    [("write", [*range(15), *range(10, 30)]), ("skip", [*range(15), *range(20, 30)])],
)
def test_of_a_batch_that_died_in_the_built_in_sink_write_repeats_a_part_and_skip_loses_one(query, way, afterwards):
    query.feed(1)
    query.run("kafka")
    query.feed(1)
    with pytest.raises(StreamingQueryException, match="pulled the plug"):
        query.run("kafka", fails_at=15)
    deadline = time.monotonic() + 60
    while query.written() != list(range(15)):  # its producer sends on by itself
        assert time.monotonic() < deadline, query.written()
        time.sleep(0.1)
    changed = time.time() * 1e3
    word = query.word("kafka-eos", way)
    assert query.planned_at(1) < changed
    query.run("kafka-eos", resolve=word)
    query.feed(1)
    if way == "skip":  # it left no entry, so the next batch is asked about as well
        word = query.word("kafka-eos", "write", resolve=word)
    query.run("kafka-eos", resolve=word)
    assert query.written() == sorted(afterwards)


@pytest.mark.parametrize("sink", ["kafka-eos", pytest.param("foreachBatch", marks=pytest.mark.slow)])
def test_a_query_with_state_keeps_it_when_it_changes_from_the_built_in_sink(query, sink):
    query.distinct = True
    query.feed(2)
    query.run("kafka")
    query.feed_again(range(BATCH, 3 * BATCH))
    query.run(sink, resolve=query.word(sink, "write"))
    assert query.written() == list(range(3 * BATCH)), "those of before the change are not new"


def test_what_kafka_eos_committed_and_spark_did_not_record_the_built_in_sink_writes_again(query):
    query.feed(2)
    query.run("kafka-eos")
    query.forget(1)
    query.run("kafka")
    assert query.written() == sorted([*range(20), *range(10, 20)])


@pytest.mark.parametrize("committed_before", [0, 1], ids=["the first batch", "the batch after one of kafka-eos"])
def test_a_batch_that_the_built_in_sink_has_written_is_written_again_without_a_refusal(query, committed_before):
    query.feed(committed_before)
    if committed_before:
        query.run("kafka-eos")
    query.feed(1)
    query.run("kafka")
    query.forget(committed_before)
    query.run("kafka-eos")
    once = list(range(committed_before * BATCH + BATCH))
    assert query.written() == sorted([*once, *once[-BATCH:]])


@pytest.mark.parametrize("sink", ["kafka-eos", pytest.param("foreachBatch", marks=pytest.mark.slow)])
def test_a_query_whose_transactional_id_is_renamed_continues_by_the_word(query, sink):
    query.feed(2)
    query.run(sink)
    query.feed(1)
    renamed = {"kafka.transactional.id": "renamed-" + query.checkpoint.parent.name + sink}
    query.run(sink, resolve=query.word(sink, "write", **renamed), **renamed)
    query.feed(1)
    query.run(sink, **renamed)
    assert query.written() == list(range(40))


# -- between clusters


@pytest.mark.parametrize("sink", ["kafka-eos", pytest.param("foreachBatch", marks=pytest.mark.slow)])
def test_a_query_whose_output_moves_to_another_cluster_continues_by_the_word(query, elsewhere, sink):
    query.feed(2)
    query.run(sink, source="kafka-eos")
    target = topic_factory(elsewhere)("moved")
    there = {"kafka.bootstrap.servers": elsewhere.bootstrap, "topic": target}
    query.feed(1)
    query.run(sink, source="kafka-eos", resolve=query.word(sink, "write", source="kafka-eos", **there), **there)
    query.feed(1)
    query.run(sink, source="kafka-eos", **there)
    assert query.written() == list(range(20))
    moved = sorted(int(message.value() or b"") for message in read_committed(elsewhere.bootstrap, target))
    assert moved == list(range(20, 40))


def test_a_checkpoint_read_from_another_cluster_is_refused(query, elsewhere):
    query.feed(2)
    query.run("kafka-eos", source="kafka-eos")
    query.move_source(elsewhere)
    with pytest.raises(StreamingQueryException, match="these brokers are of cluster .*, but the checkpoint has"):
        query.run("kafka-eos", source="kafka-eos")
    assert query.written() == list(range(20))


def test_a_checkpoint_of_the_built_in_source_continues_with_every_topic_in_which_its_pattern_is_found(
    spark, bootstrap, topic, tmp_path
):
    """A pattern that is the start of both names and the whole of neither, as the built-in source takes it."""
    target, one, other = topic("out"), topic("found"), topic("found")
    pattern = one.rstrip("0123456789")
    assert other.startswith(pattern) and not other.startswith(one)

    def run(source: str) -> None:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
        rows = reader.options(subscribePattern=pattern, startingOffsets="earliest").load().select("value")
        stream = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
        stream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()

    def written() -> list[int]:
        return sorted(int(message.value() or b"") for message in read_committed(bootstrap, target))

    for numbers, source in ((range(10), "kafka"), (range(10, 20), "kafka-eos")):
        produce(bootstrap, one, [b"%d" % number for number in numbers if number % 2])
        produce(bootstrap, other, [b"%d" % number for number in numbers if not number % 2])
        run(source)
        assert written() == list(range(numbers.stop))
