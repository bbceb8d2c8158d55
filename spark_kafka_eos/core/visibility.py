"""Determines which record batches of a fetched partition are visible.

A Fetch response with isolation read_committed contains everything up to the last stable offset, including aborted data,
and lists the aborted transactions in the fetched range (producer id, first offset). A producer's transactional batches
are invisible from a listed first offset up to the abort marker of that transaction. Control batches are never visible.

No state is kept between responses: each lists all its aborted transactions, even those that started before the fetched
range or end after it. So visibility depends only on the response, wherever the read started. Sources: KIP-98 ("aborted
transactions"), Kafka's protocol guide (Fetch response, v4 and later).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal

from spark_kafka_eos.model import AbortedTransaction, IsolationLevel, RecordBatchHeader

# The type of a control batch; "other" for one that does not end a transaction.
Marker = Literal["abort", "commit", "other"]


def visible(
    batches: Iterable[RecordBatchHeader],
    aborted: Collection[AbortedTransaction],
    marker: Callable[[RecordBatchHeader], Marker],
    isolation_level: IsolationLevel = "read_committed",
) -> list[RecordBatchHeader]:
    """The batches with visible records, for one partition of a Fetch response in log order.

    `marker` reads a control batch; only those that may end an aborted transaction are read.
    """
    if isolation_level == "read_uncommitted" or not aborted:
        return [batch for batch in batches if not batch.is_control]
    pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()  # producers between a listed first offset and its abort marker
    out = []
    for batch in batches:
        while pending and pending[-1].first_offset < batch.next_offset:
            aborting.add(pending.pop().producer_id)
        if batch.is_control:
            if batch.producer_id in aborting and marker(batch) == "abort":
                aborting.remove(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            out.append(batch)
    return out
