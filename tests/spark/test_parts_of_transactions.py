"""When a Spark query sees a part of a committed transaction: what KIP-98 does not promise to consumers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos import TransactionalWriter
from spark_kafka_eos.testing.read_offsets import ends
from tests.conftest import TopicFactory
from tests.producing import delete_records, end_transaction, transact
from tests.reading import await_stable, read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TEN = [b"%d" % number for number in range(10)]


@pytest.fixture
def seen(spark: SparkSession, bootstrap: str) -> Callable[..., list[int]]:
    """`seen(**options)`: the values of a batch read, sorted."""

    def read(**options: str) -> list[int]:
        given = {"kafka.bootstrap.servers": bootstrap} | options
        return sorted(int(row.value) for row in spark.read.format("kafka-eos").options(**given).load().collect())

    return read


def test_a_limit_splits_a_transaction_into_micro_batches_that_are_each_atomic_in_the_output(
    spark: SparkSession, bootstrap: str, topic: TopicFactory, tmp_path: Path
):
    origin, target = topic("whole"), topic("split")
    transact(bootstrap, origin, TEN, "commit")
    writer = TransactionalWriter(
        {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": target, "topic": target}
    )
    visible = []

    def write(frame: DataFrame, batch_id: int) -> None:
        writer(frame.select("value"), batch_id)
        visible.append([int(message.value() or b"") for message in read_committed(bootstrap, target)])

    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": origin, "startingOffsets": "earliest"}
    stream = spark.readStream.format("kafka-eos").options(**given, maxOffsetsPerTrigger="4").load()
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    # The marker in the input takes an offset, too: the third batch has it besides the last two records.
    assert visible == [list(range(4)), list(range(8)), list(range(10))]
    assert ends(bootstrap, target, "read_uncommitted") == {0: 10 + 3}  # one marker for each micro-batch


def test_the_partitions_of_a_transaction_may_come_one_after_the_other(
    bootstrap: str, topic: TopicFactory, seen: Callable[..., list[int]]
):
    """As while markers are being written: here, another transaction holds back the second partition."""
    name = topic("one-by-one", 2)
    another = transact(bootstrap, name, [b"100"], "leave open", partition=1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-both"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number, value in enumerate(TEN):
        producer.produce(name, value, partition=number % 2)
    producer.commit_transaction(30)
    await_stable(bootstrap, name, behind=[0, 7])
    assert seen(subscribe=name) == [0, 2, 4, 6, 8]
    end_transaction(another, bootstrap, name, "abort", partition=1)
    await_stable(bootstrap, name)
    assert seen(subscribe=name) == list(range(10))


@pytest.mark.parametrize(("end", "rest"), [("commit", list(range(6, 10))), ("abort", [])])
def test_a_read_that_starts_inside_a_transaction_gets_the_rest_of_it_unless_it_was_aborted(
    bootstrap: str,
    topic: TopicFactory,
    seen: Callable[..., list[int]],
    end: Literal["commit", "abort"],
    rest: list[int],
):
    name = topic("inside")
    transact(bootstrap, name, TEN, end)
    assert seen(subscribe=name, startingOffsets=json.dumps({name: {"0": 6}})) == rest


def test_a_read_of_some_partitions_gets_their_part_of_a_transaction(
    bootstrap: str, topic: TopicFactory, seen: Callable[..., list[int]]
):
    names = [topic("part", 2), topic("part")]
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": names[0]})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value, (name, partition) in enumerate([(names[0], 0), (names[0], 1), (names[1], 0)]):
        producer.produce(name, b"%d" % value, partition=partition)
    producer.commit_transaction(30)
    for name in names:
        await_stable(bootstrap, name)
    assert seen(assign=json.dumps({names[0]: [1]})) == [1]
    assert seen(subscribe=names[1]) == [2]
    assert seen(subscribe=",".join(names)) == [0, 1, 2]


def test_when_the_first_part_was_deleted_a_new_query_gets_the_rest_and_one_that_had_not_read_it_fails(
    spark: SparkSession, bootstrap: str, topic: TopicFactory, seen: Callable[..., list[int]], tmp_path: Path
):
    name = topic("cut")
    transact(bootstrap, name, TEN, "commit")
    batches: list[list[int]] = []

    def collect(frame: DataFrame, batch_id: int) -> None:
        batches.append(sorted(int(row.value) for row in frame.collect()))

    def run(**options: str) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "startingOffsets": "earliest"} | options
        stream = spark.readStream.format("kafka-eos").options(**given).load()
        query = stream.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    end = json.dumps({name: {"0": 3}})
    run(endingOffsets=end)
    delete_records(bootstrap, name, 6)
    assert seen(subscribe=name, startingOffsets="earliest") == list(range(6, 10))
    with pytest.raises(StreamingQueryException, match="DataLoss"):
        run()
    run(failOnDataLoss="false")
    assert batches == [[0, 1, 2], list(range(6, 10))]
