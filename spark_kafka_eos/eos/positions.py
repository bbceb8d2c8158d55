"""Where a source's partitions begin and end: asks the cluster, and leaves every decision to `core.planning`.

What is not obvious:
- Spark does not write a query's first offset down. If batch 0 has to run again after a crash, Spark asks for the first
  offset again, and `latest` or a group's offset have moved by then: what lay between would be lost. So a start that is
  not reproducible is left `UNRESOLVED`, and batch 0 reads nothing: its end, which Spark writes down before the batch
  runs, is the start. (With `latest`, batch 0 of the built-in source is empty as well.)
- Spark compares offsets as text. Nothing new is said by equal text, which `offsets_to_json` makes of equal offsets.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from spark_kafka_eos.broker import offsets
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.core import planning
from spark_kafka_eos.core.tasks import Task, split
from spark_kafka_eos.errors import UnknownTopic
from spark_kafka_eos.model import UNRESOLVED, Offsets, TopicPartition, offsets_from_json, offsets_to_json
from spark_kafka_eos.options import SourceOptions, Timestamps

log = logging.getLogger(__name__)

JsonOffsets = dict[str, dict[str, int]]

# How late an added partition or a new topic may be noticed; the built-in source looks every time.
_LOOK_AGAIN_SECONDS = 5.0


class Positions:
    """The offsets of one query's or one batch read's source; a context manager that closes its connections.

    Raises ConfigurationError, UnknownTopic, DataLoss, AuthorizationFailed, BrokerError, BrokerUnreachable; each answer
    comes or fails within request.timeout.ms, or delivery.timeout.ms once the cluster was reached.
    """

    def __init__(
        self, options: SourceOptions, cluster: Cluster | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._cluster = cluster or Cluster(options.client)
        self._clock = clock
        self._partitions: tuple[TopicPartition, ...] = ()
        self._looked = float("-inf")
        self._seen: dict[TopicPartition, int] = {}
        self._pinned: dict[TopicPartition, int] | None = None
        self._last_advance = float("-inf")

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
        wanted = self._options.starting_offsets
        partitions = self._look()
        earliest, latest = offsets.earliest(self._cluster, partitions), self._latest()
        if isinstance(wanted, Timestamps):
            return self._at("startingOffsetsByTimestamp", wanted, latest)
        committed = self._committed(partitions) if wanted == "committed" else None
        return planning.starting_offsets(wanted, earliest=earliest, latest=latest, committed=committed)

    def ending(self) -> dict[TopicPartition, int]:
        """Where a batch read ends, for every partition."""
        wanted, latest = self._options.ending_offsets, self._latest()
        if isinstance(wanted, Timestamps):
            return self._at("endingOffsetsByTimestamp", wanted, latest)
        return planning.ending_offsets(wanted, latest=latest)

    def tasks(self, start: Offsets, end: Offsets) -> list[Task]:
        """What each Spark task reads. What is gone raises DataLoss, or is logged if failOnDataLoss is false."""
        if start == end:
            return []
        named = start.keys() | end.keys()
        earliest = offsets.earliest(self._cluster, [tp for tp in self._look() if tp in named])
        plan = planning.plan(start, end, earliest=earliest, fail_on_data_loss=self._options.fail_on_data_loss)
        for lost in plan.lost:
            log.warning("data was lost and is left out (failOnDataLoss is false): %s", lost)
        return split(
            plan.ranges,
            parallelism=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )

    # -- a stream

    def initial(self) -> JsonOffsets:
        """Where a new stream starts; UNRESOLVED unless the same is said when Spark asks again after a crash."""
        wanted = self._options.starting_offsets
        if wanted == "earliest" or (isinstance(wanted, Mapping) and planning.LATEST not in wanted.values()):
            return offsets_to_json(self.starting())
        return {name: dict(partitions) for name, partitions in UNRESOLVED.items()}

    def latest(self, start: JsonOffsets, *, limited: bool) -> JsonOffsets:
        """Where the micro-batch after `start` ends; `start` itself if there is nothing to read, or not enough yet.

        `limited`: whether minOffsetsPerTrigger and maxOffsetsPerTrigger hold (the trigger may override them).
        """
        if start == UNRESOLVED:
            pinned = self._pinned or {}
            return offsets_to_json({tp: min(offset, pinned.get(tp, offset)) for tp, offset in self.starting().items()})
        begin, end = offsets_from_json(start), self._latest() if self._pinned is None else self._pinned
        earliest = offsets.earliest(self._cluster, end.keys() - begin.keys())  # of partitions that are new
        if limited and self._waits(planning.available(begin, earliest=earliest, latest=end)):
            return start
        self._last_advance = self._clock()
        limit = self._options.max_offsets_per_trigger if limited else None
        return offsets_to_json(planning.end_offsets(begin, earliest=earliest, latest=end, limit=limit))

    def pin(self) -> None:
        """Trigger.AvailableNow: read up to what is there now, and no further."""
        self._look(now=True)
        self._pinned = self._latest()

    def reported(self) -> JsonOffsets:
        """The ends as last asked for, for the query's progress."""
        return offsets_to_json(self._seen)

    def batch(self, start: JsonOffsets, end: JsonOffsets) -> list[Task]:
        """What each Spark task of a micro-batch reads."""
        if start == UNRESOLVED:
            return []
        begin, ends = offsets_from_json(start), offsets_from_json(end)
        # A first batch that runs again has asked for its start anew: partitions added since belong to the next one.
        later = {tp for tp in begin.keys() - ends.keys() if tp in self._look()}
        return self.tasks({tp: offset for tp, offset in begin.items() if tp not in later}, ends)

    # -- asking

    def _latest(self) -> dict[TopicPartition, int]:
        self._seen = offsets.latest(self._cluster, self._look(), isolation=self._options.isolation)
        return dict(self._seen)

    def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's offsets, after any transaction that is about to commit some (KIP-447)."""
        found = GroupCoordinator(self._cluster, self._options.group_id or "").fetch_offsets(partitions)
        return {tp: None if committed is None else committed.offset for tp, committed in found.items()}

    def _at(self, option: str, wanted: Timestamps, latest: Offsets) -> dict[TopicPartition, int]:
        times = planning.timestamps(option, wanted, latest)
        found = offsets.at_times(self._cluster, times, isolation=self._options.isolation)
        return planning.offsets_by_time(option, wanted, found, latest=latest)

    def _waits(self, available: int) -> bool:
        """Whether to put the batch off until minOffsetsPerTrigger are there; not the first, nor in AvailableNow."""
        least = self._options.min_offsets_per_trigger
        if least is None or available >= least or self._pinned is not None:
            return False
        return (self._clock() - self._last_advance) * 1000 < self._options.max_trigger_delay_ms

    def _look(self, *, now: bool = False) -> tuple[TopicPartition, ...]:
        """The partitions to read, looked up again every few seconds."""
        if now or self._clock() - self._looked > _LOOK_AGAIN_SECONDS:
            self._partitions = tuple(sorted(self._read_partitions()))
            self._looked = self._clock()
        return self._partitions

    def _read_partitions(self) -> Iterable[TopicPartition]:
        options, cluster = self._options, self._cluster
        if options.subscribe_pattern is not None:
            topics = [name for name in cluster.topic_names() if re.fullmatch(options.subscribe_pattern, name)]
        else:
            topics = list(options.subscribe) or [tp.topic for tp in options.assign]
        cluster.refresh(topics)
        existing = {TopicPartition(name, number) for name in topics for number in cluster.topic(name).partitions}
        if missing := sorted(set(options.assign) - existing):
            raise UnknownTopic(f"{missing[0]} is to be read (option 'assign') but does not exist")
        return set(options.assign) or existing
