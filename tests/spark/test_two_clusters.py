"""A query from one cluster to another on real Spark: its checkpoint is lost, and it continues where the ledger ends."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

from spark_kafka_eos.cli.main import app
from spark_kafka_eos.ledger.progress import cluster_id
from spark_kafka_eos.spark.arrow_stream import arrow_stream
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
        self.sink = {**here, "topic": self.target}

    def produce(self, count):
        for partition in range(PARTITIONS):
            values = [b"%d-%d" % (partition, self.produced + number) for number in range(count)]
            produce(self.a.bootstrap, self.source, values, partition=partition)
        self.produced += count

    def run(self, kind="kafka-eos", **source):
        given = {"kafka.bootstrap.servers": self.a.bootstrap, "subscribe": self.source, "maxOffsetsPerTrigger": "80"}
        given |= source
        if self.way == "arrow_stream":
            writing = arrow_stream(self.spark, given, TransactionalWriter(self.sink))
        else:
            stream = self.spark.readStream.format(kind).options(**given).load().select("key", "value")
            if self.way == "sink":
                writing = stream.writeStream.format("kafka-eos").options(**self.sink)
            else:
                writing = stream.writeStream.foreachBatch(TransactionalWriter(self.sink))
        writing = writing.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        writing.start().awaitTermination()

    def lose_checkpoint(self):
        shutil.rmtree(self.checkpoint)

    def output(self):
        found = read_committed(self.b.bootstrap, self.target)
        return Counter((message.value() or b"").decode() for message in found)

    def all_once(self):
        return Counter(f"{partition}-{number}" for partition in range(PARTITIONS) for number in range(self.produced))


@pytest.fixture(params=["sink", "foreachBatch", "arrow_stream"])
def query(request, spark, kafka, elsewhere, tmp_path):
    """Into the newer protocol by the sink, into the older one by foreachBatch."""
    a, b = (elsewhere, kafka) if request.param == "sink" else (kafka, elsewhere)
    return Query(spark, a, b, tmp_path, request.param)


# How long the topic of the source's name is on the sink's cluster, by how the query writes; the source has 50 records.
_SAME_NAME = {"none": None, "shorter": 7, "equal": 50, "longer": 90}
_IN_EVERY_RUN = {("sink", "none"), ("foreachBatch", "none"), ("arrow_stream", "none"), ("foreachBatch", "shorter"),
                 ("arrow_stream", "equal"), ("sink", "longer")}  # fmt: skip


@pytest.mark.parametrize(
    ("query", "same_name"),
    [
        pytest.param(way, same, marks=[] if (way, same) in _IN_EVERY_RUN else [pytest.mark.slow])
        for way in ("sink", "foreachBatch", "arrow_stream")
        for same in _SAME_NAME
    ],
    indirect=["query"],
)
def test_between_clusters_nothing_is_set_and_every_record_is_written_once(query, same_name):
    count = _SAME_NAME[same_name]
    if count is not None:
        query.b.create_topic(query.source, PARTITIONS)
        for partition in range(PARTITIONS):
            produce(query.b.bootstrap, query.source, [b"of another cluster"] * count, partition=partition)
    query.produce(50)
    query.run(startingOffsets="earliest")
    assert query.output() == query.all_once()

    query.produce(20)
    query.run(startingOffsets="earliest")
    assert query.output() == query.all_once(), "with its checkpoint"
    where = ["--bootstrap-servers", query.b.bootstrap, "--checkpoint-location", str(query.checkpoint)]
    assert CliRunner().invoke(app, ["query", "resolve", query.target, *where]).exit_code == 0

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
    if count is not None:
        assert group_offsets(query.b.bootstrap, query.target, query.source) == {}


@pytest.mark.parametrize(("query", "same_name"), [("sink", 7), ("foreachBatch", None)], indirect=["query"])
def test_a_built_in_source_on_another_cluster_is_refused_until_source_clusters_names_it(query, same_name):
    if same_name is not None:
        query.b.create_topic(query.source, PARTITIONS)
        produce(query.b.bootstrap, query.source, [b"of another cluster"] * same_name)
    query.produce(50)
    with pytest.raises(StreamingQueryException, match="sourceClusters"):
        query.run("kafka", startingOffsets="earliest")
    assert query.output() == Counter()
    query.sink["sourceClusters"] = cluster_id({"kafka.bootstrap.servers": query.a.bootstrap})
    query.run("kafka", startingOffsets="earliest")
    assert query.output() == query.all_once()
    if same_name is not None:
        assert group_offsets(query.b.bootstrap, query.target, query.source) == {}


@pytest.mark.parametrize("query", ["sink"], indirect=True)
def test_a_batch_job_between_clusters_writes_every_record_once(query):
    query.produce(50)
    given = {"kafka.bootstrap.servers": query.a.bootstrap, "subscribe": query.source}
    rows = query.spark.read.format("kafka-eos").options(**given).load().select("key", "value")
    marked = {**query.sink, "txnAppId": query.target, "txnVersion": "1"}
    for _ in range(2):  # the second time as a repeated job
        rows.write.format("kafka-eos").mode("append").options(**marked).save()
    assert query.output() == query.all_once()
