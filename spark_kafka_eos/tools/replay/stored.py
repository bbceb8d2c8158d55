"""Reads the dead letters of a topic, read committed, one by one: there are few of them, and they may be anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_kafka_eos.dead_letters.headers import DeadLetter, Header, letter_of
from spark_kafka_eos.errors import DataLoss
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import SourceOptions
from spark_kafka_eos.reading.by_time import OffsetsByTime
from spark_kafka_eos.reading.records import read

ReadProgress = Callable[[int], None]  # gets the number of offsets that were read since


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    """A dead letter as it is in its topic: where, when it was put aside (ms since 1970), why, and the record."""

    partition: TopicPartition
    offset: int
    timestamp: int
    letter: DeadLetter
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


def ranges_of(cluster: Cluster, topic: str, since: int | None = None) -> list[OffsetRange]:
    """All of the topic up to the last stable offsets, or what has been written `since` then (ms since 1970).

    Raises UnknownTopic, AuthorizationFailed, BrokerUnreachable.
    """
    known = cluster.topic(topic)
    partitions = [TopicPartition(topic, number) for number in sorted(known.partitions)]
    end = offsets.latest(cluster, partitions)
    start: dict[TopicPartition, int] = offsets.earliest(cluster, partitions)
    if since is not None:
        by_time = OffsetsByTime(cluster).offsets(dict.fromkeys(partitions, since))
        start = {tp: end[tp] if at is None else at for tp, at in by_time.items()}
    return [
        OffsetRange(partition=tp, start=start[tp], end=end[tp], topic_id=known.id)
        for tp in partitions
        if start[tp] < end[tp]
    ]


def letters(
    cluster: Cluster, ranges: Sequence[OffsetRange], progress: ReadProgress = lambda _: None
) -> Iterator[StoredLetter]:
    """The dead letters in `ranges`, in order per partition. Records that are none are left out.

    Raises what `reading.records.read` raises: DataLoss if records of the ranges were deleted, also with their topic.
    """
    topics = tuple({offset_range.partition.topic for offset_range in ranges})
    options = SourceOptions(client=cluster.options, subscribe=topics, include_headers=True)
    for rows in _read(ranges, options, cluster):
        times = rows["timestamp"].cast("int64").to_pylist()
        for row, microseconds in zip(rows.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
            headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
            letter = letter_of(headers)
            if letter is not None:
                yield StoredLetter(
                    partition=TopicPartition(row["topic"], row["partition"]),
                    offset=row["offset"],
                    timestamp=microseconds // 1000,
                    letter=letter,
                    key=row["key"],
                    value=row["value"],
                    headers=headers,
                )
        progress(rows.num_rows)


def _read(ranges: Sequence[OffsetRange], options: SourceOptions, cluster: Cluster) -> Iterator[pa.RecordBatch]:
    try:
        yield from read(ranges, options, cluster)
    except DataLoss as loss:
        raise loss.replaced(action="Run the command again: it takes what is there then.") from None
