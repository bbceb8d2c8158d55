"""What each Spark task reads of the offsets between two points, and what of them is gone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from spark_kafka_eos.errors import ConfigurationError, DataLoss, UnknownTopic
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import OffsetRange, Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import SourceOptions
from spark_kafka_eos.reading import planning
from spark_kafka_eos.reading.partition_offsets import PartitionOffsets
from spark_kafka_eos.reading.source_partitions import SourcePartitions
from spark_kafka_eos.reading.task_split import Task, split
from spark_kafka_eos.reading.topic_identity import TopicIdentity
from spark_kafka_eos.source_offset import Origin

log = logger(__name__)

# Fewer offsets than these are not worth a request for samples, and samples are worth it for a while.
_FEW_OFFSETS = 10_000
_SAMPLES_AGE_SECONDS = 60.0


class TaskPlanner:
    """Plans the tasks of a source. Not thread-safe."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        identity: TopicIdentity,
        partitions: SourcePartitions,
        offsets: PartitionOffsets,
        clock: Callable[[], float],
    ) -> None:
        self._options, self._cluster, self._identity = options, cluster, identity
        self._partitions, self._offsets, self._clock = partitions, offsets, clock
        self._weights: dict[TopicPartition, float] = {}  # bytes per offset
        self._sampled = float("-inf")

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
        has the topics that were created again between the two. `origin` is that of `end`, if it is recorded: logs may
        have been truncated since.
        """
        if start == end:
            return []
        self._partitions.read_before |= start.keys() | end.keys()
        if leaving := self._leaving(start, end):
            log.warning(
                "the query goes on without %s; if it reads such a topic again, it begins at its first record",
                ", ".join(sorted({tp.topic for tp in leaving})),
            )
            start, end = ({tp: at for tp, at in each.items() if tp not in leaving} for each in (start, end))
        earliest = self._offsets.earliest(start.keys() | end.keys())
        plan = planning.plan(
            start,
            end,
            earliest=earliest,
            fail_on_data_loss=self._options.fail_on_data_loss,
            perhaps_unread=perhaps_unread,
            created_again=created_again or {},
            latest=self._offsets.latest() if created_again else {},
            log_ends=self._identity.log_ends(origin, end),
        )
        for lost in plan.lost:
            count = "" if lost.offsets is None else f": {lost.offsets:,} offsets"
            log.warning("data was lost and is skipped (failOnDataLoss is false): %s%s", lost, count)
        recorded = {} if origin is None else origin.leader_epochs
        ranges = [
            replace(
                offset_range,
                topic_id=self._identity.topic_id(tp.topic),
                leader_epoch=recorded[tp] if tp in recorded else self._cluster.leader_epoch(tp),
            )
            for offset_range in plan.ranges
            for tp in [offset_range.partition]
        ]
        return split(
            ranges,
            parallelism=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
            max_bytes=self._options.max_bytes_per_partition,
            bytes_per_offset=self._bytes_per_offset(ranges),
        )

    def require_left(self, start: Offsets, end: Offsets) -> None:
        """Before `end` is recorded: raise for partitions that are in `start` only. ConfigurationError if the options do
        not select them and something is unread, DataLoss if they are gone; unless it may be lost. Once it is recorded,
        they could not be selected again.
        """
        if self._options.fail_on_data_loss and (only := start.keys() - end.keys()):
            left = only - self._leaving(start, end)
            planning.plan({tp: start[tp] for tp in left}, {}, earliest={})

    def _leaving(self, start: Offsets, end: Offsets) -> frozenset[TopicPartition]:
        """The partitions that the options no longer select, and that nobody misses. Raises ConfigurationError if
        something of them is unread, unless it may be lost.
        """
        given_up = {*self._options.removed_topics, *self._options.ledger_topics}
        unselected = {
            tp
            for tp in start.keys() | end.keys()
            if not self._options.selects(tp) or (tp.topic in given_up and tp not in self._partitions.current())
        }
        if not unselected:
            return frozenset()
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
            return planning.removed(
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
            return frozenset()  # they are counted among what is lost

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
