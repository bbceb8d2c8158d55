"""The rows of an encode task that become dead letters: rows with an error, and rows that cannot be written.

They wait here until the encoder takes them as rows for the dead-letter topic, in their original order. Their key
decides on their partition, whatever their column `partition` says of the other topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spark_kafka_eos.core.dead_letters import DeadLetter, cause_of, counted, headers_of
from spark_kafka_eos.wire.headers import HEADERS

# The types of the columns `error` and `source`.
ERROR = pa.struct([("cause", pa.string()), ("message", pa.string()), ("schema_id", pa.int32())])
SOURCE = pa.struct(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.int64())]
)

NUMBER = "row number"  # an int64 column that the encoder adds: the order of the task's rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTopic:
    """The topic for dead letters, and what their headers tell of the batch."""

    topic: str
    query_id: str | None = None
    batch_id: int | None = None
    transactional_id: str | None = None


class DeadLetters:
    """The dead letters of one encode task: those that wait to be encoded, and the counts of all of them."""

    def __init__(self, where: DeadLetterTopic) -> None:
        self._counts: Counter[str] = Counter()
        self._batch = DeadLetter(
            cause="", query_id=where.query_id, batch_id=where.batch_id, transactional_id=where.transactional_id
        )
        self._rows: list[pa.RecordBatch] = []
        self._letters: list[DeadLetter] = []

    @property
    def counts(self) -> dict[str, int]:
        """The number of all dead letters so far, by cause."""
        return counted([self._counts])

    def add(self, rows: pa.RecordBatch, errors: Sequence[dict[str, Any]], output_topic: str | None = None) -> None:
        """Put rows aside, each with its error: `cause`, and `message` and `schema_id` if there are any."""
        sources = rows.column("source").to_pylist() if "source" in rows.schema.names else [None] * rows.num_rows
        for error, source in zip(errors, sources, strict=True):
            letter = replace(self._batch, output_topic=output_topic, **error | (source or {}))
            self._counts[cause_of(letter.cause)] += 1
            self._letters.append(letter)
        self._rows.append(rows)

    def take(self) -> pa.RecordBatch | None:
        """The rows for the dead-letter topic that wait, in the task's order; None if there are none."""
        if not self._rows:
            return None
        names = [
            name for name in ("key", "value", "headers", "timestamp", NUMBER) if name in self._rows[0].schema.names
        ]
        rows = pa.Table.from_batches([rows.select(names) for rows in self._rows]).combine_chunks().to_batches()[0]
        order = np.argsort(rows.column(NUMBER).to_numpy(), kind="stable")
        rows, letters = rows.take(pa.array(order)), [self._letters[index] for index in order]
        self._rows, self._letters = [], []
        columns = {name: rows.column(name) for name in names if name != NUMBER}
        return pa.RecordBatch.from_pydict(columns | {"headers": _with_headers(columns.get("headers"), letters)})


def _with_headers(own: pa.ListArray | None, letters: Sequence[DeadLetter]) -> pa.ListArray:
    """Each row's own headers, without those that are null or have no key, and then its letter's."""
    added = [headers_of(letter) for letter in letters]
    flat = [header for headers in added for header in headers]
    owners = [np.repeat(np.arange(len(letters)), [len(headers) for headers in added])]
    keys = [pa.array([key for key, _ in flat], pa.string())]
    values = [pa.array([value for _, value in flat], pa.binary())]
    if own is not None:
        of_row = np.repeat(np.arange(len(own)), own.value_lengths().fill_null(0).to_numpy())
        key, value = own.flatten().flatten()
        valid = key.is_valid()
        owners.insert(0, of_row[valid.to_numpy(zero_copy_only=False)])
        keys.insert(0, key.filter(valid))
        values.insert(0, value.filter(valid))
    owner = np.concatenate(owners)
    order = pa.array(np.argsort(owner, kind="stable"))
    ends = np.zeros(len(letters) + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=len(letters)), out=ends[1:])
    each = pa.StructArray.from_arrays(
        [pa.concat_arrays(keys).take(order), pa.concat_arrays(values).take(order)], fields=list(HEADERS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(ends), each)
