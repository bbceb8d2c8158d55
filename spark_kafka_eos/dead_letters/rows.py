"""The rows of an encode task that become dead letters: rows with an error, and rows that cannot be written.

They wait here until the encoder takes them as rows for the dead-letter topic, in their original order. Their key
decides on their partition, whatever their column `partition` says of the other topic. Their time is that of writing,
from which the topic's retention counts; the column `timestamp` is in a header.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_eos.dead_letters.causes import Cause, cause_of, counted
from spark_kafka_eos.dead_letters.headers import ERROR, LETTERS, header_columns
from spark_kafka_eos.dead_letters.signature import MAC, signature
from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.wire.headers import HEADERS

# The type of the column `source`.
SOURCE = pa.struct(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.int64())]
)

NUMBER = "row number"  # an int64 column that the encoder adds: the order of the task's rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTopic:
    """The topic for dead letters, what their headers say of the batch, and the key that signs them, if there is one."""

    topic: str
    query_id: str | None = None
    batch_id: int | None = None
    transactional_id: str | None = None
    ledger_key: Secret | None = None


class DeadLetters:
    """The dead letters of one encode task: those that wait to be encoded, and the counts of all of them."""

    def __init__(self, where: DeadLetterTopic) -> None:
        self._counts: Counter[str] = Counter()
        self._batch: dict[str, object] = {
            "query_id": where.query_id,
            "batch_id": where.batch_id,
            "transactional_id": where.transactional_id,
        }
        self._key = where.ledger_key
        self._rows: list[pa.RecordBatch] = []
        self._letters: list[pa.RecordBatch] = []

    @property
    def counts(self) -> dict[str, int]:
        """The number of all dead letters so far, by cause."""
        return counted([self._counts])

    def add(self, rows: pa.RecordBatch, errors: pa.StructArray) -> None:
        """Put rows aside, each with its error, as in the column `error`."""
        self._add(rows, dict(zip(ERROR.names, errors.flatten(), strict=True)))

    def refuse(self, rows: pa.RecordBatch, cause: Cause, message: str, output_topic: str | None) -> None:
        """Put rows aside that cannot be written to this topic."""
        self._add(rows, {"cause": str(cause), "message": message, "output_topic": output_topic})

    def _add(self, rows: pa.RecordBatch, values: Mapping[str, object]) -> None:
        source = rows.column("source").flatten() if "source" in rows.schema.names else [None] * len(SOURCE)
        values = {**self._batch, **dict(zip(SOURCE.names, source, strict=True)), **values}
        if "timestamp" in rows.schema.names:
            values["output_timestamp"] = rows.column("timestamp")
        letters = [_column(values.get(field.name), field.type, rows.num_rows) for field in LETTERS]
        self._letters.append(pa.RecordBatch.from_arrays(letters, schema=LETTERS))
        self._rows.append(rows)
        for entry in pc.value_counts(self._letters[-1].column("cause")).to_pylist():
            self._counts[cause_of(entry["values"])] += entry["counts"]

    def take(self) -> pa.RecordBatch | None:
        """The rows for the dead-letter topic that wait, in the task's order; None if there are none."""
        if not self._rows:
            return None
        names = [name for name in ("key", "value", "headers", NUMBER) if name in self._rows[0].schema.names]
        rows, letters = _joined([rows.select(names) for rows in self._rows]), _joined(self._letters)
        order = pa.array(np.argsort(rows.column(NUMBER).to_numpy(), kind="stable"))
        rows, letters = rows.take(order), letters.take(order)
        self._rows, self._letters = [], []
        columns = {name: rows.column(name) for name in names if name != NUMBER}
        made = pa.RecordBatch.from_pydict(columns | {"headers": _with_headers(columns.get("headers"), letters)})
        return made if self._key is None else _signed(made, self._key.reveal())


def _column(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    if isinstance(value, pa.Array):
        return value.cast(kind)
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _with_headers(own: pa.ListArray | None, letters: pa.RecordBatch) -> pa.ListArray:
    """Each row's own headers, without those that are null or have no key, and then its letter's."""
    owners, keys, values = [], [], []
    if own is not None:
        of_row = np.repeat(np.arange(len(own)), own.value_lengths().fill_null(0).to_numpy())
        key, value = own.flatten().flatten()
        valid = key.is_valid()
        owners.append(of_row[valid.to_numpy(zero_copy_only=False)])
        keys.append(key.filter(valid))
        values.append(value.filter(valid))
    for name, rows, content in header_columns(letters):
        owners.append(rows)
        keys.append(pa.repeat(pa.scalar(name), len(rows)))
        values.append(content)
    owner = np.concatenate(owners)
    order = pa.array(np.argsort(owner, kind="stable"))
    ends = np.zeros(letters.num_rows + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=letters.num_rows), out=ends[1:])
    headers = pa.StructArray.from_arrays(
        [pa.concat_arrays(keys).take(order), pa.concat_arrays(values).take(order)], fields=list(HEADERS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(ends), headers)


def _signed(rows: pa.RecordBatch, secret: str) -> pa.RecordBatch:
    """The rows, each with its signature as the last header."""
    names = [name for name in ("key", "value", "headers") if name in rows.schema.names]
    headers = []
    for row in rows.select(names).to_pylist():
        own = [(header["key"], header["value"]) for header in row["headers"]]
        mac = signature(secret, _bytes(row.get("key")), _bytes(row.get("value")), own)
        headers.append([*row["headers"], {"key": MAC, "value": mac}])
    at = rows.schema.get_field_index("headers")
    return rows.set_column(at, "headers", pa.array(headers, rows.schema.field(at).type))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
