"""Which record batches of a fetched partition a reader may see.

A Fetch response with isolation read_committed holds everything up to the last stable offset, aborted data included, and
lists the aborted transactions that touch the fetched range (producer id, first offset). A producer's transactional
batches are invisible from a listed first offset up to the abort marker that ends it. Control batches are never visible.

Nothing is carried from one response to the next: each lists every aborted transaction it touches, also one that began
before the fetched range or ends behind it. So the answer for a response depends on that response alone, wherever the
read started. Sources: KIP-98 ("aborted transactions"), Kafka's protocol guide (Fetch response, v4 and later).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from spark_kafka_eos.model import AbortedTransaction, RecordBatchHeader

Isolation = Literal["read_committed", "read_uncommitted"]
# What a control batch marks; None for a data batch, "other" for a control batch that ends no transaction.
Marker = Literal["abort", "commit", "other"] | None


def visible(
    batches: Sequence[RecordBatchHeader],
    markers: Sequence[Marker],
    aborted: Sequence[AbortedTransaction],
    isolation: Isolation = "read_committed",
) -> list[bool]:
    """For each batch of one Fetch response's partition, in log order, whether its records are visible."""
    if isolation == "read_uncommitted" or not aborted:
        return [not batch.is_control for batch in batches]
    pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()  # producers between a listed first offset and its marker
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
