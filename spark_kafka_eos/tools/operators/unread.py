"""How far a reader is behind: the ends of its partitions, and the time of the first record that it has not read.

It is for operators, whose cluster may be ill: a partition that cannot be read is a result, not an error.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from spark_kafka_eos.errors import BrokerError, KafkaEosError, UnknownTopic
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.fetching.visibility import visible_batches
from spark_kafka_eos.kafka.partitions import OffsetRange, Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.kafka.protocol.topics import by_leader, ids_now, unavailable
from spark_kafka_eos.kafka.wire.decode import decode

# The Java producer's default batch.size. Most record batches are not larger, so one request covers all partitions.
_BYTES = 16_384
NO_ID = uuid.UUID(int=0)
_BATCHES = 100  # aborted ones and markers, which are looked through for a record


class LogRange(NamedTuple):
    """What a partition has: its first offset, its last stable offset and its high watermark; and its topic's id, NO_ID
    if that is not known.
    """

    earliest: int
    log_ends: LogEnds
    topic_id: uuid.UUID


def log_ranges(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, LogRange], dict[TopicPartition, str]]:
    """The range of each partition's log, and why those of the others are not known. Needs Describe on the topics.

    Raises BrokerUnreachable if no broker can be reached.
    """
    asked = set(partitions)
    if not asked:
        return {}, {}
    unknown = unavailable(cluster, asked)
    led, unled = by_leader(cluster, asked - unknown.keys())
    unknown |= unled
    ranges: dict[TopicPartition, LogRange] = {}
    ids = ids_now(cluster, {tp.topic for tp in asked})
    for partitions_of_leader in led.values():
        _ask(cluster, partitions_of_leader, ids, ranges, unknown)
    return ranges, unknown


def _ask(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    ids: Mapping[str, uuid.UUID],
    ranges: dict[TopicPartition, LogRange],
    unknown: dict[TopicPartition, str],
) -> None:
    """Those of one leader at once if that works, topic by topic if it answers with an error, as of a topic that may not
    be read or whose disk has failed: it does not hide the others. A leader that does not answer is waited for once.
    """
    topics = sorted({tp.topic for tp in partitions})
    try:
        first, log_ends = offsets.earliest(cluster, partitions), offsets.log_ends(cluster, partitions)
    except (BrokerError, UnknownTopic) as error:
        if len(topics) == 1:
            unknown.update(dict.fromkeys(partitions, error.what))
            return
        for topic in topics:
            _ask(cluster, [tp for tp in partitions if tp.topic == topic], ids, ranges, unknown)
    except KafkaEosError as error:
        unknown.update(dict.fromkeys(partitions, error.what))
    else:
        ranges.update({tp: LogRange(first[tp], log_ends[tp], ids.get(tp.topic, NO_ID)) for tp in partitions})


def first_times(cluster: Cluster, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """The timestamp of the first record that read_committed shows in each range; not of those that could not be read,
    or that have none in their first record batches. In milliseconds since 1970. Needs Read on the topics.
    """
    fetcher = Fetcher(cluster, max_partition_fetch_bytes=_BYTES)
    times: dict[TopicPartition, int] = {}
    at = dict(start)
    for _ in range(_BATCHES):
        # One offset each: the answer has the record batch that contains it, or the next one there is.
        ranges = [OffsetRange(partition=tp, start=offset, end=offset + 1) for tp, offset in sorted(at.items())]
        further: dict[TopicPartition, int] = {}
        try:
            for part in fetcher.fetch(ranges):
                tp = part.partition
                time = _first_time(part, at[tp])
                if time is not None:
                    times[tp] = time
                elif part.next_offset < end[tp]:
                    further[tp] = part.next_offset
        except KafkaEosError:  # not allowed to read it, or deleted in the meantime
            if len(at) == 1:
                return times
            for tp, offset in at.items() - further.items():
                if tp not in times:
                    times |= first_times(cluster, {tp: offset}, end)
        if not further:
            break
        at = further
    return times


def _first_time(part: Fetched, start: int) -> int | None:
    headers, visible = visible_batches(part)
    records = decode(part.buffer, headers[visible])
    for offset, timestamp in zip(records["offset"], records["timestamp"], strict=True):
        if offset.as_py() >= start:
            return int(timestamp.as_py())
    return None
