"""How a micro-batch ended, in the few figures that the process that commits it sends to the listener."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """`outcome`, `error`, `dead_letters`, `milliseconds` and `retries` are those of `CommitReport`; `epoch` is None if
    there was none.

    `ended_at` is in seconds since 1970.
    """

    query_id: str
    batch_id: int
    transactional_id: str
    outcome: str
    ended_at: float
    error: str = ""
    epoch: int | None = None
    records: int = 0
    bytes: int = 0
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    aborted_attempts: int = 0
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)
