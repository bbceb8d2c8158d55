"""The sides of a comparison: this connector, the built-in one, the collect recipe, librdkafka, Java.

Each function creates a Side that can run repeatedly: every run has a new checkpoint and new output topics, which are
counted and deleted after it. The constants are the names in tables.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RdTopicPartition
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

from lab.bench import java
from lab.bench.alternating import Side
from lab.bench.inputs import Shape
from lab.bench.lab import Input, Lab, temporary_directory
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import IsolationLevel
from spark_kafka_eos.spark.arrow_stream import arrow_stream
from spark_kafka_eos.spark.writer import TransactionalWriter

EOS, EOS_EXECUTORS, EOS_SINK = "kafka-eos, foreachBatch", "kafka-eos, executors append", "kafka-eos, sink"
EOS_AT_LEAST_ONCE, EOS_SOURCE, EOS_ARROW = "kafka-eos, at-least-once", "kafka-eos", "kafka-eos, arrow_stream"
BUILT_IN, BUILT_IN_DEFAULTS = "built-in, fetch wait 10 ms", "built-in, defaults"
RECIPE, LIBRDKAFKA, JAVA = "collect recipe", "librdkafka (Python)", "Java perf tool"

BUILT_IN_FORMAT, OUR_FORMAT = "kafka", "kafka-eos"
FETCH_WAIT = {"kafka.fetch.max.wait.ms": 10}  # the built-in source's best setting


Start = Callable[[DataFrame, Mapping[str, str]], Any]  # rows and the sink's options -> a DataStreamWriter


def stream(
    spark: SparkSession,
    lab: Lab,
    source: Input,
    name: str,
    options: Mapping[str, object],
    batches: int,
    columns: str | None = None,
) -> DataFrame:
    """The input as a stream of the connector `name`, in `batches` micro-batches, with all columns or only `columns`."""
    reader = spark.readStream.format(name).options(**_reading(lab, source, options))
    if columns is not None:
        reader = reader.schema(columns)
    if batches > 1:
        reader = reader.option("maxOffsetsPerTrigger", -(-source.shape.records // batches))
    frame: DataFrame = reader.load()
    return frame


def _reading(lab: Lab, source: Input, options: Mapping[str, object]) -> dict[str, Any]:
    defaults = {"kafka.bootstrap.servers": lab.bootstrap, "subscribe": ",".join(source.topics)}
    return defaults | {"startingOffsets": "earliest"} | dict(options)


# -- source -> noop


def stream_to_noop(name: str, frame: DataFrame, records: int) -> Side:
    """A stream into Spark's noop sink, which consumes every row and does nothing."""
    seen: list[Mapping[str, int]] = []
    return Side(name=name, run=lambda: _run(frame.writeStream.format("noop"), records, name, seen), batches=seen)


def batch_to_noop(name: str, spark: SparkSession, lab: Lab, source: Input, options: Mapping[str, object]) -> Side:
    """A batch read into noop. Every run plans it again and counts its rows, on both sides."""
    kind = OUR_FORMAT if name == EOS_SOURCE else BUILT_IN_FORMAT

    def run() -> None:
        seen = Observation()
        frame = spark.read.format(kind).options(**_reading(lab, source, options)).load()
        frame.observe(seen, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        _check_count(seen.get["rows"], source.shape.records, name)

    return Side(name=name, run=run)


# -- streams into topics


def stream_to_kafka(name: str, lab: Lab, frame: DataFrame, shape: Shape, start: Start) -> Side:
    """A stream into new topics with as many partitions as the input's."""
    output: list[str] = []
    seen: list[Mapping[str, int]] = []

    def before() -> None:
        output[:] = lab.topics("out", shape.topics, shape.partitions)

    def run() -> None:
        rows, options = addressed(frame, output, lab.bootstrap)
        _run(start(rows, options), shape.records, name, seen)

    after = functools.partial(lab.check, output, shape.records, name)
    return Side(name=name, run=run, before=before, after=after, batches=seen)


def arrow_to_kafka(spark: SparkSession, lab: Lab, source: Input, options: Mapping[str, object]) -> Side:
    """arrow_stream without a function, from one topic into a new one, in one batch. Spark counts its offset ranges, so
    only the output is counted.
    """
    output: list[str] = []

    def before() -> None:
        output[:] = lab.topics("out", 1, source.shape.partitions)

    def run() -> None:
        sink = {"kafka.bootstrap.servers": lab.bootstrap, "topic": output[0], "appendMode": "driver"}
        writer = TransactionalWriter(_transactional(lab, sink))
        _finished(arrow_stream(spark, _reading(lab, source, options), writer))

    return Side(
        name=EOS_ARROW,
        run=run,
        before=before,
        after=functools.partial(lab.check, output, source.shape.records, EOS_ARROW),
    )


def addressed(frame: DataFrame, topics: list[str], bootstrap: str) -> tuple[DataFrame, dict[str, str]]:
    """The rows and the sink's options: with a column `topic` for several topics, with the option `topic` for one."""
    options = {"kafka.bootstrap.servers": bootstrap}
    if len(topics) == 1:
        return frame.select("key", "value"), options | {"topic": topics[0]}
    stem = topics[0].removesuffix("0")
    topic = F.concat(F.lit(stem), F.substring_index("topic", "-", -1)).alias("topic")
    return frame.select("key", "value", topic), options


def columns_of(shape: Shape) -> str:
    """The source's columns that `addressed` needs, for a source that can omit columns."""
    return "key binary, value binary" + (", topic string" if shape.topics > 1 else "")


def ours_by_foreach_batch(lab: Lab, changes: Mapping[str, str]) -> Start:
    """TransactionalWriter, with additional options `changes`."""

    def start(rows: DataFrame, options: Mapping[str, str]) -> Any:
        return rows.writeStream.foreachBatch(TransactionalWriter({**_transactional(lab, options), **changes}))

    return start


def ours_by_sink(lab: Lab) -> Start:
    """`format("kafka-eos")`."""
    return lambda rows, options: rows.writeStream.format(OUR_FORMAT).options(**_transactional(lab, options))


def built_in_sink(rows: DataFrame, options: Mapping[str, str]) -> Any:
    """`format("kafka")`: at-least-once."""
    return rows.writeStream.format(BUILT_IN_FORMAT).options(**options)


def recipe(lab: Lab) -> Start:
    """foreachBatch, collect, one transactional confluent-kafka producer on the driver."""
    producer = _transactional_producer(
        lab
    )  # one for all runs, because Spark keeps a reference to foreachBatch's function

    def start(rows: DataFrame, options: Mapping[str, str]) -> Any:
        def process(batch: DataFrame, _: int) -> None:
            producer.begin_transaction()
            topic = options.get("topic")
            produce(producer, ((topic or row.topic, row.key, row.value) for row in batch.collect()))
            producer.commit_transaction()

        return rows.writeStream.foreachBatch(process)

    return start


def _transactional(lab: Lab, options: Mapping[str, str]) -> dict[str, str]:
    return dict(options) | {"kafka.transactional.id": lab.name("id")}


# -- a frame into a topic, as a batch write


def frame_to_kafka(name: str, lab: Lab, frame: DataFrame, shape: Shape, kind: str) -> Side:
    """A batch write of a cached frame."""

    def run(topic: str) -> None:
        options = {"kafka.bootstrap.servers": lab.bootstrap, "topic": topic}
        frame.write.format(kind).options(**options).mode("append").save()

    return to_topic(name, lab, shape, run)


def collect_to_kafka(lab: Lab, frame: DataFrame, shape: Shape) -> Side:
    """The recipe for a frame."""

    def run(topic: str) -> None:
        producer = _transactional_producer(lab)
        producer.begin_transaction()
        produce(producer, ((topic, row.key, row.value) for row in frame.collect()))
        producer.commit_transaction()

    return to_topic(RECIPE, lab, shape, run)


def to_topic(name: str, lab: Lab, shape: Shape, run: Callable[[str], float | None]) -> Side:
    """A side that writes `shape.records` records to one new topic."""
    output: list[str] = []

    def before() -> None:
        output[:] = lab.topics("out", 1, shape.partitions)

    return Side(
        name=name,
        run=lambda: run(output[0]),
        before=before,
        after=lambda: lab.check(output, shape.records, name),
    )


# -- librdkafka, through confluent-kafka


def librdkafka_consumer(lab: Lab, source: Input) -> Side:
    """consume() until all records have been returned as Python objects."""

    def run() -> None:
        for _ in consume(lab, source):
            pass

    return Side(name=LIBRDKAFKA, run=run)


def librdkafka_producer(lab: Lab, records: list[tuple[bytes, bytes]], shape: Shape) -> Side:
    """produce() for every record, in one transaction; `records` are used repeatedly."""

    def run(topic: str) -> None:
        producer = _transactional_producer(lab)
        producer.begin_transaction()
        produce(producer, ((topic, *records[number % len(records)]) for number in range(shape.records)))
        producer.commit_transaction()

    return to_topic(LIBRDKAFKA, lab, shape, run)


def librdkafka_copy(lab: Lab, source: Input, batches: int) -> Side:
    """Consume, produce, and commit offsets in the same transaction: KIP-98's loop, in `batches` transactions."""
    shape = source.shape

    def run(topic: str) -> None:
        producer = _transactional_producer(lab)
        share, uncommitted = -(-shape.records // batches), 0
        producer.begin_transaction()
        for consumer, messages in consume(lab, source):
            produce(producer, ((topic, message.key(), message.value()) for message in messages))
            uncommitted += len(messages)
            if uncommitted >= share:
                _commit(producer, consumer)
                producer.begin_transaction()
                uncommitted -= share
        producer.commit_transaction()

    return to_topic(LIBRDKAFKA, lab, shape, run)


def _commit(producer: Producer, consumer: Consumer) -> None:
    positions = [at for at in consumer.position(consumer.assignment()) if at.offset >= 0]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()


def consume(
    lab: Lab, source: Input, isolation_level: IsolationLevel = "read_committed"
) -> Iterable[tuple[Consumer, list[Any]]]:
    """The input's messages in lists, each with the consumer. Raises ToolFailed if some are missing."""
    consumer = Consumer(
        {
            "bootstrap.servers": lab.bootstrap,
            "log_level": 0,  # relevant errors are raised; and some client always outlives the broker
            "group.id": lab.name("group"),
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 1,  # default: a full queue stalls the consumer for a second
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        shape = source.shape
        consumer.assign([RdTopicPartition(t, p, 0) for t in source.topics for p in range(shape.partitions)])
        remaining = shape.records
        while remaining:
            messages = consumer.consume(min(10_000, remaining), 5.0)
            if not messages:
                raise ToolFailed(f"librdkafka: {remaining:,} records were not read")
            remaining -= len(messages)
            yield consumer, messages
    finally:
        consumer.close()


def _transactional_producer(lab: Lab) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": lab.bootstrap,
            "log_level": 0,
            "transactional.id": lab.name("id"),
            "batch.size": 1_000_000,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions()
    return producer


def produce(producer: Producer, records: Iterable[tuple[str, bytes, bytes]]) -> None:
    """Queue (topic, key, value) tuples; wait while the queue is full."""
    for topic, key, value in records:
        while True:
            try:
                producer.produce(topic, value=value, key=key)
                break
            except BufferError:
                producer.poll(0.05)


# -- Java


def java_consumer(lab: Lab, source: Input) -> Side:
    """Kafka's ConsumerPerformance, with its own timing, which excludes the start of the JVM."""
    (topic,) = source.topics
    return Side(name=JAVA, run=lambda: java.consume(lab.bootstrap, topic, source.shape.records))


def java_producer(lab: Lab, shape: Shape) -> Side:
    """Kafka's ProducerPerformance in one transaction, with its own timing; it sends no keys."""

    def run(topic: str) -> float:
        settings = {"acks": "all", "batch.size": 262_144, "linger.ms": 5, "compression.type": shape.compression}
        return java.produce(
            lab.bootstrap,
            topic,
            records=shape.records,
            value_bytes=shape.value_bytes,
            settings=settings,
            transactional_id=lab.name("id"),
        ).seconds

    return to_topic(JAVA, lab, shape, run)


# -- running


def _run(writer: Any, records: int, who: str, batches: list[Mapping[str, int]]) -> None:
    """Run the query; all of this is measured."""
    reported = _finished(writer)
    _check_count(sum(progress.numInputRows for progress in reported), records, who)
    batches[:] = [progress.durationMs for progress in reported if progress.numInputRows]


def _finished(writer: Any) -> list[StreamingQueryProgress]:
    """Start the query with a new checkpoint and wait until it has read everything. What it reported."""
    with temporary_directory() as checkpoint:
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        reported: list[StreamingQueryProgress] = query.recentProgress
    return reported


def _check_count(count: int, records: int, who: str) -> None:
    if count != records:
        raise ToolFailed(f"{who}: only {count:,} of {records:,} records were read")
