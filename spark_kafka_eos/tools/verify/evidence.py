"""The data for a check: an output topic's log, its source, what its readers saw, its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire.columns import Int64s
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.tools.verify.outcomes import BatchKind, BatchTable, Outcome, Outcomes, outcomes
from spark_kafka_eos.tools.verify.provenance_bytes import MAGIC, Provenance

Contents = NDArray[np.uint64]  # a digest of each record's key and value, two halves per row

_NO_OFFSETS: Int64s = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class PartitionLog:
    """The log of one output partition: its record batches, and all data records, including aborted ones, in log order.

    `high_watermark` and `last_stable_offset` are the broker's; `start` is its first available offset. `contents` are
    those of the data records, None if they were not computed. `dead_letters` of the records have their provenance from
    their headers.
    """

    partition: TopicPartition
    batches: BatchTable
    offset: Int64s
    provenance: Provenance
    high_watermark: int
    last_stable_offset: int
    start: int = 0
    contents: Contents | None = None
    dead_letters: int = 0

    @cached_property
    def outcomes(self) -> Outcomes:
        return outcomes(self.batches)

    @cached_property
    def batch_of(self) -> NDArray[np.int64]:
        """For each record, the index of its record batch."""
        return np.repeat(np.arange(len(self.batches.records)), self.batches.records)

    @cached_property
    def committed(self) -> NDArray[np.bool_]:
        """Which records are committed."""
        return np.repeat(self.outcomes.of == Outcome.COMMITTED, self.batches.records)

    @cached_property
    def committed_provenance(self) -> Provenance:
        return self.provenance if self.committed.all() else self.provenance[self.committed]

    @cached_property
    def committed_offset(self) -> Int64s:
        return self.offset if self.committed.all() else self.offset[self.committed]

    @cached_property
    def committed_contents(self) -> Contents:
        assert self.contents is not None
        return self.contents[self.committed]

    @cached_property
    def traced(self) -> int:
        """How many data records, committed or not, have provenance."""
        return int((self.provenance["magic"] == MAGIC).sum())

    @cached_property
    def gone(self) -> Int64s:
        """The offsets from `start` to `high_watermark` without a record or a marker: compaction removed them.

        A broker does not skip offsets by itself. Compaction keeps a batch's last offset, but may remove its record.
        """
        present = np.zeros(self.high_watermark - self.start, np.bool_)
        for offsets in (self.offset, self.batches.base_offset[self.batches.kind != BatchKind.DATA]):
            present[offsets[(offsets >= self.start) & (offsets < self.high_watermark)] - self.start] = True
        return self.start + np.flatnonzero(~present)

    @property
    def whole(self) -> bool:
        """Whether everything that was ever written still exists: nothing is deleted or compacted."""
        return not self.start and not self.gone.size

    def at(self, record: int) -> str:
        """Where the `record`th committed record is."""
        return f"{self.partition}@{self.committed_offset[record]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """The records of one source partition: `visible[i]` is whether offset `start + i` has a record that readers see.

    The output must contain those below `end`, and may contain later ones; None if the offset is not known. Records
    before `start` are deleted, those at the offsets `gone` are compacted. `contents` are those of the visible records,
    None if they were not computed; `traced` of them have provenance themselves.
    """

    partition: TopicPartition
    start: int
    end: int | None
    visible: NDArray[np.bool_]
    gone: Int64s = field(default_factory=_NO_OFFSETS.copy)
    contents: Contents | None = None
    traced: int = 0

    @property
    def due(self) -> NDArray[np.bool_]:
        """Which of the offsets of `visible` have a record that the output must contain; none if `end` is unknown."""
        end = self.start if self.end is None else self.end
        return self.visible & (np.arange(len(self.visible)) < end - self.start)

    @property
    def visible_contents(self) -> Contents:
        assert self.contents is not None
        return self.contents

    @property
    def whole(self) -> bool:
        """Whether everything that was ever written still exists: nothing is deleted, compacted or truncated."""
        return not self.start and not self.gone.size and not self.lost_end

    @property
    def lost_end(self) -> int:
        """How many of the offsets below `end` are after the last one that readers see: the log was truncated."""
        return 0 if self.end is None else max(0, self.end - self.start - len(self.visible))

    @property
    def vanished(self) -> int:
        """How many of the offsets below `end` are gone, so that it is not known what was there."""
        if self.end is None:
            return 0
        return min(self.start, self.end) + int((self.gone < self.end).sum()) + self.lost_end

    def of_vanished(self, offset: Int64s) -> int:
        """How many of these are among the `offset`, each counted once."""
        if self.end is None:
            return 0
        last = self.start + len(self.visible)
        known = (offset >= 0) & (offset < self.end)
        known &= (offset < self.start) | (offset >= last) | np.isin(offset, self.gone)
        return len(np.unique(offset[known]))


def source_partition(log: PartitionLog, end: int | None) -> SourcePartition:
    """What readers of a source see of its log. `end`: the offset that the output must have reached, if it is known."""
    stable = log.last_stable_offset
    readable = log.committed & (log.offset >= log.start) & (log.offset < stable)
    visible = np.zeros(stable - log.start, np.bool_)
    visible[log.offset[readable] - log.start] = True
    return SourcePartition(
        partition=log.partition,
        start=log.start,
        end=end,
        visible=visible,
        gone=log.gone[log.gone < stable],
        contents=None if log.contents is None else log.contents[readable],
        traced=int((log.provenance["magic"][readable] == MAGIC).sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The offsets that a reader saw of a partition in `[start, end)`, in the order of reading."""

    start: int
    end: int
    offset: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledger's last batch under an id, None without an entry of it; and the state of its transaction on the
    coordinator ("Empty", "Ongoing", …), empty if the coordinator does not know the id. `undescribed`: why it does not
    say the state.

    `record` is the last one in the ledger topic, `pointer` the entry in its group; None if there is none.
    """

    batch_id: int | None
    transactional_id: str = ""
    transaction_state: str = ""
    undescribed: str = ""
    record: LedgerEntry | None = None
    pointer: LedgerEntry | None = None
