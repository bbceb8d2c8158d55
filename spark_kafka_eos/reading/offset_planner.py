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

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from spark_kafka_eos.errors import ConfigurationError, DataLoss, UnknownTopic
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import OffsetRange, Offsets, TopicPartition, offsets_to_json
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.backoff import OUTDATED_LEADER_MS
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import SourceOptions, Timestamps
from spark_kafka_eos.reading import planning
from spark_kafka_eos.reading.ledger_replay import LedgerReplay
from spark_kafka_eos.reading.stream_end import StreamEnd
from spark_kafka_eos.reading.task_split import Task, split
from spark_kafka_eos.reading.topic_identity import TopicIdentity, created_between
from spark_kafka_eos.source_offset import UNRESOLVED, JsonOffsets, Origin, SinkIdentity, SourceOffset

if TYPE_CHECKING:
    from spark_kafka_eos.reading.by_time import OffsetsByTime

log = logger(__name__)

_Ask = Callable[[Sequence[TopicPartition]], dict[TopicPartition, int]]

# The maximum delay until a new topic is noticed while no other topic has data; the built-in source checks every time.
_LOOK_AGAIN_SECONDS = 5.0
_LATEST_TIME = (1 << 63) - 1
# Fewer offsets than these are not worth a request for samples, and samples are worth it for a while.
_FEW_OFFSETS = 10_000
_SAMPLES_AGE_SECONDS = 60.0


class OffsetPlanner:
    """The offsets of the source of one query or batch read; a context manager that closes its connections.

    Raises ConfigurationError, UnknownTopic, DataLoss, AuthorizationFailed, BrokerError, BrokerUnreachable. Each request
    ends within request.timeout.ms, or delivery.timeout.ms once the cluster was reached.
    """

    def __init__(
        self, options: SourceOptions, cluster: Cluster | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._cluster = cluster or Cluster(options.client)
        self._clock = clock
        self._partitions: tuple[TopicPartition, ...] = ()
        self._looked = float("-inf")
        self._read_before: set[TopicPartition] = set()  # read before: if one does not exist now, it was deleted
        self._gone: set[TopicPartition] = set()  # of these: did not exist when last looked up, after some patience
        self._identity = TopicIdentity(self._cluster)
        self._replay = LedgerReplay(options.sink, self._identity)
        self._by_time: OffsetsByTime | None = None
        self._stream_end = StreamEnd(options.ending_offsets, self._at_times)
        self._committed_origin: Origin | None = None  # of a first start that the sink's ledger gives
        self._committed_by: tuple[SinkIdentity, ...] = ()  # the offsets of a first start
        self._seen: dict[TopicPartition, int] = {}
        self._compared = False  # the topics that subscribePattern selects now with those of the checkpoint
        self._ticks, self._pins = options.rows == "realTime", False
        self._pinned: dict[TopicPartition, int] | None = None
        self._last_advance = float("-inf")
        self.remaining = 0  # offsets that a limit left to later micro-batches when one was planned last
        self._planned: JsonOffsets | None = None  # the end of the last micro-batch that was planned here
        self._weights: dict[TopicPartition, float] = {}  # bytes per offset
        self._sampled = float("-inf")

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
        option = self._options.starting_offsets
        earliest, latest = self._earliest(), self._last()
        # One that appears in between is no part of the start; like every new partition, it is read from its beginning.
        latest = {tp: offset for tp, offset in latest.items() if tp in earliest}
        earliest = {tp: offset for tp, offset in earliest.items() if tp in latest}
        if isinstance(option, Timestamps):
            return self._at("startingOffsetsByTimestamp", option, latest)
        committed = self._committed(earliest) if str(option).startswith("committed") else None
        strategy = self._options.starting_offsets_strategy
        return planning.starting_offsets(
            option, earliest=earliest, latest=latest, strategy=strategy, committed=committed
        )

    def ending(self) -> dict[TopicPartition, int]:
        """Where a batch read ends, for every partition."""
        option, latest = self._options.ending_offsets, self._latest()
        if isinstance(option, Timestamps):
            return self._at("endingOffsetsByTimestamp", option, latest)
        return planning.ending_offsets(option, latest=latest)

    def batch_read(self) -> list[Task]:
        """What each Spark task of a batch read reads. Raises ConfigurationError if it would start after its end, except
        where the start is committed: there, that is data loss, or the committed records are of open transactions.
        """
        start, end = self.starting(), self.ending()
        if str(self._options.starting_offsets).startswith("committed"):
            return self.tasks(start, self._not_before(start, end))
        planning.check_order(start, end)
        return self.tasks(start, end)

    def tasks(
        self,
        start: Offsets,
        end: Offsets,
        *,
        perhaps_unread: bool = False,
        created_again: Mapping[str, str] | None = None,
        origin: Origin | None = None,
    ) -> list[Task]:
        """What each Spark task reads. If offsets are gone, raises DataLoss, or logs them if failOnDataLoss is false.

        With `perhaps_unread`, a task raises DataLoss instead, if it reads offsets that were deleted. `created_again`
        has the topics that were created again between the two. `origin` is that of `end`, if logs may have been
        truncated since it was planned.
        """
        if start == end:
            return []
        start, end = self._without_removed(start, end)
        self._read_before |= start.keys() | end.keys()
        earliest = self._earliest(start.keys() | end.keys())
        plan = planning.plan(
            start,
            end,
            earliest=earliest,
            fail_on_data_loss=self._options.fail_on_data_loss,
            perhaps_unread=perhaps_unread,
            created_again=created_again or {},
            latest=self._latest() if created_again else {},
            log_ends={} if origin is None else self._identity.log_ends(origin, end),
        )
        for lost in plan.lost:
            count = "" if lost.offsets is None else f": {lost.offsets:,} offsets"
            log.warning("data was lost and is skipped (failOnDataLoss is false): %s%s", lost, count)
        ranges = [
            replace(
                offset_range,
                topic_id=self._identity.topic_id(offset_range.partition.topic),
                leader_epoch=self._cluster.leader_epoch(offset_range.partition),
            )
            for offset_range in plan.ranges
        ]
        return split(
            ranges,
            parallelism=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
            max_bytes=self._options.max_bytes_per_partition,
            bytes_per_offset=self._bytes_per_offset(ranges),
        )

    def _without_removed(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Both without the partitions that the options no longer select. Raises ConfigurationError if something of them
        is unread, unless it may be lost.
        """
        given_up = {*self._options.removed_topics, *self._options.ledger_topics}
        unselected = {
            tp
            for tp in start.keys() | end.keys()
            if not self._options.selects(tp) or (tp.topic in given_up and tp not in self._look())
        }
        if not unselected:
            return start, end
        names = {tp.topic for tp in unselected}
        there = {
            tp
            for name in self._cluster.existing(names)
            for tp in unselected
            if tp.topic == name
            and tp.partition in self._cluster.topic(name).partitions
            and self._identity.is_the_same(name, self._cluster.topic(name).id)
        }
        try:
            leaving = planning.removed(
                self._options.selecting,
                unselected,
                start,
                end,
                latest=offsets.latest(self._cluster, there, isolation_level=self._options.isolation_level),
                given_up=given_up,
            )
        except ConfigurationError:
            if self._options.fail_on_data_loss:
                raise
            return start, end  # and they are counted among what is lost
        log.warning(
            "the query goes on without %s; if it reads such a topic again, it begins at its first record",
            ", ".join(sorted({tp.topic for tp in leaving})),
        )

        def without(positions: Offsets) -> Offsets:
            return {tp: at for tp, at in positions.items() if tp not in leaving}

        return without(start), without(end)

    def _bytes_per_offset(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, float]:
        """Estimates for the partitions of `ranges`, as far as the tasks depend on them."""
        if self._options.max_records_per_partition or sum(offset_range.size for offset_range in ranges) < _FEW_OFFSETS:
            return {}
        if self._clock() - self._sampled > _SAMPLES_AGE_SECONDS:
            self._weights, self._sampled = {}, self._clock()
        if unknown := [offset_range for offset_range in ranges if offset_range.partition not in self._weights]:
            from spark_kafka_eos.reading.sampling import bytes_per_offset  # on demand: fetches and decodes

            try:
                self._weights |= bytes_per_offset(self._cluster, unknown, self._options.isolation_level)
            except (DataLoss, UnknownTopic) as error:  # which the tasks handle as failOnDataLoss says
                log.warning("record sizes are not known, so that tasks are divided by offsets: %s", error.what)
        return self._weights

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
            begin = self.starting()
            origin = self._committed_origin
            if origin is not None:
                self._identity.pin(origin.topic_ids)
            end = self._end(begin, origin, limited=limited)
            if not isinstance(self._options.starting_offsets, str):
                self._stream_end.check(begin)
            return self._recorded(SourceOffset(offsets=end, start=begin, sinks=self._sinks(), tick=int(self._ticks)))
        last = SourceOffset.from_json(start)
        self._identity.load(last.origin)
        self._stream_end.goes_on_from(last.bounds)
        begin, origin = dict(last.offsets), last.origin
        self._read_before |= begin.keys()
        self._compare_topics({tp.topic for tp in begin}, origin)
        end = self._end(begin, origin, limited=limited)
        if self._ticks and not self._pins:
            return self._recorded(SourceOffset(offsets=end, tick=last.tick + 1))
        if end == begin and self._stream_end.is_recorded(end):
            return start
        return self._recorded(SourceOffset(offsets=end, tick=last.tick))

    def _recorded(self, end: SourceOffset) -> JsonOffsets:
        """The end with what else the checkpoint must have: the stream's bounds, and which records it means."""
        bounds, origin = self._stream_end.bounds_of(end.offsets), self._identity.origin(end.offsets)
        return replace(end, bounds=bounds, origin=origin).to_json()

    def _sinks(self) -> tuple[SinkIdentity, ...]:
        """The sinks by whose commits this source goes: those whose offsets it starts from, or the one that it names.

        The query's sink compares them with itself: what another one has committed is not in its output.
        """
        sink = self._options.sink
        if self._committed_by or sink is None:
            return self._committed_by
        here = self._cluster.cluster_id() if sink.client == self._options.client else ""
        return (SinkIdentity(transactional_id=sink.transactional_id, ledger_topic=sink.topic, cluster=here),)

    def _end(
        self, begin: dict[TopicPartition, int], origin: Origin | None, *, limited: bool
    ) -> dict[TopicPartition, int]:
        self._read_before |= begin.keys()
        end = self._ends(begin)
        if end != begin:
            self._look(now=True)  # are these still the topics that the query has read so far?
        if (back := self._other_records(begin, origin)) is not None:
            self._stream_end.forget(back)
            if self._by_time is not None:
                self._by_time.forget(back)
            if begin != begin | back:
                return begin | back
            end = self._ends(begin)
        end = self._stream_end.bounded(begin, self._caught_up(begin, end))
        boundary = self._replay.boundary(begin, end)
        if boundary is not None:
            end = {tp: min(end[tp], at) for tp, at in boundary.ends.items() if tp in end}
            limited = limited and not boundary.exact
        skips = self._skips(limited)
        earliest = self._earliest({tp for tp, at in end.items() if tp not in begin or (skips and begin[tp] < at)})
        if limited and boundary is None and self._waits(planning.available(begin, earliest=earliest, latest=end)):
            return begin
        self._last_advance = self._clock()
        if not limited:
            return end
        limit = self._options.max_offsets_per_trigger
        within = planning.end_offsets(begin, earliest=earliest, latest=end, limit=limit)
        within = self._within_bytes(begin, within)
        self.remaining = sum(end[tp] - at for tp, at in within.items())
        return within

    def pin(self) -> None:
        """Trigger.AvailableNow: read up to the end at the first `latest`, and no further.

        Only then is it known which partitions the query has read: one that does not exist any more is data loss, not a
        misspelled topic.
        """
        self._pins, self._pinned = True, None

    def reported(self) -> JsonOffsets | None:
        """The last known ends, for the query's progress; None if there are none yet, as when a batch runs again."""
        return offsets_to_json(self._seen) or None

    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions to read."""
        return self._look()

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
            begin = self._start_that_is_not_recorded(planned.offsets)
        again = created_between(last.origin, planned.origin)
        if end == self._planned:
            return self.tasks(begin, planned.offsets, created_again=again)
        self._replay.runs_again(begin)
        return self.tasks(begin, planned.offsets, perhaps_unread=True, created_again=again, origin=planned.origin)

    def _start_that_is_not_recorded(self, ends: Offsets) -> dict[TopicPartition, int]:
        """Where batch 0 starts if the built-in source has planned it, or release 0.1.0. Raises ConfigurationError if
        the options do not give the same start now as they did then.
        """
        option = self._options.starting_offsets
        if option != "earliest" and (not isinstance(option, Mapping) or planning.LATEST in option.values()):
            raise ConfigurationError(
                "startingOffsets",
                "the built-in source, or release 0.1.0, has planned the checkpoint's first batch, which was not "
                "committed. It does not say where it starts, and by now this option may mean another start. Nothing "
                "was read",
                action="Start the query as it was until that batch is done, and change it then. Or set startingOffsets "
                "as JSON to where the batch starts. The built-in source keeps that in sources/0/0 of the checkpoint. "
                "Release 0.1.0 read nothing in such a batch: it starts where offsets/0 says that it ends.",
            )
        start, there = self.starting(), self._look()
        # Partitions added since belong to the next batch.
        return {tp: offset for tp, offset in start.items() if tp in ends or tp not in there}

    # -- requests

    def _earliest(self, selection: AbstractSet[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        return self._of_existing(lambda partitions: offsets.earliest(self._cluster, partitions), selection)

    def _latest(self) -> dict[TopicPartition, int]:
        isolation_level = self._options.isolation_level
        self._seen = self._of_existing(lambda tps: offsets.latest(self._cluster, tps, isolation_level=isolation_level))
        return dict(self._seen)

    def _last(self) -> dict[TopicPartition, int]:
        """The current ends, or the pinned ones."""
        if self._pinned is not None:
            return dict(self._pinned)
        last = self._latest()
        if self._pins:
            self._pinned = dict(last)
        return last

    def _of_existing(
        self, ask: _Ask, selection: AbstractSet[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """`ask` for the existing partitions (only those in `selection`), again if one was deleted in the meantime."""

        def existing(*, now: bool) -> list[TopicPartition]:
            return [tp for tp in self._look(now=now) if selection is None or tp in selection]

        try:
            return ask(existing(now=False))
        except UnknownTopic:
            return ask(existing(now=True))

    def _ends(self, begin: Offsets) -> dict[TopicPartition, int]:
        """The last stable offsets, current or pinned; if `begin` is already past one, its offset stays as it is."""
        return self._not_before(begin, self._last())

    def _not_before(self, begin: Offsets, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`end`, or `begin` where that is past the last stable offset, but not past the log's end."""
        past = [tp for tp, offset in end.items() if begin.get(tp, 0) > offset]
        if past and self._options.isolation_level == "read_committed":
            high_watermarks = offsets.latest(self._cluster, past, isolation_level="read_uncommitted")
            end |= {tp: begin[tp] for tp, offset in high_watermarks.items() if begin[tp] <= offset}
        return end

    def _caught_up(self, begin: Offsets, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`end`, requested again for a while if a partition ends before `begin`: its leader may be outdated."""
        budget = self._cluster.budget(OUTDATED_LEADER_MS)
        while any(begin.get(tp, 0) > at for tp, at in end.items()) and (delay := budget.delay()) is not None:
            self._cluster.sleep(delay)
            self._look(now=True)
            end = self._ends(begin)
        return end

    def _other_records(self, begin: Offsets, origin: Origin | None) -> dict[TopicPartition, int] | None:
        """Where to go back to in the partitions whose offsets in `begin` mean other records now: to the beginning of a
        topic that was created again, and to where a log was truncated. None if all mean the same records.

        A topic that was created again is returned once; from then on the new topic counts.
        """
        self._look()
        again = self._identity.created_again()
        if again and self._pinned is not None:
            self._pinned |= {tp: offset for tp, offset in self._latest().items() if tp.topic in again}
        back = {} if origin is None else self._identity.log_ends(origin, begin)
        if not again and not back:
            return None
        return back | self._earliest({tp for tp in begin if tp.topic in again})

    def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The ledger's offsets of this cluster, else the group's, after waiting for any transaction that is committing
        some (KIP-447).
        """
        if self._options.sink is not None:
            from spark_kafka_eos.ledger.progress import committed_progress

            progress, sink = committed_progress(self._options.sink, self._cluster.cluster_id())
            self._committed_origin, self._committed_by = progress.origin, (sink,)
            if progress.offsets:
                self._compare_topics({tp.topic for tp in progress.offsets}, progress.origin)
            return {tp: progress.offsets.get(tp) for tp in partitions}
        from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
        from spark_kafka_eos.ledger.source_mark import marked_by

        committed = GroupCoordinator(self._cluster, self._options.group_id or "").fetch_offsets(partitions)
        marks = {marked_by(at) for at in committed.values() if at is not None}
        self._committed_by = tuple(SinkIdentity(transactional_id=mark) for mark in sorted(filter(None, marks)))
        return {tp: None if at is None else at.offset for tp, at in committed.items()}

    def _at(self, option: str, timestamps: Timestamps, latest: Offsets) -> dict[TopicPartition, int]:
        times = planning.timestamps(option, timestamps, latest)
        return planning.offsets_by_time(option, timestamps, self._at_times(times), latest=latest)

    def _at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        if self._by_time is None:
            from spark_kafka_eos.reading.by_time import OffsetsByTime  # on demand: fetches and decodes

            self._by_time = OffsetsByTime(self._cluster, self._options.isolation_level)
        return self._by_time.offsets(times)

    def _skips(self, limited: bool) -> bool:
        """Whether deleted offsets are skipped before a limit in offsets is divided: they are no records to wait for."""
        options = self._options
        in_offsets = options.max_offsets_per_trigger is not None or options.min_offsets_per_trigger is not None
        return limited and in_offsets and not options.fail_on_data_loss

    def _waits(self, available: int) -> bool:
        """Whether to delay the batch until minOffsetsPerTrigger are available; not the first one, nor with
        AvailableNow.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or available >= least or self._pinned is not None:
            return False
        return (self._clock() - self._last_advance) * 1000 < self._options.max_trigger_delay

    def _within_bytes(self, begin: Offsets, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`end`, or less because of maxBytesPerTrigger."""
        limit = self._options.max_bytes_per_trigger
        if limit is None:
            return end
        try:
            return end | self._ends_by_weight(limit, begin, end)
        except (DataLoss, UnknownTopic):
            if self._options.fail_on_data_loss:
                raise
            return end | self._ends_by_weight(limit, begin, end)  # from what still exists

    def _ends_by_weight(self, limit: int, begin: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        from spark_kafka_eos.reading.sampling import ends_by_weight  # on demand: fetches and decodes

        earliest = self._earliest(end.keys())
        ranges = planning.plan(begin, end, earliest=earliest, fail_on_data_loss=False).ranges
        return ends_by_weight(self._cluster, limit, ranges, self._options.isolation_level)

    def _look(self, *, now: bool = False) -> tuple[TopicPartition, ...]:
        """The partitions to read, looked up before each micro-batch that has something to read, else every few
        seconds.
        """
        if now or self._clock() - self._looked > _LOOK_AGAIN_SECONDS:
            self._partitions = tuple(sorted(self._read_partitions()))
            self._read_before.update(self._partitions)
            self._identity.refresh({tp.topic for tp in self._partitions})
            self._looked = self._clock()
        return self._partitions

    def _read_partitions(self) -> Collection[TopicPartition]:
        """The partitions there are. Raises UnknownTopic if one is missing that was not read before."""
        options, cluster = self._options, self._cluster
        topics = self._existing(self._wanted_topics())
        budget = cluster.budget(OUTDATED_LEADER_MS)
        while self._is_outdated(topics) and (delay := budget.delay()) is not None:
            cluster.sleep(delay)
            topics = self._existing(topics, elsewhere=True)
        existing = {TopicPartition(name, number) for name in topics for number in cluster.topic(name).partitions}
        if missing := sorted(set(options.assign) - existing - self._read_before):
            raise UnknownTopic(f"{missing[0]} is listed in the option assign but does not exist")
        self._gone = self._read_before - existing
        return existing.intersection(options.assign) if options.assign else existing

    def _wanted_topics(self) -> Collection[str]:
        options = self._options
        if options.subscribe_pattern is None:
            return list(options.subscribe) or list(dict.fromkeys(tp.topic for tp in options.assign))
        # A broker that leaves out a topic may be outdated, so those that were read before are looked up as well.
        names = {*self._cluster.topic_names(), *(tp.topic for tp in self._read_before - self._gone)}
        return sorted(name for name in names if options.finds_pattern(name) and name not in options.ledger_topics)

    def _compare_topics(self, read_before: AbstractSet[str], origin: Origin | None) -> None:
        """Raise ConfigurationError if subscribePattern finds topics that whoever planned the offsets of `read_before`,
        with this origin, may have left out: earlier releases compared it with whole names.
        """
        compared, self._compared = self._compared, True
        partial = self._options.finds_pattern_in_a_part
        if compared or self._options.subscribe_pattern is None:
            return
        if (origin is not None and origin.finds_pattern) or any(map(partial, read_before)):
            return
        added = {tp.topic for tp in self._look()} - read_before
        if doubtful := sorted(filter(partial, added)):
            raise ConfigurationError(
                "subscribePattern",
                f"is found in {', '.join(doubtful)}, which the query has not read so far. Earlier releases compared it "
                "with whole names and left such topics out; this one finds it anywhere in a name, as the built-in "
                "source does. Nothing was read",
                action="To go on without these topics, set ^(?:pattern)$. To read them too, from their beginning, set "
                ".*(?:pattern).*, with the pattern as it was.",
            )

    def _existing(self, topics: Collection[str], *, elsewhere: bool = False) -> Collection[str]:
        """Look up `topics`, and return those that exist. Raises UnknownTopic if one is missing that was not read
        before.

        Only once are other brokers asked for some seconds before a missing topic counts as deleted.
        """
        gone = {tp.topic for tp in self._gone} - {tp.topic for tp in self._partitions}
        doubtful = [name for name in topics if name in gone]
        there = [name for name in topics if name not in gone]
        there += self._cluster.existing(doubtful, patience_ms=0) if doubtful else []
        try:
            self._cluster.refresh(there, elsewhere=elsewhere)
        except UnknownTopic:
            there = self._cluster.existing(there, patience_ms=0)
            read_before = {tp.topic for tp in self._read_before}
            if self._options.subscribe_pattern is None and not read_before.issuperset(set(topics).difference(there)):
                raise
        return there

    def _is_outdated(self, topics: Collection[str]) -> bool:
        """Whether a topic has fewer partitions than were read before. It loses none, unless it is created again."""
        current = {name: self._cluster.topic(name) for name in topics}
        return any(
            tp.topic in current
            and tp.partition not in current[tp.topic].partitions
            and self._identity.is_the_same(tp.topic, current[tp.topic].id)
            for tp in self._read_before - self._gone
        )
