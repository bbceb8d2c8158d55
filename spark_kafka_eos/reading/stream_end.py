"""Where a stream ends: `endingOffsets`, `endingTimestamp`, `endingOffsetsByTimestamp`. Pure.

Not obvious:
- A bound by time is the offset of the first record with this time or a later one. When that record is deleted, Kafka
  returns a later one's, so a stream that has ended would go on, or miss what it never had to read. So the bound is kept
  in the checkpoint, with the end of each batch, from when Kafka first returned it. Until then the partition is read to
  its current end: the record may still come. If a bound is found when there is nothing to read, one micro-batch without
  records keeps it.
- It is kept with its time, and holds for no other: if the option changes, the end is looked up again.
- A bound in another log means nothing: a topic that was created again has a new one, and so has a log that was
  truncated to an offset before the query's. One between that and the bound is not noticed.
- A partition that is added later is read if one time holds for all, and left unread if the option lists partitions.
  The built-in source has no ends of streams; what it leaves unread alike is a partition that is added after
  Trigger.AvailableNow has listed where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal

from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.options.source import Timestamps
from spark_kafka_eos.reading import planning

log = logger(__name__)

_AtTimes = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]


class StreamEnd:
    """The end that the options `wanted` give a stream, as far as it is known. `at_times` looks up offsets by time."""

    def __init__(self, option: Literal["latest"] | Offsets | Timestamps, at_times: _AtTimes) -> None:
        self._option, self._at_times = option, at_times
        self._recorded: dict[TopicPartition, int] = {}  # the bounds that the checkpoint has
        self._bounds: dict[TopicPartition, int] = {}
        self._unread: set[TopicPartition] = set()

    def goes_on_from(self, bounds: Mapping[int, Offsets]) -> None:
        """The next batch starts where these bounds are recorded; they stay."""
        self._recorded = {
            tp: offset for time, offsets in bounds.items() for tp, offset in offsets.items() if time == self._time(tp)
        }
        self._bounds = dict(self._recorded)

    def forget(self, topics: Collection[str], partitions: Collection[TopicPartition]) -> None:
        """These are others now, or have other records."""
        self._bounds = {
            tp: offset for tp, offset in self._bounds.items() if tp.topic not in topics and tp not in partitions
        }

    def bounded(self, begin: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """`end` of the batch after `begin`, or the end of the stream; without partitions that are left unread.

        By time, this is looked up after `end`, so that no record before `end` is missed. Raises ConfigurationError if
        the option does not list a partition that was read before, or lists one that does not exist.
        """
        match self._option:
            case str():
                return dict(end)
            case Timestamps(everywhere=None, partitions=listed):
                end = self._listed("endingOffsetsByTimestamp", listed, begin, end)
            case Timestamps():
                pass
            case listed:
                end = self._listed("endingOffsets", listed, begin, end)
                return planning.bounded(begin, end, listed)
        times = {tp: time for tp in end if tp not in self._bounds and (time := self._time(tp)) is not None}
        first_offsets = self._at_times(times) if times else {}
        self._bounds |= {tp: offset for tp, offset in first_offsets.items() if offset is not None}
        return planning.bounded(begin, end, self._bounds)

    def check(self, begin: Offsets) -> None:
        """Raise ConfigurationError if a query that begins there would begin after its end, as far as that is known."""
        bounds = self._option if isinstance(self._option, Mapping) else self._bounds
        planning.check_order(begin, {tp: offset for tp, offset in bounds.items() if tp in begin})

    def is_recorded(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the start of the batch contains all that is known of these partitions."""
        return self._recorded == {tp: offset for tp, offset in self._bounds.items() if tp in partitions}

    def bounds_of(self, partitions: Collection[TopicPartition]) -> dict[int, dict[TopicPartition, int]]:
        """The bounds of these partitions, to be recorded with their end."""
        by_time: dict[int, dict[TopicPartition, int]] = {}
        for tp, offset in self._bounds.items():
            if tp in partitions and (time := self._time(tp)) is not None:
                by_time.setdefault(time, {})[tp] = offset
        return by_time

    def _time(self, tp: TopicPartition) -> int | None:
        if not isinstance(self._option, Timestamps):
            return None
        return self._option.partitions.get(tp, self._option.everywhere)

    def _listed(
        self, option: str, listed: Collection[TopicPartition], begin: Offsets, end: Offsets
    ) -> dict[TopicPartition, int]:
        added = end.keys() - begin.keys() - set(listed)
        if new := sorted(added - self._unread):
            log.warning("left unread, because %s does not list %s", option, ", ".join(map(str, new)))
            self._unread |= added
        kept = {tp: offset for tp, offset in end.items() if tp not in added}
        planning.check_partitions(option, listed, kept)
        return kept
