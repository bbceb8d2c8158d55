"""Micro-batches and what the ledger topic holds of them, as most tests need them."""

from __future__ import annotations

from spark_kafka_eos.appending.append_mode import Choice
from spark_kafka_eos.ledger.records import LedgerRecord
from spark_kafka_eos.model import Offsets, SourceRange

BY_DRIVER, BY_EXECUTORS = Choice(mode="driver"), Choice(mode="executors")


def reads(start: Offsets | None, end: Offsets) -> tuple[SourceRange]:
    """Of a micro-batch with one source, which is Kafka: what it reads. `start` is None if it is unknown."""
    return (SourceRange(start=start, end=end),)


def record(*, at_ms: int = 0) -> LedgerRecord:
    """A record of the ledger topic, written in a transaction."""
    return LedgerRecord(offset=0, timestamp_ms=at_ms, value=b"", producer_id=1, epoch=0)
