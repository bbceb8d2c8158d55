"""Reading through slow links, and links that are lost now and then, with default options."""

from __future__ import annotations

import itertools
import os
import threading
import time
from contextlib import contextmanager

import pytest

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.testing.proxy import Proxy

pytestmark = pytest.mark.broker

PARTITIONS, RECORDS = 40, 10  # records of a record batch
numbers = itertools.count(1)


@pytest.fixture
def backlog(kafka, record_batch):
    """`backlog(size)`: the ranges of a new topic whose partitions have about so many bytes together, and its bytes."""

    def fill(size):
        topic = kafka.create_topic(f"slow-links-{next(numbers)}", PARTITIONS)
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        options = source_options({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic})
        batch = record_batch(None, 0, [os.urandom(1_500) for _ in range(RECORDS)])
        each = -(-size // (PARTITIONS * len(batch)))
        with Cluster(options.client) as cluster, Appender(cluster, None) as appender:
            for tp in partitions:
                for _ in range(each):
                    appender.append(tp, bytearray(batch), RECORDS, 0)
            appender.flush()
        ranges = [OffsetRange(partition=tp, start=0, end=each * RECORDS) for tp in partitions]
        return ranges, PARTITIONS * each * len(batch)

    return fill


@contextmanager
def lost_every(seconds, proxy):
    """All connections are lost every so many seconds; None for never."""
    ended = threading.Event()

    def cut():
        while not ended.wait(seconds):
            proxy.cut()

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def through(proxy, ranges, **given):
    """What is read of the ranges through the proxy, as (partition, offset), and in how many seconds."""
    topic = ranges[0].partition.topic
    options = source_options({"kafka.bootstrap.servers": proxy.bootstrap, "subscribe": topic} | given, streaming=False)
    began = time.monotonic()
    found: list[tuple[int, int]] = []
    with Cluster(options.client) as cluster:
        for batch in read(ranges, options, cluster):
            found += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    return found, time.monotonic() - began


def all_of(ranges):
    return [(one.partition.partition, offset) for one in ranges for offset in range(one.end)]


@pytest.mark.parametrize("cut", [None, 1.0], ids=["never lost", "lost every second"])
def test_a_response_that_takes_longer_than_the_request_timeout_is_read(kafka, backlog, cut):
    ranges, size = backlog(1_000_000)
    with Proxy(kafka.bootstrap) as proxy:
        proxy.limit(500_000)  # a first response of 256 KiB takes 0.5 s
        with lost_every(cut, proxy):
            found, seconds = through(proxy, ranges, **{"kafka.request.timeout.ms": "300"})
    assert sorted(found) == all_of(ranges)
    assert len(found) == len(set(found))
    assert seconds < 20 * size / 500_000, "the machine may be busy"


@pytest.mark.slow
@pytest.mark.parametrize("cut", [None, 10.0], ids=["never lost", "lost every 10 s"])
@pytest.mark.parametrize("speed", [5_000_000, 1_000_000, 200_000])
def test_four_fifths_of_a_slow_link_are_used_with_default_options(kafka, backlog, speed, cut):
    ranges, size = backlog(25 * speed)
    with Proxy(kafka.bootstrap) as proxy:
        proxy.limit(speed)
        with lost_every(cut, proxy):
            found, seconds = through(proxy, ranges)
    assert sorted(found) == all_of(ranges)
    assert size / speed / seconds >= 0.8
