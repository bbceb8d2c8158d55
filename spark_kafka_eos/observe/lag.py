"""The lag of a source: what it still has to read, and what an open transaction prevents it from reading. Pure.

A read_committed reader can read up to the last stable offset (LSO), the first offset of the oldest open transaction.
The distance from there to the high watermark is the LSO lag. In a busy topic it is short-lived; it persists if a
transaction is neither committed nor aborted. Sources: KIP-98 (LSO), KIP-664 (hanging transactions), and Spark's
KafkaMicroBatchStream for the meaning of `…OffsetsBehindLatest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition, offsets_from_json
from spark_kafka_eos.kafka.protocol.facts import LogEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """Since when a partition's LSO has not advanced although there are records after it; `since` in seconds of a
    clock.
    """

    last_stable_offset: int
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """The transaction that holds a partition's LSO: its first record there is at `start_offset`.

    `transactional_id`, `state` and `open_ms` are None if no coordinator returns the transaction: this principal may not
    describe the transactional.id, or no coordinator has the transaction, and only an operator can abort it
    (`kafka-eos transactions abort`).
    """

    partition: TopicPartition
    start_offset: int
    producer_id: int
    epoch: int
    transactional_id: str | None = None
    state: str | None = None
    open_ms: int | None = None


def unread(end: Offsets, log_ends: Mapping[TopicPartition, LogEnds]) -> dict[TopicPartition, int]:
    """By partition, how many offsets lie between `end` and the last stable offset, if that is known."""
    return {tp: max(0, log_ends[tp].last_stable_offset - offset) for tp, offset in end.items() if tp in log_ends}


def standstills(
    before: Mapping[TopicPartition, Standstill], log_ends: Mapping[TopicPartition, LogEnds], now: float
) -> dict[TopicPartition, Standstill]:
    """The partitions whose LSO has not advanced, given new `log_ends`; those that have none are omitted."""
    current = {}
    for tp, log_end in log_ends.items():
        if log_end.lag:
            earlier = before.get(tp)
            same = earlier is not None and earlier.last_stable_offset == log_end.last_stable_offset
            current[tp] = (
                earlier if earlier and same else Standstill(last_stable_offset=log_end.last_stable_offset, since=now)
            )
    return current


def lasting(standstills: Mapping[TopicPartition, Standstill], now: float, patience: float) -> list[TopicPartition]:
    """The partitions whose LSO has not advanced for `patience` seconds, sorted."""
    return sorted(tp for tp, standstill in standstills.items() if now - standstill.since >= patience)


def offsets_behind_latest(progress: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """For each source in a streaming query's progress, the `metrics` that the built-in Kafka source reports.

    `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`, as text: over all partitions, the
    number of offsets between the batch's end and the latest offset at the time of the trigger. `progress` is
    `query.lastProgress` or its JSON as a dict, of a query with this source or the built-in one. For a source that is
    not Kafka, or reported no latest offsets, the dict is empty. Before a query's first progress, which is None, there
    is no source.
    """
    return [] if progress is None else [_behind(source) for source in progress["sources"]]


def kafka_offsets(value: object) -> dict[TopicPartition, int] | None:
    """Offsets from a progress object, text or a mapping; None if there are none, or they are not Kafka's."""
    if not isinstance(value, str | Mapping):
        return None
    try:
        return offsets_from_json(value)
    except (TypeError, ValueError):  # other sources' offsets can have any form
        return None


def behind(end: Offsets, latest: Offsets) -> list[int]:
    """By how many offsets each partition's end is behind the latest offset."""
    return [offset - end[tp] for tp, offset in latest.items() if tp in end]


def _behind(source: Mapping[str, Any]) -> dict[str, str]:
    end, latest = kafka_offsets(source.get("endOffset")), kafka_offsets(source.get("latestOffset"))
    lags = behind(end or {}, latest or {})
    if not lags:
        return {}
    figures = {"min": min(lags), "max": max(lags), "avg": sum(lags) / len(lags)}
    return {f"{name}OffsetsBehindLatest": str(value) for name, value in figures.items()}
