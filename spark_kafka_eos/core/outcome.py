"""How a micro-batch ended, in the few figures that the process that commits it sends to the listener."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """`outcome` is `failed` if an error other than LedgerRefused ended the batch; `error` is the error's class.

    `ended_at` is in seconds since 1970. `redone` counts the attempts that were aborted, so that the batch was written
    again. `milliseconds` are those of `CommitReport`, `retries` the number of retried requests by error.
    """

    query_id: str
    batch_id: int
    transactional_id: str
    outcome: Literal["committed", "skipped", "refused", "failed"]
    ended_at: float
    error: str = ""
    epoch: int | None = None
    records: int = 0
    bytes: int = 0
    redone: int = 0
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)
