"""Where a source starts, and a batch read ends: by name, offset, time, or the commits of a group or a sink."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import SourceOptions, Timestamps
from spark_kafka_eos.reading import planning
from spark_kafka_eos.reading.partition_offsets import PartitionOffsets
from spark_kafka_eos.reading.source_partitions import SourcePartitions
from spark_kafka_eos.source_offset import Origin, SinkIdentity

if TYPE_CHECKING:
    from spark_kafka_eos.reading.by_time import OffsetsByTime

log = logger(__name__)


class SourceStart:
    """The start of a source, and the end of a batch read. `origin` is that of a start that the sink's ledger gives. Not
    thread-safe.
    """

    def __init__(
        self, options: SourceOptions, cluster: Cluster, partitions: SourcePartitions, offsets: PartitionOffsets
    ) -> None:
        self._options, self._cluster, self._partitions, self._offsets = options, cluster, partitions, offsets
        self._by_time: OffsetsByTime | None = None
        self._earliest: Offsets = {}  # as the start found them
        self.origin: Origin | None = None
        self._committed_by: tuple[SinkIdentity, ...] = ()

    def offsets(self) -> dict[TopicPartition, int]:
        """Where a new query starts, for every partition."""
        option = self._options.starting_offsets
        earliest, latest = self._offsets.earliest(), self._offsets.last()
        # One that appears in between is no part of the start; like every new partition, it is read from its beginning.
        latest = {tp: offset for tp, offset in latest.items() if tp in earliest}
        self._earliest = earliest = {tp: offset for tp, offset in earliest.items() if tp in latest}
        latest = self._not_before_the_first(latest)
        if isinstance(option, Timestamps):
            return self._at("startingOffsetsByTimestamp", option, latest)
        committed = self._committed(earliest) if str(option).startswith("committed") else None
        strategy = self._options.starting_offsets_strategy
        return planning.starting_offsets(
            option, earliest=earliest, latest=latest, strategy=strategy, committed=committed
        )

    def ending(self) -> dict[TopicPartition, int]:
        """Where a batch read ends, for every partition. It is looked up after `offsets`."""
        option, latest = self._options.ending_offsets, self._not_before_the_first(self._offsets.latest())
        if isinstance(option, Timestamps):
            return self._at("endingOffsetsByTimestamp", option, latest)
        return planning.ending_offsets(option, latest=latest)

    def _not_before_the_first(self, latest: Offsets) -> dict[TopicPartition, int]:
        """After DeleteRecords to an offset inside a record batch of an open transaction, the last stable offset is the
        one where that batch began (4.4.0). What was deleted is no part of a read that starts or ends there.
        """
        return {tp: max(offset, self._earliest.get(tp, offset)) for tp, offset in latest.items()}

    def unrecorded(self, ends: Offsets) -> dict[TopicPartition, int]:
        """Where batch 0 starts if the built-in source has planned it, or release 0.1.0. Raises ConfigurationError
        unless the options give the same start now as they did then, or, of partitions that begin later than they may
        have then, records may be lost.
        """
        option = self._options.starting_offsets
        if option != "earliest" and (not isinstance(option, Mapping) or planning.LATEST in option.values()):
            raise _start_unknown("by now this option may mean another start")
        start, there = self.offsets(), self._partitions.current()
        # Partitions added since belong to the next batch.
        start = {tp: offset for tp, offset in start.items() if tp in ends or tp not in there}
        listed = option if isinstance(option, Mapping) else {}
        if self._options.starting_offsets_strategy == "latest" and (unlisted := sorted(start.keys() - listed.keys())):
            raise _start_unknown(f"startingOffsetsStrategy=latest may mean another start of {unlisted[0]} by now")
        moved = sorted(tp for tp, at in start.items() if at > 0 and listed.get(tp, planning.EARLIEST) < 0)
        if moved and self._options.fail_on_data_loss:
            begins = ", ".join(f"{tp} begins at {start[tp]}" for tp in moved[:5])
            raise _start_unknown(f"what it starts with may be deleted by now: {begins}")
        for tp in moved:
            log.warning("the first batch reads %s from %d, and may have begun before", tp, start[tp])
        return start

    def sinks(self) -> tuple[SinkIdentity, ...]:
        """The sinks by whose commits this source goes: those whose offsets it starts from, or the one that it names.

        The query's sink compares them with itself: what another one has committed is not in its output.
        """
        sink = self._options.sink
        if self._committed_by or sink is None:
            return self._committed_by
        here = self._cluster.cluster_id() if sink.client == self._options.client else ""
        return (SinkIdentity(transactional_id=sink.transactional_id, ledger_topic=sink.topic, cluster=here),)

    def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The ledger's offsets of this cluster, else the group's, after waiting for any transaction that is committing
        some (KIP-447).
        """
        if self._options.sink is not None:
            from spark_kafka_eos.ledger.progress import committed_progress

            progress, sink = committed_progress(self._options.sink, self._cluster.cluster_id())
            self.origin, self._committed_by = progress.origin, (sink,)
            if progress.offsets:
                self._partitions.compare({tp.topic for tp in progress.offsets}, progress.origin)
            return {tp: progress.offsets.get(tp) for tp in partitions}
        from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
        from spark_kafka_eos.ledger.source_mark import marked_by

        committed = GroupCoordinator(self._cluster, self._options.group_id or "").fetch_offsets(partitions)
        marks = {marked_by(at) for at in committed.values() if at is not None}
        self._committed_by = tuple(SinkIdentity(transactional_id=mark) for mark in sorted(filter(None, marks)))
        return {tp: None if at is None else at.offset for tp, at in committed.items()}

    def _at(self, option: str, timestamps: Timestamps, latest: Offsets) -> dict[TopicPartition, int]:
        times = planning.timestamps(option, timestamps, latest)
        return planning.offsets_by_time(option, timestamps, self.at_times(times), latest=latest)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time, in milliseconds; None if there is none."""
        if self._by_time is None:
            from spark_kafka_eos.reading.by_time import OffsetsByTime  # on demand: fetches and decodes

            self._by_time = OffsetsByTime(self._cluster, self._options.isolation_level)
        return self._by_time.offsets(times)

    def forget_times(self, topics: Collection[str], partitions: Collection[TopicPartition]) -> None:
        """Forget the offsets by time of topics that are others now, and of partitions that have other records."""
        if self._by_time is not None:
            self._by_time.forget(topics, partitions)


def _start_unknown(why: str) -> ConfigurationError:
    return ConfigurationError(
        "startingOffsets",
        "the built-in source, or release 0.1.0, has planned the checkpoint's first batch, which was not committed. It "
        f"does not say where it starts, and {why}. Nothing was read",
        action="Set startingOffsets to the JSON in sources/0/0 of the checkpoint, where the built-in source keeps the "
        "start. Release 0.1.0 read nothing in such a batch: it starts where offsets/0 says that it ends. Or start the "
        "query as it was until that batch is done, and change it then.",
    )
