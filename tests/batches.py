"""What the ledger topic holds of micro-batches, as most tests need it."""

from __future__ import annotations

from spark_kafka_eos.ledger.records import LedgerRecord


def record(*, at_ms: int = 0) -> LedgerRecord:
    """A record of the ledger topic, written in a transaction."""
    return LedgerRecord(offset=0, timestamp_ms=at_ms, value=b"", producer_id=1, epoch=0)
