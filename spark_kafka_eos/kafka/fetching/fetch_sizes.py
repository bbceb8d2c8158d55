"""How many bytes to request, of which partitions: from the size of earlier records, and from what the link managed.

A request has room for what arrives in about a second: long enough that round trips do not count, and short enough that
a lost connection loses little. Values in, values out: `next_room`, `shares`. `Learned` keeps them from one request to
the next, and with it a process from one task to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_kafka_eos.kafka.fetching.fetch_steps import Arrival
from spark_kafka_eos.kafka.partitions import TopicPartition

_ARRIVES_WITHIN = 1.0  # seconds
_LEAST_ROOM, _GROWTH = 64 << 10, 4
# A partition costs about 90 bytes of request and response. Some more than there is room for are asked for, because a
# broker waits if those that it is asked for have nothing.
_PARTITIONS = 100
# How much more than the estimate is asked for: of the offsets a share, of a record batch a share, but some bytes.
_SURPLUS, _BATCH_SURPLUS, _LEAST_SURPLUS = 1 / 8, 1 / 32, 16
_WEIGHT_OF_NEW, _WEIGHT_OF_SMALLER = 0.25, 0.1


class Estimate(NamedTuple):
    """Of a partition: the bytes that an offset takes, and a large record batch."""

    bytes_per_offset: float
    batch_bytes: float

    def then(self, seen: Estimate) -> Estimate:
        """The estimate after another response. A larger record batch counts at once, because what is cut off has to be
        asked for again.
        """
        return Estimate(
            self.bytes_per_offset + _WEIGHT_OF_NEW * (seen.bytes_per_offset - self.bytes_per_offset),
            max(seen.batch_bytes, self.batch_bytes + _WEIGHT_OF_SMALLER * (seen.batch_bytes - self.batch_bytes)),
        )

    def asked_for(self, offsets: int) -> int:
        """The bytes to ask for to have so many offsets. They may begin and end inside of a record batch, so one offset
        counts with its whole batch and the others by their own size: on average, that is what such a range overlaps.
        """
        batch = self.batch_bytes + max(self.batch_bytes * _BATCH_SURPLUS, _LEAST_SURPLUS)
        return int(self.bytes_per_offset * (offsets - 1) * (1 + _SURPLUS) + batch)


# Until a response shows it. A larger record batch takes another request: large ones are rarely read in small ranges.
_UNKNOWN = Estimate(128.0, 4_096.0)


def next_room(room: int, arrival: Arrival, most: int) -> int:
    """The bytes to ask a broker for next, at most `most`, after a request with this `room`.

    Less if the connection was lost inside the response, or if the response took too long to arrive; more if it arrived
    in less than half the time, and was not so small that it says nothing.
    """
    in_time = int(arrival.size * _ARRIVES_WITHIN / max(arrival.seconds, 1e-6))
    if arrival.is_cut:
        wanted = min(room // 2, in_time or room)
    elif arrival.seconds > _ARRIVES_WITHIN:
        wanted = min(room, in_time)
    elif arrival.seconds < _ARRIVES_WITHIN / 2 and arrival.size >= _LEAST_ROOM:
        wanted = min(room * _GROWTH, max(room, in_time))
    else:
        wanted = room
    return min(max(wanted, _LEAST_ROOM), most)


def shares(wanted: Sequence[int], room: int, partition_most: int) -> list[int]:
    """Of each partition, in the order in which they wait, the bytes to ask for: for the first ones, at least one, until
    they want twice the room.

    More are asked for than can come, but at most the room of each: brokers fill a response in this order.
    """
    asked: list[int] = []
    total = 0
    for each in wanted:
        if total >= 2 * room and len(asked) >= _PARTITIONS:
            break
        asked.append(min(each, room, partition_most))
        total += asked[-1]
    return asked


@dataclass(slots=True)
class Learned:
    """What earlier requests showed, for later ones of the same cluster: `room` by broker, sizes by partition and, for
    partitions that were not read yet, by topic. A broker's first request has `first_room`: small, because all of it is
    lost with its connection.
    """

    first_room: int = 256 << 10
    room: dict[int, int] = field(default_factory=dict)
    by_partition: dict[TopicPartition, Estimate] = field(default_factory=dict)
    by_topic: dict[str, Estimate] = field(default_factory=dict)


class FetchSizes:
    """The sizes of the next requests, by what was `learned`.

    `fetch_max_bytes` limits a response, `max_partition_fetch_bytes` each partition in it.
    """

    def __init__(self, *, fetch_max_bytes: int, max_partition_fetch_bytes: int, learned: Learned | None = None) -> None:
        self._fetch_max_bytes, self._max_partition_fetch_bytes = fetch_max_bytes, max_partition_fetch_bytes
        self._learned = Learned() if learned is None else learned
        self._lacking: dict[TopicPartition, int] = {}

    def room(self, node: int) -> int:
        """The most bytes to ask this broker for."""
        return min(self._learned.room.get(node, self._learned.first_room), self._fetch_max_bytes)

    def shares(self, node: int, left: Sequence[tuple[TopicPartition, int]]) -> list[int]:
        """The bytes to ask this broker for, of the first ones of these partitions, each with the number of offsets that
        are left to read.
        """
        wanted = [self._wanted(partition, offsets) for partition, offsets in left]
        return shares(wanted, self.room(node), self._max_partition_fetch_bytes)

    def _wanted(self, partition: TopicPartition, offsets: int) -> int:
        known = self._learned
        estimate = known.by_partition.get(partition) or known.by_topic.get(partition.topic, _UNKNOWN)
        return max(estimate.asked_for(offsets), self._lacking.get(partition, 0))

    def arrived(self, node: int, arrival: Arrival) -> None:
        """Note how a response of this broker arrived."""
        self._learned.room[node] = next_room(self.room(node), arrival, self._fetch_max_bytes)

    def learn(self, partition: TopicPartition, *, size: int, offsets: int, batch_bytes: int) -> None:
        """Note that this number of offsets took `size` bytes, and a large record batch of them `batch_bytes`."""
        known, seen = self._learned, Estimate(size / max(offsets, 1), batch_bytes)
        before = known.by_partition.get(partition)
        known.by_partition[partition] = seen if before is None else before.then(seen)
        known.by_topic[partition.topic] = known.by_partition[partition]
        self._lacking.pop(partition, None)

    def lacks(self, partition: TopicPartition, size: int) -> None:
        """Note that the next record batch did not fit into what was asked for: it has `size` bytes, or 0 for unknown.
        If less is asked for, it only comes when the partition is a request's first one: one partition per request.
        """
        self._lacking[partition] = size or _GROWTH * self._wanted(partition, 1)
