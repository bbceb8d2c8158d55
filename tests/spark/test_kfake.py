"""Queries on kfake, another implementation of the brokers, whose coordinator names fewer states than Kafka's: both ways
to write, several batches, and a run that follows another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter
from spark_kafka_eos.testing.driver import committed_batches
from tests.kfakes import Kfake, running
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

SIZE, BATCHES = 50, 3


@pytest.fixture(scope="module")
def kfake(request: pytest.FixtureRequest, kfake_program: Path) -> Iterator[Kfake]:
    with running(kfake_program, request.param) as brokers:
        yield brokers


# Every protocol and both ways are in every run, in half of the pairs.
@pytest.mark.parametrize(
    ("kfake", "way"),
    [
        ("newest", "sink"),
        pytest.param("newest", "foreachBatch", marks=pytest.mark.slow),
        ("4.1", "foreachBatch"),
        pytest.param("4.1", "sink", marks=pytest.mark.slow),
        ("3.9", "sink"),
        pytest.param("3.9", "foreachBatch", marks=pytest.mark.slow),
    ],
    indirect=["kfake"],
)
def test_a_query_and_the_run_that_follows_it_write_every_record_once(
    spark: SparkSession, kfake: Kfake, way: str, tmp_path: Path
) -> None:
    source, target = kfake.create_topic(f"in-{way}"), kfake.create_topic(f"out-{way}", 2)
    producer = Producer({"bootstrap.servers": kfake.bootstrap})
    sink = {"kafka.bootstrap.servers": kfake.bootstrap, "kafka.transactional.id": f"id-{way}", "topic": target}
    for run in (1, 2):
        for number in range(SIZE * BATCHES):
            producer.produce(source, b"%d" % (run * 1_000 + number))
        assert producer.flush(30) == 0
        rows = (
            spark.readStream.format("kafka-eos")
            .option("kafka.bootstrap.servers", kfake.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", SIZE)
            .load()
            .select("key", "value")
        )
        stream = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path))
        if way == "sink":
            stream = stream.format("kafka-eos").options(**sink)
        else:
            stream = stream.foreachBatch(TransactionalWriter(sink))
        stream.start().awaitTermination()
        assert committed_batches(tmp_path) == run * BATCHES

    once = sorted(b"%d" % (run * 1_000 + number) for run in (1, 2) for number in range(SIZE * BATCHES))
    assert sorted(message.value() or b"" for message in read_committed(kfake.bootstrap, target)) == once
