"""A stream of many batches whose tokens live for seconds: driver and executors renew them, each for itself."""

import time

import pytest
from confluent_kafka import Producer

from tests.oauth import guarded_kafka
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS, LIFETIME = 4_000, 3.0


def test_a_stream_renews_its_tokens_in_the_driver_and_the_executors(spark, tmp_path, kafka_version):
    calls = tmp_path / "calls"
    with guarded_kafka(tmp_path, kafka_version, session_ms=2_000) as site:
        site.server.lifetime = LIFETIME
        source, target = site.kafka.create_topic("streamed-in", 2), site.kafka.create_topic("streamed-out", 2)
        producer = Producer({"bootstrap.servers": site.kafka.bootstrap})
        for number in range(RECORDS):
            producer.produce(source, value=b"%d" % number, partition=number % 2)
        assert producer.flush(30) == 0
        started = time.time()
        query = (
            spark.readStream.format("kafka-eos")
            .options(**site.provided(calls), subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="100")
            .load()
            .select("key", "value")
            .writeStream.format("kafka-eos")
            .options(**site.provided(calls), topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
            .option("kafka.transactional.id", "streamed")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        took = time.time() - started
        values = sorted(int(message.value() or b"") for message in read_committed(site.kafka.bootstrap, target))
    assert values == [*range(RECORDS)]
    by_process: dict[str, int] = {}
    for line in calls.read_text().splitlines():
        process, _ = line.split()
        by_process[process] = by_process.get(process, 0) + 1
    print(f"{took:.0f} s, calls by process: {sorted(by_process.values(), reverse=True)}")
    assert took > 3 * LIFETIME
    assert sum(count >= 3 for count in by_process.values()) >= 2
