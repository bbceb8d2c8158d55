"""Positions by time: of each partition the first visible record with a timestamp or a later one.

Not obvious:
- ListOffsets by timestamp names the first record of any kind, in either isolation level: also a transaction's marker,
  whose timestamp is the broker's clock when the transaction ended, and a record of an aborted one. Of records with
  event times of last year, it names the first marker, before most of what was asked for.
- No record before the named one has such a timestamp. So the named record is the position if it is visible, which its
  record batch shows. Otherwise the log is read from there to the first visible record that has one.
- Brokers name nothing, although there is such a record, if the first segment with such a timestamp has it only below
  the log's start: they look at no other segment (4.4.0, after DeleteRecords). So "none" counts only if the largest
  timestamp of the partition is older, or if what is named is not stable yet.
- That is at most one pass over what lies between. Where records are written about when they happen, it is a few record
  batches. Only batches whose header has such a timestamp are decoded.
- A stream asks before every micro-batch until there is such a record, so an object remembers how far it has looked.
  What is below the end at its isolation level stays as it is.
Source: KIP-79, KIP-98, UnifiedLog.fetchOffsetByTimestamp of Kafka 4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing

import numpy as np

from spark_kafka_eos.errors import DataLoss
from spark_kafka_eos.kafka.fetching.fetch import Fetcher, estimates_of
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.fetching.visibility import visible_batches
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import IsolationLevel, OffsetRange, Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.columns import to_numpy
from spark_kafka_eos.kafka.wire.decode import decode_in_parts
from spark_kafka_eos.reading.sampling import first_batches

log = logger(__name__)

_FIRST_STEP, _MUCH = 1_000, 1_000_000  # offsets
_ATTEMPTS = 5  # if retention deletes what is being looked at


class OffsetsByTime:
    """Looks up positions by time in one cluster, for readers with this isolation level."""

    def __init__(self, cluster: Cluster, isolation_level: IsolationLevel = "read_committed") -> None:
        self._cluster, self._isolation_level = cluster, isolation_level
        # Up to where no visible record has this time (ms since 1970) or a later one.
        self._looked: dict[tuple[TopicPartition, int], int] = {}

    def forget(self, topics: Collection[str], partitions: Collection[TopicPartition]) -> None:
        """These are others now, or have other records."""
        self._looked = {
            (tp, time): offset
            for (tp, time), offset in self._looked.items()
            if tp.topic not in topics and tp not in partitions
        }

    def offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first visible record at or after each time (ms since 1970); None if there is none.

        Raises UnknownTopic, AuthorizationFailed, CorruptRecordBatch, BrokerError, BrokerUnreachable, and DataLoss if
        records are deleted again and again before they could be looked at.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._offsets(times)
            except DataLoss as error:
                log.info("looking up offsets by time again: %s", error.what)
                self.forget((), times)
        return self._offsets(times)

    def _offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        named = offsets.at_times(self._cluster, times, isolation_level=self._isolation_level)
        at = {tp: offset for tp, offset in named.items() if offset is not None}
        start = at | self._hidden({tp: times[tp] for tp in named.keys() - at.keys()})
        further = {
            tp: looked for tp, offset in start.items() if (looked := self._looked.get((tp, times[tp]), 0)) > offset
        }
        unseen = {tp: offset for tp, offset in at.items() if tp not in further}
        first = first_batches(self._cluster, unseen, self._isolation_level)
        visible_starts = {tp: at[tp] for tp, part in first.items() if _shows(part, at[tp], self._isolation_level)}
        by_search = self._search(
            {tp: offset for tp, offset in (start | further).items() if tp not in visible_starts}, times
        )
        return dict.fromkeys(times) | visible_starts | by_search

    def _hidden(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of partitions where the brokers name nothing: where those begin that have such a timestamp all the same."""
        unstable: Mapping[TopicPartition, int | None] = {}
        if self._isolation_level == "read_committed":
            unstable = offsets.at_times(self._cluster, times, isolation_level="read_uncommitted")
        unnamed = [tp for tp in times if unstable.get(tp) is None]
        newest = offsets.max_timestamps(self._cluster, unnamed)
        return offsets.earliest(self._cluster, [tp for tp in unnamed if not 0 <= newest[tp] < times[tp]])

    def _search(self, start: Offsets, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first visible record of each partition at or after its time, from `start` on."""
        if not start:
            return {}
        end = offsets.latest(self._cluster, start, isolation_level=self._isolation_level)
        fetcher = Fetcher(self._cluster, isolation_level=self._isolation_level, estimates=estimates_of(self._cluster))
        first_offsets: dict[TopicPartition, int] = {}
        unsearched, step, looked_at = dict(start), _FIRST_STEP, 0
        while ranges := [
            OffsetRange(partition=tp, start=at, end=min(at + step, end[tp]))
            for tp, at in unsearched.items()
            if at < end[tp]
        ]:
            with closing(fetcher.fetch(ranges)) as parts:
                for part in parts:
                    tp = part.partition
                    if tp in first_offsets:
                        continue
                    at_time = first_at(part, times[tp], unsearched[tp], self._isolation_level)
                    if at_time is not None:
                        first_offsets[tp] = at_time
                        if len(first_offsets) == len(start):
                            return first_offsets
            reached = {
                offset_range.partition: offset_range.end
                for offset_range in ranges
                if offset_range.partition not in first_offsets
            }
            self._looked |= {(tp, times[tp]): offset for tp, offset in reached.items()}
            unsearched = {tp: offset for tp, offset in reached.items() if tp not in first_offsets}
            before, looked_at = looked_at, looked_at + sum(offset_range.size for offset_range in ranges)
            if before // _MUCH < looked_at // _MUCH:
                log.warning(
                    "looked at %s offsets for the first record of %s at or after a time: before it, the brokers name "
                    "markers of transactions or aborted records, which are newer than the records",
                    f"{looked_at:,}",
                    ", ".join(map(str, sorted(unsearched)[:5])),
                )
            step *= 2
        return first_offsets


def first_at(part: Fetched, time: int, start: int, isolation_level: IsolationLevel) -> int | None:
    """The first visible record of `part` from offset `start` on with a timestamp at or after `time` (ms since 1970)."""
    headers, is_visible = visible_batches(part, isolation_level)
    behind = headers["base_offset"] + headers["last_offset_delta"] + 1
    for row in np.flatnonzero(is_visible & (headers["max_timestamp"] >= time) & (behind > start)):
        for records in decode_in_parts(part.buffer, headers[row : row + 1]):
            offset = to_numpy(records["offset"])
            at = np.flatnonzero((to_numpy(records["timestamp"]) >= time) & (offset >= start))
            if at.size:
                return int(offset[at[0]])
    return None


def _shows(part: Fetched, offset: int, isolation_level: IsolationLevel) -> bool:
    """Whether the first batch of `part`, which may be cut off, has the record at `offset`, and it is visible."""
    header = part.batches[0]
    if header.is_control or not header.base_offset <= offset < header.next_offset:
        return False
    is_aborted = header.is_transactional and any(
        transaction.producer_id == header.producer_id and transaction.first_offset < header.next_offset
        for transaction in part.aborted
    )
    return isolation_level == "read_uncommitted" or not is_aborted
