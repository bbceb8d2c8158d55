"""Where the sink's options have no effect: each is refused there, or named in a warning.

It is refused where the user would rely on it: for a guarantee, or for the work of the executors. Properties of Kafka's
clients are never refused, because one file of them serves every query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from spark_kafka_eos.options.table import field_of


class WriteKind(Enum):
    """What a write is; several may be true of one."""

    STREAM = "a stream of `format('kafka-eos')`"
    BATCH = "a batch write"
    UNREPEATABLE = "a batch write without `txnAppId`"
    FOREACH_BATCH = "`TransactionalWriter`"
    EXECUTORS = "`appendMode=executors`"
    AT_LEAST_ONCE = "`deliveryGuarantee=at-least-once`"


class Unused(NamedTuple):
    """An option, where it has no effect, why, and with which value if not with every one."""

    option: str
    write: WriteKind
    why: str
    refused: bool = False
    value: object = None


_DRIVER = "Spark's interface for Python sinks leaves the append to the driver; use TransactionalWriter in foreachBatch"
_CHECKPOINT = "a stream's batches are known by its checkpoint, so that none is written twice"
_NO_SOURCE = "a batch write has no source offsets"
_NO_LEDGER = "there is no ledger"
_NO_TRANSACTION = "there is no transaction"
_NO_PARTICIPANT = "it is for a table that takes part in the transaction of a TransactionalWriter"
_HEADERS = "the sink writes the column headers whenever there is one"

UNUSED: tuple[Unused, ...] = (
    Unused("appendMode", WriteKind.STREAM, _DRIVER, refused=True, value="executors"),
    Unused("appendMode", WriteKind.BATCH, _DRIVER, refused=True, value="executors"),
    Unused("txnAppId", WriteKind.STREAM, _CHECKPOINT, refused=True),
    Unused("txnAppId", WriteKind.FOREACH_BATCH, _CHECKPOINT, refused=True),
    Unused("txnAppId", WriteKind.AT_LEAST_ONCE, f"{_NO_LEDGER}, so a rerun writes everything again", refused=True),
    Unused("includeHeaders", WriteKind.STREAM, _HEADERS),
    Unused("includeHeaders", WriteKind.BATCH, _HEADERS),
    Unused("includeHeaders", WriteKind.FOREACH_BATCH, _HEADERS),
    Unused("logLevel", WriteKind.FOREACH_BATCH, "the driver's own Python logging decides"),
    Unused("stagingDir", WriteKind.EXECUTORS, "blocks pass through Spark's shuffle"),
    Unused("checkpointLocation", WriteKind.BATCH, "a batch write has no checkpoint"),
    Unused("failOnDataLoss", WriteKind.BATCH, _NO_SOURCE),
    Unused("sourceClusters", WriteKind.BATCH, _NO_SOURCE),
    Unused("allowLoop", WriteKind.BATCH, _NO_SOURCE),
    Unused("kafka.group.id", WriteKind.BATCH, _NO_SOURCE),
    Unused("takeOverQuery", WriteKind.BATCH, "a batch write continues no query"),
    Unused("takeOverQuery", WriteKind.AT_LEAST_ONCE, _NO_LEDGER),
    Unused("resolve", WriteKind.UNREPEATABLE, _NO_LEDGER),
    Unused("resolve", WriteKind.AT_LEAST_ONCE, _NO_LEDGER),
    Unused("ledgerTopic", WriteKind.UNREPEATABLE, _NO_LEDGER),
    Unused("ledgerTopic", WriteKind.AT_LEAST_ONCE, _NO_LEDGER),
    Unused("ledgerKey", WriteKind.UNREPEATABLE, _NO_LEDGER),
    Unused("ledgerKey", WriteKind.AT_LEAST_ONCE, _NO_LEDGER),
    Unused("kafka.transaction.timeout.ms", WriteKind.AT_LEAST_ONCE, _NO_TRANSACTION),
    Unused("twoPhaseCommit", WriteKind.STREAM, _NO_PARTICIPANT, refused=True, value=True),
    Unused("twoPhaseCommit", WriteKind.BATCH, _NO_PARTICIPANT, refused=True, value=True),
    Unused("twoPhaseCommit", WriteKind.AT_LEAST_ONCE, _NO_TRANSACTION, refused=True, value=True),
)


def unused(parsed: Mapping[str, object], write: WriteKind) -> Iterator[Unused]:
    """The options among these, parsed and by field, that have no effect on a `write`: a STREAM, BATCH or FOREACH_BATCH.

    One that is refused comes before those that are not, and each only once.
    """
    writes = {write}
    if parsed.get("delivery_guarantee") == "at-least-once":
        writes.add(WriteKind.AT_LEAST_ONCE)
    if write is WriteKind.BATCH and "txn_app_id" not in parsed:
        writes.add(WriteKind.UNREPEATABLE)
    if write is WriteKind.FOREACH_BATCH and parsed.get("append_mode") == "executors":
        writes.add(WriteKind.EXECUTORS)
    rows: dict[str, Unused] = {}
    for row in sorted(UNUSED, key=lambda row: not row.refused):
        value = parsed.get(field_of(row.option))
        if row.write in writes and value is not None and row.value in (None, value):
            rows.setdefault(row.option, row)
    yield from rows.values()
