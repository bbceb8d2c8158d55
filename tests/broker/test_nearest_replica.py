"""Reading from the replica in the reader's own rack (KIP-392), on three brokers with a rack each."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.testing import EmbeddedKafka, Proxy
from tests.producing import produce, transact
from tests.reading import await_stable, table

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
VALUES = [b"%d" % number for number in range(3_000)]


@pytest.fixture(scope="module")
def three(kafka_version):
    with EmbeddedKafka(kafka_version, brokers=3, config=SELECTOR) as kafka:
        yield kafka


@pytest.fixture
def partition(three):
    """A partition with committed records and an aborted transaction in between."""
    tp = TopicPartition(three.create_topic(f"nearest-{next(numbers)}"), 0)
    produce(three.bootstrap, tp.topic, VALUES[:2_000])
    transact(three.bootstrap, tp.topic, [b"aborted"] * 500, "abort")
    produce(three.bootstrap, tp.topic, VALUES[2_000:])
    await_stable(three.bootstrap, tp.topic)
    return tp


@pytest.fixture
def cluster(three, options):
    with Cluster(options(three.bootstrap, request_timeout_ms=5_000)) as cluster:
        yield cluster


def leader_and_follower(cluster, tp):
    leader = cluster.leader(tp)
    return leader, next(node for node in cluster.nodes() if node != leader)


def values_of(parts):
    for part in parts:
        batches = [header for header in part.batches if not header.is_control]
        yield from decode(part.buffer, batches)["value"].to_pylist()


@pytest.mark.parametrize("written", ["as it is", "in the environment"])
def test_records_come_from_the_follower_in_the_readers_rack(three, cluster, partition, monkeypatch, written):
    leader, follower = leader_and_follower(cluster, partition)
    fetches: Counter[int] = Counter()
    monkeypatch.setenv("RACK_OF_THIS_EXECUTOR", f"rack-{follower}")
    rack = f"rack-{follower}" if written == "as it is" else "env:RACK_OF_THIS_EXECUTOR"
    small = {"kafka.max.partition.fetch.bytes": "20000", "kafka.client.rack": rack}

    def count(passed):
        fetches[passed.node] += passed.request.api == "Fetch"

    with Proxy(three.bootstrap, on_request=count) as proxy:
        found = table(proxy.bootstrap, partition.topic, **small)
    assert found["value"].to_pylist() == VALUES
    assert fetches[leader] == 1  # which only named the follower
    assert fetches[follower] > 1
    assert fetches.total() == fetches[leader] + fetches[follower]


@pytest.mark.parametrize("rack", ["rack-9", "env:NOT_SET_ANYWHERE", ""])
def test_without_a_replica_in_the_rack_the_leader_is_read(three, partition, rack):
    assert table(three.bootstrap, partition.topic, **{"kafka.client.rack": rack})["value"].to_pylist() == VALUES


def test_a_follower_that_is_killed_while_it_is_read_loses_nothing(three, cluster, partition):
    _, follower = leader_and_follower(cluster, partition)
    (end,) = latest(cluster, [partition]).values()
    fetcher = Fetcher(cluster, max_partition_fetch_bytes=5_000, rack=f"rack-{follower}")
    parts = fetcher.fetch([OffsetRange(partition=partition, start=0, end=end)])
    found = [next(parts)]
    three.kill(follower)
    try:
        found += parts
    finally:
        three.start(follower)
    assert [value for value in values_of(found) if value != b"aborted"] == VALUES


@pytest.mark.slow
def test_a_follower_that_was_away_and_is_behind_leaves_nothing_out(three, cluster, partition):
    _, follower = leader_and_follower(cluster, partition)
    more = [b"more %d" % number for number in range(2_000)]
    three.kill(follower)
    try:
        produce(three.bootstrap, partition.topic, more)
        (end,) = latest(cluster, [partition]).values()
    finally:
        three.start(follower)
    # It is named as soon as it is there: by then, it may have nothing of what was written meanwhile, or all.
    cluster.refresh([partition.topic])
    fetcher = Fetcher(cluster, max_partition_fetch_bytes=5_000, rack=f"rack-{follower}")
    found = list(fetcher.fetch([OffsetRange(partition=partition, start=0, end=end)]))
    assert [value for value in values_of(found) if value != b"aborted"] == [*VALUES, *more]


def test_what_was_just_written_is_read_although_followers_lag(three, cluster):
    tp = TopicPartition(three.create_topic(f"nearest-{next(numbers)}"), 0)
    _, follower = leader_and_follower(cluster, tp)
    fetcher, start, found = Fetcher(cluster, rack=f"rack-{follower}"), 0, []
    for number in range(20):
        produce(three.bootstrap, tp.topic, [b"%d" % number])
        (end,) = latest(cluster, [tp]).values()
        found += values_of(fetcher.fetch([OffsetRange(partition=tp, start=start, end=end)]))
        start = end
    assert found == [b"%d" % number for number in range(20)]
