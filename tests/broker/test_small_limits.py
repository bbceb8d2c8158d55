"""A limit of few records over many partitions fetches the record batches that have them, and little more."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.testing.proxy import Proxy, Watcher

pytestmark = pytest.mark.broker

PARTITIONS, LIMIT = 40, 10  # so that each partition is read by one offset
MICRO_BATCHES, FIRST = 5, 2  # the first ones show how large record batches are
OF_A_PARTITION = 90  # bytes of request and response besides its records
numbers = itertools.count(1)


class Fetches(Watcher):
    """The bytes of Fetch requests, and of the answers to them."""

    def __init__(self):
        self.requests = self.size = 0

    def __call__(self, passed):
        if passed.request.api != "Fetch":
            return None
        self.requests += 1
        self.size += len(passed.frame)
        return self

    def responds(self, frame):
        self.size += len(frame)


@pytest.mark.parametrize(
    ("size", "records"), [(10, 1), (100, 1), (1_000, 1), (10, 10), (100, 10), (1_000, 10), (100, 1_000)]
)
def test_a_small_limit_over_many_partitions_fetches_little_more_than_its_record_batches(
    kafka, record_batch, size, records
):
    topic = kafka.create_topic(f"small-limits-{next(numbers)}", PARTITIONS)
    batch = record_batch(None, 0, [os.urandom(size) for _ in range(records)])
    fetches = Fetches()
    with Proxy(kafka.bootstrap, watch=fetches) as proxy:
        options = source_options(
            {"kafka.bootstrap.servers": proxy.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
            | {"maxOffsetsPerTrigger": str(LIMIT)}
        )
        with Cluster(options.client) as cluster, Appender(cluster, None) as appender:
            for number in range(PARTITIONS):
                for _ in range((FIRST + MICRO_BATCHES) // records + 2):  # so that more could always come
                    appender.append(TopicPartition(topic, number), bytearray(batch), records, 0)
            appender.flush()
        rows: Counter[int] = Counter()
        with OffsetPlanner(options) as positions, Cluster(options.client) as cluster:
            at = positions.initial()
            for number in range(FIRST + MICRO_BATCHES):
                if number == FIRST:
                    before = fetches.requests, fetches.size
                start, at = at, json.loads(json.dumps(positions.latest(at, limited=True)))
                for task in positions.batch(start, at):
                    rows[number] += sum(part.num_rows for part in read(task, options, cluster))
    assert [*rows.values()] == [PARTITIONS] * (FIRST + MICRO_BATCHES)
    requests, fetched = fetches.requests - before[0], fetches.size - before[1]
    values = PARTITIONS * MICRO_BATCHES * size
    print(f"{size} B, {records} in a record batch of {len(batch):,} B: {fetched / values:.2f} x the values fetched")
    assert requests == MICRO_BATCHES
    # A record batch is fetched as a whole, however many of its records are read.
    assert fetched <= PARTITIONS * MICRO_BATCHES * (1.1 * len(batch) + 20 + OF_A_PARTITION)
    if records == 1 and size >= 100:
        assert fetched <= 3 * values
