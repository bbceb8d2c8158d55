"""Queries whose checkpoint is on a disk that comes and goes: lost, left behind, or two at once. No record is lost or
repeated, and what could lose or repeat one is refused."""

from __future__ import annotations

import functools
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_eos import TransactionalWriter, arrow_stream, must_not_restart
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]


class Query:
    """Copies topics to one, each with a source of its own; each run says on which disk its checkpoint is."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, topic: Callable[..., str], folder: Path, sources: int
    ) -> None:
        self.spark, self.bootstrap, self.folder = spark, bootstrap, folder
        self.target = topic("disk-out", 2)
        self.partitions = {topic("disk-in", 2): 2 for _ in range(sources)}
        self.sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": self.target, "topic": self.target}
        self.produced: Counter[str] = Counter()

    def produce(self, count: int) -> None:
        """`count` more records in each partition."""
        for source, partitions in self.partitions.items():
            for partition in range(partitions):
                first = len(self.produced)
                values = [str(first + number) for number in range(count)]
                produce(self.bootstrap, source, [value.encode() for value in values], partition=partition)
                self.produced.update(values)

    def add_a_partition(self) -> None:
        source = next(iter(self.partitions))
        self.partitions[source] += 1
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(source, self.partitions[source])])[source].result(30)

    def reader(self, topics: str, **more: str) -> DataFrame:
        """`topics`, from where the last committed transaction ended."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": topics,
            "startingOffsets": "committed-or-earliest",
            "sink.kafka.transactional.id": self.target,
        }
        return self.spark.readStream.format("kafka-eos").options(**options | more).load().select("key", "value")

    def records(self, at_most: int | None = None) -> DataFrame:
        """All sources, each with a reader of its own."""
        limit = {} if at_most is None else {"maxOffsetsPerTrigger": str(at_most)}
        return functools.reduce(DataFrame.union, (self.reader(source, **limit) for source in self.partitions))

    def copy(self, records: DataFrame, disk: str, **more: str) -> None:
        """`records` by the sink, until nothing is left to read."""
        stream = records.writeStream.trigger(availableNow=True).format("kafka-eos").options(**self.sink, **more)
        stream.option("checkpointLocation", str(self.folder / disk)).start().awaitTermination()

    def start(
        self, disk: str, function: Callable[[DataFrame, int], None] | None = None, at_most: int | None = None
    ) -> StreamingQuery:
        """Until nothing is left to read: by the sink, or by a function for foreachBatch."""
        stream = self.records(at_most).writeStream.trigger(availableNow=True)
        stream = stream.option("checkpointLocation", str(self.folder / disk))
        return (
            stream.format("kafka-eos").options(**self.sink) if function is None else stream.foreachBatch(function)
        ).start()

    def run(self, disk: str, at_most: int | None = None) -> None:
        self.start(disk, at_most=at_most).awaitTermination()

    def written(self) -> Counter[str]:
        found = read_committed(self.bootstrap, self.target)
        return Counter((message.value() or b"").decode() for message in found)


@pytest.fixture
def query(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    kafka: EmbeddedKafka,
    topic: Callable[..., str],
    tmp_path: Path,
) -> Query:
    return Query(spark, kafka.bootstrap, topic, tmp_path, sources=getattr(request, "param", 1))


@pytest.mark.parametrize("query", [1, pytest.param(2, marks=pytest.mark.slow)], indirect=True)
def test_a_query_whose_disk_is_new_at_each_start_writes_every_record_once(query: Query) -> None:
    query.produce(20)
    query.run("first", at_most=15)  # nothing is committed yet
    assert query.written() == query.produced
    query.produce(10)
    query.add_a_partition()
    query.run("second", at_most=7)  # with other batches, and a partition that is new
    query.run("third")  # nothing is left to read
    assert query.written() == query.produced


def test_foreach_batch_whose_disk_is_new_at_each_start_writes_every_record_once(query: Query) -> None:
    for disk in ("first", "second", "third"):
        query.produce(10)
        query.start(disk, TransactionalWriter(query.sink), at_most=7).awaitTermination()
        assert query.written() == query.produced


def test_a_source_that_looks_in_another_ledger_topic_is_refused_at_the_first_start(query: Query) -> None:
    query.produce(5)
    (source,) = query.partitions
    with pytest.raises(StreamingQueryException, match=r"`sink\.ledgerTopic`"):
        query.copy(query.reader(source, **{"sink.ledgerTopic": "kafka-eos-elsewhere"}), "first")
    assert query.written() == Counter()
    query.run("second")
    assert query.written() == query.produced


def test_a_topic_that_is_added_is_refused_until_the_operator_names_the_query(
    query: Query, topic: Callable[..., str]
) -> None:
    query.produce(5)
    query.run("first")
    (one,), other = query.partitions, topic("disk-added", 2)
    query.partitions[other] = 2
    query.produce(5)
    with pytest.raises(StreamingQueryException, match=f"topic {other}") as refused:
        query.copy(query.reader(f"{one},{other}"), "second")
    assert must_not_restart(refused.value), refused.value
    (lost,) = set(re.findall(r"takeOverQuery=([0-9a-f-]{36})", str(refused.value)))
    for disk in ("third", "fourth"):  # the option may stay
        query.copy(query.reader(f"{one},{other}"), disk, takeOverQuery=lost)
        assert query.written() == query.produced
        query.produce(5)


def test_records_that_were_deleted_before_they_were_read_are_data_loss(query: Query) -> None:
    query.produce(10)
    query.run("first")
    query.produce(10)
    (source,) = query.partitions
    admin = AdminClient({"bootstrap.servers": query.bootstrap})
    for deleted in admin.delete_records([TopicPartition(source, 1, 15)]).values():
        deleted.result(30)
    before = query.written()
    with pytest.raises(StreamingQueryException, match=f"DataLoss.*{source}-1 from 10 to 15"):
        query.run("second")
    assert query.written() == before


@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_a_topic_that_was_created_again_is_data_loss_and_without_that_refused(
    query: Query, kafka: EmbeddedKafka, count: int
) -> None:
    """Its new records end before, and after, those that were committed."""
    query.produce(10)
    query.run("first")
    before = query.written()
    (source,) = query.partitions
    kafka.delete_topic(source)
    kafka.create_topic(source, 2)
    query.produce(count)
    with pytest.raises(StreamingQueryException, match="DataLoss"):
        query.run("second")
    with pytest.raises(StreamingQueryException, match="LedgerRefused") as refused:
        query.copy(query.reader(source, failOnDataLoss="false"), "third")
    assert must_not_restart(refused.value), refused.value
    assert query.written() == before


@pytest.mark.parametrize(
    "other",
    [
        "not Kafka",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("at its beginning", "the same partitions")),
    ],
)
def test_with_another_source_that_is_not_set_up_in_this_way_the_second_start_is_refused(
    query: Query, topic: Callable[..., str], other: str
) -> None:
    query.produce(10)
    (source,) = query.partitions
    second = topic("disk-second", 2)
    produce(query.bootstrap, second, [b"of the second"] * 10)

    def records(limit: str) -> DataFrame:
        own = query.reader(source)
        if other == "not Kafka":
            rate = query.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10).load()
            return own.union(rate.selectExpr("cast(null as binary)", "cast(cast(value as string) as binary)"))
        if other == "the same partitions":
            return own.union(query.reader(source, maxOffsetsPerTrigger=limit))
        return own.union(query.reader(second, startingOffsets="earliest"))

    def run(disk: str, *, once: bool = False) -> None:
        stream = records("3").writeStream.format("kafka-eos").options(**query.sink)
        stream = stream.trigger(once=True) if once else stream.trigger(availableNow=True)
        stream.option("checkpointLocation", str(query.folder / disk)).start().awaitTermination()

    run("first", once=other != "at its beginning")
    before = query.written()
    query.produce(5)
    with pytest.raises(StreamingQueryException, match="LedgerRefused|ConfigurationError"):
        run("second")
    assert query.written() == before


def test_a_disk_that_was_left_behind_is_refused_and_todays_continues(query: Query) -> None:
    query.produce(10)
    query.run("yesterdays")
    query.produce(10)
    query.run("todays")
    query.produce(10)
    with pytest.raises(StreamingQueryException, match="on the disk of a node that returns") as refused:
        query.run("yesterdays")
    assert must_not_restart(refused.value), "another driver may be at work"
    query.run("todays")
    assert query.written() == query.produced


@pytest.mark.parametrize("held", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_driver_that_returns_when_another_one_has_gone_on_with_a_new_disk_writes_nothing(
    query: Query, held: int
) -> None:
    """In its first batch, both drivers have started at once. In its second one, it had committed something before."""
    query.produce(20)
    writer, reached, release = TransactionalWriter(query.sink), threading.Event(), threading.Event()

    def slowly(batch_df: DataFrame, batch_id: int) -> None:
        if batch_id == held:
            reached.set()
            assert release.wait(60)
        writer(batch_df, batch_id)

    returning = query.start("old", slowly, at_most=15)
    assert reached.wait(60)
    query.start("new", TransactionalWriter(query.sink), at_most=15).awaitTermination()
    assert query.written() == query.produced
    release.set()
    with pytest.raises(StreamingQueryException) as stopped:
        returning.awaitTermination()
    assert must_not_restart(stopped.value), stopped.value
    assert query.written() == query.produced
    query.produce(10)
    query.run("newest")
    assert query.written() == query.produced


@pytest.mark.parametrize("way", ["sink", pytest.param("foreachBatch", marks=pytest.mark.slow)])
def test_a_query_with_state_does_not_continue_without_it(query: Query, way: str) -> None:
    query.produce(5)

    def run(disk: str) -> None:
        stream = query.records().dropDuplicates(["value"]).writeStream.trigger(availableNow=True)
        stream = stream.option("checkpointLocation", str(query.folder / disk))
        if way == "sink":
            stream = stream.format("kafka-eos").options(**query.sink)
        else:
            stream = stream.foreachBatch(TransactionalWriter(query.sink))
        stream.start().awaitTermination()

    run("first")
    assert query.written() == query.produced
    with pytest.raises(StreamingQueryException, match="but without its state"):
        run("second")
    run("first")
    assert query.written() == query.produced


WAYS = ["sink", "foreachBatch", "arrow_stream", "at-least-once"]


def start_under(
    query: Query,
    transactional_id: str,
    disk: str,
    way: str,
    *,
    to: str = "",
    reading: Mapping[str, str | None] | None = None,
    resolve: str | None = None,
) -> StreamingQuery:
    """A copy of the query under another transactional.id, whose source has the same options, but for `reading`."""
    options = {
        "kafka.bootstrap.servers": query.bootstrap,
        "subscribe": next(iter(query.partitions)),
        "startingOffsets": "committed-or-earliest",
        "sink.kafka.transactional.id": query.target,
        **(reading or {}),
    }
    given = {name: value for name, value in options.items() if value is not None}
    sink = {**query.sink, "topic": to or transactional_id, "kafka.transactional.id": transactional_id}
    if resolve is not None:
        sink["resolve"] = resolve
    if way == "at-least-once":
        del sink["kafka.transactional.id"]
        sink |= {"deliveryGuarantee": "at-least-once"}
    if way == "arrow_stream":
        stream = arrow_stream(query.spark, given, TransactionalWriter(sink))
    else:
        records = query.spark.readStream.format("kafka-eos").options(**given).load().select("key", "value")
        stream = records.writeStream
        if way == "foreachBatch":
            stream = stream.foreachBatch(TransactionalWriter(sink))
        else:
            stream = stream.format("kafka-eos").options(**sink)
    return stream.trigger(availableNow=True).option("checkpointLocation", str(query.folder / disk)).start()


@pytest.mark.parametrize("way", WAYS)
def test_a_source_that_names_another_sink_is_refused_at_the_first_start_and_nothing_is_written(
    query: Query, topic: Callable[..., str], way: str
) -> None:
    copied = topic("disk-copied", 2)
    query.produce(5)
    for disk in ("before", "before", "after"):  # the second time, the batch is planned already
        if disk == "after":  # the other sink has a ledger
            query.run("disk")
            query.produce(5)
        with pytest.raises(StreamingQueryException) as refused:
            start_under(query, copied, disk, way).awaitTermination()
        assert must_not_restart(refused.value), refused.value
        message = str(refused.value)
        assert f"what transactional.id '{query.target}' has committed" in message
        assert ("at-least-once" if way == "at-least-once" else f"'{copied}'") in message
        assert "Nothing was committed." in message
    assert read_committed(query.bootstrap, copied) == []
    own = None if way == "at-least-once" else copied
    ours = {"sink.kafka.transactional.id": own, "startingOffsets": "committed-or-earliest" if own else "earliest"}
    start_under(query, copied, "right", way, reading=ours).awaitTermination()
    assert Counter((message.value() or b"").decode() for message in read_committed(query.bootstrap, copied)) == (
        query.produced
    )


@pytest.mark.parametrize("named_by", ["group", "id"])
def test_a_start_where_another_sink_ended_is_refused_until_the_operator_says_that_it_goes_on_there(
    query: Query, named_by: str
) -> None:
    """As where the id was changed: the output has what was committed under the old one."""
    query.produce(5)
    query.run("old")
    query.produce(5)
    group: dict[str, str | None] = {}  # the source goes on with the old id
    if named_by == "group":
        group = {"sink.kafka.transactional.id": None, "kafka.group.id": query.target, "startingOffsets": "committed"}
    renamed = f"{query.target}-renamed"
    with pytest.raises(StreamingQueryException, match=f"resolve='take-ledger:{query.target}'"):
        start_under(query, renamed, "new", "sink", to=query.target, reading=group).awaitTermination()
    word = f"take-ledger:{query.target}"
    start_under(query, renamed, "new", "sink", to=query.target, reading=group, resolve=word).awaitTermination()
    assert query.written() == query.produced
    query.produce(5)
    named = {"sink.kafka.transactional.id": renamed}
    start_under(query, renamed, "newest", "sink", to=query.target, reading=named, resolve=word).awaitTermination()
    assert query.written() == query.produced, "and the word has no effect any more"
