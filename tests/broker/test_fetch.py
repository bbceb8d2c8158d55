"""Fetching ranges from a real broker: aborted transactions, positions, sizes, offsets that are gone."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.errors import DataLoss, UnknownTopic
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.offsets import at_times, earliest, latest
from spark_kafka_eos.kafka.wire.batch_header import AbortedTransaction
from spark_kafka_eos.kafka.wire.decode import decode
from tests.coordinating import TransactionCoordinator
from tests.reading import await_stable

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
HOUR = 3_600_000


@pytest.fixture
def new_topic(either_kafka):
    return lambda partitions=1, config=None: either_kafka.create_topic(f"fetch-{next(numbers)}", partitions, config)


def append(cluster, record_batch, tp, *batches, timestamp=None):
    with Appender(cluster, None) as appender:
        for values in batches:
            appender.append(tp, record_batch(None, 0, values, timestamp=timestamp), len(values), 0)
        appender.flush()


def values_of(fetched):
    return [value.as_py() for f in fetched for value in decode(f.buffer, f.batches).column("value")]


def ranges(*parts):
    return [OffsetRange(partition=tp, start=start, end=end) for tp, start, end in parts]


def test_ranges_come_back_whole_and_in_order(cluster, new_topic, record_batch):
    topic = new_topic(3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    for tp in partitions:
        append(cluster, record_batch, tp, *([b"%d-%d" % (tp.partition, n)] * 5 for n in range(20)))
    fetched = list(Fetcher(cluster).fetch(ranges(*((tp, 0, 100) for tp in partitions))))
    for tp in partitions:
        mine = [f for f in fetched if f.partition == tp]
        assert values_of(mine) == [b"%d-%d" % (tp.partition, n) for n in range(20) for _ in range(5)]
        assert (mine[-1].next_offset, mine[-1].high_watermark, mine[-1].last_stable_offset) == (100, 100, 100)


def test_aborted_transactions_are_listed_and_end_by_their_marker(either_kafka, cluster, new_topic, record_batch):
    tp = TopicPartition(new_topic(), 0)
    transaction = TransactionCoordinator(cluster, f"id-{tp.topic}", 30_000)
    for value, commit in [(b"1", True), (b"2", False), (b"3", True)]:
        identity = transaction.init_producer_id()
        transaction.add_partitions(identity, [tp])
        with Appender(cluster, identity) as appender:
            appender.append(tp, record_batch(identity, 0, [value]), 1, 0)
            appender.flush()
        transaction.end(identity, commit=commit)
        await_stable(either_kafka.bootstrap, tp.topic)
    (end,) = latest(cluster, [tp]).values()
    assert end == 6  # three records, three markers
    (found,) = Fetcher(cluster).fetch(ranges((tp, 0, end)))
    assert found.aborted == (AbortedTransaction(producer_id=identity.producer_id, first_offset=2),)
    assert [header.is_control for header in found.batches] == [False, True] * 3
    (everything,) = Fetcher(cluster, isolation_level="read_uncommitted").fetch(ranges((tp, 0, end)))
    assert everything.aborted == ()


def test_an_open_transaction_holds_the_end_of_committed_data(either_kafka, cluster, new_topic, record_batch):
    tp = TopicPartition(new_topic(), 0)
    append(cluster, record_batch, tp, [b"before"])
    transaction = TransactionCoordinator(cluster, f"id-{tp.topic}", 30_000)
    identity = transaction.init_producer_id()
    transaction.add_partitions(identity, [tp])
    with Appender(cluster, identity) as appender:
        appender.append(tp, record_batch(identity, 0, [b"open"]), 1, 0)
        appender.flush()
    append(cluster, record_batch, tp, [b"after"])
    assert latest(cluster, [tp]) == {tp: 1}
    assert latest(cluster, [tp], isolation_level="read_uncommitted") == {tp: 3}
    transaction.end(identity, commit=False)
    await_stable(either_kafka.bootstrap, tp.topic)
    assert latest(cluster, [tp]) == {tp: 4}


def test_batches_larger_than_the_fetch_size_still_come(cluster, new_topic, record_batch):
    topic = new_topic(2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for tp in partitions:
        append(cluster, record_batch, tp, *([b"x" * 1_000] * 100 for _ in range(5)))
    fetcher = Fetcher(cluster, fetch_max_bytes=1_000, max_partition_fetch_bytes=1_000, fetch_max_wait_ms=20_000)
    started = time.monotonic()
    counts: Counter[TopicPartition] = Counter()
    for found in fetcher.fetch(ranges(*((tp, 0, 500) for tp in partitions))):
        counts[found.partition] += sum(header.record_count for header in found.batches)
    assert counts == dict.fromkeys(partitions, 500)
    assert time.monotonic() - started < 20  # no fetch waits while there are data


def test_a_range_with_data_does_not_wait(cluster, new_topic, record_batch):
    tp = TopicPartition(new_topic(), 0)
    append(cluster, record_batch, tp, [b"1"])
    fetcher = Fetcher(cluster, fetch_max_wait_ms=20_000)
    started = time.monotonic()
    assert values_of(fetcher.fetch(ranges((tp, 0, 1)))) == [b"1"]
    assert time.monotonic() - started < 20


def test_a_range_in_the_middle_of_a_batch_gets_the_batch(cluster, new_topic, record_batch):
    tp = TopicPartition(new_topic(), 0)
    append(cluster, record_batch, tp, [b"%d" % n for n in range(10)], [b"%d" % n for n in range(10, 20)])
    (found,) = Fetcher(cluster).fetch(ranges((tp, 4, 6)))
    assert [header.base_offset for header in found.batches] == [0]
    assert found.next_offset == 10


def test_offsets_that_were_deleted_are_named_with_what_is_left(either_kafka, cluster, new_topic, record_batch):
    tp = TopicPartition(new_topic(), 0)
    append(cluster, record_batch, tp, *([b"x"] * 10 for _ in range(3)))
    admin = AdminClient({"bootstrap.servers": either_kafka.bootstrap})
    for future in admin.delete_records([RdTopicPartition(tp.topic, 0, 15)]).values():
        future.result()
    assert earliest(cluster, [tp]) == {tp: 15}
    with pytest.raises(DataLoss, match=f"{tp}: offsets from 2 to 30 were planned, but the broker has 15 to 30"):
        list(Fetcher(cluster).fetch(ranges((tp, 2, 30))))


def test_offsets_after_the_end_are_named_with_the_real_end(cluster, new_topic):
    tp = TopicPartition(new_topic(), 0)
    with pytest.raises(DataLoss, match=f"{tp}: offsets from 5 to 6 were planned, but the broker has 0 to 0"):
        list(Fetcher(cluster).fetch(ranges((tp, 5, 6))))


def test_offsets_by_time(cluster, new_topic, record_batch):
    now = int(time.time() * 1000)
    tp, empty = (TopicPartition(new_topic(), 0) for _ in range(2))
    append(cluster, record_batch, tp, [b"old"], timestamp=now - 2 * HOUR)
    append(cluster, record_batch, tp, [b"new"], timestamp=now)
    assert at_times(cluster, {tp: now - 3 * HOUR, empty: now}) == {tp: 0, empty: None}
    assert at_times(cluster, {tp: now - HOUR}) == {tp: 1}
    assert at_times(cluster, {tp: now + HOUR}) == {tp: None}


def test_a_topic_that_was_deleted_is_named(either_kafka, cluster, new_topic, record_batch):
    tp = TopicPartition(new_topic(), 0)
    append(cluster, record_batch, tp, [b"x"])
    either_kafka.delete_topic(tp.topic)
    with pytest.raises(UnknownTopic, match=tp.topic):
        list(Fetcher(cluster).fetch(ranges((tp, 0, 1))))


def test_a_topic_created_again_while_it_is_read_is_not_taken_for_the_same(
    either_kafka, cluster, new_topic, record_batch
):
    tp = TopicPartition(new_topic(), 0)
    append(cluster, record_batch, tp, *([b"x" * 1_000] * 100 for _ in range(5)))
    fetching = Fetcher(cluster, max_partition_fetch_bytes=1_000).fetch(ranges((tp, 0, 500)))
    next(fetching)
    either_kafka.delete_topic(tp.topic)
    either_kafka.create_topic(tp.topic)
    with pytest.raises(DataLoss, match="deleted and created again"):
        list(fetching)
