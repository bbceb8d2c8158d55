"""The report of a micro-batch: one value and one log line."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """The outcome of one micro-batch. `milliseconds` has the wall time of the steps `encode`, `append`, `offsets`,
    `end`.

    `outcome` is `committed`, or `skipped` if the ledger shows that the batch was committed before. `redone` has the
    reason of each aborted try. `append_mode` is `driver` or `executors`, and `append_reason` says why (see
    core.append_mode).
    """

    query_id: str
    batch_id: int
    outcome: str
    producer_id: int
    epoch: int
    append_mode: str
    append_reason: str = ""
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    milliseconds: dict[str, float] = field(default_factory=dict)
    redone: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = " ".join(f"{name}={value:.0f}ms" for name, value in self.milliseconds.items())
        why = f" ({self.append_reason})" if self.append_reason else ""
        redone = f" redone={len(self.redone)} ({'; '.join(self.redone)})" if self.redone else ""
        return (
            f"batch {self.batch_id} of query {self.query_id} {self.outcome}: records={self.records} bytes={self.bytes} "
            f"partitions={self.partitions} producer={self.producer_id}/{self.epoch} "
            f"mode={self.append_mode}{why} {steps}{redone}"
        )
