"""Remembers since when the oldest unread record of each partition waits, so that Kafka is not asked at every batch.
Pure.

Such a record's time is only in the record itself, which has to be fetched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition


class _Lookup(NamedTuple):
    offset: int
    asked_at: float
    since: float | None


class Lateness:
    """Of one query. All times are in seconds since 1970. An answer holds for `patience` seconds, or until the query has
    read on if that takes longer.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._lookups: dict[TopicPartition, _Lookup] = {}

    def to_ask(self, unread: Offsets, now: float) -> dict[TopicPartition, int]:
        """The partitions to look at: `unread` has the first unread offset of each that has one."""
        self._lookups = {tp: lookup for tp, lookup in self._lookups.items() if tp in unread}
        return {tp: offset for tp, offset in unread.items() if self._outdated(tp, offset, now)}

    def answered(self, asked: Offsets, since_ms: Mapping[TopicPartition, int], now: float) -> None:
        """Note the timestamps, in milliseconds, of the records from these offsets on; some may be unknown."""
        for tp, offset in asked.items():
            since = since_ms[tp] / 1e3 if tp in since_ms else None
            self._lookups[tp] = _Lookup(offset=offset, asked_at=now, since=since)

    def since(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """Since when a record of each of these waits, as far as it is known."""
        since_by_partition = {tp: self._lookups[tp].since for tp in partitions if tp in self._lookups}
        return {tp: since for tp, since in since_by_partition.items() if since is not None}

    def _outdated(self, tp: TopicPartition, offset: int, now: float) -> bool:
        lookup = self._lookups.get(tp)
        if lookup is None:
            return True
        same = lookup.offset == offset and lookup.since is not None
        return not same and now - lookup.asked_at >= self._patience
