"""What tasks tell the driver, over real datagrams on the loopback."""

from __future__ import annotations

import json
import logging
import os
import queue
import resource
import socket
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.observe import datagrams as module
from spark_kafka_eos.observe.datagrams import Collector, send_interval, send_outcome, send_tallies
from spark_kafka_eos.observe.tallies import BatchOutcome, IntervalTally, RangeTally

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
    module._complain_of_release.cache_clear()


def test_what_a_task_reports_can_be_taken_once(collector):
    other = replace(TALLY, start=25, end=30)
    send_tallies(collector.address_and_key, "query", 7, [TALLY, other])
    assert collector.take("another", 7) == []
    assert collector.take("query", 6) == []
    assert collector.take("query", 7) == [TALLY, other]
    assert collector.take("query", 7) == []


def test_a_datagram_that_is_sent_again_counts_once_and_takes_no_memory(collector):
    """Datagrams are signed, but anybody in between can record them."""
    for _ in range(3):
        send_tallies(collector.address_and_key, "query", 7, [TALLY] * 50)
        collector.take("another", 0)
    assert collector.take("query", 7) == [TALLY]
    send_tallies(collector.address_and_key, "query", 8, [TALLY])
    for batch in range(8):  # were they kept, they would displace batch 8
        send_tallies(collector.address_and_key, "query", batch, [TALLY])
    collector.take("another", 1)
    assert list(collector._batches) == [("query", 8)]
    assert collector.take("query", 8) == [TALLY]


def test_a_batchs_outcome_arrives_at_once_and_is_noted_once_even_if_it_is_sent_again():
    arrived: queue.SimpleQueue[BatchOutcome] = queue.SimpleQueue()
    collector = Collector(bind="127.0.0.1", host="127.0.0.1", committed=arrived.put)
    outcome = BatchOutcome(
        query_id="query",
        batch_id=7,
        transactional_id="orders",
        outcome="committed",
        ended_at=1.5,
        milliseconds={"end": 2.5},
        retries={"NOT_COORDINATOR": 1},
    )
    next_one = replace(outcome, batch_id=8)
    try:
        for told in (outcome, outcome, next_one):
            send_outcome(collector.address_and_key, told)
        assert [arrived.get(timeout=30), arrived.get(timeout=30)] == [outcome, next_one]
        assert collector.take("query", 7) == []
    finally:
        collector.close()
    assert arrived.empty()


def test_the_tally_of_a_task_in_real_time_arrives_once_however_often_it_is_sent():
    arrived: list[IntervalTally] = []
    collector = Collector(bind="127.0.0.1", host="127.0.0.1", interval=arrived.append)
    tally = IntervalTally(
        query_id="q",
        batch_id=7,
        transactional_id="orders",
        reporter="task",
        number=1,
        milliseconds=10_000.0,
        latencies=[[8.0, 3]],
        commits=[],
        positions={"t": {"0": 5}},
    )
    try:
        for sent in (tally, tally, replace(tally, number=2)):
            send_interval(collector.address_and_key, sent)
        collector.drain()
    finally:
        collector.close()
    assert arrived == [tally, replace(tally, number=2)]


def test_an_outcome_with_another_key_is_not_noted(collector):
    arrived: list[BatchOutcome] = []
    collector._committed = arrived.append
    address = collector.address_and_key.rpartition(":")[0]
    outcome = BatchOutcome(query_id="q", batch_id=7, transactional_id="t", outcome="committed", ended_at=1.5)
    send_outcome(f"{address}:{'0' * 64}", outcome)
    send_tallies(collector.address_and_key, "query", 7, [TALLY])
    while not collector.take("query", 7):
        pass
    assert arrived == []


def test_a_flood_does_not_block_the_caller(collector):
    """Spark's listener bus waits for `take`."""
    where = collector.address_and_key.rpartition(":")[0].rpartition(":")[2]
    flooding = threading.Event()
    flooding.set()

    def flood():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", int(where)))
            while flooding.is_set():
                sender.send(b"x" * 1_000)

    threads = [threading.Thread(target=flood) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        started = time.monotonic()
        for batch in range(20):
            collector.take("query", batch)
        assert time.monotonic() - started < 60
    finally:
        flooding.clear()
        for thread in threads:
            thread.join()


def test_one_look_reads_a_bounded_number_of_datagrams():
    """Here, each datagram that is read brings another one: a sender faster than any reader."""

    class Endless:
        read = 0

        def recv(self, size):
            self.read += 1
            return b"x" * 40

    opened = Collector(bind="127.0.0.1", host="127.0.0.1")
    opened.close()
    endless: Any = Endless()
    opened._closed, opened._socket = False, endless
    assert opened.take("query", 1) == []
    assert endless.read == module._TAKEN_AT_ONCE


def test_it_listens_in_a_process_with_many_open_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4_096)), hard))
    held: list[int] = []
    try:
        while not held or held[-1] < 1_100:
            held.append(os.open(os.devnull, os.O_RDONLY))
        opened = Collector(bind="127.0.0.1", host="127.0.0.1")
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        send_tallies(opened.address_and_key, "query", 7, [TALLY])
        assert opened._thread.is_alive()
        assert opened.take("query", 7) == [TALLY]
    finally:
        opened.close()


def test_unsigned_datagrams_do_not_count(collector):
    where, _, key = collector.address_and_key.rpartition(":")
    send_tallies(f"{where}:{'0' * len(key)}", "query", 7, [TALLY])
    send_tallies(collector.address_and_key, "query", 7, [TALLY])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for datagram in (b"", b"x" * 40):
            stranger.sendto(datagram, ("127.0.0.1", int(where.rpartition(":")[2])))
    assert collector.take("query", 7) == [TALLY]


def test_what_another_release_sends_is_logged_once_and_the_next_datagram_counts(collector, caplog):
    """Executors of a cluster may still have the release before."""
    where, _, key = collector.address_and_key.rpartition(":")
    outcome = {"query_id": "query", "batch_id": 7, "transactional_id": "t", "outcome": "committed", "ended_at": 1.0}
    with caplog.at_level(logging.WARNING), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for message in (outcome | {"added_later": 1}, ["query", 7, "orders", 3], 7):
            text = json.dumps(message).encode()
            sender.sendto(module._sign(key, text) + text, ("127.0.0.1", int(where.rpartition(":")[2])))
        send_tallies(collector.address_and_key, "query", 7, [TALLY])
        assert collector.take("query", 7) == [TALLY]
    assert "another release" in caplog.messages[0]
    assert collector._thread.is_alive()


def test_batches_that_are_never_asked_for_are_forgotten(collector):
    for batch in range(100):
        send_tallies(collector.address_and_key, "query", batch, [TALLY])
        collector.take("another", 0)  # what has arrived is read
    assert collector.take("query", 35) == []
    assert collector.take("query", 36) == [TALLY]


def test_a_host_without_an_address_is_logged_once_and_fails_no_task(caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            send_tallies("host.invalid:1:abc", "query", 7, [TALLY])
    [said] = caplog.messages
    assert "host.invalid:1" in said and "abc" not in said


def test_a_collector_that_is_gone_is_logged_once_and_fails_no_task(caplog):
    gone = Collector(bind="127.0.0.1", host="127.0.0.1")
    gone.close()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            send_tallies(gone.address_and_key, "query", 7, [TALLY] * 5)
    [said] = caplog.messages
    assert "Connection refused" in said
