"""Determines which record batches of a fetched partition are visible.

A Fetch response with isolation read_committed contains everything up to the last stable offset, including aborted data,
and lists the aborted transactions in the fetched range (producer id, first offset). A producer's transactional batches
are invisible from a listed first offset up to the abort marker of that transaction. Control batches are never visible.

No state is kept between responses: each lists all its aborted transactions, even those that started before the fetched
range or end after it. So visibility depends only on the response, wherever the read started. Sources: KIP-98 ("aborted
transactions"), Kafka's protocol guide (Fetch response, v4 and later).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spark_kafka_eos.model import CONTROL, TRANSACTIONAL, AbortedTransaction, IsolationLevel

# The type of a control batch; "other" for one that does not end a transaction.
Marker = Literal["abort", "commit", "other"]


def visible(
    headers: NDArray[np.void],
    aborted: Collection[AbortedTransaction],
    marker: Callable[[int], Marker],
    isolation_level: IsolationLevel = "read_committed",
) -> NDArray[np.bool_]:
    """Whether each record batch has visible records, for one partition of a Fetch response in log order.

    `headers` has `RecordBatchHeader`'s fields (`wire.header_table`). `marker` reads the control batch in a row of it;
    only those that may end an aborted transaction are read.
    """
    control = headers["attributes"] & CONTROL != 0
    shown: NDArray[np.bool_] = ~control
    if isolation_level == "read_uncommitted" or not aborted:
        return shown
    first_offsets: dict[int, list[int]] = defaultdict(list)
    for transaction in aborted:
        first_offsets[transaction.producer_id].append(transaction.first_offset)
    # The batches that a transaction consists of, in log order for each producer.
    some = np.flatnonzero(headers["attributes"] & (TRANSACTIONAL | CONTROL))
    some = some[np.argsort(headers["producer_id"][some], kind="stable")]
    producer = headers["producer_id"][some]
    next_offset = headers["base_offset"] + headers["last_offset_delta"] + 1
    for producer_id, offsets in first_offsets.items():
        own = some[slice(*np.searchsorted(producer, [producer_id, producer_id + 1]))]
        markers = iter(np.flatnonzero(control[own]).tolist())
        ended = 0  # of `own`: up to the last abort marker
        for first in np.searchsorted(next_offset[own], sorted(offsets), side="right").tolist():
            if first < ended:
                continue  # in the same transaction
            abort = (at for at in markers if at >= first and marker(int(own[at])) == "abort")
            ended = next(abort, len(own) - 1) + 1
            shown[own[first:ended]] = False
    return shown
