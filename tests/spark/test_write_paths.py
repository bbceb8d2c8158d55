"""Every way to write × what it is given × both transaction protocols where they matter, told by librdkafka's consumer.

The ways: `foreachBatch` with records sent by the driver or by executors, the streaming sink, the batch write. The run
ends with a table of all that was tried (conftest.py).
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.appending.staging import INLINE_BYTES
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.kafka.protocol.producers import producers
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.spark.shuffled import slot_of
from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.read_offsets import group_offsets
from tests.matrix import Cell
from tests.producing import KEEP, produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """One way into one new topic of 3 partitions, `out`, under a transactional.id of that name."""

    spark: SparkSession
    kafka: EmbeddedKafka
    way: str
    folder: Path
    out: str
    options: dict[str, str] = field(default_factory=dict)

    def source(self, *partitions: list[str], config: dict[str, str] | None = None) -> str:
        """A new topic with these values in its partitions, each one's key the part before the colon."""
        name = self.kafka.create_topic(f"paths-in-{next(_numbers)}", len(partitions), config)
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for partition, values in enumerate(partitions):
            for value in values:
                producer.produce(name, key=value.split(":")[0], value=value, partition=partition)
        assert producer.flush(30) == 0
        return name

    def read(self, topic: str, form: str = "kafka-eos") -> DataFrame:
        """The stream of a topic, from its beginning."""
        options = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return self.spark.readStream.format(form).options(**options).load()

    def write(self, frame: DataFrame, mode: str = "append", **options: str) -> None:
        """Run the query until nothing is left to read."""
        checkpoint = str(self.folder / "checkpoint")
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap, "kafka.transactional.id": self.out}
        given |= options or {"topic": self.out}
        stream = frame.writeStream.outputMode(mode).option("checkpointLocation", checkpoint)
        if self.way == "sink":
            stream = stream.format("kafka-eos").options(**given)
        else:
            stream = stream.foreachBatch(TransactionalWriter(given | {"appendMode": self.way}))
        stream.trigger(availableNow=True).start().awaitTermination()

    def written(self) -> list[str]:
        """The values that a read_committed consumer sees, in order within a partition."""
        return [(m.value() or b"").decode() for m in read_committed(self.kafka.bootstrap, self.out)]

    def committed(self, topic: str, partitions: int = 1) -> list[int | None]:
        """The offsets of the source topic that the group has, by partition."""
        found = group_offsets(self.kafka.bootstrap, self.out, topic, "read_committed")
        return [found.get(number) for number in range(partitions)]


# What Spark plans and what becomes of rows is the same in both protocols, whose requests tests/broker tests.
TV1_IS_SLOW = pytest.mark.parametrize(
    "broker", ["kafka", pytest.param("kafka39", marks=pytest.mark.slow)], ids=["TV2", "TV1"], indirect=True
)


@pytest.fixture(params=["kafka", "kafka39"], ids=["TV2", "TV1"])
def broker(request: pytest.FixtureRequest) -> EmbeddedKafka:
    found: EmbeddedKafka = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def tell(request: pytest.FixtureRequest, cell: Cell) -> Callable[[str], None]:
    """`tell(way)` notes the cell of the final table that this test fills."""
    scenario = request.node.originalname.removeprefix("test_").replace("_", " ")
    protocol = request.node.callspec.id.split("-")[-1]
    return lambda way: cell("write paths", f"{scenario}: {way}", protocol)


@pytest.fixture(params=["driver", "executors", "sink"])
def pipe(request, spark, broker, tmp_path, tell) -> Pipe:
    way = request.param
    tell(way if way == "sink" else f"foreachBatch, {way}")
    out = broker.create_topic(f"paths-out-{next(_numbers)}", 3)
    return Pipe(spark=spark, kafka=broker, way=way, folder=tmp_path, out=out)


@TV1_IS_SLOW
def test_a_stateful_query_writes_its_counts(pipe: Pipe) -> None:
    topic = pipe.source(["a:1", "b:1", "a:2"], ["c:1"])
    counts = pipe.read(topic).groupBy("key").count().select("key", F.concat("key", F.lit("="), "count").alias("value"))
    pipe.write(counts, "complete" if pipe.way == "sink" else "update")  # Spark lets no Python data source have update
    assert sorted(pipe.written()) == ["a=2", "b=1", "c=1"]
    assert pipe.committed(topic, 2) == [3, 1]


@TV1_IS_SLOW
def test_a_batch_without_new_data_writes_what_the_watermark_lets_go(pipe: Pipe) -> None:
    topic = pipe.source([], config=KEEP)
    for second, key in enumerate([b"a", b"b", b"a"]):
        produce(pipe.kafka.bootstrap, topic, [b""], key=key, timestamp=1_700_000_000_000 + 60_000 * second)
    window = F.window("timestamp", "1 minute")
    counts = pipe.read(topic).withWatermark("timestamp", "0 seconds").groupBy(window, "key").count()
    pipe.write(counts.select("key", F.concat("key", F.lit("="), "count").alias("value")))
    assert sorted(pipe.written()) == ["a=1", "b=1"]
    assert pipe.committed(topic) == [3]


@TV1_IS_SLOW
def test_two_kafka_sources_have_their_offsets_in_the_group(pipe: Pipe) -> None:
    one, other = pipe.source(["a:1", "a:2"]), pipe.source(["b:1"], ["c:1", "c:2"])
    pipe.write(pipe.read(one).select("key", "value").unionByName(pipe.read(other).select("key", "value")))
    assert sorted(pipe.written()) == ["a:1", "a:2", "b:1", "c:1", "c:2"]
    assert (pipe.committed(one), pipe.committed(other, 2)) == ([2], [1, 2])


@TV1_IS_SLOW
def test_the_built_in_source_comes_before_us(pipe: Pipe) -> None:
    topic = pipe.source(["a:1", "a:2"], ["b:1"])
    pipe.write(pipe.read(topic, "kafka").select("key", "value"))
    assert sorted(pipe.written()) == ["a:1", "a:2", "b:1"]
    assert pipe.committed(topic, 2) == [2, 1]


@TV1_IS_SLOW
def test_a_source_that_is_not_kafka(pipe: Pipe) -> None:
    rate = pipe.spark.readStream.format("rate-micro-batch").options(rowsPerBatch="50", numPartitions="2").load()
    pipe.write(rate.select(F.col("value").cast("string").alias("value")))
    assert sorted(map(int, pipe.written())) == list(range(50))


def test_a_batch_that_spark_runs_again_is_written_once(pipe: Pipe) -> None:
    topic = pipe.source(["a:1", "a:2", "b:1"])
    frame = pipe.read(topic).select("key", "value")
    pipe.write(frame)
    for name in ("0", ".0.crc"):
        (pipe.folder / "checkpoint" / "commits" / name).unlink()  # as if the driver had died before noting the commit
    pipe.write(frame)
    assert sorted(pipe.written()) == ["a:1", "a:2", "b:1"]
    assert pipe.committed(topic) == [3]


@TV1_IS_SLOW
def test_a_row_without_a_topic_leaves_nothing_visible(pipe: Pipe) -> None:
    topic = pipe.source(["a:1", "a:2", "b:1"])
    named = F.when(F.col("value") != b"b:1", F.lit(pipe.out)).alias("topic")
    with pytest.raises(Exception, match="topic") as raised:
        pipe.write(pipe.read(topic).select("key", "value", named), outputTopics=pipe.out)
    assert "Nothing was committed" in str(raised.value)
    assert pipe.written() == []
    assert pipe.committed(topic) == [None]


@TV1_IS_SLOW
def test_rows_of_a_key_keep_their_order_over_many_blocks(pipe: Pipe) -> None:
    block = 2_000
    wanted = {str(key): [f"{key}:{number:0100}" for number in range(400)] for key in range(6)}
    mixed = [[wanted[str(key)][n] for n in range(400) for key in keys] for keys in (range(3), range(3, 6))]
    topic = pipe.source(*mixed)
    pipe.write(pipe.read(topic).select("key", "value"), topic=pipe.out, **{"kafka.max.request.size": str(block)})
    found: dict[str, list[str]] = defaultdict(list)
    places: dict[str, set[int | None]] = defaultdict(set)
    for record in read_committed(pipe.kafka.bootstrap, pipe.out):
        key = (record.key() or b"").decode()
        found[key].append((record.value() or b"").decode())
        places[key].add(record.partition())
    assert found == wanted
    assert all(len(partitions) == 1 for partitions in places.values())
    assert sum(len(value) for values in wanted.values() for value in values) > 100 * block  # so, over 100 blocks


@TV1_IS_SLOW
def test_rows_that_take_longer_than_the_timeout_to_compute_are_written_at_the_first_attempt(pipe: Pipe) -> None:
    """But not by executors with the protocol before KIP-890: there, the driver has begun the transaction before."""

    def slowly(value):  # without hints, which Spark would take for those of a pandas_udf
        time.sleep(6)
        return value

    topic = pipe.source(["a:1"])
    rows = pipe.read(topic).select("key", F.udf(slowly, "string")(F.col("value").cast("string")).alias("value"))
    given = {"outputTopics": f"{pipe.out}:0-2", "kafka.transaction.timeout.ms": "4000", "maxAttempts": "1"}
    if pipe.way == "executors" and pipe.kafka.version.startswith("3"):
        with pytest.raises(Exception, match=r"kafka\.transaction\.timeout\.ms"):
            pipe.write(rows, topic=pipe.out, **given)
        assert pipe.written() == []
    else:
        pipe.write(rows, topic=pipe.out, **given)
        assert pipe.written() == ["a:1"]


@pytest.mark.parametrize("known", [False, True], ids=["by the tasks", "by the driver, of named partitions"])
def test_partitions_are_added_with_one_request(spark, broker, tmp_path, tell, known) -> None:
    tell("foreachBatch, executors")
    out = broker.create_topic(f"paths-out-{next(_numbers)}", 6)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.transactional.id": out, "topic": out}
    writer = TransactionalWriter(
        options | {"appendMode": "executors"} | ({"outputTopics": f"{out}:0-5"} if known else {})
    )
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="50", numPartitions="2").load()
    rows = rate.select(F.col("value").cast("string").alias("key"), F.col("value").cast("string").alias("value"))
    stream = rows.writeStream.foreachBatch(writer).option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert writer.last_commit is not None
    assert (writer.last_commit.records, writer.last_commit.partitions) == (50, 6)
    added = [rpc.first for rpc in writer.last_commit.trace.rpcs() if rpc.first.api == "AddPartitionsToTxn"]
    of_output = sorted((each.task, each.about) for each in added if each.about.startswith(out))
    older = broker.version.startswith("3")  # with KIP-890, the first Produce to a partition adds it
    requests = [(None, f"{out}-0 +5")] if known else [(slot, about_of(out, slot)) for slot in range(2)]
    assert of_output == (requests if older else [])


def test_a_declared_partition_that_is_not_written_gets_a_marker_where_the_driver_adds_it(
    spark, broker, tmp_path, tell
) -> None:
    tell("foreachBatch, executors")
    out = broker.create_topic(f"paths-out-{next(_numbers)}", 3)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.transactional.id": out, "topic": out}
    writer = TransactionalWriter(options | {"appendMode": "executors", "outputTopics": f"{out}:0-1"})
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="5").load()
    rows = rate.select(F.col("value").cast("string").alias("value"), F.lit(0).alias("partition"))
    stream = rows.writeStream.foreachBatch(writer).option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    older = broker.version.startswith("3")  # with KIP-890, the first Produce to a partition adds it
    markers = {0: 1, 1: 1 if older else 0, 2: 0}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": out})
    ends = {number: consumer.get_watermark_offsets(Partition(out, number), timeout=30)[1] for number in range(3)}
    consumer.close()
    assert ends == {number: count + (5 if number == 0 else 0) for number, count in markers.items()}


def about_of(topic: str, slot: int) -> str:
    """What a request is about that has all partitions of `topic` that belong to one of two append tasks."""
    first, *others = [number for number in range(6) if slot_of(TopicPartition(topic, number), 2) == slot]
    return f"{topic}-{first} +{len(others)}"


@pytest.fixture
def batch(spark, broker, tmp_path, tell) -> Pipe:
    tell("batch write")
    out = broker.create_topic(f"paths-out-{next(_numbers)}", 3)
    return Pipe(spark=spark, kafka=broker, way="batch", folder=tmp_path, out=out)


def save(pipe: Pipe, values: Sequence[str | None], column: str = "value", **options: str) -> None:
    frame = pipe.spark.createDataFrame([(value, "") for value in values], f"{column} string, other string")
    frame = frame if column == "value" else frame.withColumn("value", F.lit("x"))
    writer = frame.write.format("kafka-eos").mode("append").option("kafka.bootstrap.servers", pipe.kafka.bootstrap)
    writer.options(**(options or {"topic": pipe.out})).save()


@TV1_IS_SLOW
def test_a_write_needs_no_transactional_id_and_leaves_no_folder_behind(batch: Pipe) -> None:
    large = "x" * (2 * INLINE_BYTES)
    save(batch, ["1", large], topic=batch.out, stagingDir=str(batch.folder))
    left = list(batch.folder.rglob("*"))
    save(batch, ["2", large], topic=batch.out, stagingDir=str(batch.folder))
    assert sorted(batch.written()) == ["1", "2", large, large]
    assert list(batch.folder.rglob("*")) == left


def test_a_version_is_written_once_and_a_newer_one_after_it(batch: Pipe) -> None:
    for version, values in [("1", ["1", "2"]), ("1", ["1", "2"]), ("3", ["3"]), ("3", ["3"])]:
        save(batch, values, topic=batch.out, txnAppId=batch.out, txnVersion=version)
    with pytest.raises(Exception, match="LedgerRefused"):  # it may have been written: nobody knows
        save(batch, ["2"], topic=batch.out, txnAppId=batch.out, txnVersion="2")
    save(batch, ["1", "2"], topic=batch.out, txnAppId=batch.out, txnVersion="1")  # it is known to be written
    assert sorted(batch.written()) == ["1", "2", "3"]


@TV1_IS_SLOW
def test_a_row_without_a_topic_fails_the_whole_write(batch: Pipe) -> None:
    with pytest.raises(Exception, match="topic") as raised:
        save(batch, [batch.out] * 3 + [None], "topic", outputTopics=batch.out)
    assert "Nothing was committed" in str(raised.value)
    assert batch.written() == []


@TV1_IS_SLOW
def test_a_thread_of_the_programs_own_finds_the_sink_once_it_has_an_active_session(batch: Pipe) -> None:
    spark: Any = batch.spark
    options = {"kafka.bootstrap.servers": batch.kafka.bootstrap, "topic": batch.out}
    write = spark.range(2).selectExpr("string(id) AS value").write.format("kafka-eos").mode("append").options(**options)
    with ThreadPoolExecutor(1) as pool:
        # As it begins; Py4J may serve it by a thread of the JVM that has had a session.
        pool.submit(spark._jvm.org.apache.spark.sql.SparkSession.clearActiveSession).result()
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            pool.submit(write.save).result()
        pool.submit(spark.createDataFrame, [], "id int").result()
        pool.submit(write.save).result()
    assert sorted(batch.written()) == ["0", "1"]


@TV1_IS_SLOW
def test_spark_collects_the_sinks_log_lines_and_from_warning_on_none_of_a_batch(batch: Pipe) -> None:
    batch.spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        save(batch, ["1", "2"])
        save(batch, ["3"], topic=batch.out, logLevel="warning")
        lines = [row.msg for row in batch.spark.tvf.python_worker_logs().collect()]
    finally:
        batch.spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    [line] = [line for line in lines if "committed: " in line]
    assert "records=2 " in line
    assert len(batch.written()) == 3


@TV1_IS_SLOW
def test_batches_without_transactions_keep_their_producer_id(pipe: Pipe) -> None:
    topic = pipe.source([f"{number % 3}:{number}" for number in range(60)])
    read = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    given = {"kafka.bootstrap.servers": pipe.kafka.bootstrap}
    frame = pipe.spark.readStream.format("kafka-eos").options(**given, **read).load().select("key", "value")
    pipe.write(frame, topic=pipe.out, deliveryGuarantee="at-least-once")
    assert sorted(pipe.written()) == sorted(f"{number % 3}:{number}" for number in range(60))
    ((host, port),) = [address.split(":") for address in pipe.kafka.bootstrap.split(",")]
    with Cluster(ClientOptions(bootstrap_servers=((host, int(port)),))) as cluster:
        remembered = producers(cluster, [TopicPartition(pipe.out, number) for number in range(3)])
        ends = latest(cluster, list(remembered), isolation_level="read_uncommitted")
    states = [state for each in remembered.values() for state in each]
    assert len({state.producer_id for state in states}) == 1
    assert max(state.epoch for state in states) >= 5
    assert sum(ends.values()) == 60, "without a transaction's markers"


# -- the differences from the built-in sink, on docs/migrating.md


def test_a_record_has_the_columns_of_its_row_that_both_sinks_use_and_its_timestamp_by_ours(spark, kafka):
    """Without a selection: the frame of the source has `partition` and `timestamp`, too."""
    source, target = (kafka.create_topic(f"paths-columns-{next(_numbers)}", 3, KEEP) for _ in range(2))
    produce(kafka.bootstrap, source, [b"x"] * 5, partition=2, timestamp=1_600_000_000_000, headers=[("h", b"1")])
    options = {"kafka.bootstrap.servers": kafka.bootstrap}
    frame = (
        spark.read.format("kafka-eos").options(**options, subscribe=source, includeHeaders="true").load().drop("topic")
    )
    for sink, timestamps in {"kafka": False, "kafka-eos": True}.items():
        frame.write.format(sink).mode("append").options(**options, topic=target).save()
        found = read_committed(kafka.bootstrap, target)
        assert {message.partition() for message in found} == {2}
        assert {bool(message.headers() == [("h", b"1")]) for message in found} == {True}
        assert any(message.timestamp()[1] == 1_600_000_000_000 for message in found) is timestamps
    narrow = kafka.create_topic(f"paths-columns-{next(_numbers)}", 1)
    with pytest.raises(PySparkException, match="InvalidRow: .*partition 2.*Nothing was committed"):
        frame.write.format("kafka-eos").mode("append").options(**options, topic=narrow).save()
    assert read_committed(kafka.bootstrap, narrow) == []


def test_a_batch_write_needs_the_mode_append(spark, kafka):
    target = kafka.create_topic(f"paths-mode-{next(_numbers)}", 1)
    frame = spark.range(3).selectExpr("cast(id as string) as value")
    writer = frame.write.format("kafka-eos").option("kafka.bootstrap.servers", kafka.bootstrap).option("topic", target)
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.save()
    writer.mode("append").save()
    assert len(read_committed(kafka.bootstrap, target)) == 3


def test_the_sink_wants_the_checkpoint_as_an_option_of_the_query(spark, kafka, tmp_path):
    source, target = (kafka.create_topic(f"paths-default-{next(_numbers)}", 1) for _ in range(2))
    produce(kafka.bootstrap, source, [b"x"])
    options = {"kafka.bootstrap.servers": kafka.bootstrap}
    rows = spark.readStream.format("kafka-eos").options(**options, subscribe=source, startingOffsets="earliest").load()
    stream = rows.select("value").writeStream.format("kafka-eos").options(**options, topic=target)
    stream = stream.option("kafka.transactional.id", target).trigger(availableNow=True)
    spark.conf.set("spark.sql.streaming.checkpointLocation", tmp_path.as_uri())
    try:
        with pytest.raises(PySparkException, match="option 'checkpointLocation': is required: the sink reads"):
            stream.start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert read_committed(kafka.bootstrap, target) == []
    stream.option("checkpointLocation", str(tmp_path / "own")).start().awaitTermination()
    assert len(read_committed(kafka.bootstrap, target)) == 1
