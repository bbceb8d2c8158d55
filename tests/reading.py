"""Reads whole topics, through the package without Spark and through librdkafka, into rows that can be compared.

A row is (topic, partition, offset, timestamp in ms, key, value, headers); headers are None where there are none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message
from confluent_kafka import TopicPartition as RdTopicPartition
from kafka.protocol.admin.transactions import ListTransactionsRequest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import arrow_schema, read
from spark_kafka_eos.testing.topic_reader import read_topic

Headers = tuple[tuple[str, bytes | None], ...] | None
Row = tuple[str, int, int, int, bytes | None, bytes | None, Headers]

_LOOK_EVERY_S = 0.005


def await_stable(bootstrap: str, topic: str, behind: Sequence[int] | None = None) -> None:
    """Until every transaction has its markers: they are written after its producer was told that it has ended.

    `behind`: of each partition, how many offsets lie behind the last stable one for good; without it, none of any.
    """
    deadline = time.monotonic() + 60
    with Cluster(source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": "any"}).client) as cluster:
        partitions = [TopicPartition(topic, number) for number in sorted(cluster.topic(topic).partitions)]
        wanted = [0] * len(partitions) if behind is None else [*behind]
        while True:
            stable, ends = latest(cluster, partitions), latest(cluster, partitions, isolation_level="read_uncommitted")
            if [ends[tp] - stable[tp] for tp in partitions] == wanted:
                return
            assert time.monotonic() < deadline, f"{topic} is stable up to {stable} of {ends}"
            cluster.sleep(_LOOK_EVERY_S)


def await_ended(bootstrap: str) -> None:
    """Until no transaction is being ended. Those that are open may stay so."""
    deadline = time.monotonic() + 60
    request = ListTransactionsRequest(state_filters=["PrepareCommit", "PrepareAbort"], producer_id_filters=[])
    with Cluster(source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": "any"}).client) as cluster:
        while ending := [
            state.transactional_id
            for node in cluster.nodes()
            for state in cluster.call_node(node, request, lambda answer: [("", answer.error_code)]).transaction_states
        ]:
            assert time.monotonic() < deadline, f"these do not end: {ending}"
            cluster.sleep(_LOOK_EVERY_S)


def read_committed(bootstrap: str, topic: str) -> list[Message]:
    """What librdkafka's consumer sees of committed records once every transaction has its markers, in order within a
    partition. Not for a topic in which a transaction stays open."""
    await_stable(bootstrap, topic)
    return list(read_topic(bootstrap, topic, "read_committed"))


def table(bootstrap: str, topic: str, **given: str) -> pa.Table:
    """A batch read of `topic` with these options, as the source's columns."""
    options = source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic} | given, streaming=False)
    with OffsetPlanner(options) as positions, Cluster(options.client) as cluster:
        tasks = positions.tasks(positions.starting(), positions.ending())
        batches = [batch for task in tasks for batch in read(task, options, cluster)]
    return pa.Table.from_batches(batches, arrow_schema(include_headers=options.include_headers))


def ours(bootstrap: str, topic: str, **given: str) -> list[Row]:
    """The same as rows, ordered by partition and offset."""
    return rows(table(bootstrap, topic, includeHeaders="true", **given))


def rows(table: pa.Table) -> list[Row]:
    """The rows of a table, ordered by partition and offset; without its column, headers are None."""
    columns = table.set_column(5, "timestamp", table["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
    return sorted(
        (
            row["topic"],
            row["partition"],
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row.get("headers") or ()) or None,
        )
        for row in columns.to_pylist()
    )


def librdkafkas(
    bootstrap: str,
    topic: str,
    partitions: int = 1,
    *,
    isolation_level: str = "read_committed",
    start: int = OFFSET_BEGINNING,
) -> list[Row]:
    """What librdkafka's consumer sees of `topic` from `start` on, ordered by partition and offset."""
    wanted = [RdTopicPartition(topic, number, start) for number in range(partitions)]
    return librdkafkas_of(bootstrap, wanted, isolation_level=isolation_level)[topic]


def librdkafkas_of(
    bootstrap: str, wanted: Sequence[RdTopicPartition], *, isolation_level: str = "read_committed"
) -> dict[str, list[Row]]:
    """The same by topic, of partitions of several topics, each from its offset on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,  # default: 500 ms until the end of a partition is reported
            "fetch.queue.backoff.ms": 1,
        }
    )
    found: dict[str, list[Row]] = {tp.topic: [] for tp in wanted}
    try:
        consumer.list_topics(timeout=20)  # without the leaders, it asks for the first offsets half a second later
        consumer.assign([*wanted])
        at_end: set[tuple[str | None, int | None]] = set()
        while len(at_end) < len(wanted):
            message = consumer.poll(20)  # not consume(), which leaves headers out
            assert message is not None, f"neither a message nor the end of {_left(wanted, at_end)}"
            if message.error() is not None:
                at_end.add((message.topic(), message.partition()))
                continue
            headers: Any = message.headers()
            topic = message.topic() or ""
            found[topic].append(
                (
                    topic,
                    message.partition() or 0,
                    message.offset() or 0,
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    None if headers is None else tuple(headers),
                )
            )
    finally:
        consumer.close()
    return {topic: sorted(rows, key=lambda row: row[:3]) for topic, rows in found.items()}


def _left(wanted: Sequence[RdTopicPartition], at_end: set[tuple[str | None, int | None]]) -> list[str]:
    return [f"{tp.topic}-{tp.partition}" for tp in wanted if (tp.topic, tp.partition) not in at_end]
