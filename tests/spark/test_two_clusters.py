"""A query from one cluster to another on real Spark: its checkpoint is lost, and it continues where the ledger ends."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_eos.options import source_options
from spark_kafka_eos.protocol.cluster import Cluster
from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.read_offsets import group_offsets
from tests.conftest import topic_factory
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PARTITIONS = 2


class Query:
    """Copies a topic of the cluster A to one of B, until nothing is left to read; `way` is how it writes."""

    def __init__(self, spark, a, b, folder, way):
        self.spark, self.a, self.b, self.way, self.checkpoint = spark, a, b, way, folder / "checkpoint"
        self.source = topic_factory(a)("two-in", PARTITIONS)
        self.target = topic_factory(b)("two-out", PARTITIONS)
        self.produced = 0
        here = {"kafka.bootstrap.servers": b.bootstrap, "kafka.transactional.id": self.target}
        self.told = {f"sink.{name}": value for name, value in here.items()}
        with Cluster(source_options({"kafka.bootstrap.servers": a.bootstrap, "subscribe": self.source}).client) as at_a:
            self.sink = {**here, "topic": self.target, "sourceClusters": at_a.cluster_id()}

    def produce(self, count):
        for partition in range(PARTITIONS):
            values = [b"%d-%d" % (partition, self.produced + number) for number in range(count)]
            produce(self.a.bootstrap, self.source, values, partition=partition)
        self.produced += count

    def run(self, **source):
        given = {"kafka.bootstrap.servers": self.a.bootstrap, "subscribe": self.source, "maxOffsetsPerTrigger": "40"}
        stream = self.spark.readStream.format("kafka-eos").options(**given, **source).load().select("key", "value")
        writing = stream.writeStream.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        if self.way == "sink":
            writing = writing.format("kafka-eos").options(**self.sink)
        else:
            writing = writing.foreachBatch(TransactionalWriter(self.sink))
        writing.start().awaitTermination()

    def lose_checkpoint(self):
        shutil.rmtree(self.checkpoint)

    def output(self):
        found = read_committed(self.b.bootstrap, self.target)
        return Counter((message.value() or b"").decode() for message in found)

    def all_once(self):
        return Counter(f"{partition}-{number}" for partition in range(PARTITIONS) for number in range(self.produced))


@pytest.fixture(params=["sink", "foreachBatch"])
def query(request, spark, kafka, elsewhere, tmp_path):
    """Into the newer protocol by the sink, into the older one by foreachBatch."""
    a, b = (elsewhere, kafka) if request.param == "sink" else (kafka, elsewhere)
    return Query(spark, a, b, tmp_path, request.param)


def test_a_query_between_clusters_that_loses_its_checkpoint_writes_every_record_once(query):
    # On the sink's cluster a topic has the same name, and ends where the query must not begin.
    query.b.create_topic(query.source, PARTITIONS)
    produce(query.b.bootstrap, query.source, [b"of another cluster"] * 7)
    query.produce(50)
    query.run(startingOffsets="earliest")
    assert query.output() == query.all_once()

    query.lose_checkpoint()
    query.produce(30)
    with pytest.raises(StreamingQueryException, match="does not start where it ended"):
        query.run(startingOffsets="earliest")

    query.lose_checkpoint()
    query.run(startingOffsets="committed", **query.told)
    assert query.output() == query.all_once()
    query.produce(10)
    query.run(startingOffsets="committed", **query.told)
    assert query.output() == query.all_once()
    assert group_offsets(query.b.bootstrap, query.target, query.source) == {}
