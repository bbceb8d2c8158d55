"""The copies of a soak, in each way to write them: every record, with its origin and its batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.soak import evidence
from lab.soak.check import Copied
from lab.soak.queries import STATELESS, Way, copied, output
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.producing import produce

pytestmark = [pytest.mark.spark, pytest.mark.broker]

CHECKPOINT = 3


@pytest.mark.parametrize("way", Way)
def test_a_copy_has_every_record_in_its_batch(
    way: Way, spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    query = f"{STATELESS}-{way}"
    source = kafka.create_topic(f"soak-source-{way}", 2)
    kafka.create_topic(output(query), 2)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    reading = servers | {"subscribe": source, "startingOffsets": "earliest"}
    writing = servers | {"kafka.transactional.id": query, "topic": output(query)}
    if way in (Way.DRIVER, Way.EXECUTORS):
        writing["appendMode"] = way
    stream = copied(spark, reading, writing, CHECKPOINT, way).option("checkpointLocation", str(tmp_path))
    for batch in range(2):
        for partition in range(2):
            produce(kafka.bootstrap, source, [f"{batch}{partition}".encode()], partition=partition)
        stream.trigger(availableNow=True).start().awaitTermination()
    places = {(CHECKPOINT, batch): batch for batch in range(2)}
    assert sorted(evidence.copies(kafka.bootstrap, query, places)) == [
        (batch, Copied(partition, batch, "", f"{batch}{partition}")) for batch in range(2) for partition in range(2)
    ]
