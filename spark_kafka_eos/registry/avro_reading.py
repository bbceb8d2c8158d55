"""From Avro's binary form to Arrow columns, a field of all rows at a time, from a writer's to a reader's schema.

`reader(writer, reader)` compiles both schemas into a function of rows. Where they do not resolve, `Incompatible` is
raised, or, if it depends on the value (a branch of a union, a symbol of an enum), the row is noted. What a logical type
becomes is in avro_logical.

Source: Apache Avro specification 1.12, "Binary encoding" and "Schema resolution".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.kafka.wire.columns import Int64s
from spark_kafka_eos.registry import connect_types
from spark_kafka_eos.registry.avro_defaults import default_of
from spark_kafka_eos.registry.avro_extent import Damaged, Extent, extent
from spark_kafka_eos.registry.avro_logical import Contradiction, factor, shift
from spark_kafka_eos.registry.avro_schema import (
    NULL,
    Array,
    Avro,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    arrow_type,
    say,
)
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import Mask, ReadColumn, Rows, fixed, longs, texts, within

_INT_BYTES = 5
_FEW = 16  # rows: for fewer, finding their items one by one is faster than a pass for each
_PROMOTIONS = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
}  # fmt: skip


class Incompatible(ValueError):
    """A writer's schema cannot be read with the reader's. The text names the part."""


def reader(writer: Avro, target: Avro, path: str = "", *, full_name: bool = False) -> ReadColumn:
    """The function that reads rows of `writer` as a column of `arrow_type(target)`. Raises Incompatible.

    `path` names the field in errors. With `full_name`, a type's namespace counts, too.
    """
    if isinstance(writer, Union):
        return _from_union(writer, target, path)
    if isinstance(target, Union):
        return _to_union(writer, target, path, full_name=full_name)
    try:
        match writer, target:
            case Record(), Record() if _same_name(writer, target, full_name=full_name):
                return _digits(writer, path) if target.logical else _record(writer, target, path)
            case Array(), Array():
                return _array(writer, target, path)
            case Map(), Map():
                return _map(writer, target, path)
            case Enum(), Enum() if _same_name(writer, target, full_name=full_name):
                return _enum(writer, target)
            case Fixed(), Fixed() if _same_name(writer, target, full_name=full_name) and writer.size == target.size:
                return _fixed(target, shift(writer, target))
            case Primitive(), Primitive() if target.name in _PROMOTIONS.get(writer.name, {writer.name}):
                return _primitive(writer, target)
    except Contradiction as error:
        raise _refused(path, str(error)) from error
    raise _refused(path, f"{say(writer)} cannot be read as {say(target)}")


def _refused(path: str, why: str) -> Incompatible:
    return Incompatible(f"field {path}: {why}" if path else why)


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _same_name(writer: Record | Enum | Fixed, target: Record | Enum | Fixed, *, full_name: bool = False) -> bool:
    """Names match without their namespaces, as Avro says and Confluent's registry allows."""
    names = {target.name, *target.aliases}
    return writer.name in names if full_name else _short(writer.name) in set(map(_short, names))


def _short(name: str) -> str:
    return name.rpartition(".")[2]


# Records.


def _record(writer: Record, target: Record, path: str) -> ReadColumn:
    slots = _slots(writer, target)
    steps: list[tuple[int, ReadColumn]] = []
    read_from: dict[int, str] = {}
    for field in writer.fields:
        slot = slots.get(field.name, -1)
        if slot in read_from:
            both = f"fields {read_from[slot]} and {field.name} of the writer's schema are both"
            raise _refused(path, f"{both} field {target.fields[slot].name} of the reader's")
        if slot >= 0:
            read_from[slot] = field.name
        inside = _inside(path, field.name)
        steps.append((slot, reader(field.type, target.fields[slot].type, inside) if slot >= 0 else _skip(field.type)))
    defaults = {slot: _default(field, path) for slot, field in enumerate(target.fields) if slot not in read_from}
    fields = list(arrow_type(target))

    def read(rows: Rows) -> pa.Array:
        columns: list[Any] = [None] * len(fields)
        for slot, step in steps:
            column = step(rows)
            if slot >= 0:
                columns[slot] = column
        for slot, value in defaults.items():
            columns[slot] = pa.repeat(value, len(rows))
        return pa.StructArray.from_arrays(columns, fields=fields)

    return read


def _slots(writer: Record, target: Record) -> dict[str, int]:
    """By the names of the writer's fields, the numbers of the reader's. An alias counts before a name, as in Java: a
    record from before a renaming has the field under its alias, whatever other field got that name since. If the writer
    has the field under its new name, and the reader that other field, each is its own. If the reader has it not, both
    of the writer's are the one field, which `_record` refuses, as Java does.
    """
    slots = {field.name: number for number, field in enumerate(target.fields)}
    written = {field.name for field in writer.fields}
    return slots | {
        alias: number
        for number, field in enumerate(target.fields)
        for alias in field.aliases
        if not (field.name in written and alias in slots)
    }


def _digits(writer: Record, path: str) -> ReadColumn:
    """A number of any scale, as text."""
    read = _record(writer, _VARIABLE_SCALE, path)

    def number(rows: Rows) -> pa.Array:
        scale, unscaled = read(rows).flatten()
        texts = [connect_types.digits(*number) for number in zip(unscaled.to_pylist(), scale.to_pylist(), strict=True)]
        wide = np.array([text is None for text in texts], np.bool_)
        if wide.any():
            rows.note(wide, Cause.OUT_OF_RANGE)
        return pa.array(texts, pa.string())

    return number


_VARIABLE_SCALE = Record("", (Field("scale", Primitive("int")), Field("value", Primitive("bytes"))))


def _default(field: Field, path: str) -> pa.Scalar:
    if not field.has_default:
        raise Incompatible(f"field {_inside(path, field.name)} is not in the writer's schema and has no default")
    return default_of(field)


# Unions.


def _from_union(writer: Union, target: Avro, path: str) -> ReadColumn:
    reads = _branch_readers(
        writer.branches,
        lambda branch: reader(branch, target, path, full_name=_namesakes(branch, writer.branches) > 1),
    )
    if all(isinstance(read, str) for read in reads):
        raise Incompatible("; ".join(dict.fromkeys(map(str, reads))))
    kind = arrow_type(target)

    def read(rows: Rows) -> pa.Array:
        branch = _index(rows, len(reads))
        first = int(branch[0]) if len(branch) else 0
        if (branch == first).all():
            return _branch(rows, reads[first], kind)
        parts, places, done = [], np.empty(len(rows), np.int64), 0
        for number, step in enumerate(reads):
            which = np.flatnonzero(branch == number)
            if not which.size:
                continue
            some = rows.some(which)
            parts.append(_branch(some, step, kind))
            rows.join(which, some)
            places[which] = np.arange(done, done + len(which))
            done += len(which)
        return pa.concat_arrays(parts).take(pa.array(places))

    return read


def _branch_readers(branches: Sequence[Avro], made: Callable[[Avro], ReadColumn]) -> list[ReadColumn | str]:
    """What reads each branch, or why it cannot be read: only a record that has it is then refused."""
    reads: list[ReadColumn | str] = []
    for branch in branches:
        try:
            reads.append(made(branch))
        except (Incompatible, UnsupportedSchema) as error:
            reads.append(str(error))
    return reads


def _namesakes(kind: Avro, branches: Sequence[Avro]) -> int:
    """How many named types of the union have the short name of this one."""
    if not isinstance(kind, Record | Enum | Fixed):
        return 0
    named = [branch.name for branch in branches if isinstance(branch, Record | Enum | Fixed)]
    return [_short(name) for name in named].count(_short(kind.name))


def _branch(rows: Rows, read: ReadColumn | str, kind: pa.DataType) -> pa.Array:
    """`read` is why the branch cannot be read, or reads it."""
    if not isinstance(read, str):
        return read(rows)
    rows.note(np.ones(len(rows), np.bool_), Cause.INCOMPATIBLE, read)
    return pa.nulls(len(rows), kind)


def _index(rows: Rows, below: int) -> Int64s:
    """The number of a branch or a symbol."""
    index = longs(rows, _INT_BYTES)
    wrong = (index < 0) | (index >= below)
    if wrong.any():
        rows.note(wrong)
        return np.where(wrong, 0, index)
    return index


def _to_union(writer: Avro, target: Union, path: str, *, full_name: bool) -> ReadColumn:
    kind = arrow_type(target)
    if writer == NULL:
        if NULL not in target.branches:
            raise _refused(path, "null cannot be read as a union without null")
        return lambda rows: pa.nulls(len(rows), kind)
    if len(target.present) == 1:
        return reader(writer, target.present[0], path, full_name=full_name)
    number = _counterpart(writer, target.present, full_name=full_name)
    if number is None:
        raise _refused(path, f"{say(writer)} fits no branch of a union, or more than one")
    read = reader(writer, target.present[number], path, full_name=full_name)
    if target.single is not None:  # of two kinds of numbers, each in the unit of its branch
        return lambda rows: read(rows).cast(kind)
    return _member(read, number, kind)


def _counterpart(writer: Avro, branches: Sequence[Avro], *, full_name: bool) -> int | None:
    """The number of the branch that the writer's type is to be read as; whether it can be, does not count. Of named
    types that is the one of the full name, else of the only short name. Of others, it is the same type, else the first
    that it is promoted to.
    """

    def first(fits: Callable[[Any], bool]) -> int | None:
        return next((number for number, branch in enumerate(branches) if fits(branch)), None)

    if not isinstance(writer, Record | Enum | Fixed):
        number = first(lambda branch: _bare(branch) == _bare(writer))
        if number is None and isinstance(writer, Primitive):
            promotions = _PROMOTIONS.get(writer.name, set())
            return first(lambda branch: isinstance(branch, Primitive) and branch.name in promotions)
        return number
    same = [branch if isinstance(branch, type(writer)) else None for branch in branches]
    number = first(lambda branch: branch in same and branch.name == writer.name)
    if number is None:
        number = first(lambda branch: branch in same and writer.name in branch.aliases)
    if number is not None or full_name:
        return number
    short = [place for place, branch in enumerate(same) if branch is not None and _same_name(writer, branch)]
    return short[0] if len(short) == 1 else None


def _bare(avro: Avro) -> str:
    """The type without its name, its logical type and what is in it."""
    return avro.name if isinstance(avro, Primitive) else type(avro).__name__


def _member(read: ReadColumn, number: int, kind: pa.DataType) -> ReadColumn:
    def member(rows: Rows) -> pa.Array:
        column = read(rows)
        columns = [column if at == number else pa.nulls(len(rows), part.type) for at, part in enumerate(kind)]
        return pa.StructArray.from_arrays(columns, fields=list(kind))

    return member


# Arrays and maps.


def _array(writer: Array, target: Array, path: str) -> ReadColumn:
    read, kind = reader(writer.items, target.items, _inside(path, "element")), arrow_type(target)
    smallest, step = _at_least(writer.items), extent(writer.items)

    def array(rows: Rows) -> pa.Array:
        offsets, items = _blocks(rows, read, kind.value_type, smallest, step)
        return pa.ListArray.from_arrays(offsets, items, type=kind)

    return array


def _map(writer: Map, target: Map, path: str) -> ReadColumn:
    value, kind = reader(writer.values, target.values, _inside(path, "value")), arrow_type(target)
    entry = pa.struct([pa.field("key", pa.string()), pa.field("value", kind.item_type)])

    def read(rows: Rows) -> pa.Array:
        keys = texts(rows, within(rows, longs(rows)), utf8=True)
        return pa.StructArray.from_arrays([keys, value(rows)], fields=list(entry))

    smallest, step = _smallest(_entry(writer)), extent(_entry(writer))

    def map_(rows: Rows) -> pa.Array:
        offsets, entries = _blocks(rows, read, entry, smallest, step)
        return pa.MapArray.from_arrays(offsets, entries.field(0), entries.field(1), kind)

    return map_


def _entry(kind: Map) -> Record:
    return Record("", (Field("", Primitive("string")), Field("", kind.values)))


def _blocks(rows: Rows, read: ReadColumn, kind: pa.DataType, smallest: int, step: Extent) -> tuple[pa.Array, pa.Array]:
    """The offsets and the items of arrays. In each pass, every row that has another item reads it; when few rows are
    left, each reads the rest of its block. `step` finds where an item ends.
    """
    pending, length = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    which = np.arange(len(rows))
    owners: list[Int64s] = []
    parts: list[pa.Array] = []
    while which.size:
        ended = which[pending[which] == 0]
        if ended.size:
            some = rows.some(ended)
            count = _count(some, smallest)
            rows.join(ended, some)
            pending[ended] = count
            length[ended] += count
            which = which[pending[which] > 0]
            if not which.size:
                break
        if len(which) <= _FEW:
            for row in which.tolist():
                some = _spread(rows, row, int(pending[row]), step)
                if len(some):
                    parts.append(read(some))
                length[row] += len(some) - pending[row]
                owners.append(np.full(len(some), row))
            pending[which] = 0
            continue
        some = rows.some(which)
        parts.append(read(some))
        owners.append(which)
        rows.join(which, some)
        pending[which] -= 1
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(length, out=offsets[1:])
    items = pa.concat_arrays(parts) if parts else pa.array([], kind)
    if len(parts) > 1:
        items = items.take(pa.array(np.argsort(np.concatenate(owners), kind="stable")))
    return pa.array(offsets), items


def _spread(rows: Rows, row: int, count: int, step: Extent) -> Rows:
    """The next `count` items of a row as rows of their own. If one is damaged, the row is noted, and those before it
    are returned.
    """
    at, end = int(rows.at[row]), int(rows.end[row])
    data = rows.data.data[:end]
    starts = []
    try:
        for _ in range(count):
            starts.append(at)
            at = step(data, at)
            if at > end:
                raise Damaged
    except (Damaged, IndexError):
        rows.note_one(row, Cause.UNDECODABLE)
        starts.pop()
    rows.at[row] = at
    some = np.full(len(starts), row)
    return Rows(rows.data, np.array(starts, np.int64), rows.end[some], rows.row[some], rows.faults)


def _count(rows: Rows, smallest: int) -> Int64s:
    """The number of items of the next block, 0 at the end. A negative one is followed by the block's size in bytes."""
    count = longs(rows)
    sized = np.flatnonzero(count < 0)
    if sized.size:
        some = rows.some(sized)
        longs(some)
        rows.join(sized, some)
        count[sized] = -count[sized]
    wrong = (count < 0) | (count > (rows.end - rows.at) // smallest)
    if wrong.any():
        rows.note(wrong)
        count[wrong] = 0
    return count


def _at_least(avro: Avro) -> int:
    """The fewest bytes that a value takes. Raises UnsupportedSchema for items that take none: their count would be
    all there is of them, and a record of ten bytes could ask for any number.
    """
    size = _smallest(avro)
    if not size:
        raise UnsupportedSchema(f"an array or map of {say(avro)}, whose values take no bytes")
    return size


def _smallest(avro: Avro) -> int:
    match avro:
        case Primitive():
            return {"null": 0, "float": 4, "double": 8}.get(avro.name, 1)
        case Fixed():
            return avro.size
        case Record():
            return sum(_smallest(field.type) for field in avro.fields)
    return 1


# What has no parts.


def _primitive(writer: Primitive, target: Primitive) -> ReadColumn:
    kind = arrow_type(target)
    match writer.name:
        case "null":
            return lambda rows: pa.nulls(len(rows))
        case "boolean":
            return _boolean
        case "int" | "long":
            return _number(4 if writer.name == "int" else 8, target, kind, factor(writer, target))
        case "float" | "double":
            code = "<f4" if writer.name == "float" else "<f8"
            return lambda rows: pa.array(fixed(rows, code)).cast(kind)
    return _string(target, shift(writer, target), alone=writer.alone)


def _boolean(rows: Rows) -> pa.Array:
    byte = rows.data.take(rows.at, mode="clip")
    if (byte > 1).any():
        rows.note(byte > 1)
    rows.at += 1
    return pa.array(byte == 1)


def _number(size: int, target: Primitive, kind: pa.DataType, times: int) -> ReadColumn:
    code = {"int": np.int32, "float": np.float32, "double": np.float64}.get(target.name, np.int64)
    most = (2**63 - 1) // times

    def number(rows: Rows) -> pa.Array:
        value = longs(rows, _INT_BYTES if size == 4 else 10)
        if size == 4:
            wide = value != value.astype(np.int32)
            if wide.any():
                rows.note(wide)
        if times > 1:
            wide = (value > most) | (value < -most)
            if wide.any():
                rows.note(wide, Cause.OUT_OF_RANGE)
            value = value * times
        return pa.array(value.astype(code, copy=False)).view(kind)

    return number


def _string(target: Primitive, zeros: int, *, alone: bool) -> ReadColumn:
    def string(rows: Rows) -> pa.Array:
        length = rows.end - rows.at if alone else longs(rows)
        column = texts(rows, within(rows, length), utf8=target.name == "string")
        match target.logical:
            case "decimal":
                return _decimal(rows, column, target, zeros)
            case connect_types.ZONED:
                return _zoned(rows, column)
        return column

    return string


def _zoned(rows: Rows, column: pa.StringArray) -> pa.Array:
    times, wrong = connect_types.zoned_timestamps(column)
    if wrong.any():
        rows.note(wrong, Cause.OUT_OF_RANGE)
    return times


def _fixed(target: Fixed, zeros: int) -> ReadColumn:
    def read(rows: Rows) -> pa.Array:
        column = texts(rows, within(rows, np.full(len(rows), target.size)), utf8=False)
        match target.logical:
            case "decimal":
                return _decimal(rows, column, target, zeros)
            case "uuid":
                return _uuids(column)
        return column

    return read


def _uuids(column: pa.BinaryArray) -> pa.Array:
    """The text of each UUID; of a row that was noted, anything."""
    return pa.array([str(UUID(bytes=value)) if len(value) == 16 else "" for value in column.to_pylist()], pa.string())


def _enum(writer: Enum, target: Enum) -> ReadColumn:
    readable = [symbol if symbol in target.symbols else target.default for symbol in writer.symbols]
    symbols = pa.array(readable, pa.string())
    unknown = np.array([symbol is None for symbol in readable])

    def read(rows: Rows) -> pa.Array:
        index = _index(rows, len(readable))
        if unknown.any() and (wrong := unknown[index]).any():
            rows.note(wrong, Cause.INCOMPATIBLE)
        return symbols.take(pa.array(index))

    return read


def _decimal(rows: Rows, column: pa.BinaryArray, kind: Primitive | Fixed, zeros: int) -> pa.Array:
    decimals, wide = _decimals(column, kind, zeros)
    if wide.any():
        rows.note(wide, Cause.OUT_OF_RANGE)
    return decimals


def _decimals(column: pa.BinaryArray, kind: Primitive | Fixed, zeros: int = 0) -> tuple[pa.Array, Mask]:
    """Unscaled numbers in two's complement, highest byte first, as decimals; and which do not fit the precision. Their
    scale is that of `kind` less `zeros`.
    """
    ends = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    data = np.concatenate([np.frombuffer(column.buffers()[2] or b"", np.uint8, ends[-1]), np.zeros(1, np.uint8)])
    start, length = ends[:-1], np.diff(ends)
    negative = (data[start] > 0x7F) & (length > 0)
    sign = np.where(negative, 0xFF, 0).astype(np.uint8)
    table = np.repeat(sign[:, None], 16, axis=1)
    for place in range(min(16, int(length.max(initial=0)))):  # lowest byte first, as Arrow has it
        table[:, place] = np.where(place < length, data[np.maximum(ends[1:] - 1 - place, 0)], sign)
    wide = (table[:, 15] > 0x7F) != negative
    for row in np.flatnonzero(length > 16):  # more bytes than needed are fine if they only repeat the sign
        wide[row] |= bool((data[start[row] : ends[row + 1] - 16] != sign[row]).any())
    unscaled = pa.Array.from_buffers(pa.decimal128(38), len(column), [None, pa.py_buffer(table)])
    made: pa.Decimal128Type = arrow_type(kind)
    limit = pa.scalar(10 ** max(made.precision - zeros, 0) - 1, pa.decimal128(38))
    small = pc.and_(pc.less_equal(unscaled, limit), pc.greater_equal(unscaled, pc.negate(limit)))
    wide |= ~small.to_numpy(zero_copy_only=False)
    table[wide] = 0
    if zeros:
        return pa.Array.from_buffers(
            pa.decimal128(38, kind.scale - zeros), len(column), [None, pa.py_buffer(table)]
        ).cast(made), wide
    return pa.Array.from_buffers(made, len(column), [None, pa.py_buffer(table)]), wide


# What the reader does not want.


def _skip(writer: Avro) -> ReadColumn:
    """Moves over a value, whose type need not be one that Spark has, nor its value in the type's range."""
    match writer:
        case Primitive(name="string" | "bytes"):
            return _skip_text
        case Primitive():
            return _primitive(Primitive(writer.name), Primitive(writer.name))
        case Fixed():
            return lambda rows: _skip_bytes(rows, np.full(len(rows), writer.size))
        case Enum():
            return lambda rows: _index(rows, len(writer.symbols))
        case Record():
            return _skip_all([_skip(field.type) for field in writer.fields])
        case Array():
            return _skip_items(writer.items)
        case Map():
            return _skip_items(_entry(writer))
    return _skip_branch(writer.branches)


def _skip_items(items: Avro) -> ReadColumn:
    skip, smallest, step = _skip(items), _at_least(items), extent(items)

    def nothing(rows: Rows) -> pa.Array:
        skip(rows)
        return pa.nulls(len(rows))

    return lambda rows: _blocks(rows, nothing, pa.null(), smallest, step)


def _skip_branch(branches: Sequence[Avro]) -> ReadColumn:
    steps = _branch_readers(branches, _skip)

    def skip(rows: Rows) -> pa.Array:
        branch = _index(rows, len(steps))
        for number, step in enumerate(steps):
            which = np.flatnonzero(branch == number)
            if which.size:
                some = rows.some(which)
                _branch(some, step, pa.null())
                rows.join(which, some)
        return None

    return skip


def _skip_text(rows: Rows) -> pa.Array:
    return _skip_bytes(rows, longs(rows))


def _skip_bytes(rows: Rows, length: NDArray[np.int64]) -> pa.Array:
    rows.at += within(rows, length)
    return None


def _skip_all(steps: Sequence[ReadColumn]) -> ReadColumn:
    def skip(rows: Rows) -> pa.Array:
        for step in steps:
            step(rows)
        return None

    return skip
