"""What a user sees of a running query: Spark's progress, the listener's figures, and a transaction left open."""

from __future__ import annotations

import json
import logging
from functools import partial

import pytest

from spark_kafka_eos import ProgressListener, offsets_behind_latest
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.observe.lag import OpenTransaction
from spark_kafka_eos.spark.worker import STATS_ENDPOINT
from spark_kafka_eos.testing.ports import free_ports
from tests import waiting
from tests.producing import produce, transact

pytestmark = [pytest.mark.spark, pytest.mark.broker]

until = partial(waiting.until, seconds=90)
_IDLE = "spark.sql.streaming.noDataProgressEventInterval"


def values(*bounds):
    return [str(number).encode() for number in range(*bounds)]


@pytest.fixture
def listening(spark, bootstrap):
    """`listening(topic, **options)`: a listener in the session, with little patience, and the source's options."""
    added = []
    spark.conf.set(_IDLE, "200")

    def add(topic, port=0, **given):
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"} | given
        listener = ProgressListener(options, spark=spark, patience=1.0, port=port)
        added.append(listener)
        spark.streams.addListener(listener)
        return listener, options

    yield add
    for query in spark.streams.active:
        query.stop()
    for listener in added:
        spark.streams.removeListener(listener)
        listener.close()
    spark.conf.unset(_IDLE)


def start(spark, options, batches, tmp_path, source="kafka-eos"):
    def collect(frame, batch_id):
        batches[batch_id] = sorted(int(row.value) for row in frame.select("value").collect())

    frame = spark.readStream.format(source).options(**options).load()
    return frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / source)).start()


def test_progress_shows_each_sources_lag_as_the_built_in_source_does(spark, bootstrap, topic, tmp_path):
    name = topic("behind", partitions=3)
    produce(bootstrap, name, values(0, 100))
    produce(bootstrap, name, values(100, 150), partition=1)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "startingOffsets": "earliest"}
    found = {}
    for source in ("kafka", "kafka-eos"):
        limited = options | {"maxOffsetsPerTrigger": "60", "kafka.isolation.level": "read_committed"}
        query = start(spark, limited, {}, tmp_path, source)
        query.processAllAvailable()
        query.stop()
        batches = [progress for progress in query.recentProgress if progress.numInputRows]
        found[source] = [offsets_behind_latest(progress) for progress in batches]
        if source == "kafka":
            theirs = [[dict(one.metrics) for one in progress.sources] for progress in batches]
        assert [json.loads(one.sources[0].latestOffset) for one in batches] == [{name: {"0": 100, "1": 50, "2": 0}}] * 3
    assert found["kafka-eos"] == found["kafka"] == theirs
    assert found["kafka"][0] == [
        {"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "60", "avgOffsetsBehindLatest": "30.0"}
    ]


def test_a_line_per_batch_says_what_was_read_and_what_was_aborted(spark, bootstrap, topic, listening, tmp_path, caplog):
    name = topic("figures", partitions=2)
    produce(bootstrap, name, values(0, 10))
    transact(bootstrap, name, values(50, 57), "abort")
    transact(bootstrap, name, values(10, 20), "commit", partition=1)
    [port] = free_ports(1)
    listener, options = listening(name, port, minPartitions="4")
    batches: dict[int, list[int]] = {}
    with caplog.at_level(logging.INFO, "spark_kafka_eos.spark.progress"):
        query = start(spark, options, batches, tmp_path)
        query.processAllAvailable()
        until(lambda: caplog.records)
        produce(bootstrap, name, values(20, 25))
        query.processAllAvailable()
        until(lambda: len(caplog.records) == 2)
    assert batches == {0: list(range(20)), 1: list(range(20, 25))}
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert spark.conf.get(STATS_ENDPOINT).split(":")[1] == str(port)
    lines = [json.loads(message) for message in caplog.messages]
    assert [(line["query_id"], line["batch_id"]) for line in lines] == [(str(query.id), 0), (str(query.id), 1)]
    [first], [second] = (line["sources"] for line in lines)
    assert (first["topics"], first["rows"], first["rows_aborted"]) == ([name], 20, 7)
    assert first["bytes_read"] > 20 + 7
    assert (first["max_offsets_behind_latest"], first["lso_lag"], first["held_by"]) == (0, {}, [])
    assert (second["rows"], second["offsets"], second["rows_aborted"], second["complete"]) == (5, 5, 0, True)
    assert listener.last(query.id).sources[0].lso_lag == {TopicPartition(name, 0): 0, TopicPartition(name, 1): 0}


def test_a_transaction_left_open_is_named_while_the_query_waits_and_its_rows_come_in_the_end(
    spark, bootstrap, topic, listening, tmp_path, caplog
):
    name = topic("hanging")
    hanging = transact(bootstrap, name, values(5), "leave open", transactional_id=f"{name}-stuck")
    produce(bootstrap, name, values(5, 8))
    listener, options = listening(name)
    batches: dict[int, list[int]] = {}
    query = start(spark, options, batches, tmp_path)
    until(lambda: batches and query.lastProgress)
    assert json.loads(query.lastProgress.sources[0].latestOffset) == {name: {"0": 0}}, "eight records wait"
    assert offsets_behind_latest(query.lastProgress)[0]["maxOffsetsBehindLatest"] == "0"
    query.stop()
    # In this run there is no batch at all, so no event says what the query reads.
    query = start(spark, options, batches, tmp_path)
    run = str(query.runId)
    figures = until(lambda: (last := listener.last(query.id)) and last.run_id == run and last.held and last)
    assert (batches, query.isActive, query.exception()) == ({0: []}, True, None)
    assert figures.batch_id is None
    [source] = figures.sources
    partition = TopicPartition(name, 0)
    assert source.lso_lag == {partition: 8}
    [held] = source.held_by
    assert isinstance(held, OpenTransaction)
    assert (held.partition, held.transactional_id, held.start_offset, held.state) == (
        partition,
        f"{name}-stuck",
        0,
        "Ongoing",
    )
    assert held.open_ms is not None and held.open_ms >= 1_000
    assert any(record.levelno == logging.WARNING and f"{name}-stuck" in record.message for record in caplog.records)

    hanging.commit_transaction(30)
    until(lambda: 1 in batches)
    assert batches == {0: [], 1: list(range(8))}
    until(lambda: not listener.last(query.id).held)
