"""Where the partitions of a source begin and end, as the brokers say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet

from spark_kafka_eos.errors import DataLoss, UnknownTopic
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.backoff import OUTDATED_LEADER_MS
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import SourceOptions
from spark_kafka_eos.reading import planning
from spark_kafka_eos.reading.source_partitions import SourcePartitions

_Ask = Callable[[Sequence[TopicPartition]], dict[TopicPartition, int]]


class PartitionOffsets:
    """The offsets of the `partitions` of a source; `last_seen` are the ends of the last request. Not thread-safe."""

    def __init__(self, options: SourceOptions, cluster: Cluster, partitions: SourcePartitions) -> None:
        self._options, self._cluster, self._partitions = options, cluster, partitions
        self.last_seen: dict[TopicPartition, int] = {}
        self.pins = False  # the ends are kept, now or when they are requested next
        self._pinned: dict[TopicPartition, int] | None = None

    @property
    def pinned(self) -> bool:
        """Whether the ends stay as they are."""
        return self._pinned is not None

    def pin(self) -> None:
        """Keep the ends as they are when they are requested next."""
        self.pins, self._pinned = True, None

    def pin_anew(self, topics: Collection[str]) -> None:
        """Take the ends of topics that were created again, if the ends are pinned."""
        if self._pinned is not None:
            self._pinned |= {tp: offset for tp, offset in self.latest().items() if tp.topic in topics}

    def earliest(self, selection: AbstractSet[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The first offsets that there are, of all partitions or of these."""
        return self._of_existing(lambda partitions: offsets.earliest(self._cluster, partitions), selection)

    def latest(self) -> dict[TopicPartition, int]:
        """The current ends, in the source's isolation level."""
        isolation_level = self._options.isolation_level
        self.last_seen = self._of_existing(
            lambda tps: offsets.latest(self._cluster, tps, isolation_level=isolation_level)
        )
        return dict(self.last_seen)

    def last(self) -> dict[TopicPartition, int]:
        """The current ends, or the pinned ones."""
        if self._pinned is not None:
            return dict(self._pinned)
        last = self.latest()
        if self.pins:
            self._pinned = dict(last)
        return last

    def _of_existing(
        self, ask: _Ask, selection: AbstractSet[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """`ask` for the existing partitions (only those in `selection`), again if one was deleted in the meantime."""

        def existing(*, now: bool) -> list[TopicPartition]:
            return [tp for tp in self._partitions.current(now=now) if selection is None or tp in selection]

        try:
            return ask(existing(now=False))
        except UnknownTopic:
            return ask(existing(now=True))

    def ends(self, begin: Offsets) -> dict[TopicPartition, int]:
        """The last stable offsets, current or pinned; if `begin` is already past one, its offset stays as it is."""
        return self.not_before(begin, self.last())

    def not_before(self, begin: Offsets, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`end`, or `begin` where that is past the last stable offset, but not past the log's end."""
        past = [tp for tp, offset in end.items() if begin.get(tp, 0) > offset]
        if past and self._options.isolation_level == "read_committed":
            high_watermarks = offsets.latest(self._cluster, past, isolation_level="read_uncommitted")
            end |= {tp: begin[tp] for tp, offset in high_watermarks.items() if begin[tp] <= offset}
        return end

    def caught_up(self, begin: Offsets, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`end`, requested again for a while if a partition ends before `begin`: its leader may be outdated."""
        budget = self._cluster.budget(OUTDATED_LEADER_MS)
        while any(begin.get(tp, 0) > at for tp, at in end.items()) and (delay := budget.delay()) is not None:
            self._cluster.sleep(delay)
            self._partitions.current(now=True)
            end = self.ends(begin)
        return end

    def within_bytes(self, begin: Offsets, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
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

        earliest = self.earliest(end.keys())
        ranges = planning.plan(begin, end, earliest=earliest, fail_on_data_loss=False).ranges
        return ends_by_weight(self._cluster, limit, ranges, self._options.isolation_level)
