"""Weeks in minutes through Spark: a driver and its source's process take no more memory, files and threads late than
early, with a listener that asks Kafka after each batch."""

from __future__ import annotations

import os

import psutil
import pytest

from spark_kafka_eos import ProgressListener, TransactionalWriter
from tests.producing import produce
from tests.sizes import grown, measure, table

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1_800)]

BATCHES = 200


def source_process() -> int:
    """The Python process in which Spark runs the source."""
    ours = {each.pid for each in psutil.Process().children(recursive=True)}
    running = psutil.process_iter(["cmdline"])  # without those that end meanwhile
    [found] = [
        each for each in running
        if each.pid in ours and "pyspark.sql.streaming.python_streaming_source_runner" in (each.info["cmdline"] or ())
    ]  # fmt: skip
    return int(found.pid)


def test_a_query_of_many_batches_with_a_listener_keeps_its_size(spark, bootstrap, topic, tmp_path):
    source, sink = topic("weeks"), topic("weeks")
    produce(bootstrap, source, [str(number).encode() for number in range(BATCHES)])
    given = {"kafka.bootstrap.servers": bootstrap}
    options = given | {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
    writer = TransactionalWriter(given | {"kafka.transactional.id": sink, "topic": sink})
    listener = ProgressListener(options, spark=spark)
    driver, reader = [], []

    def write(frame, batch_id):
        writer(frame, batch_id)
        if (batch_id + 1) % (BATCHES // 5) == 0:
            driver.append(measure(batch_id + 1))
            reader.append(measure(batch_id + 1, source_process()))

    spark.streams.addListener(listener)
    try:
        stream = spark.readStream.format("kafka-eos").options(**options).load().writeStream.foreachBatch(write)
        query = stream.option("checkpointLocation", os.fspath(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(1_500), query.status
        assert listener.last(query.id) is not None
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    print(f"driver\n{table(driver)}\nsource\n{table(reader)}")  # pytest -s shows it
    assert len(driver) == 5
    assert grown(driver[1:]) == [], table(driver)
    assert grown(reader[1:]) == [], table(reader)
