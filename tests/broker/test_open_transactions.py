"""Whose transaction holds the last stable offset, on brokers of both protocols."""

from __future__ import annotations

import time

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.kafka.protocol.offsets import log_ends
from spark_kafka_eos.tools.operators.open_transactions import oldest_open
from tests.producing import produce, transact
from tests.waiting import until

pytestmark = pytest.mark.broker


def test_the_transaction_that_holds_a_partition_is_named(either_kafka, cluster):
    name = either_kafka.create_topic("held-open", 3)
    held, free, empty = (TopicPartition(name, number) for number in range(3))
    bootstrap = either_kafka.bootstrap
    produce(bootstrap, name, [b"before"] * 3)
    first = transact(bootstrap, name, [b"open"] * 2, "leave open", transactional_id=f"{name}-first")
    second = transact(bootstrap, name, [b"open"] * 2, "leave open", transactional_id=f"{name}-second")
    transact(bootstrap, name, [b"done"], "commit", partition=1)
    until(lambda: log_ends(cluster, [free])[free].lag == 0)  # an end is answered before the markers are written

    found = log_ends(cluster, [held, free, empty])
    assert found[held] == LogEnds(last_stable_offset=3, high_watermark=7)
    assert {tp: mark.lag for tp, mark in found.items()} == {held: 4, free: 0, empty: 0}
    now = int(time.time() * 1000)
    [(partition, transaction)] = oldest_open(cluster, [held, free, empty], now_ms=now).items()
    assert partition == transaction.partition == held
    assert (transaction.transactional_id, transaction.start_offset) == (f"{name}-first", 3)
    assert (transaction.state, transaction.producer_id >= 0, transaction.epoch >= 0) == ("Ongoing", True, True)
    assert transaction.open_ms is not None and 0 <= transaction.open_ms < 60_000

    first.commit_transaction(30)
    following = until(lambda: (found := oldest_open(cluster, [held], now_ms=now)[held]).start_offset > 3 and found)
    assert (following.transactional_id, following.start_offset) == (f"{name}-second", 5)
    second.abort_transaction(30)
    until(lambda: oldest_open(cluster, [held], now_ms=now) == {})
    until(lambda: log_ends(cluster, [held])[held].lag == 0)
