"""Three brokers, one of which is killed or paused in the middle: everything goes on, in order and exactly once."""

from __future__ import annotations

import itertools
import time

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.fetch import Fetcher
from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.broker.offsets import latest
from spark_kafka_eos.broker.produce import Appender
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.eos import distributed
from spark_kafka_eos.eos.settle import Appended, settle
from spark_kafka_eos.model import MicroBatch, OffsetAndMetadata, OffsetRange, TopicPartition
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.tools.embedded import EmbeddedKafka
from spark_kafka_eos.wire.decode import decode

pytestmark = pytest.mark.broker

BATCHES, RECORDS = 60, 20


@pytest.fixture(scope="module")
def three():
    with EmbeddedKafka(brokers=3) as kafka:
        yield kafka


@pytest.fixture
def all_up(three):
    """The three brokers, all of them running and in sync again afterwards."""
    yield three
    three.resume()
    three.start()
    await_in_sync(three)


def await_in_sync(kafka):
    """Every replica has caught up: one more broker may be lost without a wait for those that are just coming back."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    deadline = time.monotonic() + 60
    while any(len(p.isrs) < 3 for t in admin.list_topics(timeout=20).topics.values() for p in t.partitions.values()):
        assert time.monotonic() < deadline, "a replica does not catch up"
        time.sleep(0.1)


@pytest.fixture
def cluster(all_up, options):
    changes = {"request_timeout_ms": 5_000, "connect_timeout_ms": 2_000, "delivery_timeout_ms": 60_000}
    with Cluster(options(all_up.bootstrap, **changes)) as cluster:
        yield cluster


numbers = itertools.count(1)


@pytest.fixture
def partitions(all_up):
    topic = all_up.create_topic(f"outage-{next(numbers)}", 3)
    return [TopicPartition(topic, number) for number in range(3)]


def values_of(tp):
    return [b"%d %d %d" % (tp.partition, batch, n) for batch in range(BATCHES) for n in range(RECORDS)]


def append_all(cluster, identity, record_batch, partitions, interrupt):
    with Appender(cluster, identity, linger_bytes=0) as appender:
        for number in range(BATCHES):
            if number == BATCHES // 2:
                interrupt()
            for tp in partitions:
                values = values_of(tp)[number * RECORDS : (number + 1) * RECORDS]
                appender.append(tp, record_batch(identity, number * RECORDS, values), RECORDS, number * RECORDS)
        return appender.flush()


def read_all(cluster, partitions, interrupt=lambda: None):
    """All values per partition, once no transaction is open; `interrupt` is called once, in the middle."""
    deadline = time.monotonic() + 60
    while (ends := latest(cluster, partitions)) != latest(cluster, partitions, isolation="read_uncommitted"):
        assert time.monotonic() < deadline, "a transaction stays open"
    found: dict[TopicPartition, list[bytes]] = {tp: [] for tp in partitions}
    fetcher = Fetcher(cluster, max_partition_bytes=1_000)
    interrupted = False
    for f in fetcher.fetch([OffsetRange(partition=tp, start=0, end=ends[tp]) for tp in partitions]):
        data = [(position, header) for position, header in f.batches if not header.is_control]
        found[f.partition] += [value.as_py() for value in decode(f.buffer, data).column("value")] if data else []
        if not interrupted and sum(map(len, found.values())) > BATCHES * RECORDS:
            interrupt()
            interrupted = True
    return found


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_lost_leader_loses_reorders_and_duplicates_nothing(all_up, cluster, partitions, record_batch, how):
    transaction = TransactionCoordinator(cluster, f"id-{partitions[0].topic}", 60_000)
    identity = transaction.init_producer_id()
    leader = cluster.leader(partitions[0])
    acks = append_all(cluster, identity, record_batch, partitions, lambda: getattr(all_up, how)(leader))
    assert len(acks) == 3 * BATCHES
    assert sum(ack.records for ack in acks) == 3 * BATCHES * RECORDS
    transaction.end(identity, commit=True)
    assert read_all(cluster, partitions) == {tp: values_of(tp) for tp in partitions}


def test_a_fetch_goes_on_where_it_was_when_its_leader_is_killed(all_up, cluster, partitions, record_batch):
    append_all(cluster, None, record_batch, partitions, lambda: None)
    leader = cluster.leader(partitions[0])
    found = read_all(cluster, partitions, lambda: all_up.kill(leader))
    assert found == {tp: values_of(tp) for tp in partitions}


def test_a_transaction_is_committed_although_its_coordinators_are_killed_one_after_the_other(
    all_up, cluster, partitions, record_batch
):
    transaction = TransactionCoordinator(cluster, f"id-{partitions[0].topic}", 60_000)
    group = GroupCoordinator(cluster, f"group-{partitions[0].topic}")
    identity = transaction.init_producer_id()
    group.fetch_offsets(partitions)
    append_all(cluster, identity, record_batch, partitions, lambda: None)
    node = cluster.coordinator("group", group.group_id)
    all_up.kill(node)
    offsets = {tp: OffsetAndMetadata(offset=7) for tp in partitions}
    group.commit_in_transaction(identity, offsets, transaction_version=transaction.transaction_version)
    all_up.start(node)
    await_in_sync(all_up)
    all_up.kill(cluster.coordinator("transaction", transaction.transactional_id))
    transaction.end(identity, commit=True)
    assert group.fetch_offsets(partitions) == offsets
    assert read_all(cluster, partitions) == {tp: values_of(tp) for tp in partitions}


def test_a_batch_is_committed_once_although_its_coordinator_is_killed_between_its_offsets_and_its_end(
    all_up, cluster, partitions, record_batch, monkeypatch
):
    topic = partitions[0].topic
    options = sink_options(
        {"kafka.bootstrap.servers": all_up.bootstrap, "kafka.transactional.id": f"id-{topic}", "topic": topic}
    )
    batch = MicroBatch(query_id="query", batch_id=0, digest="digest", start={}, end={})

    def write(identity):
        append_all(cluster, identity, record_batch, partitions, lambda: None)
        return Appended(partitions=3, records=3 * BATCHES * RECORDS, bytes=0)

    def kill(name, batch_id=None):
        if name == "offsets committed":
            all_up.kill(cluster.coordinator("transaction", options.transactional_id))

    monkeypatch.setattr(distributed, "failpoint", kill)
    transaction = distributed.SharedTransaction(options, cluster, distributed.decide_micro_batch(options))
    assert settle(transaction, batch, write, max_tries=1, append_mode="driver").outcome == "committed"
    assert read_all(cluster, partitions) == {tp: values_of(tp) for tp in partitions}
    assert settle(transaction, batch, write, max_tries=1, append_mode="driver").outcome == "skipped"
