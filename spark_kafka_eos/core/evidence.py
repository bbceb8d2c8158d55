"""What a checker knows of an output topic: its log, its source, what its readers were shown, its ledger."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spark_kafka_eos.core.outcomes import Batches, Outcome, Outcomes, outcomes
from spark_kafka_eos.core.provenance import Provenance
from spark_kafka_eos.model import TopicPartition

Offsets = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PartitionLog:
    """All of one output partition: its record batches, and every data record, aborted ones too, in log order.

    `high_watermark` and `last_stable_offset` are the broker's word.
    """

    partition: TopicPartition
    batches: Batches
    offset: Offsets
    provenance: Provenance
    high_watermark: int
    last_stable_offset: int

    @cached_property
    def outcomes(self) -> Outcomes:
        return outcomes(self.batches)

    @cached_property
    def batch_of(self) -> NDArray[np.int64]:
        """For each record the index of its record batch."""
        return np.repeat(np.arange(len(self.batches.records)), self.batches.records)

    @cached_property
    def committed(self) -> NDArray[np.bool_]:
        """Which records are."""
        return np.repeat(self.outcomes.of == Outcome.COMMITTED, self.batches.records)

    @cached_property
    def committed_provenance(self) -> Provenance:
        return self.provenance if self.committed.all() else self.provenance[self.committed]

    @cached_property
    def committed_offset(self) -> Offsets:
        return self.offset if self.committed.all() else self.offset[self.committed]

    def at(self, record: int) -> str:
        """Where the `record`th committed record is."""
        return f"{self.partition}@{self.committed_offset[record]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """The records of one source partition: `visible[i]` is whether offset `start + i` holds one for its readers.

    The output must have those below `end`; later ones may be there.
    """

    partition: TopicPartition
    start: int
    end: int
    visible: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a reader was shown of a partition in `[start, end)`, in the order in which it was shown."""

    start: int
    end: int
    offset: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Where the ledger stands, and the coordinator's word on the transaction ("Empty", "Ongoing", …), if asked."""

    batch_id: int | None
    transaction_state: str = ""
