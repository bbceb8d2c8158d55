"""Ten thousand partitions on one broker: what planning and reading take, and that only those with records are fetched.

`pytest -rP` prints the figures.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.testing import EmbeddedKafka, Proxy
from spark_kafka_eos.testing.embedded import JVM_OPTIONS
from spark_kafka_eos.testing.proxy import Watcher

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1_800)]

TOPICS, EACH = 20, 500  # a controller creates this many partitions with one request
FEW = 10  # partitions with records, in the second micro-batch


@pytest.fixture(scope="module")
def kafka(kafka_version):
    options = tuple("-Xmx1500m" if option.startswith("-Xmx") else option for option in JVM_OPTIONS)
    config = {"broker.session.timeout.ms": 60_000, "log.index.size.max.bytes": 4_096}
    with EmbeddedKafka(kafka_version, config=config, jvm_options=options) as kafka:
        for number in range(TOPICS):
            kafka.create_topic(f"many-{number}", EACH)
        yield kafka


class Bytes:
    """Counts what passes a proxy, by API: `asked` and `answered` in bytes, and requests."""

    def __init__(self):
        self.requests: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def watch(self, passed):
        self.requests[passed.request.api] += 1
        self.asked[passed.request.api] += len(passed.frame)
        return Answer(self.answered, passed.request.api)


class Answer(Watcher):
    def __init__(self, answered, api):
        self.answered, self.api = answered, api

    def responds(self, frame):
        self.answered[self.api] += len(frame)


def append(cluster, record_batch, partitions):
    """A record to each."""
    with Appender(cluster, None) as appender:
        for number, tp in enumerate(partitions):
            appender.append(tp, record_batch(None, 0, [b"%d" % tp.partition]), 1, 0)
            if number % 500 == 499:
                appender.flush()
        appender.flush()


@contextmanager
def measured(what):
    began, cpu = time.monotonic(), time.process_time()
    yield
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{what}: {time.monotonic() - began:.2f} s, CPU {time.process_time() - cpu:.2f} s, at most {most} MiB")


def test_ten_thousand_partitions_are_read_and_only_those_with_records_are_fetched(kafka, record_batch):
    partitions = [TopicPartition(f"many-{topic}", number) for topic in range(TOPICS) for number in range(EACH)]
    seen = Bytes()
    with Proxy(kafka.bootstrap, watch=seen.watch) as proxy:
        given = {"subscribePattern": "many-.*", "startingOffsets": "earliest"}
        options = source_options(given | {"kafka.bootstrap.servers": proxy.bootstrap}, streaming=True)
        with OffsetPlanner(options) as positions, Cluster(options.client) as cluster:
            append(cluster, record_batch, partitions)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            at, found = micro_batch(positions, positions.initial(), cluster, options, seen)
            assert found == sorted(partitions)
            few = partitions[:: len(partitions) // FEW]
            append(cluster, record_batch, few)
            at, found = micro_batch(positions, at, cluster, options, seen)
            assert found == sorted(few)
            assert seen.asked["Fetch"] < FEW * 200
            assert seen.answered["Fetch"] < FEW * 300
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert grown < 300, "MiB"


def micro_batch(positions, start, cluster, options, seen):
    """Where the micro-batch after `start` ends, and the partitions of its records."""
    with measured("plan a micro-batch"):
        end = positions.latest(start, limited=True)
        tasks = positions.batch(start, end)
    for each in (seen.requests, seen.asked, seen.answered):
        each.clear()
    with measured(f"read {len(tasks)} tasks"):
        batches = [batch for task in tasks for batch in read(task, options, cluster)]
    print(dict(seen.requests), "bytes asked", dict(seen.asked), "answered", dict(seen.answered))
    return end, sorted(
        TopicPartition(topic, partition)
        for batch in batches
        for topic, partition in zip(batch["topic"].to_pylist(), batch["partition"].to_pylist(), strict=True)
    )
