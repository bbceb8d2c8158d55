"""What tasks tell the driver, over real datagrams on the loopback."""

from __future__ import annotations

import logging
import socket

import pytest

from spark_kafka_eos.broker import datagrams as module
from spark_kafka_eos.broker.datagrams import Collector, tell
from spark_kafka_eos.core.progress import RangeTally
from spark_kafka_eos.model import TopicPartition

TALLY = RangeTally(partition=TopicPartition("orders", 3), start=10, end=25, bytes=1_234, aborted=5)


@pytest.fixture
def collector():
    opened = Collector(bind="127.0.0.1", host="127.0.0.1")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _a_process_of_its_own():
    """What was said once in a process is said once in each test."""
    module._complain.cache_clear()


def test_what_a_task_tells_can_be_taken_once(collector):
    tell(collector.address_and_key, "query", 7, [TALLY, TALLY])
    assert collector.take("query", 8) == []
    assert collector.take("query", 7) == [TALLY, TALLY]
    assert collector.take("query", 7) == []


def test_what_nobody_signed_does_not_count(collector):
    where, _, key = collector.address_and_key.rpartition(":")
    tell(f"{where}:{'0' * len(key)}", "query", 7, [TALLY])
    tell(collector.address_and_key, "query", 7, [TALLY])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for datagram in (b"", b"x" * 40):
            stranger.sendto(datagram, ("127.0.0.1", int(where.rpartition(":")[2])))
    assert collector.take("query", 7) == [TALLY]


def test_batches_that_nobody_asks_for_are_forgotten(collector):
    for batch in range(100):
        tell(collector.address_and_key, "query", batch, [TALLY])
        collector.take("another", 0)  # what has arrived is read
    assert collector.take("query", 35) == []
    assert collector.take("query", 36) == [TALLY]


def test_a_host_without_an_address_is_said_once_and_fails_nobody(caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            tell("host.invalid:1:abc", "query", 7, [TALLY])
    [said] = caplog.messages
    assert "host.invalid:1" in said and "abc" not in said


def test_a_collector_that_is_gone_is_said_once_and_fails_nobody(caplog):
    gone = Collector(bind="127.0.0.1", host="127.0.0.1")
    gone.close()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            tell(gone.address_and_key, "query", 7, [TALLY] * 5)
    [said] = caplog.messages
    assert "Connection refused" in said
