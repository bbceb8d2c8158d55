"""Requests as they are sent: as kafka-python encodes them, without copies of large record batches."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer.produce import ProduceRequest

from spark_kafka_eos.kafka.protocol.frames import frame
from spark_kafka_eos.kafka.protocol.versions import RANGES

TOPIC = ProduceRequest.TopicProduceData
PARTITION = TOPIC.PartitionProduceData
OLDEST, NEWEST = RANGES["Produce"]
PRODUCE = range(1, NEWEST + 1)  # also the old ones: tests write the formats before Kafka 0.11

sizes = st.sampled_from([0, 1, 126, 127, 16_383, 16_384, 16_385, 70_000])
partitions = st.lists(st.tuples(st.integers(0, 2**31 - 1), sizes, st.sampled_from([bytes, bytearray, memoryview])))
names = st.text(st.characters(codec="utf-8"), max_size=200)


def produce(topics: Sequence[tuple[str, list[Any]]], transactional_id: str | None = None) -> ProduceRequest:
    data = [TOPIC(name=name, partition_data=partitions) for name, partitions in topics]
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=15_000, topic_data=data)
    request.with_header(correlation_id=7, client_id="client")
    return request


@pytest.mark.parametrize("version", PRODUCE)
@given(topics=st.lists(st.tuples(names, partitions), max_size=3), transactional_id=st.none() | names)
def test_a_produce_request_has_the_bytes_of_kafka_python(version, topics, transactional_id):
    request = produce(
        [
            (name, [PARTITION(index=index, records=kind(bytes(size))) for index, size, kind in listed])
            for name, listed in topics
        ],
        transactional_id,
    )
    expected = bytes(request.encode(version=version, framed=True, header=True))
    assert b"".join(frame(request, version)) == expected


def test_another_request_is_as_kafka_python_encodes_it():
    request = MetadataRequest(topics=None)
    request.with_header(correlation_id=1, client_id="client")
    expected = bytes(request.encode(version=12, framed=True, header=True))
    assert [bytes(part) for part in frame(request, 12)] == [expected]


@pytest.mark.parametrize("version", range(OLDEST, NEWEST + 1))
def test_a_large_record_batch_is_not_copied_and_small_ones_share_a_part(version):
    small, large = bytes(100), bytearray(1_000_000)
    partitions = [PARTITION(index=n, records=of) for n, of in enumerate([small, large, small])]
    parts = frame(produce([("t", partitions)]), version)
    assert len(parts) == 3
    assert parts[1] is large


def test_a_thread_that_has_sent_a_large_request_keeps_no_memory_of_it():
    block, sent, ends = bytes(8 << 20), threading.Event(), threading.Event()

    def run() -> None:
        assert sum(len(part) for part in frame(produce([("t", [PARTITION(index=0, records=block)])]), 12)) > len(block)
        sent.set()
        ends.wait(60)

    thread = threading.Thread(target=run)
    tracemalloc.start()
    try:
        thread.start()
        assert sent.wait(60)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
        ends.set()
        thread.join()
