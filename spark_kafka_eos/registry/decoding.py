"""A column of framed values becomes a column of the reader's type: one decode pass per schema.

A record that cannot be decoded is a fault of its own and stops nothing here, whatever its bytes and its schema are; a
registry that does not answer raises.

The libraries that decode are not made for every input: JSON has texts that are no Unicode and numbers that no float
holds, Protobuf's Value may be NaN. If a pass raises, its rows are halved until the ones that are to blame are alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, cast

import numpy as np
import pyarrow as pa

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import ERROR
from spark_kafka_eos.errors import UndecodableRecord
from spark_kafka_eos.kafka.wire.columns import Int64s
from spark_kafka_eos.registry.avro_reading import Incompatible
from spark_kafka_eos.registry.client import NotAsked, Registry, TooLargeSchema, UnknownSchema
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.framing import Group, HeaderIds, SchemaKey, framed, with_indexes
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import ReadColumn, rows_of
from spark_kafka_eos.registry.rules import READING, rule_names

_MESSAGES = {
    Cause.UNDECODABLE: "the bytes do not fit {schema}{place}",
    Cause.INCOMPATIBLE: "a value of {schema} has no counterpart in the reader's schema{place}",
    Cause.OUT_OF_RANGE: "a value of {schema} is out of its Spark type's range{place}",
    Cause.WRONG_SCHEMA: "{schema} was used for another message than the one that the query reads",
}

ParseMode = Literal["fail", "permissive"]

_LONGEST = 500  # characters of a message: a schema can have names of any length


class DecodeFault(NamedTuple):
    cause: Cause
    message: str
    schema: SchemaKey | None


class Decoded(NamedTuple):
    """`values` is null where a value was null and where it has a fault."""

    values: pa.Array
    faults: dict[int, DecodeFault]  # by row


def decode(
    values: pa.BinaryArray,
    ids: HeaderIds | None,
    registry: Registry,
    target: QuerySchema,
    *,
    subject: str | None = None,
    ignore_rules: bool = False,
) -> Decoded:
    """Decode `values`; `ids` has the header with the schema id, where there is one. Ids are of the context of
    `subject`. Raises RegistryError.
    """
    if ids is not None and target.schema.kind == "PROTOBUF":
        values, ids = with_indexes(values, ids)
    groups, unframed = framed(values, ids)
    faults = {row: DecodeFault(Cause.NOT_FRAMED, message, None) for row, message in unframed.items()}
    readers = (
        (group, _reader(registry, target, cast(SchemaKey, group.schema), subject, ignore_rules)) for group in groups
    )
    return decode_groups(values, readers, format_of(target).arrow, faults)


def decode_groups(
    values: pa.BinaryArray,
    readers: Iterable[tuple[Group, ReadColumn | DecodeFault]],
    kind: pa.DataType,
    faults: dict[int, DecodeFault],
) -> Decoded:
    """Decode each group of `values` with its reader, or give its rows the fault. `faults` are those of other rows."""
    parts: list[pa.Array] = []
    places, done = np.full(len(values), -1, np.int64), 0
    for group, read in readers:
        if isinstance(read, DecodeFault):
            faults.update((int(row), read) for row in group.rows)
            continue
        for rows, part, wrong in _passes(values, group, read, kind):
            parts.append(part)
            places[rows] = np.arange(done, done + len(part))
            places[list(wrong)] = -1
            faults |= wrong
            done += len(part)
    if len(parts) == 1 and len(parts[0]) == len(values) and not faults:
        return Decoded(parts[0], faults)
    column = pa.concat_arrays(parts) if parts else pa.array([], kind)
    return Decoded(column.take(pa.array(places, mask=places < 0)), faults)


def _passes(
    values: pa.BinaryArray, group: Group, read: ReadColumn, kind: pa.DataType
) -> Iterator[tuple[Int64s, pa.Array, dict[int, DecodeFault]]]:
    """One pass, or several if it raises: rows, their values, and those with a fault."""
    try:
        part, wrong = _pass(values, group, read)
    except Exception as error:  # noqa: BLE001  # of a library, for a record that anybody can have written
        if len(group.rows) == 1:
            row = int(group.rows[0])
            message = f"the bytes cannot be decoded with {_named(group.schema)}: {type(error).__name__}"
            yield group.rows[:0], pa.array([], kind), {row: DecodeFault(Cause.UNDECODABLE, message, group.schema)}
            return
        middle = len(group.rows) // 2
        for rows in (group.rows[:middle], group.rows[middle:]):
            yield from _passes(values, group._replace(rows=rows), read, kind)
    else:
        yield group.rows, part, wrong


def _pass(values: pa.BinaryArray, group: Group, read: ReadColumn) -> tuple[pa.Array, dict[int, DecodeFault]]:
    whole = len(group.rows) == len(values)
    rows = rows_of(values if whole else values.take(pa.array(group.rows)))
    start: Int64s = rows.at.copy()
    rows.at += group.skip
    column = read(rows)
    rows.finish()
    wrong = {}
    for number in np.flatnonzero(rows.faults.cause).tolist():
        cause = rows.faults.of(number)
        assert cause is not None
        at, size = int(rows.faults.at[number] - start[number]), int(rows.end[number] - start[number])
        place = "" if group.schema is None else f": at byte {min(at, size)} of {size}"
        message = _MESSAGES[cause].format(schema=_named(group.schema), place=place)
        if number in rows.faults.reasons:
            message = f"{message}: {rows.faults.reasons[number]}"[:_LONGEST]
        wrong[int(group.rows[number])] = DecodeFault(cause, message, group.schema)
    return column, wrong


def _named(schema: SchemaKey | None) -> str:
    return "its own schema" if schema is None else f"schema {schema}"


_MOST_READERS = 1_000

# Compiled readers of this process. A schema that the registry does not know is not kept: it may arrive.
_readers: dict[tuple[Registry, QuerySchema, SchemaKey, str | None, bool], ReadColumn | DecodeFault] = {}


def _reader(
    registry: Registry, target: QuerySchema, schema: SchemaKey, subject: str | None, ignore_rules: bool
) -> ReadColumn | DecodeFault:
    place = (registry, target, schema, subject, ignore_rules)
    reader = _readers.get(place)
    if reader is not None:
        return reader
    try:
        written = registry.session.schema(schema, subject=subject, serialized=target.schema.kind == "PROTOBUF")
    except NotAsked:
        message = f"the registry at {registry.hosts} was not asked for schema {schema}: it lacks too many others"
        return DecodeFault(Cause.UNKNOWN_SCHEMA, message, schema)
    except UnknownSchema:
        return DecodeFault(Cause.UNKNOWN_SCHEMA, f"the registry at {registry.hosts} has no schema {schema}", schema)
    except TooLargeSchema as error:
        return unreadable(schema, str(error))
    made: ReadColumn | DecodeFault
    rules = "" if ignore_rules else rule_names(written.rules, READING)
    if written.kind != target.schema.kind:
        message = f"schema {schema} is of type {written.kind}, and the query reads {target.schema.kind}"
        made = DecodeFault(Cause.WRONG_SCHEMA, message, schema)
    elif rules:
        message = f"schema {schema} has rules for readers, which are not run: {rules}. See ignore_rules"
        made = DecodeFault(Cause.INCOMPATIBLE, message, schema)
    else:
        try:
            made = format_of(target).reader(written)
        except (Incompatible, UnsupportedSchema) as error:
            made = unreadable(schema, str(error))
        except Exception as error:  # noqa: BLE001  # of a library, for a schema that anybody can have registered
            made = unreadable(schema, type(error).__name__)
    if len(_readers) == _MOST_READERS:
        _readers.clear()
    _readers[place] = made
    return made


def unreadable(schema: SchemaKey | None, why: str) -> DecodeFault:
    """That of a record whose schema, None if the record has it, cannot be read with the query's."""
    message = f"{_named(schema)} cannot be read with the reader's: {why}"[:_LONGEST]
    return DecodeFault(Cause.INCOMPATIBLE, message, schema)


def type_returned(kind: pa.DataType, mode: ParseMode) -> pa.DataType:
    """Of what `returned` returns, for values of type `kind`."""
    return kind if mode == "fail" else pa.struct([pa.field("value", kind), pa.field("error", ERROR)])


def returned(decoded: Decoded, mode: ParseMode) -> pa.Array:
    """The values, or with mode "permissive" a struct of values and errors. Raises UndecodableRecord with "fail"."""
    return refuse(decoded) if mode == "fail" else with_errors(decoded)


def refuse(decoded: Decoded) -> pa.Array:
    """The values; raises UndecodableRecord for the first row with a fault."""
    if decoded.faults:
        row, fault = min(decoded.faults.items())
        raise UndecodableRecord(
            f"row {row} of a batch of {len(decoded.values)} ({fault.cause}): {fault.message}",
            action="Use mode='permissive' to put such records aside.",
        )
    return decoded.values


def with_errors(decoded: Decoded) -> pa.StructArray:
    """A struct of `value` and `error`, one of which is null; both are for a value that is null."""
    count = len(decoded.values)
    errors = pa.nulls(count, ERROR)
    if decoded.faults:
        rows = sorted(decoded.faults)
        distinct = pa.array([_error(decoded.faults[row]) for row in rows], ERROR)
        places = np.full(count, -1, np.int64)
        places[rows] = np.arange(len(rows))
        errors = distinct.take(pa.array(places, mask=places < 0))
    return pa.StructArray.from_arrays([decoded.values, errors], ["value", "error"])


def _error(fault: DecodeFault) -> dict[str, object]:
    fits = isinstance(fault.schema, int) and fault.schema < 2**31
    return {"cause": str(fault.cause), "message": fault.message, "schema_id": fault.schema if fits else None}
