"""Determines which record batches of a fetched partition are visible.

A Fetch response with isolation read_committed contains everything up to the last stable offset, including aborted data,
and lists the aborted transactions in the fetched range (producer id, first offset). A producer's transactional batches
are invisible from a listed first offset up to the abort marker of that transaction. Control batches are never visible.

No state is kept between responses: each lists all its aborted transactions, even those that started before the fetched
range or end after it. So visibility depends only on the response, wherever the read started. Sources: KIP-98 ("aborted
transactions"), Kafka's protocol guide (Fetch response, v4 and later).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from spark_kafka_eos.model import AbortedTransaction, IsolationLevel, RecordBatchHeader

# The type of a control batch; None for a data batch, "other" for a control batch that does not end a transaction.
Marker = Literal["abort", "commit", "other"] | None


def visible(
    batches: Sequence[RecordBatchHeader],
    markers: Sequence[Marker],
    aborted: Sequence[AbortedTransaction],
    isolation: IsolationLevel = "read_committed",
) -> list[bool]:
    """Whether the records of each batch are visible, for one partition of a Fetch response in log order."""
    if isolation == "read_uncommitted" or not aborted:
        return [not batch.is_control for batch in batches]
    pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()  # producers between a listed first offset and its abort marker
    out = []
    for batch, marker in zip(batches, markers, strict=True):
        while pending and pending[-1].first_offset < batch.next_offset:
            aborting.add(pending.pop().producer_id)
        if batch.is_control:
            if marker == "abort":
                aborting.discard(batch.producer_id)
            out.append(False)
        else:
            out.append(not (batch.is_transactional and batch.producer_id in aborting))
    return out
