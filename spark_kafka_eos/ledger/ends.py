"""Compares where the last committed transaction ended with where a batch starts, for each source and cluster.

`ledger.verdicts` uses it for its decision. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.words import first_three
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress, UnreadableEntry
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange

CommittedOffsets = Mapping[TopicPartition, int | None]
_Place = tuple[str, TopicPartition]  # a partition of the cluster with this id


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedEnd:
    """Where the last committed transaction ended, and the batch's sources with their clusters.

    `committed` has the offset of each partition, None if nothing was committed. `entry` has the same by source, if the
    ledger contains it. `left` is the entry's, for another query: it may begin with all that the last one has read, but
    a query that reads a topic again on its checkpoint reads it from its beginning.
    """

    sources: tuple[SourceRange | None, ...]
    clusters: tuple[str, ...]
    committed: Mapping[_Place, int | None]
    entry: tuple[SourceProgress | None, ...] | None
    left: SourceProgress | None = None

    @classmethod
    def of(
        cls,
        entry: LedgerEntry | UnreadableEntry | None,
        batch: MicroBatch,
        clusters: Sequence[str],
        own: str,
        committed: CommittedOffsets | None,
    ) -> CommittedEnd:
        where = tuple(clusters) or (own,) * len(batch.sources)
        last = entry if isinstance(entry, LedgerEntry) else None
        progresses = None if last is None else last.ends
        left = None if last is None or last.query_id == batch.query_id else last.left
        places: dict[_Place, int | None] = {}
        if progresses is not None:
            for progress in filter(None, (*progresses, left)):
                for tp, offset in progress.offsets.items():
                    place = progress.cluster, tp
                    before = places.get(place)
                    places[place] = offset if before is None else min(offset, before)
        else:
            places = {(own, tp): at for tp, at in (committed or {}).items()}
        return cls(sources=batch.sources, clusters=where, committed=places, entry=progresses, left=left)

    def starts(self) -> dict[_Place, int]:
        return {
            (cluster, tp): offset for cluster, source in self._each() for tp, offset in (source.start or {}).items()
        }

    def known_on(self, own: str) -> set[TopicPartition]:
        """The partitions of the cluster with the id `own` whose committed offset is known."""
        return {tp for (cluster, tp), offset in self.committed.items() if cluster == own and offset is not None}

    def unknown(self) -> str | None:
        """Why the start of the batch is unknown; None if the start of every source is known."""
        if any(source is not None and source.start is None for source in self.sources):
            return "whose first offsets are not available to the sink"
        others = [number for number, source in enumerate(self.sources) if source is None or not source.start]
        if len(others) == len(self.sources):
            return "without a Kafka source"
        return f"whose source {others[0] + 1} of {len(self.sources)} is not Kafka" if others else None

    def discontinuity(self) -> str | None:
        """Why the batch does not start exactly where the last transaction ended; None if it does."""
        start = self.starts()
        if unknown := self.unknown():
            return unknown
        if twice := self._read_twice():
            return twice
        if again := self._created_again():
            return again
        committed = {place: offset for place, offset in self.committed.items() if offset is not None and place in start}
        if not committed:
            return "no committed offsets of its partitions are known"
        moved = [place for place in sorted(committed) if committed[place] != start[place]]
        if moved:
            return first_three(f"{_at(place)} at {start[place]} (committed {committed[place]})" for place in moved)
        return self._why_not_new(start, committed)

    def _read_twice(self) -> str | None:
        """Which partition two of the batch's sources read: `starts` and `committed` have one offset for both."""
        read = sorted((cluster, tp) for cluster, source in self._each() for tp in source.start or {})
        twice = next((place for place, following in pairwise(read) if place == following), None)
        return twice and f"two of its sources read {_at(twice)}, and each may have ended at another offset"

    def _why_not_new(self, start: Mapping[_Place, int], committed: Mapping[_Place, int]) -> str | None:
        last: dict[tuple[str, str], int] = {}
        for cluster, tp in committed:
            last[cluster, tp.topic] = max(tp.partition, last.get((cluster, tp.topic), -1))
        for place in sorted(start.keys() - committed.keys()):
            cluster, tp = place
            if (cluster, tp.topic) not in last:
                return f"nothing is known about topic {tp.topic} (if it is new, first read it with a separate query)"
            if tp.partition < last[cluster, tp.topic]:
                return f"no committed offset of {_at(place)} is known, and it is not a new partition"
            if start[place] != 0:
                return f"the new partition {_at(place)} starts at {start[place]}, not at its beginning"
        return None

    def mismatch(self) -> str | None:
        """How the start of the batch differs from the end of the previous one, by source; None if it does not, or if
        the entry does not have that end.
        """
        if self.entry is None:
            return None
        differences: list[str] = []
        if again := self._created_again():
            differences.append(again)
        if len(self.entry) != len(self.sources):  # of sources that were added, nothing is committed
            differences += filter(None, [self._read_twice()])
            start = self.starts()
            differences += [
                f"{_at(place)} {_starting(start.get(place))} (committed {offset})"
                for place, offset in sorted(self.committed.items())
                if start.get(place) != offset
            ]
            return first_three(differences) or None
        for number, (cluster, source, before) in enumerate(
            zip(self.clusters, self.sources, self.entry, strict=True), start=1
        ):
            if before is None or not before.offsets:
                continue
            if source is None or source.start is None:
                differences.append(f"it is unknown where source {number} starts")
                continue
            if cluster and before.cluster and before.cluster != cluster:
                differences.append(
                    f"the offsets are of cluster {cluster}, but the committed ones are of cluster {before.cluster}"
                )
            differences += [
                f"{tp} {_starting(source.start.get(tp))} (committed {offset})"
                for tp, offset in sorted(before.offsets.items())
                if source.start.get(tp) != offset
            ]
        return first_three(differences) or None

    def _lacks(self) -> bool:
        """Whether the batch lacks a partition that is committed: it is not known what was read of it since."""
        start = self.starts()
        return any(place not in start for place, offset in self.committed.items() if offset is not None)

    def _created_again(self) -> str | None:
        """Which topic of the batch has another id than the one that was committed."""
        committed: dict[tuple[str, str], uuid.UUID] = {}
        for progress in filter(None, (*(self.entry or ()), self.left)):
            if progress.origin is not None:
                committed |= {
                    (progress.cluster, name): topic_id for name, topic_id in progress.origin.topic_ids.items()
                }
        for cluster, source in self._each():
            for name, topic_id in sorted((source.start_origin.topic_ids if source.start_origin else {}).items()):
                before = committed.get((cluster, name), topic_id)
                if before != topic_id:
                    return (
                        f"topic {name} was created again: its id is {topic_id}, and that of the committed one {before}"
                    )
        return None

    def between(self) -> dict[_Place, tuple[int, int]] | None:
        """From where the last transaction ended to where the batch starts, where these differ; None if it is unknown,
        or if the batch starts earlier, or if two sources read one partition.
        """
        if self.entry is None or self.unknown() or self._read_twice() or self._created_again() or self._lacks():
            return None
        gaps = {place: (self.committed.get(place) or 0, start) for place, start in self.starts().items()}
        gaps = {place: (end, start) for place, (end, start) in gaps.items() if end != start}
        return None if any(end > start for end, start in gaps.values()) else gaps

    def gaps_on(self, own: str) -> list[OffsetRange] | None:
        """The ranges of `between` on the cluster with the id `own`; None if there are others, or it is unknown."""
        gaps = self.between()
        if gaps is None or any(cluster != own for cluster, _ in gaps):
            return None
        return [OffsetRange(partition=tp, start=end, end=start) for (_, tp), (end, start) in gaps.items()]

    def is_contiguous(self) -> bool:
        """Whether the batch starts exactly where the last committed transaction ended, in every partition of it, as the
        ledger knows it.
        """
        return self.entry is not None and not self._lacks() and self.discontinuity() is None

    def _was_empty(self) -> bool | None:
        """Whether the last committed batch read nothing, such as one in which only windows closed; None if unknown."""
        if self.entry is None or any(progress and progress.start is None for progress in self.entry):
            return None
        return all(progress is None or progress.start == progress.offsets for progress in self.entry)

    def _is_empty(self) -> bool:
        return all(source.start == source.end for _, source in self._each())

    def is_committed(self) -> bool:
        """Whether everything that the batch reads is already committed. An empty batch at that end may still write,
        when windows close: that is committed if the last committed batch was an empty one, too.
        """
        if self.entry is None or self.unknown():
            return False
        if self.discontinuity() is None:
            return self._is_empty() and self._was_empty() is True
        ends = [((cluster, tp), at) for cluster, source in self._each() for tp, at in source.end.items()]
        return bool(ends) and all(
            (offset := self.committed.get(place)) is not None and at <= offset for place, at in ends
        )

    def continues(self) -> bool:
        """Whether the batch starts exactly where the last committed transaction ended, and is not perhaps that of the
        last commit.
        """
        return self.discontinuity() is None and (not self._is_empty() or self._was_empty() is False)

    def regressions(self) -> Iterator[str]:
        """The partitions whose end in the batch is before its start."""
        for _, source in self._each():
            for tp, start in sorted((source.start or {}).items()):
                if source.end.get(tp, start) < start:
                    yield f"{tp} at {source.end[tp]} (starts at {start})"

    def _each(self) -> Iterator[tuple[str, SourceRange]]:
        for cluster, source in zip(self.clusters, self.sources, strict=True):
            if source is not None:
                yield cluster, source


def is_enough(entry: LedgerEntry | UnreadableEntry | None, batch: MicroBatch) -> bool:
    """Whether the entry says, without the group's offsets, where the batch must start. In real time, these move without
    an entry; of the own query, nothing else is decided by them.
    """
    if not isinstance(entry, LedgerEntry):
        return False
    if entry.query_id == batch.query_id:
        return entry.buckets is None or batch.buckets is not None
    return entry.ends is not None and batch.buckets is None


def _starting(offset: int | None) -> str:
    return "is not in the batch" if offset is None else f"at {offset}"


def _at(place: _Place) -> str:
    return str(place[1])
