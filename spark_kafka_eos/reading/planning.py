"""Plans what a query reads: its first offsets, the end of each micro-batch, and the offsets that were lost. Pure.

`earliest` and `latest` are the brokers' offsets of the partitions that the query reads now. `latest` is the last stable
offset (read_committed), so nothing after it is planned. The same offsets always have the same result.

Rules, as in the built-in source unless noted:
- Explicit offsets must list exactly the partitions that are read; -2 means earliest, -1 latest. A start need not list
  all if the user sets where the others start (not in the built-in source).
- A stream may have an end (not in the built-in source; `reading.stream_end`). A query that is already past it reads
  nothing more.
- `committed` (not in the built-in source): a partition without a committed offset starts at its earliest offset, like
  one that was added while the query was stopped. If no partition has one, this is an error, unless the user sets what
  to do: offsets can expire, and the query must not silently read everything again.
- A partition that appears after the start is read from its earliest offset.
- A rate limit is divided in proportion to the backlog of each partition, but with at least one offset each. Where data
  may be lost, deleted offsets are no backlog (in the built-in source they are, and it reads nothing for many batches).
- A query that no longer selects a topic goes on without it once it has read it (in the built-in source, that is data
  loss).
- Trigger.AvailableNow: list `latest` once and plan every micro-batch of that run with it.
Source: Spark's KafkaMicroBatchStream and KafkaOffsetReader, for their meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from spark_kafka_eos.errors import ConfigurationError, DataLoss
from spark_kafka_eos.kafka.partitions import OffsetRange, Offsets, TopicPartition
from spark_kafka_eos.options.source import Start, Timestamps
from spark_kafka_eos.options.values import LatestMinus

EARLIEST, LATEST = -2, -1  # in explicit offsets
ONCE = "restart once with failOnDataLoss=false, then remove it: while it is set, every loss is ignored."
_GONE, _DELETED = "the partition is gone", "deleted by retention, or by request"
_LEFT_OUT = "the batch was planned without it, and it exists"  # by the built-in source, or an earlier release
_PLAN_AGAIN = (
    "To read on where the query was, delete offsets/<n> of this batch, which has no commits/<n>, and offsets/.<n>.crc "
    "from the checkpoint: it is planned again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Offsets `[start, end)` of a partition that can no longer be read; `end` is None if it is unknown.

    `affected` is the number of offsets there now that hold other records than the query has read: without this notice,
    it would take them for read.
    """

    partition: TopicPartition
    start: int
    end: int | None
    why: str
    affected: int = 0

    @property
    def offsets(self) -> int | None:
        """How many offsets are lost, at least as many as records; None if it is unknown."""
        return None if self.end is None else self.end - self.start

    def __str__(self) -> str:
        until = "" if self.end is None else f" to {self.end}"
        return f"{self.partition} from {self.start}{until} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What a micro-batch reads, ordered by partition, without empty ranges, and what it can no longer read."""

    ranges: tuple[OffsetRange, ...]
    lost: tuple[Lost, ...] = ()


def starting_offsets(
    start: Start | LatestMinus | Offsets,
    *,
    earliest: Offsets,
    latest: Offsets,
    strategy: Literal["error", "earliest", "latest"] = "error",
    committed: Mapping[TopicPartition, int | None] | None = None,
) -> dict[TopicPartition, int]:
    """Where a new query starts, for every partition; `strategy` is for those that explicit offsets do not list.

    Raises ConfigurationError if explicit offsets list other partitions, or if nothing is `committed`.
    """
    match start:
        case "earliest":
            return dict(earliest)
        case "latest":
            return dict(latest)
        case LatestMinus(offsets=count):
            return {tp: max(earliest[tp], latest[tp] - count) for tp in latest}
        case "committed" | "committed-or-earliest" | "committed-or-latest":
            existing = {tp: offset for tp, offset in (committed or {}).items() if offset is not None and tp in earliest}
            if not existing and start == "committed" and earliest:
                raise _nothing_committed(earliest)
            if not existing and start == "committed-or-latest":
                return dict(latest)
            return {tp: existing.get(tp, offset) for tp, offset in earliest.items()}
        case _:
            others = {"error": {}, "earliest": earliest, "latest": latest}[strategy]
            check_partitions("startingOffsets", start.keys() | others.keys(), latest)
            return {**others, **_resolved(start, earliest, latest)}


def _nothing_committed(partitions: Iterable[TopicPartition]) -> ConfigurationError:
    topics = _some(sorted({tp.topic for tp in partitions}))
    return ConfigurationError(
        "startingOffsets",
        f"no committed offsets for {topics}: kafka.group.id is wrong, or its offsets have expired "
        "(offsets.retention.minutes)",
        action="If a kafka-eos sink wrote the records that were read before, set sink.kafka.transactional.id: its "
        "ledger does not expire. For a first start, set committed-or-earliest or committed-or-latest.",
    )


def ending_offsets(end: Literal["latest"] | Offsets, *, latest: Offsets) -> dict[TopicPartition, int]:
    """Where a batch read ends, for every partition. Raises ConfigurationError for other partitions or an end after
    `latest`.
    """
    if isinstance(end, str):
        return dict(latest)
    check_partitions("endingOffsets", end, latest)
    for tp in sorted(end):
        if end[tp] > latest[tp]:
            raise ConfigurationError(
                "endingOffsets",
                f"{tp} ends at offset {latest[tp]}, before {end[tp]}",
                action="Set that offset at most, or -1 for the latest one. Records behind an open transaction do not "
                "count before it has ended.",
            )
    return _resolved(end, {}, latest)


def check_order(start: Offsets, end: Offsets) -> None:
    """Raise ConfigurationError if a read would start, as the options say, after its end; where both are the same
    offset, there is nothing to read.
    """
    after = [f"{tp} starts at {start[tp]}, its end is {end[tp]}" for tp in sorted(end) if start.get(tp, 0) > end[tp]]
    if after:
        raise ConfigurationError(
            "startingOffsets",
            f"the read would start after its end, and have no records: {_some(after, '; ')}. Nothing was read",
            action="Correct the start or the end, whether they are offsets or times. If both are right, records were "
            "deleted, the topic was created again, or a transaction is still open before the start.",
        )


def bounded(begin: Offsets, end: Offsets, bounds: Offsets) -> dict[TopicPartition, int]:
    """`end`, or the bound of the partition, if it has one and that comes first; not before `begin`."""
    return {tp: max(min(offset, bounds.get(tp, offset)), min(offset, begin.get(tp, 0))) for tp, offset in end.items()}


def timestamps(option: str, times: Timestamps, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The time, in ms, to look up for each partition. Raises ConfigurationError if `times` lists other partitions."""
    if times.everywhere is not None:
        return dict.fromkeys(partitions, times.everywhere)
    check_partitions(option, times.partitions, partitions)
    return dict(times.partitions)


def offsets_by_time(
    option: str, times: Timestamps, offsets: Mapping[TopicPartition, int | None], *, latest: Offsets
) -> dict[TopicPartition, int]:
    """`offsets` as ListOffsets returned them for `timestamps`; for None (no such record), what `times` says."""
    none = sorted(tp for tp, offset in offsets.items() if offset is None)
    if none and times.if_none == "error":
        raise ConfigurationError(
            option,
            f"{_some(none)} has no record with this timestamp or a later one",
            action="Set startingOffsetsByTimestampStrategy=latest to start there at the latest offset.",
        )
    return {tp: latest[tp] if offset is None else offset for tp, offset in offsets.items()}


def check_partitions(option: str, named: Iterable[TopicPartition], read: Iterable[TopicPartition]) -> None:
    """Raise ConfigurationError unless `option` lists exactly the partitions that are read."""
    missing, unknown = sorted(set(read) - set(named)), sorted(set(named) - set(read))
    if missing or unknown:
        parts = [f"does not list {_some(missing)}"] if missing else []
        parts += [f"lists {_some(unknown)}, which this query does not read"] if unknown else []
        raise ConfigurationError(
            option, " and ".join(parts), action="List exactly the partitions that the query reads."
        )


def end_offsets(
    start: Offsets, *, earliest: Offsets, latest: Offsets, limit: int | None = None
) -> dict[TopicPartition, int]:
    """Where the micro-batch after `start` ends, for every current partition.

    With `limit`, it has at most this number of offsets in total, but at least one for each partition that has any.
    Those before `earliest` do not count; it has at least the new partitions, and all if deleted offsets are skipped. An
    end may be before its start; `plan` handles that.
    """
    if limit is None:
        return dict(latest)
    waiting = _waiting(start, earliest, latest)
    total = sum(waiting.values())
    if total == 0:
        return dict(latest)
    end = dict(latest)
    for tp, size in waiting.items():
        end[tp] += min(size, max(1, limit * size // total)) - size
    return end


def available(start: Offsets, *, earliest: Offsets, latest: Offsets) -> int:
    """How many offsets are available after `start`, for `minOffsetsPerTrigger`; `earliest` as for `end_offsets`."""
    return sum(_waiting(start, earliest, latest).values())


def removed(
    option: str,
    partitions: Iterable[TopicPartition],
    start: Offsets,
    end: Offsets,
    *,
    latest: Offsets,
    given_up: Collection[str] = (),
) -> frozenset[TopicPartition]:
    """Of `partitions`, which are in `start` or `end` and which `option` no longer selects, those to go on without: all
    of them, or ConfigurationError is raised.

    `latest` is where those that still exist end. They must be read up to there, or as far as an earlier run planned, or
    their topics must be `given_up`.
    """
    leaving = sorted(tp for tp in partitions if tp.topic not in given_up)
    unread = []
    for tp in leaving:
        first, last = start.get(tp, 0), end.get(tp, latest.get(tp))
        if tp not in latest:
            unread.append(f"{tp} from {first} (it does not exist any more, so nobody knows how much was unread)")
        elif last is not None and first < last:
            unread.append(f"{tp} from {first} to {last} (it exists)")
    if unread:
        topics = ",".join(sorted({tp.topic for tp in leaving}))
        raise ConfigurationError(
            option,
            f"no longer selects partitions of the checkpoint that may have unread records: {_some(unread, '; ')}",
            action="To read what is left, select them again until the query has read them. To go on without their "
            f"unread records, set removedTopics={topics}: all other topics go on as before.",
        )
    return frozenset(partitions)


def plan(
    start: Offsets,
    end: Offsets,
    *,
    earliest: Offsets,
    fail_on_data_loss: bool = True,
    perhaps_unread: bool = False,
    created_again: Mapping[str, str] = MappingProxyType({}),
    latest: Offsets = MappingProxyType({}),
    log_ends: Offsets = MappingProxyType({}),
) -> ReadPlan:
    """The ranges between `start` and `end` that still exist. An empty one loses nothing, whatever was deleted after it.

    `created_again` has the topics that were created again between `start` and `end`, with the words for it; `latest` is
    where their partitions end now. `log_ends` is where truncated logs ended, of those that `end` means.

    Raises DataLoss if offsets in between are gone. With `fail_on_data_loss=False`, the plan skips and lists them. A
    partition that no longer exists, or ends before its start, is not read in this micro-batch.

    With `perhaps_unread`, ranges keep the offsets that were deleted from their beginning, so that DataLoss is raised
    only if they are read.
    """
    ranges, lost = [], []
    for tp in sorted(start.keys() | end.keys()):
        if tp not in end:
            lost.append(Lost(partition=tp, start=start[tp], end=None, why=_LEFT_OUT if tp in earliest else _GONE))
        elif tp not in earliest:
            lost.append(Lost(partition=tp, start=start.get(tp, 0), end=end[tp], why=_GONE))
        elif tp.topic in created_again and start.get(tp, 0) > earliest[tp]:
            unread = max(0, min(start[tp], latest.get(tp, start[tp])) - earliest[tp])
            why = f"{created_again[tp.topic]}; {unread} offsets of the new topic come before {start[tp]}"
            lost.append(Lost(partition=tp, start=start[tp], end=None, why=why, affected=unread))
            if earliest[tp] < end[tp]:
                ranges.append(OffsetRange(partition=tp, start=earliest[tp], end=end[tp]))
        elif end[tp] < start.get(tp, 0):
            gone = start[tp] - end[tp]
            why = (
                f"the log ends at {end[tp]}: the topic was deleted and created again, or its log was truncated; {gone} "
                "offsets were read that are not those of the log any more"
            )
            lost.append(Lost(partition=tp, start=start[tp], end=None, why=why, affected=gone))
        else:
            # A new partition should be read from offset 0.
            first, there, last = start.get(tp, 0), earliest[tp], end[tp]
            if tp in log_ends and log_ends[tp] < last:
                last = max(first, log_ends[tp])
                affected = end[tp] - last
                lost.append(
                    Lost(partition=tp, start=last, end=end[tp], why=_truncated(log_ends[tp]), affected=affected)
                )
            if perhaps_unread and fail_on_data_loss:
                there = first
            if first < min(there, last):
                # A query that goes on reports the rest with the batch that skips it; one that fails, all of it.
                skipped = there if fail_on_data_loss else min(there, last)
                lost.append(Lost(partition=tp, start=first, end=skipped, why=_DELETED))
            if max(first, there) < last:
                ranges.append(OffsetRange(partition=tp, start=max(first, there), end=last))
    if lost and fail_on_data_loss:
        raise _data_loss(lost)
    return ReadPlan(ranges=tuple(ranges), lost=tuple(lost))


def _data_loss(lost: Collection[Lost]) -> DataLoss:
    affected = sum(loss.affected for loss in lost)
    other = f" (offsets that hold other records now: {affected:,} in total)" if affected and len(lost) > 1 else ""
    if all(loss.why == _LEFT_OUT for loss in lost):
        what = f"offsets that the query still has to read are in no batch's plan: {_some(lost, '; ')}"
    else:
        what = f"offsets that the query still has to read are gone from Kafka: {_some(lost, '; ')}{other}"
    return DataLoss(what, action=_go_on(lost))


def _go_on(lost: Iterable[Lost]) -> str:
    """How to give up what is lost, and nothing else."""
    gone = ",".join(sorted({loss.partition.topic for loss in lost if loss.why == _GONE}))
    others = any(loss.why not in (_GONE, _LEFT_OUT) for loss in lost)
    ways = [f"To continue without topics that were deleted, set removedTopics={gone}."] if gone else []
    ways += [_PLAN_AGAIN] if any(loss.why == _LEFT_OUT for loss in lost) else []
    ways += [f"To continue without {'the other' if gone else 'these'} offsets, {ONCE}"] if others else []
    return " ".join(ways)


def _truncated(end: int) -> str:
    return f"the log was truncated to {end}, and has other records there now"


def remaining(
    ranges: Iterable[OffsetRange],
    *,
    earliest: Offsets,
    latest: Offsets,
    log_ends: Offsets = MappingProxyType({}),
) -> ReadPlan:
    """The parts of `ranges` that can still be read, given the current `earliest` and `latest` offsets, and the lost
    ones.

    A partition that is not in `earliest` no longer exists. `log_ends` is where the logs end for which the ranges were
    planned, as far as it is known.
    """
    kept, lost = [], []
    for offset_range in ranges:
        tp = offset_range.partition
        if tp not in earliest:
            lost.append(Lost(partition=tp, start=offset_range.start, end=offset_range.end, why=_GONE))
            continue
        there = min(latest[tp], log_ends.get(tp, latest[tp]))
        start, end = max(offset_range.start, earliest[tp]), min(offset_range.end, there)
        if start > offset_range.start:
            lost.append(Lost(partition=tp, start=offset_range.start, end=min(start, offset_range.end), why=_DELETED))
        if end < offset_range.end:
            why = f"the log ends at {there}" if there == latest[tp] else _truncated(there)
            lost.append(Lost(partition=tp, start=max(start, end), end=offset_range.end, why=why))
        if start < end:
            kept.append(replace(offset_range, start=start, end=end))
    return ReadPlan(ranges=tuple(kept), lost=tuple(lost))


def _waiting(start: Offsets, earliest: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """The number of offsets from `start`, or from `earliest` if that is later, to `latest`, if there are any."""
    first = {tp: max(start.get(tp, 0), earliest.get(tp, 0)) for tp in latest if tp in start or tp in earliest}
    return {tp: latest[tp] - at for tp, at in first.items() if at < latest[tp]}


def _resolved(offsets: Offsets, earliest: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    special = {EARLIEST: earliest, LATEST: latest}
    return {tp: special[offset][tp] if offset in special else offset for tp, offset in offsets.items()}


def _some(items: Iterable[object], between: str = ", ") -> str:
    texts = [str(item) for item in items]
    more = [f"{len(texts) - 5} more"] if len(texts) > 5 else []
    return between.join(texts[:5] + more)
