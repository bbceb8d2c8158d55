"""How many bytes to request, of which partitions: from the size of earlier records, and from what the link managed.
Pure.

A request has room for what arrives in about a second: long enough that round trips do not count, and short enough that
a lost connection loses little. Values in, values out: `next_byte_budget`, `partition_budgets`. `SizeEstimates` keeps
them from one request to the next, and with it a process from one task to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_kafka_eos.kafka.fetching.fetch_steps import Arrival
from spark_kafka_eos.kafka.partitions import TopicPartition

_ARRIVES_WITHIN = 1.0  # seconds
_LEAST_BUDGET, _GROWTH = 64 << 10, 4
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

    def updated_with(self, seen: Estimate) -> Estimate:
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


def next_byte_budget(budget: int, arrival: Arrival, most: int) -> int:
    """The bytes to ask a broker for next, at most `most`, after a request with this `budget`.

    Less if the connection was lost inside the response, or if the response took too long to arrive; more if it arrived
    in less than half the time, and was not so small that it says nothing.
    """
    in_time = int(arrival.size * _ARRIVES_WITHIN / max(arrival.seconds, 1e-6))
    if arrival.is_cut:
        following = min(budget // 2, in_time or budget)
    elif arrival.seconds > _ARRIVES_WITHIN:
        following = min(budget, in_time)
    elif arrival.seconds < _ARRIVES_WITHIN / 2 and arrival.size >= _LEAST_BUDGET:
        following = min(budget * _GROWTH, max(budget, in_time))
    else:
        following = budget
    return min(max(following, _LEAST_BUDGET), most)


def partition_budgets(sizes: Sequence[int], byte_budget: int, partition_most: int) -> list[int]:
    """Of each partition, in the order in which they wait, the bytes to ask for: for the first ones, at least one, until
    their `sizes` are twice the byte budget.

    More are asked for than can come, but at most the byte budget of each: brokers fill a response in this order.
    """
    asked: list[int] = []
    total = 0
    for size in sizes:
        if total >= 2 * byte_budget and len(asked) >= _PARTITIONS:
            break
        asked.append(min(size, byte_budget, partition_most))
        total += asked[-1]
    return asked


@dataclass(slots=True)
class SizeEstimates:
    """What earlier requests showed, for later ones of the same cluster: byte budgets by broker, sizes by partition and,
    for partitions that were not read yet, by topic. A broker's first request has `first_byte_budget`: small, because
    all of it is lost with its connection.
    """

    first_byte_budget: int = 256 << 10
    byte_budgets: dict[int, int] = field(default_factory=dict)
    by_partition: dict[TopicPartition, Estimate] = field(default_factory=dict)
    by_topic: dict[str, Estimate] = field(default_factory=dict)


class FetchSizes:
    """The sizes of the next requests, by the `estimates`, which their responses correct.

    `fetch_max_bytes` limits a response, `max_partition_fetch_bytes` each partition in it.
    """

    def __init__(
        self, *, fetch_max_bytes: int, max_partition_fetch_bytes: int, estimates: SizeEstimates | None = None
    ) -> None:
        self._fetch_max_bytes, self._max_partition_fetch_bytes = fetch_max_bytes, max_partition_fetch_bytes
        self._estimates = SizeEstimates() if estimates is None else estimates
        self._truncated: dict[TopicPartition, int] = {}

    def byte_budget(self, node: int) -> int:
        """The most bytes to ask this broker for."""
        budget = self._estimates.byte_budgets.get(node, self._estimates.first_byte_budget)
        return min(budget, self._fetch_max_bytes)

    def partition_budgets(
        self, node: int, remaining: Sequence[tuple[TopicPartition, int]], *, all_of_them: bool = False
    ) -> list[int]:
        """The bytes to ask this broker for, of the first ones of these partitions, or of all, each with the number of
        offsets that are left to read.
        """
        if all_of_them:
            return [min(self.byte_budget(node), self._max_partition_fetch_bytes)] * len(remaining)
        sizes = [self._size_of(partition, offsets) for partition, offsets in remaining]
        return partition_budgets(sizes, self.byte_budget(node), self._max_partition_fetch_bytes)

    def _size_of(self, partition: TopicPartition, offsets: int) -> int:
        estimates = self._estimates
        estimate = estimates.by_partition.get(partition) or estimates.by_topic.get(partition.topic, _UNKNOWN)
        return max(estimate.asked_for(offsets), self._truncated.get(partition, 0))

    def arrived(self, node: int, arrival: Arrival) -> None:
        """Note how a response of this broker arrived."""
        self._estimates.byte_budgets[node] = next_byte_budget(self.byte_budget(node), arrival, self._fetch_max_bytes)

    def learn(self, partition: TopicPartition, *, size: int, offsets: int, batch_bytes: int) -> None:
        """Note that this number of offsets took `size` bytes, and a large record batch of them `batch_bytes`."""
        estimates, seen = self._estimates, Estimate(size / max(offsets, 1), batch_bytes)
        before = estimates.by_partition.get(partition)
        estimates.by_partition[partition] = seen if before is None else before.updated_with(seen)
        estimates.by_topic[partition.topic] = estimates.by_partition[partition]
        self._truncated.pop(partition, None)

    def note_truncated(self, partition: TopicPartition, size: int) -> None:
        """Note that the next record batch did not fit into what was asked for: it has `size` bytes, or 0 for unknown.
        If less is asked for, it only comes when the partition is a request's first one: one partition per request.
        """
        self._truncated[partition] = size or _GROWTH * self._size_of(partition, 1)
