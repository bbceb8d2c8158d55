"""Where the sink's options have no effect: each is refused there, or named in a warning.

It is refused where the user would rely on it: for a guarantee, or for the work of the executors. Properties of Kafka's
clients are never refused, because one file of them serves every query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from spark_kafka_eos.options.table import field_of


class Write(Enum):
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
    write: Write
    why: str
    refused: bool = False
    value: object = None


_DRIVER = "Spark's interface for Python sinks leaves the append to the driver; use TransactionalWriter in foreachBatch"
_CHECKPOINT = "a stream's batches are known by its checkpoint, so that none is written twice"
_NO_SOURCE = "a batch write has no source offsets"
_NO_LEDGER = "there is no ledger"
_NO_TRANSACTION = "there is no transaction"
_HEADERS = "the sink writes the column headers whenever there is one"

UNUSED: tuple[Unused, ...] = (
    Unused("appendMode", Write.STREAM, _DRIVER, refused=True, value="executors"),
    Unused("appendMode", Write.BATCH, _DRIVER, refused=True, value="executors"),
    Unused("txnAppId", Write.STREAM, _CHECKPOINT, refused=True),
    Unused("txnAppId", Write.FOREACH_BATCH, _CHECKPOINT, refused=True),
    Unused("txnAppId", Write.AT_LEAST_ONCE, f"{_NO_LEDGER}, so a rerun writes everything again", refused=True),
    Unused("includeHeaders", Write.STREAM, _HEADERS),
    Unused("includeHeaders", Write.BATCH, _HEADERS),
    Unused("includeHeaders", Write.FOREACH_BATCH, _HEADERS),
    Unused("logLevel", Write.FOREACH_BATCH, "the driver's own Python logging decides"),
    Unused("stagingDir", Write.EXECUTORS, "blocks pass through Spark's shuffle"),
    Unused("checkpointLocation", Write.BATCH, "a batch write has no checkpoint"),
    Unused("failOnDataLoss", Write.BATCH, _NO_SOURCE),
    Unused("sourceClusters", Write.BATCH, _NO_SOURCE),
    Unused("kafka.group.id", Write.BATCH, _NO_SOURCE),
    Unused("takeOverQuery", Write.BATCH, "a batch write continues no query"),
    Unused("takeOverQuery", Write.AT_LEAST_ONCE, _NO_LEDGER),
    Unused("resolve", Write.UNREPEATABLE, _NO_LEDGER),
    Unused("resolve", Write.AT_LEAST_ONCE, _NO_LEDGER),
    Unused("ledgerTopic", Write.UNREPEATABLE, _NO_LEDGER),
    Unused("ledgerTopic", Write.AT_LEAST_ONCE, _NO_LEDGER),
    Unused("ledgerKey", Write.UNREPEATABLE, _NO_LEDGER),
    Unused("ledgerKey", Write.AT_LEAST_ONCE, _NO_LEDGER),
    Unused("kafka.transaction.timeout.ms", Write.AT_LEAST_ONCE, _NO_TRANSACTION),
)


def unused(parsed: Mapping[str, object], write: Write) -> Iterator[Unused]:
    """The options among these, parsed and by field, that have no effect on a `write`: a STREAM, BATCH or FOREACH_BATCH.

    One that is refused comes before those that are not, and each only once.
    """
    writes = {write}
    if parsed.get("delivery_guarantee") == "at-least-once":
        writes.add(Write.AT_LEAST_ONCE)
    if write is Write.BATCH and "txn_app_id" not in parsed:
        writes.add(Write.UNREPEATABLE)
    if write is Write.FOREACH_BATCH and parsed.get("append_mode") == "executors":
        writes.add(Write.EXECUTORS)
    found: dict[str, Unused] = {}
    for row in sorted(UNUSED, key=lambda row: not row.refused):
        given = parsed.get(field_of(row.option))
        if row.write in writes and given is not None and row.value in (None, given):
            found.setdefault(row.option, row)
    yield from found.values()
