"""Determines which record batches of a fetched partition are visible. Pure.

A Fetch response with isolation read_committed contains everything up to the last stable offset, including aborted data,
and lists the aborted transactions in the fetched range (producer id, first offset). A producer's transactional batches
are invisible from a listed first offset up to the abort marker of that transaction. Control batches are never visible.

No state is kept between responses: each lists all its aborted transactions, even those that started before the fetched
range or end after it. So visibility depends only on the response, wherever the read started. Sources: KIP-98 ("aborted
transactions"), Kafka's protocol guide (Fetch response, v4 and later).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import IsolationLevel
from spark_kafka_eos.kafka.wire.batch_header import CONTROL, TRANSACTIONAL, AbortedTransaction
from spark_kafka_eos.kafka.wire.control import aborts
from spark_kafka_eos.kafka.wire.header_table import HeaderTable, header_table


def visible_batches(
    part: Fetched, isolation_level: IsolationLevel = "read_committed", *, check_crcs: bool = True
) -> tuple[HeaderTable, NDArray[np.bool_]]:
    """The headers of the record batches of `part`, and whether each has visible records.

    Raises CorruptRecordBatch for an abort marker that cannot be read; `check_crcs` of these batches alone.
    """
    headers = header_table(part.buffer, part.batches)

    def abort_markers(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return aborts(part.buffer, headers[rows], check_crcs=check_crcs)

    return headers, visible(headers, part.aborted, abort_markers, isolation_level)


def visible(
    headers: NDArray[np.void],
    aborted: Collection[AbortedTransaction],
    aborts: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
    isolation_level: IsolationLevel = "read_committed",
) -> NDArray[np.bool_]:
    """Whether each record batch has visible records, for one partition of a Fetch response in log order.

    `headers` has `RecordBatchHeader`'s fields (`wire.header_table`). `aborts` tells of the control batches in some rows
    of it which ones end a transaction with an abort; only those of producers with an aborted transaction are read.

    All transactions at once, because a response may list thousands.
    """
    control = headers["attributes"] & CONTROL != 0
    is_visible: NDArray[np.bool_] = ~control
    if isolation_level == "read_uncommitted" or not aborted or not len(headers):
        return is_visible
    producers, owner = np.unique([transaction.producer_id for transaction in aborted], return_inverse=True)
    # The batches that their transactions may consist of, in log order for each producer.
    rows = np.flatnonzero(headers["attributes"] & (TRANSACTIONAL | CONTROL))
    number = _index(producers, headers["producer_id"][rows])
    rows, number = rows[number >= 0], number[number >= 0]
    place = number * len(headers) + rows  # ascends once it is sorted, so that it can be searched
    order = np.argsort(place)
    rows, place = rows[order], place[order]
    behind = np.searchsorted(place, (owner + 1) * len(headers))  # of each transaction, where its producer's batches end
    # From the first batch with an offset of the transaction up to the next abort marker.
    next_offset = headers["base_offset"] + headers["last_offset_delta"] + 1
    first_row = np.searchsorted(next_offset, [transaction.first_offset for transaction in aborted], side="right")
    first = np.searchsorted(place, owner * len(headers) + np.minimum(first_row, len(headers) - 1))
    first[first_row == len(headers)] = len(rows)
    markers = np.flatnonzero(control[rows])
    markers = markers[aborts(rows[markers])]
    end = np.append(markers + 1, len(rows))[np.searchsorted(markers, first)]
    first, end = np.minimum(first, behind), np.minimum(end, behind)
    hidden = np.zeros(len(rows) + 1, np.int64)
    np.add.at(hidden, first, 1)
    np.add.at(hidden, end, -1)
    is_visible[rows[np.cumsum(hidden[:-1]) > 0]] = False
    return is_visible


def _index(values: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of each in `values`, which ascend; -1 for those that are not there."""
    at = np.minimum(np.searchsorted(values, targets), len(values) - 1)
    return np.where(values[at] == targets, at, -1)
