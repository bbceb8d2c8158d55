"""One transaction shared by two processes, on a real broker, in both protocols; librdkafka's consumer is witness."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from spark_kafka_eos.errors import BrokerError, CommitOutcomeUnknown, InvalidRow, ProducerFenced, TransactionAborted
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.producing.sequences import next_sequence
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity
from spark_kafka_eos.testing.read_offsets import group_offsets
from tests.coordinating import TransactionCoordinator

pytestmark = pytest.mark.broker

numbers = itertools.count(1)


@pytest.fixture
def tp(either_kafka):
    """Partition 0 of a new topic of two partitions."""
    return TopicPartition(either_kafka.create_topic(f"shared-{next(numbers)}", 2), 0)


@pytest.fixture
def transaction(cluster, tp):
    return TransactionCoordinator(cluster, f"id-{tp.topic}", 30_000)


def append(cluster, identity, record_batch, tp, base_sequence, *values):
    with Appender(cluster, identity) as appender:
        appender.append(tp, record_batch(identity, base_sequence, values), len(values), base_sequence)
        return appender.flush()


def test_two_processes_append_to_one_transaction_and_commit_it(
    cluster, transaction, tp, record_batch, append_elsewhere, consumed
):
    identity = transaction.init_producer_id()
    other = TopicPartition(tp.topic, 1)
    transaction.add_partitions(identity, [tp, other])
    (ack,) = append(cluster, identity, record_batch, tp, 0, b"here 1", b"here 2")
    assert (ack.base_offset, ack.records) == (0, 2)
    assert append_elsewhere(identity, other, 0, [b"there 1", b"there 2"]) == {"base_offset": 0}
    assert consumed(tp.topic, 0) == consumed(tp.topic, 1) == []
    transaction.end(identity, commit=True)
    assert consumed(tp.topic, 0) == [b"here 1", b"here 2"]
    assert consumed(tp.topic, 1) == [b"there 1", b"there 2"]


def test_aborted_records_are_invisible(cluster, transaction, tp, record_batch, consumed):
    identity = transaction.init_producer_id()
    transaction.add_partitions(identity, [tp])
    append(cluster, identity, record_batch, tp, 0, b"never")
    following = transaction.end(identity, commit=False)
    following = transaction.init_producer_id(following)
    transaction.add_partitions(following, [tp])
    append(cluster, following, record_batch, tp, 0, b"shown")
    transaction.end(following, commit=True)
    assert consumed(tp.topic) == [b"shown"]
    assert consumed(tp.topic, isolation_level="read_uncommitted") == [b"never", b"shown"]


def test_offsets_are_committed_with_the_transaction_and_waited_for(either_kafka, cluster, transaction, tp):
    group = GroupCoordinator(cluster, f"group-{tp.topic}")
    identity = transaction.init_producer_id()
    assert group.fetch_offsets([tp]) == {tp: None}
    transaction.add_offsets(identity, group.group_id)
    offsets = {tp: OffsetAndMetadata(offset=42, metadata='{"batch": 7}')}
    group.commit_in_transaction(identity, offsets, transaction_version=transaction.transaction_version)
    assert group.fetch_offsets([tp], require_stable=False) == {tp: None}
    transaction.end(identity, commit=True)
    assert group.fetch_offsets([tp]) == offsets
    assert group_offsets(either_kafka.bootstrap, group.group_id, tp.topic) == {0: 42}  # librdkafka's client


def test_offsets_of_more_partitions_than_a_coordinator_stores_at_once_are_committed(either_kafka, cluster):
    """Each takes 2.2 kB of its topic, where a request may take 1 MB."""
    topic = either_kafka.create_topic(f"{next(numbers)}".rjust(200, "n"), 500)
    transaction = TransactionCoordinator(cluster, f"id-{topic}", 30_000)
    group = GroupCoordinator(cluster, topic.rjust(900, "g"))
    identity = transaction.init_producer_id()
    transaction.add_offsets(identity, group.group_id)
    offsets = {
        TopicPartition(topic, number): OffsetAndMetadata(offset=number, metadata="m" * 1_000) for number in range(500)
    }
    group.commit_in_transaction(identity, offsets, transaction_version=transaction.transaction_version)
    transaction.end(identity, commit=True)
    assert group.fetch_offsets(offsets) == offsets


def test_offsets_of_an_aborted_transaction_are_dropped(either_kafka, cluster, transaction, tp):
    group = GroupCoordinator(cluster, f"group-{tp.topic}")
    group.commit_offsets({tp: OffsetAndMetadata(offset=5)})
    identity = transaction.init_producer_id()
    transaction.add_offsets(identity, group.group_id)
    group.commit_in_transaction(
        identity, {tp: OffsetAndMetadata(offset=42)}, transaction_version=transaction.transaction_version
    )
    transaction.end(identity, commit=False)
    assert group.fetch_offsets([tp]) == {tp: OffsetAndMetadata(offset=5)}
    assert group_offsets(either_kafka.bootstrap, group.group_id, tp.topic) == {0: 5}


def test_metadata_above_the_brokers_limit_says_which_setting_it_broke(cluster, transaction, tp):
    group = GroupCoordinator(cluster, f"group-{tp.topic}")
    identity = transaction.init_producer_id()
    transaction.add_offsets(identity, group.group_id)
    with pytest.raises(BrokerError, match="OFFSET_METADATA_TOO_LARGE.*offset.metadata.max.bytes"):
        group.commit_in_transaction(
            identity,
            {tp: OffsetAndMetadata(offset=1, metadata="x" * 5_000)},
            transaction_version=transaction.transaction_version,
        )


def test_ten_transactions_in_a_row_each_have_a_new_epoch(cluster, transaction, tp, record_batch, consumed):
    identity = transaction.init_producer_id()
    epochs = []
    for number in range(10):
        transaction.add_partitions(identity, [tp])
        append(cluster, identity, record_batch, tp, 0, b"%d" % number)
        epochs.append((identity.producer_id, identity.epoch))
        identity = transaction.end(identity, commit=True)
        if transaction.transaction_version < 2:
            identity = transaction.init_producer_id(identity)
    assert len(set(epochs)) == 10
    assert consumed(tp.topic) == [b"%d" % number for number in range(10)]


def test_a_newer_owner_fences_the_older_one(cluster, transaction, tp, record_batch, consumed):
    older = transaction.init_producer_id()
    transaction.add_partitions(older, [tp])
    append(cluster, older, record_batch, tp, 0, b"of the older")
    newer = transaction.init_producer_id()
    transaction.add_partitions(newer, [tp])
    append(cluster, newer, record_batch, tp, 0, b"of the newer")
    with pytest.raises(TransactionAborted, match="INVALID_PRODUCER_EPOCH"):
        append(cluster, older, record_batch, tp, 1, b"too late")
    for commit in (True, False):
        with pytest.raises(ProducerFenced, match=transaction.transactional_id):
            transaction.end(older, commit=commit)
    transaction.end(newer, commit=True)
    assert consumed(tp.topic) == [b"of the newer"]
    with pytest.raises(ProducerFenced):
        transaction.init_producer_id(older)


def test_initialising_with_an_outdated_identity_aborts_what_the_newer_owner_has_open(
    cluster, transaction, tp, record_batch, consumed
):
    # Why `init_producer_id` may be called with a held identity only after its `end` was not answered "fenced".
    older = transaction.init_producer_id()
    newer = transaction.init_producer_id()
    transaction.add_partitions(newer, [tp])
    append(cluster, newer, record_batch, tp, 0, b"of the newer")
    with pytest.raises(ProducerFenced):
        transaction.init_producer_id(older)
    with pytest.raises((ProducerFenced, CommitOutcomeUnknown)):  # 90 or 48, as far as the abort has come
        transaction.end(newer, commit=True)
    assert consumed(tp.topic) == []


def test_a_commit_sent_again_is_answered_as_before(cluster, transaction, tp, record_batch, consumed):
    identity = transaction.init_producer_id()
    transaction.add_partitions(identity, [tp])
    append(cluster, identity, record_batch, tp, 0, b"once")
    assert transaction.end(identity, commit=True) == transaction.end(identity, commit=True)
    assert consumed(tp.topic) == [b"once"]


def test_a_gap_in_the_sequences_aborts_this_attempt(cluster, transaction, tp, record_batch):
    identity = transaction.init_producer_id()
    transaction.add_partitions(identity, [tp])
    append(cluster, identity, record_batch, tp, 0, b"0", b"1")
    with pytest.raises(TransactionAborted, match=f"OUT_OF_ORDER_SEQUENCE_NUMBER.*{tp}"):
        append(cluster, identity, record_batch, tp, 3, b"3")
    transaction.end(identity, commit=False)


def test_the_same_batch_sent_twice_is_appended_once(cluster, transaction, tp, record_batch, consumed):
    identity = transaction.init_producer_id()
    transaction.add_partitions(identity, [tp])
    first = append(cluster, identity, record_batch, tp, 0, b"0", b"1")
    assert append(cluster, identity, record_batch, tp, 0, b"0", b"1") == first
    transaction.end(identity, commit=True)
    assert consumed(tp.topic) == [b"0", b"1"]


def test_many_batches_keep_their_order(cluster, transaction, tp, record_batch, consumed):
    identity = transaction.init_producer_id()
    other = TopicPartition(tp.topic, 1)
    transaction.add_partitions(identity, [tp, other])
    with Appender(cluster, identity, max_held_bytes=4_000) as appender:
        for number in range(200):
            for partition in (tp, other):
                appender.append(partition, record_batch(identity, number, [b"%d" % number]), 1, number)
        acks = appender.flush()
    assert len(acks) == 400
    transaction.end(identity, commit=True)
    assert consumed(tp.topic, 0) == consumed(tp.topic, 1) == [b"%d" % number for number in range(200)]


def test_the_broker_takes_the_sequence_0_after_the_last_one(cluster, tp, record_batch, consumed):
    # Without a transaction a partition takes any first sequence of a producer id that is new to it: 2^31 records need
    # not come before. (In a transaction of TV2 it takes 0 only.)
    identity = idempotent_identity(cluster)
    sequence, sequences = 2**31 - 3, []
    with Appender(cluster, identity) as appender:
        for number in range(4):
            appender.append(tp, record_batch(identity, sequence, [b"%d" % number] * 5), 5, sequence)
            sequences.append(sequence)
            sequence = next_sequence(sequence, 5)
        acks = appender.flush()
    assert sequences == [2**31 - 3, 2, 7, 12]
    assert [ack.base_offset for ack in acks] == [0, 5, 10, 15]
    assert consumed(tp.topic) == [b"%d" % (n // 5) for n in range(20)]


def test_there_may_be_nothing_to_abort(transaction):
    identity = transaction.init_producer_id()
    assert transaction.end(identity, commit=False).producer_id == identity.producer_id


def test_an_idempotent_producer_appends_without_a_transaction(cluster, tp, record_batch, consumed):
    identity = idempotent_identity(cluster)
    assert identity == ProducerIdentity(transactional_id="", producer_id=identity.producer_id, epoch=identity.epoch)
    append(cluster, identity, record_batch, tp, 0, b"0")
    append(cluster, identity, record_batch, tp, 0, b"0")
    append(cluster, None, record_batch, tp, 0, b"1")
    assert consumed(tp.topic) == [b"0", b"1"]


def test_a_batch_above_the_topics_limit_names_the_partition_and_the_setting(either_kafka, cluster, record_batch):
    topic = either_kafka.create_topic(f"small-{next(numbers)}", 1, {"max.message.bytes": 1_000})
    with pytest.raises(InvalidRow, match=f"MESSAGE_TOO_LARGE.*{topic}-0.*max.message.bytes"):
        append(cluster, None, record_batch, TopicPartition(topic, 0), 0, b"x" * 2_000)


def test_a_timestamp_out_of_range_names_the_partition_and_the_setting(either_kafka, cluster, record_batch):
    topic = either_kafka.create_topic(f"dated-{next(numbers)}", 1, {"message.timestamp.before.max.ms": 1_000})
    with pytest.raises(InvalidRow, match=f"INVALID_TIMESTAMP.*{topic}-0.*message.timestamp.before.max.ms"):
        append(cluster, None, partial(record_batch, timestamp=1), TopicPartition(topic, 0), 0, b"old")


def test_a_timeout_above_the_brokers_maximum_says_so(cluster, tp):
    with pytest.raises(BrokerError, match=r"INVALID_TRANSACTION_TIMEOUT.*transaction\.max\.timeout\.ms"):
        TransactionCoordinator(cluster, f"id-{tp.topic}", 10_000_000).init_producer_id()
