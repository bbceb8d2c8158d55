"""Reading what brokers have moved to remote storage (KIP-405), with Kafka's own LocalTieredStorage.

It is in a jar of Kafka's tests, which not every release publishes: the brokers are of one that did.
"""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest

from spark_kafka_eos.errors import BrokerError
from spark_kafka_eos.testing import EmbeddedKafka, Proxy
from spark_kafka_eos.testing.jars import Bundle, Module, files
from tests.producing import produce, transact
from tests.reading import await_stable, librdkafkas, ours

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

VERSION = "4.3.1"
PARTITIONS, SEGMENTS = 3, 6
TIERED = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.ms": "1",
    "segment.ms": "50",  # by the records' timestamps: each step below has its own segment
    "file.delete.delay.ms": "1",
}
LEVELS = ("read_committed", "read_uncommitted")


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    """The folder that is the remote storage."""
    return tmp_path_factory.mktemp("remote")


@pytest.fixture(scope="module")
def tiering(remote):
    config = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": next(map(str, files(tiered_storage(VERSION)))),
        "rsm.config.dir": remote,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
        "remote.log.manager.task.interval.ms": 200,
        "log.retention.check.interval.ms": 200,
        "log.initial.task.delay.ms": 100,
    }
    with EmbeddedKafka(VERSION, config=config) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def topic(tiering):
    """A topic of which all but the last segments are remote, with aborted transactions in them."""
    name = tiering.create_topic("tiered", PARTITIONS, TIERED)
    for step in range(SEGMENTS):
        for partition in range(PARTITIONS):
            values = [b"%d" % number * 50 for number in range(100)]
            at = 1_700_000_000_000 + step * 10_000
            produce(tiering.bootstrap, name, values, partition=partition, timestamp=at, compression="lz4")
            values = [b"in a transaction"] * 5
            transact(tiering.bootstrap, name, values, "abort" if step % 2 else "commit", partition=partition)
    await_stable(tiering.bootstrap, name)
    deadline = time.monotonic() + 120
    while any(local_start(tiering, name, partition) == 0 for partition in range(PARTITIONS)):
        assert time.monotonic() < deadline, tiering.log()[-3_000:]
        time.sleep(0.1)  # a broker does not tell when it moves a segment
    return name


def local_start(kafka, topic, partition):
    """The first offset that the broker still has itself: its segments' files are called by their first offset."""
    folder = kafka.directory / "node-1" / "data" / f"{topic}-{partition}"
    return min((int(file.stem) for file in folder.glob("*.log")), default=0)


@pytest.mark.parametrize("isolation_level", LEVELS)
def test_remote_and_local_records_are_read_as_librdkafka_reads_them(tiering, topic, isolation_level):
    theirs = librdkafkas(tiering.bootstrap, topic, PARTITIONS, isolation_level=isolation_level)
    assert ours(tiering.bootstrap, topic, **{"kafka.isolation.level": isolation_level}) == theirs
    assert {row[1] for row in theirs if row[2] < local_start(tiering, topic, row[1])} == {*range(PARTITIONS)}
    small = {"kafka.max.partition.fetch.bytes": "1000", "kafka.isolation.level": isolation_level, "minPartitions": "7"}
    assert ours(tiering.bootstrap, topic, **small) == theirs


def test_bounds_by_time_are_found_in_remote_segments(tiering, topic):
    theirs = librdkafkas(tiering.bootstrap, topic, PARTITIONS)
    later = min(row[3] for row in theirs) + 1
    first = {
        number: min(row[2] for row in theirs if row[1] == number and row[3] >= later) for number in range(PARTITIONS)
    }
    assert all(0 < first[number] < local_start(tiering, topic, number) for number in range(PARTITIONS))
    from_there = ours(tiering.bootstrap, topic, startingTimestamp=str(later))
    assert from_there == [row for row in theirs if row[2] >= first[row[1]]]
    assert ours(tiering.bootstrap, topic, endingTimestamp=str(later)) == [
        row for row in theirs if row not in from_there
    ]


@contextmanager
def failing(remote):
    """The remote storage does not find its segments. Yields what ends that."""
    hidden = [file.rename(file.with_suffix(".hidden")) for file in [*remote.rglob("*.log")]]
    assert hidden

    def find_again():
        while hidden:
            file = hidden.pop()
            file.rename(file.with_suffix(".log"))

    try:
        yield find_again
    finally:
        find_again()


def test_a_remote_storage_that_fails_stops_the_read_and_nothing_is_left_out(tiering, topic, remote):
    theirs = librdkafkas(tiering.bootstrap, topic, PARTITIONS)
    impatient = {"kafka.delivery.timeout.ms": "3000", "kafka.request.timeout.ms": "3000"}
    with failing(remote), pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
        ours(tiering.bootstrap, topic, **impatient)
    assert ours(tiering.bootstrap, topic) == theirs


def test_a_remote_storage_that_fails_for_a_moment_is_waited_for(tiering, topic, remote):
    theirs = librdkafkas(tiering.bootstrap, topic, PARTITIONS)
    asked = 0
    with failing(remote) as find_again:

        def ends_at_the_third(passed):
            nonlocal asked
            asked += passed.request.api == "Fetch"
            if asked == 3:
                find_again()

        with Proxy(tiering.bootstrap, on_request=ends_at_the_third) as proxy:
            assert ours(proxy.bootstrap, topic) == theirs
    assert asked > 3


def tiered_storage(version: str) -> Bundle:
    """Kafka's LocalTieredStorage, a folder as remote storage (KIP-405): in the jar of tests that some releases have."""
    module = Module(organisation="org.apache.kafka", name="kafka-storage", revision=version, classifier="test")
    return Bundle(name="kafka-storage", version=version, modules=(module,))
