"""A query from one cluster to another on real Spark, where topics of one name are different topics; and what would be a
loop where they are the same.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from functools import partial

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RdTopicPartition
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

from spark_kafka_eos import ProgressListener
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.progress import cluster_id, last_entry
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.options import source_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.spark.arrow_stream import arrow_stream
from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.read_offsets import group_offsets
from spark_kafka_eos.tools.cli.main import app
from tests import waiting
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
        self.id = self.target
        self.here = {"kafka.bootstrap.servers": b.bootstrap, "kafka.transactional.id": self.id}
        self.told = {f"sink.{name}": value for name, value in self.here.items()}
        self.writes_to(self.target)

    def writes_to(self, topic):
        self.target, self.sink = topic, {**self.here, "topic": topic}

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
        query = writing.start()
        query.awaitTermination()
        return query

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
_SAME_NAME = {"none": None, "shorter": 7, "equal": 50, "longer": 90, "the output": None}
_IN_EVERY_RUN = {("sink", "none"), ("foreachBatch", "none"), ("arrow_stream", "none"), ("foreachBatch", "shorter"),
                 ("arrow_stream", "equal"), ("sink", "longer"), ("sink", "the output")}  # fmt: skip


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
    if same_name == "the output":
        query.writes_to(query.b.create_topic(query.source, PARTITIONS))
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
    assert CliRunner().invoke(app, ["query", "resolve", query.id, *where]).exit_code == 0

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
        assert group_offsets(query.b.bootstrap, query.id, query.source) == {}


@pytest.mark.parametrize("query", ["sink"], indirect=True)
def test_a_source_that_looks_for_the_ledger_on_its_own_cluster_is_refused_and_its_group_there_follows(query):
    query.produce(50)
    named = {"startingOffsets": "committed-or-earliest", "sink.kafka.transactional.id": query.id}
    with pytest.raises(StreamingQueryException, match="`sink.kafka.bootstrap.servers`"):
        query.run(**named)
    assert query.output() == Counter()
    query.lose_checkpoint()
    query.run(**named | query.told, commitOffsets="true", **{"kafka.group.id": query.id})
    assert query.output() == query.all_once()
    assert group_offsets(query.a.bootstrap, query.id, query.source) == dict.fromkeys(range(PARTITIONS), 50)


@pytest.mark.parametrize("query", ["sink"], indirect=True)
def test_a_listener_takes_no_topic_of_its_cluster_for_one_of_the_same_name_on_another(query):
    query.b.create_topic(query.source, PARTITIONS)
    produce(query.b.bootstrap, query.source, [b"of another cluster"] * 90)
    query.produce(10)
    listeners = []
    try:
        for cluster in (query.a, query.b):
            given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": query.source}
            listeners.append(ProgressListener(given, spark=query.spark))
            query.spark.streams.addListener(listeners[-1])
        run = query.run(startingOffsets="earliest")
        [here], [elsewhere] = (waiting.until(partial(listener.last, run.id)).sources for listener in listeners)
    finally:
        for listener in listeners:
            query.spark.streams.removeListener(listener)
            listener.close()
    assert (here.rows, here.lso_lag) == (20, {TopicPartition(query.source, number): 0 for number in range(PARTITIONS)})
    assert (elsewhere.rows, elsewhere.lso_lag) == (20, None)


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
        assert group_offsets(query.b.bootstrap, query.id, query.source) == {}


@pytest.mark.parametrize(("query", "same_name"), [("sink", "none"), ("sink", "longer")], indirect=["query"])
def test_a_batch_job_between_clusters_writes_every_record_once(query, same_name):
    if count := _SAME_NAME[same_name]:
        query.b.create_topic(query.source, PARTITIONS)
        for partition in range(PARTITIONS):
            produce(query.b.bootstrap, query.source, [b"of another cluster"] * count, partition=partition)
    query.produce(50)
    given = {"kafka.bootstrap.servers": query.a.bootstrap, "subscribe": query.source}

    def write(version):
        rows = query.spark.read.format("kafka-eos").options(**given).load().select("key", "value")
        marked = {**query.sink, "txnAppId": query.target, "txnVersion": version}
        rows.write.format("kafka-eos").mode("append").options(**marked).save()

    for _ in range(2):  # the second time as a repeated job
        write("1")
    assert query.output() == query.all_once()

    query.produce(20)
    write("2")
    assert query.output() == query.all_once() + Counter(f"{p}-{n}" for p in range(PARTITIONS) for n in range(50))
    if count:
        assert group_offsets(query.b.bootstrap, query.id, query.source) == {}


# -- on one cluster, a query that reads what it writes


class Loop:
    """Copies what it reads from a cluster to the same cluster."""

    def __init__(self, spark, kafka, folder, create):
        self.spark, self.kafka, self.checkpoint = spark, kafka, folder / "checkpoint"
        self.source, self.target = create("loop-in"), create("loop-out")
        self.sink = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.transactional.id": self.target}

    def produce(self, *values):
        produce(self.kafka.bootstrap, self.source, [value.encode() for value in values])

    def run(self, way, kind, read, *columns, **sink):
        self.start(way, kind, read, *columns, trigger={"availableNow": True}, **sink).awaitTermination()

    def start(self, way, kind, read, *columns, trigger, **sink):
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap, "startingOffsets": "earliest"} | read
        options = self.sink | sink
        if way == "arrow_stream":
            writing = arrow_stream(self.spark, given, TransactionalWriter(options))
        else:
            rows = self.spark.readStream.format(kind).options(**given).load().selectExpr("key", "value", *columns)
            if way == "sink":
                writing = rows.writeStream.format("kafka-eos").options(**options)
            else:
                writing = rows.writeStream.foreachBatch(TransactionalWriter(options))
        return writing.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()

    def output(self, topic=None):
        found = read_committed(self.kafka.bootstrap, topic or self.target)
        return [(message.value() or b"").decode(errors="replace") for message in found]

    def committed(self):
        """How many batches the query has committed."""
        with Cluster(source_options({**self.sink, "subscribe": self.source}).client) as cluster:
            entry = last_entry(cluster, LEDGER_TOPIC, self.target)
        return 0 if entry is None else entry.serial


@pytest.fixture
def loop(spark, kafka, tmp_path, topic):
    with Cluster(source_options({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "any"}).client) as cluster:
        LedgerTopic(cluster, LEDGER_TOPIC, "another").ensure()
    return Loop(spark, kafka, tmp_path, topic)


@pytest.mark.parametrize(
    ("way", "kind", "named_by"),
    [
        ("sink", "kafka-eos", "option"),
        ("sink", "kafka", "row"),
        ("foreachBatch", "kafka", "option"),
        ("foreachBatch", "kafka-eos", "row"),
        ("arrow_stream", "kafka-eos", "option"),
    ],
)
def test_a_query_that_reads_its_own_output_is_refused_unless_it_is_meant(loop, way, kind, named_by):
    loop.produce("1", "2")
    both = {"subscribe": f"{loop.source},{loop.target}"}
    columns = [f"'{loop.target}' as topic"] if named_by == "row" else []
    sink = {"topic": loop.target} if named_by == "option" else {}
    with pytest.raises(StreamingQueryException, match=f"{loop.target}: the query reads this topic, which it writes"):
        loop.run(way, kind, both, *columns, **sink)
    assert (loop.output(), loop.committed()) == ([], 0)
    loop.run(way, kind, both, *columns, **sink, allowLoop=True)
    assert set(loop.output()) == {"1", "2"}, "once or more often: it is a loop"


@pytest.mark.parametrize("way", ["sink", "foreachBatch"])
def test_a_topic_that_a_pattern_takes_in_later_is_noticed_in_the_batch_that_writes_it(loop, way, kafka):
    pattern = {"subscribePattern": f"^{loop.source}.*"}
    loop.produce(loop.target)
    loop.run(way, "kafka-eos", pattern, "cast(value as string) as topic")
    assert loop.output() == [loop.target]
    late = kafka.create_topic(f"{loop.source}-late")
    loop.produce(late)
    with pytest.raises(StreamingQueryException, match=f"{late}: the query reads this topic, which it writes"):
        loop.run(way, "kafka-eos", pattern, "cast(value as string) as topic")
    assert (loop.output(late), loop.committed()) == ([], 1)


def test_a_pattern_does_not_read_the_ledger_and_a_checkpoint_that_has_it_goes_on(loop):
    loop.produce("1")
    pattern = {"subscribePattern": f"^({LEDGER_TOPIC}|{loop.source})$"}
    reads_it = {**pattern, "includeLedgerTopics": True}
    with pytest.raises(StreamingQueryException, match="kafka-eos-ledger: .* is a ledger topic"):
        loop.run("sink", "kafka-eos", reads_it, topic=loop.target)
    loop.run("sink", "kafka-eos", reads_it, topic=loop.target, allowLoop=True)
    before = loop.output()
    assert "1" in before

    loop.produce("2")
    loop.run("sink", "kafka-eos", pattern, topic=loop.target)
    assert loop.output() == [*before, "2"]
    committed = loop.committed()
    loop.run("sink", "kafka-eos", pattern, topic=loop.target)
    assert loop.committed() == committed, "without input there is no batch"

    shutil.rmtree(loop.checkpoint)
    loop.produce("3")
    again = {**pattern, "startingOffsets": "committed", "sink.kafka.transactional.id": loop.target}
    loop.run("sink", "kafka-eos", again, topic=loop.target)
    assert loop.output() == [*before, "2", "3"]


@pytest.mark.parametrize("way", ["sink", "foreachBatch"])
def test_with_the_built_in_source_a_query_that_reads_a_ledger_is_refused(loop, way):
    pattern = {"subscribePattern": f"^({LEDGER_TOPIC}|{loop.source})$"}
    loop.produce("1")
    with pytest.raises(StreamingQueryException, match="kafka-eos-ledger: .* is a ledger topic"):
        loop.run(way, "kafka", pattern, topic=loop.target)
    assert (loop.output(), loop.committed()) == ([], 0)


def test_a_ledger_topic_that_the_source_does_not_know_is_refused_by_the_querys_sink(loop, kafka):
    books = kafka.create_topic(f"{loop.source}-books", 1, {"cleanup.policy": "compact"})
    loop.produce("1")
    pattern = {"subscribePattern": f"^{loop.source}.*"}
    with pytest.raises(StreamingQueryException, match=f"{books}: .* is a ledger topic"):
        loop.run("sink", "kafka-eos", pattern, topic=loop.target, ledgerTopic=books)
    its_own = {"sink.kafka.transactional.id": loop.target, "sink.ledgerTopic": books}
    loop.checkpoint = loop.checkpoint.with_name("another")
    loop.run("sink", "kafka-eos", pattern | its_own, topic=loop.target, ledgerTopic=books)
    assert loop.output() == ["1"]


# -- and one whose consumer group somebody else joins


@pytest.mark.parametrize(
    ("way", "protocol"), [("sink", "consumer"), ("foreachBatch", "classic")], ids=["sink-KIP-848", "foreachBatch"]
)
def test_a_member_that_joins_the_group_while_the_query_runs_stops_it_and_keeps_its_own_offsets(loop, way, protocol):
    loop.produce("1", "2", "3")
    read = {"subscribe": loop.source}
    query = loop.start(way, "kafka-eos", read, topic=loop.target, trigger={"processingTime": "0 seconds"})
    query.processAllAvailable()
    assert loop.output() == ["1", "2", "3"]
    given = {"bootstrap.servers": loop.kafka.bootstrap, "group.id": loop.target, "group.protocol": protocol}
    member = Consumer({**given, "enable.auto.commit": False, "log_level": 2})
    member.subscribe([loop.source])
    deadline = time.monotonic() + 60
    while not member.assignment():
        assert time.monotonic() < deadline
        member.poll(0.1)
    member.commit(offsets=[RdTopicPartition(loop.source, 0, 1)], asynchronous=False)

    loop.produce("4")
    with pytest.raises(StreamingQueryException, match=f"group {loop.target} has active members"):
        query.awaitTermination(60)
    (kept,) = member.committed([RdTopicPartition(loop.source, 0)], 30)
    assert kept.offset == 1
    member.close()
    loop.run(way, "kafka-eos", read, topic=loop.target)
    assert loop.output() == ["1", "2", "3", "4"]
    assert group_offsets(loop.kafka.bootstrap, loop.target, loop.source) == {0: 4}
