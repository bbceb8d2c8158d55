"""A scrape of a driver with three queries: one only reads, one writes with the sink, one with foreachBatch."""

from __future__ import annotations

import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spark_kafka_eos import ProgressListener, TransactionalWriter
from spark_kafka_eos.observe.query_metrics import QUERY_METRICS
from tests.producing import produce, transact

pytestmark = [pytest.mark.spark, pytest.mark.broker]

QUERIES = {"reads", "sink", "foreach"}
# What a query without trouble may lack: errors, retries, dead letters, a transaction that holds it.
TROUBLE = {
    "kafka_eos_batch_errors_total", "kafka_eos_request_retries_total", "kafka_eos_dead_letters_total",
    "kafka_eos_open_transaction_age_seconds", "kafka_eos_last_batch_error",
}  # fmt: skip

IN_REAL_TIME = "kafka_eos_real_time_"  # shown in tests/spark/test_real_time.py
LABELS = {metric.name.removesuffix("_total"): set(metric.labels) for metric in QUERY_METRICS}


def scrape(listener):
    """By name and labels (without `query`), the values by query."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    with urllib.request.urlopen(f"http://{listener.metrics_address}/metrics") as response:
        for family in text_string_to_metric_families(response.read().decode()):
            for sample in family.samples:
                assert sample.labels.keys() - {"le"} == LABELS[family.name], sample.name
                labels = dict(sample.labels)
                query = labels.pop("query", "")
                found.setdefault((sample.name, *labels.values()), {})[query] = sample.value
    return found


@pytest.fixture
def listener(spark, bootstrap, topic):
    source = topic("scraped", partitions=2)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    listening = ProgressListener(options | {"metricsPort": "0"}, spark=spark)
    spark.streams.addListener(listening)
    yield listening, source, options
    for query in spark.streams.active:
        query.stop()
    spark.streams.removeListener(listening)
    listening.close()


def test_one_endpoint_shows_every_query_of_the_driver_however_it_writes(spark, bootstrap, topic, listener, tmp_path):
    listening, source, options = listener
    transact(bootstrap, source, [b"gone"] * 7, "abort")
    produce(bootstrap, source, [b"value"] * 100)
    output = {"kafka.bootstrap.servers": bootstrap}
    writers = {
        "reads": lambda stream: stream.format("noop"),
        "sink": lambda stream: stream.format("kafka-eos").options(
            **output, topic=topic("by-sink"), **{"kafka.transactional.id": f"{source}-sink"}
        ),
        "foreach": lambda stream: stream.foreachBatch(
            TransactionalWriter(output | {"topic": topic("by-foreach"), "kafka.transactional.id": f"{source}-foreach"})
        ),
    }
    started = []
    for name, writer in writers.items():
        rows = spark.readStream.format("kafka-eos").options(**options).load().select("key", "value")
        stream = writer(rows.writeStream.queryName(name)).option("checkpointLocation", str(tmp_path / name))
        started.append(stream.trigger(processingTime="1 second").start())
        started[-1].processAllAvailable()  # one after the other: a new query starts Python processes
    produce(bootstrap, source, [b"value"] * 10, partition=1)
    for query in started:
        query.processAllAvailable()

    deadline = time.monotonic() + 60
    while (found := scrape(listening)).get(("kafka_eos_read_records_total",)) != dict.fromkeys(QUERIES, 110.0):
        assert time.monotonic() < deadline, found.get(("kafka_eos_read_records_total",))
        time.sleep(0.1)
    writing = {"sink", "foreach"}
    assert found["kafka_eos_batches_total", "committed"] == dict.fromkeys(writing, 2)
    assert found["kafka_eos_written_records_total",] == dict.fromkeys(writing, 110)
    assert found["kafka_eos_ledger_batch",] == dict.fromkeys(writing, 1)
    assert found["kafka_eos_aborted_attempts_total",] == dict.fromkeys(writing, 0)
    assert found["kafka_eos_read_aborted_records_total",] == dict.fromkeys(QUERIES, 7)
    assert found["kafka_eos_lag_offsets", source] == dict.fromkeys(QUERIES, 0)
    assert found["kafka_eos_lso_lag_offsets", source] == dict.fromkeys(QUERIES, 0)
    assert found["kafka_eos_query_running",] == dict.fromkeys(QUERIES, 1)
    assert found["kafka_eos_kafka_up",] == {"": 1}
    for step in ("begin", "encode", "append", "offsets", "end"):
        assert found["kafka_eos_step_duration_seconds_count", step] == dict.fromkeys(writing, 2)
    assert found["kafka_eos_trigger_duration_seconds_count",].keys() == QUERIES
    transactional = {str(query.id): f"{source}-{query.name}" if query.name in writing else "" for query in started}
    ids = {labels[1:]: values for labels, values in found.items() if labels[0] == "kafka_eos_query_info"}
    assert ids.keys() == set(transactional.items())
    shown = {name.removesuffix("_count") for name, *_ in found}
    usual = {metric.name for metric in QUERY_METRICS if not metric.name.startswith(IN_REAL_TIME)}
    assert usual - shown <= TROUBLE

    for query in started:
        query.stop()
    while (found := scrape(listening))["kafka_eos_query_running",] != dict.fromkeys(QUERIES, 0):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ("kafka_eos_lag_offsets", source) not in found
    assert found["kafka_eos_query_failures_total",] == dict.fromkeys(QUERIES, 0)
    assert found["kafka_eos_query_failed",] == dict.fromkeys(QUERIES, 0)
