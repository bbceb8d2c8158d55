"""The headers of a dead letter, which say why it is one and where it came from.

A dead letter is the original record, with these headers after its own. Their values are text in UTF-8, and a header
without a value is left out. The names have the form of Kafka Connect's `__connect.errors.*`; Kafka Streams has
`__streams.errors.*` (KIP-1034).

    __kafka_eos.errors.cause              a short word: one of `Cause`, or the user's own
    __kafka_eos.errors.message            one sentence, at most 500 characters, without the record's content
    __kafka_eos.errors.topic              where the record was read from
    __kafka_eos.errors.partition
    __kafka_eos.errors.offset
    __kafka_eos.errors.timestamp          of the record that was read, in milliseconds since 1970
    __kafka_eos.errors.schema.id          the id of the schema that its writer named
    __kafka_eos.errors.query.id           the query and its batch that put it aside
    __kafka_eos.errors.batch.id
    __kafka_eos.errors.transactional.id   whose ledger has that batch
    __kafka_eos.errors.output.topic       where it could not be written
    __kafka_eos.errors.output.timestamp   the row's own `timestamp`, with which it was to be written, in milliseconds
    __kafka_eos.errors.mac                with `ledgerKey`: the signature of all of it (dead_letters.signature)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_eos.dead_letters.causes import LONGEST_MESSAGE, cause_of, shortened

PREFIX = "__kafka_eos.errors."

Header = tuple[str, bytes | None]

# The column `error` of decoded values, and of the sink's rows.
ERROR = pa.struct([("cause", pa.string()), ("message", pa.string()), ("schema_id", pa.int32())])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Why a record was put aside, and where it came from. What is not known is None. `timestamp` is that of the record
    that was read, `output_timestamp` the one with which it was to be written; both in milliseconds since 1970.

    The fields are the headers, in their order.
    """

    cause: str
    message: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    schema_id: int | None = None
    query_id: str | None = None
    batch_id: int | None = None
    transactional_id: str | None = None
    output_topic: str | None = None
    output_timestamp: int | None = None


def header_name(field: str) -> str:
    """The name of the header for this field of `DeadLetter`."""
    return PREFIX + field.replace("_", ".")


_FIELDS = {field.name: header_name(field.name) for field in fields(DeadLetter)}
_NUMBERS = frozenset({"partition", "offset", "timestamp", "schema_id", "batch_id", "output_timestamp"})
_FIRST = _FIELDS["cause"]

# The fields of `DeadLetter` as columns.
LETTERS = pa.schema([(name, pa.int64() if name in _NUMBERS else pa.string()) for name in _FIELDS])


def header_columns(letters: pa.RecordBatch) -> Iterator[tuple[str, NDArray[np.int64], pa.BinaryArray]]:
    """The headers that dead letters, rows of `LETTERS`, have after their records' own: each header's name, the numbers
    of the rows that have it, and its values in them. A long cause or message is cut.
    """
    for field, name in _FIELDS.items():
        column = letters.column(field)
        if field == "cause":
            text = _each(column.fill_null(""), cause_of)
        elif field == "message":
            text = _each(column.fill_null(""), lambda message: shortened(message, LONGEST_MESSAGE))
        else:
            text = column.cast(pa.string())
        present = pc.fill_null(pc.not_equal(text, ""), False)
        yield name, np.flatnonzero(present), text.filter(present).cast(pa.binary())


def _each(column: pa.StringArray, change: Callable[[str], str]) -> pa.StringArray:
    """The column with each value changed; equal ones, of which there are many, only once."""
    encoded = column.dictionary_encode()
    return pa.array([change(value) for value in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def letter_of(headers: Iterable[Header]) -> DeadLetter | None:
    """The inverse of `header_columns`, for all of a record's headers. None if the record is no dead letter.

    A record that became a dead letter twice has these headers twice: the last ones count. Text in place of a number
    counts as unknown, because anybody may write into a topic.
    """
    fields: dict[str, str] | None = None
    for name, value in headers:
        if name == _FIRST:
            fields = {}
        if fields is not None and name.startswith(PREFIX):
            fields[name] = (value or b"").decode(errors="replace")
    if fields is None:
        return None
    values = {field: fields.get(name) or None for field, name in _FIELDS.items()}
    return DeadLetter(
        **{field: _number(value) if field in _NUMBERS else value for field, value in values.items()}  # type: ignore[arg-type]
        | {"cause": cause_of(fields[_FIRST])}
    )


def own_headers(headers: Iterable[Header]) -> list[Header]:
    """The record's own headers, as they were before it became a dead letter."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]


def _number(value: str | None) -> int | None:
    return int(value) if value and re.fullmatch(r"-?[0-9]{1,19}", value) else None
