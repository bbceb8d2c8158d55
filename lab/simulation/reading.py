"""A model of leaders' answers to consumers: Fetch (by topic id, from version 13 on), ListOffsets, OffsetForLeaderEpoch.

Follows ReplicaManager, Partition and UnifiedLog (Kafka 3.9 and 4.3); tests/broker/test_simulation_reading.py compares
it with these brokers. Every replica has everything at once, so the high watermark is the log's end.

Not obvious:
- A response contains whole batches from their first record on, even if the consumer starts within a batch.
- The first partition with data returns at least one whole batch, however large (KIP-74); otherwise the bytes may end
  within a batch.
- A read_committed response ends at the last stable offset, and contains aborted data together with a list of it.
"""

from __future__ import annotations

from types import SimpleNamespace as Answer
from typing import Any

from kafka.protocol.consumer.fetch import FetchResponse

from lab.simulation.partition import Partition
from lab.simulation.stored import stored
from lab.simulation.topics import NONE, Topics
from spark_kafka_eos.kafka.partitions import TopicPartition

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_ID = 100

_UNKNOWN = -1  # an offset

_Topic: Any = FetchResponse.FetchableTopicResponse
_Partition: Any = _Topic.PartitionData


def fetch(topics: Topics, node: int, _version: int, request: Any) -> Any:
    """kafka-python's FetchResponse, which can be encoded."""
    room, anything, responses = request.max_bytes, False, []
    for asked in request.topics:
        name, answers = topics.name(asked.topic_id), []
        for partition in asked.partitions:
            if name is None:
                answers.append(_refused(partition.partition, UNKNOWN_TOPIC_ID))
                continue
            tp = TopicPartition(name, partition.partition)
            if code := topics.refusal(node, tp, partition.current_leader_epoch):
                answers.append(_refused(partition.partition, code))
                continue
            limit = min(room, partition.partition_max_bytes)
            answer = _read(topics.partitions[tp], partition, request.isolation_level, limit, whole=not anything)
            room, anything = max(0, room - len(answer.records)), anything or bool(answer.records)
            answers.append(answer)
        responses.append(_Topic(topic_id=asked.topic_id, partitions=answers))
    return FetchResponse(throttle_time_ms=0, error_code=NONE, session_id=0, responses=responses)


def _read(log: Partition, partition: Any, isolation_level: int, limit: int, *, whole: bool) -> Any:
    start = partition.fetch_offset
    if not log.start_offset <= start <= log.end_offset:
        return _refused(partition.partition, OFFSET_OUT_OF_RANGE)
    end = log.last_stable_offset if isolation_level else log.end_offset
    records = b""
    for entry in log.entries(start, end):
        batch = stored(entry)
        if not records and len(batch) > limit:
            if not whole:
                break  # nothing, instead of a part of the first batch
            limit = len(batch)
        records += batch[: limit - len(records)]
        if len(records) == limit:
            break
    return _Partition(
        partition_index=partition.partition,
        error_code=NONE,
        high_watermark=log.end_offset,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=_listed(log, start, end) if isolation_level else None,
        preferred_read_replica=-1,
        records=records,
    )


def _listed(log: Partition, start: int, end: int) -> list[Any]:
    """The aborted transactions from `start` on. Some may begin after `end`, because a small log's index is coarse."""
    aborted = log.aborted(start, log.end_offset) if start < end else []
    return [_Partition.AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset) for a in aborted]


def _refused(partition: int, code: int) -> Any:
    return _Partition(
        partition_index=partition,
        error_code=code,
        high_watermark=_UNKNOWN,
        last_stable_offset=_UNKNOWN,
        log_start_offset=_UNKNOWN,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=b"",
    )


def refused_fetch(request: Any, code: int) -> Any:
    """A FetchResponse with the error `code` for each partition."""
    responses = [
        _Topic(
            topic_id=topic.topic_id, partitions=[_refused(partition.partition, code) for partition in topic.partitions]
        )
        for topic in request.topics
    ]
    return FetchResponse(throttle_time_ms=0, error_code=NONE, session_id=0, responses=responses)


def list_offsets(topics: Topics, node: int, _version: int, request: Any) -> Any:
    return Answer(
        topics=[
            Answer(
                name=topic.name,
                partitions=[
                    _listed_offset(
                        topics, node, TopicPartition(topic.name, partition.partition_index), partition, request
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _listed_offset(topics: Topics, node: int, tp: TopicPartition, partition: Any, request: Any) -> Answer:
    code, offset = topics.refusal(node, tp, partition.current_leader_epoch), _UNKNOWN
    if not code:
        log = topics.partitions[tp]
        match partition.timestamp:
            case -2:
                offset = log.start_offset
            case -1:
                offset = log.last_stable_offset if request.isolation_level else log.end_offset
            case other:
                raise ValueError(f"the model does not look up timestamps: {other}")
    return Answer(partition_index=tp.partition, error_code=code, timestamp=-1, offset=offset)


def offset_for_leader_epoch(topics: Topics, node: int, _version: int, request: Any) -> Any:
    return Answer(
        topics=[
            Answer(
                topic=topic.topic,
                partitions=[_epoch_end(topics, node, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(topics: Topics, node: int, name: str, partition: Any) -> Answer:
    tp = TopicPartition(name, partition.partition)
    code, end = topics.refusal(node, tp, partition.current_leader_epoch), _UNKNOWN
    if not code and partition.leader_epoch <= topics.leader_epoch[tp]:
        end = topics.partitions[tp].end_of_epoch(partition.leader_epoch)
    return Answer(partition=tp.partition, error_code=code, leader_epoch=partition.leader_epoch, end_offset=end)
