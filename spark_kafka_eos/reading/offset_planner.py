"""Determines a source's start and the ends of its batches: reads offsets from Kafka; `reading.planning` decides.

Not obvious:
- Spark does not record a query's first offset. If batch 0 runs again after a crash, Spark asks for the first offset
  again, and by then it may have moved (`latest`, a group's offset, retention, another `startingOffsets`): records would
  be lost silently. So the first offset is always `UNRESOLVED`, and the end of batch 0, which Spark records before the
  batch runs, contains the start as well. (The built-in source writes it to a file of its own, `sources/0/0`.)
- Spark compares offsets as text; if the text is equal, there is no new data. So the start is returned as it is if its
  offsets are the end, whatever else has changed, such as a leader. Only a bound by time that was just found makes it
  another text (`reading.stream_end`).
- The end of each batch says which records it means (`reading.topic_identity`), and ranges name their topic's id, so
  that no task reads a topic that was created again as if it were the old one. When a query notices this, an extra
  micro-batch goes back to the beginning of the new topic and reads nothing; if a log was truncated, to where it was.
  This is data loss, and since Spark has recorded that end, it still is after a restart. With failOnDataLoss=false, the
  next micro-batch reads the whole new topic.
- Spark starts a process for each stream and waits for it, so modules that few queries need are imported on demand.
- A checkpoint may be past the last stable offset if its batches were once read uncommitted (the built-in source's
  default). No data is lost: the query waits until the transactions there have ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition, offsets_to_json
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import SourceOptions
from spark_kafka_eos.reading import planning
from spark_kafka_eos.reading.ledger_replay import LedgerReplay
from spark_kafka_eos.reading.partition_offsets import PartitionOffsets
from spark_kafka_eos.reading.read_tasks import TaskPlanner
from spark_kafka_eos.reading.source_partitions import SourcePartitions
from spark_kafka_eos.reading.start import SourceStart
from spark_kafka_eos.reading.stream_end import StreamEnd
from spark_kafka_eos.reading.task_split import Task
from spark_kafka_eos.reading.topic_identity import TopicIdentity, created_between
from spark_kafka_eos.source_offset import UNRESOLVED, JsonOffsets, Origin, SourceOffset


class OffsetPlanner:
    """The offsets of the source of one query or batch read; a context manager that closes its connections.

    Raises ConfigurationError, UnknownTopic, DataLoss, AuthorizationFailed, BrokerError, BrokerUnreachable. Each request
    ends within request.timeout.ms, or delivery.timeout.ms once the cluster was reached.
    """

    def __init__(
        self, options: SourceOptions, cluster: Cluster | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options, self._clock = options, clock
        self._cluster = cluster = cluster or Cluster(options.client)
        self._identity = TopicIdentity(cluster)
        self._partitions = SourcePartitions(options, cluster, self._identity, clock)
        self._offsets = PartitionOffsets(options, cluster, self._partitions)
        self._start = SourceStart(options, cluster, self._partitions, self._offsets)
        self._tasks = TaskPlanner(options, cluster, self._identity, self._partitions, self._offsets, clock)
        self._replay = LedgerReplay(options.sink, self._identity)
        self._stream_end = StreamEnd(options.ending_offsets, self._start.at_times)
        self._ticks = options.rows == "realTime"
        self._last_advance = float("-inf")
        self.remaining = 0  # offsets that a limit left to later micro-batches when one was planned last
        self._planned: JsonOffsets | None = None  # the end of the last micro-batch that was planned here

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    # -- a batch read

    def starting(self) -> dict[TopicPartition, int]:
        """Where a new query starts, for every partition."""
        return self._start.offsets()

    def ending(self) -> dict[TopicPartition, int]:
        """Where a batch read ends, for every partition."""
        return self._start.ending()

    def tasks(self, start: Offsets, end: Offsets) -> list[Task]:
        """What each Spark task reads. If offsets are gone, raises DataLoss, or logs them if failOnDataLoss is false."""
        return self._tasks.tasks(start, end)

    def batch_read(self) -> list[Task]:
        """What each Spark task of a batch read reads. Raises ConfigurationError if it would start after its end, except
        where the start is committed: there, that is data loss, or the committed records are of open transactions.
        """
        start, end = self.starting(), self.ending()
        if self._starts_as_committed:
            return self.tasks(start, self._offsets.not_before(start, end))
        planning.check_order(start, end)
        return self.tasks(start, end)

    @property
    def _starts_as_committed(self) -> bool:
        """Whether a start past the end is that of records that were there."""
        return str(self._options.starting_offsets).startswith("committed")

    # -- a stream

    def initial(self) -> JsonOffsets:
        """Where a new stream starts, for Spark: `latest` determines it, and records it with the end of batch 0."""
        return {name: dict(partitions) for name, partitions in UNRESOLVED.items()}

    def latest(self, start: JsonOffsets, *, limited: bool) -> JsonOffsets:
        """Where the micro-batch after `start` ends; `start` itself if there is nothing to read, or not enough yet.

        `limited`: whether the options that limit a micro-batch apply (the trigger may override them).
        """
        self.remaining = 0
        self._planned = self._next(start, limited=limited)
        return self._planned

    def _next(self, start: JsonOffsets, *, limited: bool) -> JsonOffsets:
        if start == UNRESOLVED:
            self._replay.starts_here()
            begin = self._start.offsets()
            origin = self._start.origin
            if origin is not None:
                self._identity.pin(origin.topic_ids)
            end = self._end(begin, origin, limited=limited)
            if not isinstance(self._options.starting_offsets, str):
                self._stream_end.check(begin)
            if not self._starts_as_committed:
                planning.check_order(begin, end)  # before it is recorded, so that the option can be corrected
            return self._recorded(
                SourceOffset(offsets=end, start=begin, sinks=self._start.sinks(), tick=int(self._ticks))
            )
        last = SourceOffset.from_json(start)
        self._identity.load(last.origin)
        self._stream_end.goes_on_from(last.bounds)
        begin, origin = dict(last.offsets), last.origin
        self._partitions.read_before |= begin.keys()
        self._partitions.compare({tp.topic for tp in begin}, origin)
        end = self._end(begin, origin, limited=limited)
        if not self._ticks:
            self._tasks.require_left(begin, end)
        elif not self._offsets.pins:
            return self._recorded(SourceOffset(offsets=end, tick=last.tick + 1))
        if end == begin and self._stream_end.is_recorded(end):
            return start
        return self._recorded(SourceOffset(offsets=end, tick=last.tick))

    def _recorded(self, end: SourceOffset) -> JsonOffsets:
        """The end with what else the checkpoint must have: the stream's bounds, and which records it means."""
        bounds, origin = self._stream_end.bounds_of(end.offsets), self._identity.origin(end.offsets)
        return replace(end, bounds=bounds, origin=origin).to_json()

    def _end(
        self, begin: dict[TopicPartition, int], origin: Origin | None, *, limited: bool
    ) -> dict[TopicPartition, int]:
        self._partitions.read_before |= begin.keys()
        end = self._offsets.ends(begin)
        if end != begin:
            self._partitions.current(now=True)  # are these still the topics that the query has read so far?
        if (back := self._other_records(begin, origin)) is not None:
            return begin | back if begin != begin | back else self._end(begin, origin, limited=limited)
        caught_up = self._offsets.caught_up(begin, end)
        if caught_up != end and all(begin.get(tp, 0) <= at for tp, at in caught_up.items()):
            return self._end(begin, origin, limited=limited)  # perhaps the end of another leader, with other records
        end = self._stream_end.bounded(begin, caught_up)
        boundary = self._replay.boundary(begin, end)
        if boundary is not None:
            end = {tp: min(end[tp], at) for tp, at in boundary.ends.items() if tp in end}
            limited = limited and not boundary.exact
        # Deleted offsets are no records to wait for.
        limits_offsets = (
            self._options.max_offsets_per_trigger is not None or self._options.min_offsets_per_trigger is not None
        )
        skips = limited and limits_offsets and not self._options.fail_on_data_loss
        earliest = self._offsets.earliest(
            {tp for tp, at in end.items() if tp not in begin or (skips and begin[tp] < at)}
        )
        if limited and boundary is None and self._waits(planning.available(begin, earliest=earliest, latest=end)):
            return begin
        self._last_advance = self._clock()
        if not limited:
            return end
        limit = self._options.max_offsets_per_trigger
        within = planning.end_offsets(begin, earliest=earliest, latest=end, limit=limit)
        within = self._offsets.within_bytes(begin, within)
        self.remaining = sum(end[tp] - at for tp, at in within.items())
        return within

    def pin(self) -> None:
        """Trigger.AvailableNow: read up to the end at the first `latest`, and no further.

        Only then is it known which partitions the query has read: one that does not exist any more is data loss, not a
        misspelled topic.
        """
        self._offsets.pin()

    def reported(self) -> JsonOffsets | None:
        """The last known ends, for the query's progress; None if there are none yet, as when a batch runs again."""
        return offsets_to_json(self._offsets.last_seen) or None

    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions to read."""
        return self._partitions.current()

    def batch(self, start: JsonOffsets, end: JsonOffsets) -> list[Task]:
        """What each Spark task of a micro-batch reads.

        A batch that an earlier run planned is perhaps committed already. Its rows are not read then, unless the query
        has state.
        """
        last, planned = SourceOffset.from_json(start), SourceOffset.from_json(end)
        self._identity.load(planned.origin)
        if self._ticks:
            return []  # its tasks read on from what they have committed
        begin = planned.start if start == UNRESOLVED else last.offsets
        if begin is None:
            begin = self._start.unrecorded(planned.offsets)
        runs_again = end != self._planned
        if runs_again:
            self._replay.runs_again(begin)
        return self._tasks.tasks(
            begin,
            planned.offsets,
            perhaps_unread=runs_again,
            created_again=created_between(last.origin, planned.origin),
            origin=planned.origin,
        )

    def _other_records(self, begin: Offsets, origin: Origin | None) -> dict[TopicPartition, int] | None:
        """Where to go back to in the partitions whose offsets in `begin` mean other records now: to the beginning of a
        topic that was created again, and to where a log was truncated. None if all mean the same records.

        A topic that was created again is returned once; from then on the new topic counts.
        """
        self._partitions.current()
        again = self._identity.created_again()
        if again:
            self._offsets.pin_anew(again)
        back = self._identity.log_ends(origin, begin)
        if not again and not back:
            return None
        self._stream_end.forget(again, back.keys())
        self._start.forget_times(again, back.keys())
        return back | self._offsets.earliest({tp for tp in begin if tp.topic in again})

    def _waits(self, available: int) -> bool:
        """Whether to delay the batch until minOffsetsPerTrigger are available; not the first one, nor with
        AvailableNow.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or available >= least or self._offsets.pinned:
            return False
        return (self._clock() - self._last_advance) * 1000 < self._options.max_trigger_delay
