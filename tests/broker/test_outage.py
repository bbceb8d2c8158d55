"""Three brokers: one is killed, paused or stopped in the middle, or a leader moves. All goes on, in order and exactly
once."""

from __future__ import annotations

import itertools
import time
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import ElectionType

from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import DataLoss
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.transaction import shared as transactions
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER
from tests.coordinating import TransactionCoordinator

pytestmark = pytest.mark.broker

BATCHES, RECORDS = 60, 20


BOTH = pytest.mark.parametrize("three", ["kafka", "kafka39"], indirect=True, ids=["TV2", "TV1"])
ONE = pytest.mark.parametrize("three", ["kafka"], indirect=True, ids=["newest"])  # where the protocol plays no part


@pytest.fixture(scope="module")
def three(request, kafka_version, tv1_version):
    with EmbeddedKafka(kafka_version if request.param == "kafka" else tv1_version, brokers=3) as kafka:
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
    while any(
        len(p.isrs) < len(p.replicas)
        for t in admin.list_topics(timeout=20).topics.values()
        for p in t.partitions.values()
    ):
        assert time.monotonic() < deadline, "a replica does not catch up"
        time.sleep(0.1)


@pytest.fixture
def cluster(all_up, options):
    changes = {"request_timeout_ms": 5_000, "socket_connection_setup_timeout_ms": 2_000, "delivery_timeout_ms": 60_000}
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
    if identity is not None:
        TransactionCoordinator(cluster, identity.transactional_id, 60_000).add_partitions(identity, partitions)  # TV1
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
    while (ends := latest(cluster, partitions)) != latest(cluster, partitions, isolation_level="read_uncommitted"):
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.05)
    found: dict[TopicPartition, list[bytes]] = {tp: [] for tp in partitions}
    fetcher = Fetcher(cluster, max_partition_fetch_bytes=1_000)
    interrupted = False
    for f in fetcher.fetch([OffsetRange(partition=tp, start=0, end=ends[tp]) for tp in partitions]):
        data = [header for header in f.batches if not header.is_control]
        found[f.partition] += [value.as_py() for value in decode(f.buffer, data).column("value")] if data else []
        if not interrupted and sum(map(len, found.values())) > BATCHES * RECORDS:
            interrupt()
            interrupted = True
    return found


@ONE
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


@ONE
def test_a_fetch_continues_where_it_was_when_its_leader_is_killed(all_up, cluster, partitions, record_batch):
    append_all(cluster, None, record_batch, partitions, lambda: None)
    leader = cluster.leader(partitions[0])
    found = read_all(cluster, partitions, lambda: all_up.kill(leader))
    assert found == {tp: values_of(tp) for tp in partitions}


@ONE
def test_a_log_that_an_unclean_election_truncates_while_it_is_read_is_data_loss(all_up, cluster, record_batch):
    leader, follower = 1, 2
    tp = TopicPartition(f"outage-{next(numbers)}", 0)
    admin = AdminClient({"bootstrap.servers": all_up.bootstrap})
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic(tp.topic, num_partitions=1, replica_assignment=[[leader, follower]], config=settings)
    admin.create_topics([topic], operation_timeout=30)[tp.topic].result()

    def append(value, batches):
        with Appender(cluster, None, linger_bytes=0) as appender:
            for _ in range(batches):
                appender.append(tp, record_batch(None, 0, [value * 100] * 10), 10, 0)
            appender.flush()

    def leads(node):
        cluster.refresh([tp.topic])
        return cluster.leader(tp) == node

    append(b"old", 10)  # 0-99, on both
    all_up.kill(follower)
    append(b"old", 10)  # 100-199, on the leader alone
    fetching = Fetcher(cluster, max_partition_fetch_bytes=1_000).fetch([OffsetRange(partition=tp, start=0, end=200)])
    read = next(f.next_offset for f in fetching if f.next_offset > 100)
    planned = OffsetRange(partition=tp, start=0, end=200, leader_epoch=cluster.leader_epoch(tp))
    all_up.kill(leader)
    all_up.start(follower)
    deadline = time.monotonic() + 60
    while not leads(follower):
        assert time.monotonic() < deadline, "the follower is not elected"
        time.sleep(0.05)
    append(b"new", 20)  # from 100 on, other records at the same offsets
    with pytest.raises(DataLoss, match=rf"{tp}: the leader's log was truncated .*only up to 100"):
        list(fetching)
    assert read < 200
    with pytest.raises(
        DataLoss, match=rf"{tp}: the leader's log was truncated .*those from 100 on are of leader epoch"
    ):
        list(Fetcher(cluster).fetch([planned]))
    now = replace(planned, leader_epoch=cluster.leader_epoch(tp))
    assert sum(len(part.batches) for part in Fetcher(cluster).fetch([now])) == 20


@BOTH
def test_a_transaction_is_committed_although_its_coordinators_are_killed_one_after_the_other(
    all_up, cluster, partitions, record_batch
):
    transaction = TransactionCoordinator(cluster, f"id-{partitions[0].topic}", 60_000)
    group = GroupCoordinator(cluster, f"group-{partitions[0].topic}")
    identity = transaction.init_producer_id()
    group.fetch_offsets(partitions)
    append_all(cluster, identity, record_batch, partitions, lambda: None)
    transaction.add_offsets(identity, group.group_id)  # TV1
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


@BOTH
def test_a_batch_is_committed_once_although_its_coordinator_is_killed_between_its_offsets_and_its_end(
    all_up, cluster, partitions, record_batch, monkeypatch
):
    topic = partitions[0].topic
    options = sink_of(all_up, topic)

    def write(identity):
        append_all(cluster, identity, record_batch, partitions, lambda: None)
        return Appended(partitions=3, records=3 * BATCHES * RECORDS, bytes=0)

    def kill(name, batch_id=None):
        if name == "offsets committed":
            all_up.kill(cluster.coordinator("transaction", options.transactional_id))

    monkeypatch.setattr(transactions, "failpoint", kill)
    transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
    assert_committed_once(cluster, transaction, write, partitions)


@BOTH
@pytest.mark.parametrize("how", ["elected", "stopped"])
def test_a_batch_is_committed_once_although_a_leader_moves_in_the_middle_of_its_appends(
    all_up, cluster, partitions, record_batch, how
):
    options = sink_of(all_up, partitions[0].topic)

    def move():
        if how == "elected":
            elect_another(all_up, partitions[0])
        else:
            all_up.stop(cluster.leader(partitions[0]))

    def write(identity):
        acks = append_all(cluster, identity, record_batch, partitions, move)
        return Appended(partitions=3, records=sum(ack.records for ack in acks), bytes=0)

    transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
    assert_committed_once(cluster, transaction, write, partitions)


@BOTH
def test_a_batch_is_committed_once_although_its_coordinators_move_before_its_offsets_and_before_its_end(
    all_up, cluster, partitions, record_batch, monkeypatch
):
    options = sink_of(all_up, partitions[0].topic)
    met = []

    def write(identity):
        append_all(cluster, identity, record_batch, partitions, lambda: None)
        return Appended(partitions=3, records=3 * BATCHES * RECORDS, bytes=0)

    def move(name, batch_id=None):
        if name in ("all appended", "offsets committed"):
            met.append(cluster.coordinator("transaction", options.transactional_id))
            for number in range(3):
                elect_another(all_up, TopicPartition("__transaction_state", number))
                elect_another(all_up, TopicPartition("__consumer_offsets", number))

    monkeypatch.setattr(transactions, "failpoint", move)
    transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
    assert_committed_once(cluster, transaction, write, partitions)
    met.append(cluster.coordinator("transaction", options.transactional_id))
    assert met[1] != met[2], "the one that the client asked to commit had moved"


def sink_of(kafka, topic):
    return sink_options(
        {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.transactional.id": f"id-{topic}", "topic": topic}
    )


def assert_committed_once(cluster, transaction, write, partitions):
    """Batch 0 is committed at its first attempt with all its values in order, and the ledger knows it."""
    batch = MicroBatch(query_id="query", batch_id=0, digest="digest")
    report = commit_batch(transaction, batch, write, max_attempts=1, choice=BY_DRIVER)
    assert (report.outcome, report.records) == ("committed", 3 * BATCHES * RECORDS)
    assert read_all(cluster, partitions) == {tp: values_of(tp) for tp in partitions}
    assert commit_batch(transaction, batch, write, max_attempts=1, choice=BY_DRIVER).outcome == "skipped"


def elect_another(kafka, partition):
    """Let another replica lead the partition: the next one becomes the preferred leader, and is elected."""
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
        at = KafkaPythonPartition(*partition)
        first, *others = replicas(kafka, partition)
        assert admin.alter_partition_reassignments({at: [*others, first]}) == {at: None}
        deadline = time.monotonic() + 60
        while admin.list_partition_reassignments([at]):
            assert time.monotonic() < deadline, "the reassignment does not end"
            time.sleep(0.05)
        admin.elect_leaders(ElectionType.PREFERRED, {partition.topic: [partition.partition]}, raise_errors=False)
        while leader(kafka, partition) != others[0]:
            assert time.monotonic() < deadline, "no other leader is elected"
            time.sleep(0.05)


def described(kafka, partition):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    return admin.list_topics(partition.topic, timeout=20).topics[partition.topic].partitions[partition.partition]


def replicas(kafka, partition):
    return described(kafka, partition).replicas


def leader(kafka, partition):
    return described(kafka, partition).leader
