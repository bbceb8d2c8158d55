"""Our reader of Fetch responses against kafka-python's writer of them."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse as KafkaPythonFetchResponse

from spark_kafka_eos.kafka.fetching.fetch_response import read_fetch_response
from spark_kafka_eos.kafka.fetching.fetch_steps import EpochEndOffset
from spark_kafka_eos.kafka.wire.batch_header import AbortedTransaction

Topic = KafkaPythonFetchResponse.FetchableTopicResponse
Partition = Topic.PartitionData
Aborted = Partition.AbortedTransaction
VERSIONS = [13, 14, 15, 16]

int64 = st.integers(-1, 2**63 - 1)
partitions = st.builds(
    lambda index, code, high, stable, start, aborted, records: Partition(
        partition_index=index,
        error_code=code,
        high_watermark=high,
        last_stable_offset=stable,
        log_start_offset=start,
        aborted_transactions=None if aborted is None else [Aborted(producer_id=p, first_offset=f) for p, f in aborted],
        preferred_read_replica=-1,
        records=records,
    ),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 133),
    int64,
    int64,
    int64,
    st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    st.none() | st.binary(max_size=300),
)
topics = st.builds(
    lambda topic_id, members: Topic(topic_id=topic_id, partitions=members),
    st.uuids(),
    st.lists(partitions, max_size=3),
)


def frame(version, topics, *, error_code=0, throttle=0):
    response = KafkaPythonFetchResponse(
        version=version, throttle_time_ms=throttle, error_code=error_code, session_id=0, responses=topics
    )
    response.with_header(correlation_id=77)
    return bytearray(response.encode(header=True))


@pytest.mark.parametrize("version", VERSIONS)
@given(st.lists(topics, max_size=3), st.integers(0, 1000), st.integers(-1, 133))
def test_what_kafka_python_writes_is_read_back(version, written, throttle, error_code):
    read = read_fetch_response(memoryview(frame(version, written, throttle=throttle, error_code=error_code)))
    assert (read.throttle_ms, read.error_code) == (throttle, error_code)
    expected = [(topic.topic_id, p) for topic in written for p in topic.partitions]
    assert [(p.topic_id, p.partition, p.error_code) for p in read.partitions] == [
        (topic_id, p.partition_index, p.error_code) for topic_id, p in expected
    ]
    for got, (_, put) in zip(read.partitions, expected, strict=True):
        assert got.high_watermark == put.high_watermark
        assert got.last_stable_offset == put.last_stable_offset
        assert got.log_start_offset == put.log_start_offset
        assert got.aborted == tuple(
            AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset)
            for a in put.aborted_transactions or ()
        )
        assert bytes(got.records) == (put.records or b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_tagged_fields_are_skipped(version):
    partition = Partition(
        partition_index=3,
        error_code=6,
        high_watermark=10,
        last_stable_offset=9,
        log_start_offset=1,
        aborted_transactions=[],
        preferred_read_replica=-1,
        records=b"after the tags",
        current_leader=Partition.LeaderIdAndEpoch(leader_id=2, leader_epoch=8),
    )
    second = Partition(partition_index=4, error_code=0, records=b"the next one", aborted_transactions=None)
    read = read_fetch_response(
        memoryview(frame(version, [Topic(topic_id=uuid.UUID(int=1), partitions=[partition, second])]))
    )
    assert [bytes(p.records) for p in read.partitions] == [b"after the tags", b"the next one"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_diverging_epoch_is_read(version):
    diverging = Partition.EpochEndOffset(epoch=4, end_offset=2**40)
    leader = Partition.LeaderIdAndEpoch(leader_id=2, leader_epoch=8)
    partition = Partition(partition_index=3, error_code=0, diverging_epoch=diverging, current_leader=leader)
    topic = Topic(topic_id=uuid.UUID(int=1), partitions=[partition, Partition(partition_index=4, error_code=0)])
    first, second = read_fetch_response(memoryview(frame(version, [topic]))).partitions
    assert first.diverging == EpochEndOffset(epoch=4, end_offset=2**40)
    assert second.diverging is None


def test_records_are_not_copied_out_of_the_buffer():
    buffer = frame(16, [Topic(topic_id=uuid.UUID(int=1), partitions=[Partition(partition_index=0, records=b"abc")])])
    (partition,) = read_fetch_response(memoryview(buffer)).partitions
    at = bytes(buffer).index(b"abc")
    buffer[at : at + 3] = b"xyz"
    assert bytes(partition.records) == b"xyz"


def test_a_response_cut_short_anywhere_is_an_error():
    topic = Topic(topic_id=uuid.UUID(int=1), partitions=[Partition(partition_index=0, records=b"some records")])
    whole = frame(16, [topic])
    for end in range(len(whole)):
        with pytest.raises((struct.error, IndexError)):
            read_fetch_response(memoryview(whole)[:end])
