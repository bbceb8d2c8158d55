"""From Arrow columns to Avro's binary form, a field of all rows at a time.

A value is a list of pieces: binary columns whose bytes follow each other in each row. A record's pieces are those of
its fields, an array's are its count, its items and its end. So a field costs a few calls of NumPy, whatever the number
of rows, and all pieces are joined once, at the end.

Source: Apache Avro specification 1.12, "Binary encoding".
"""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_eos.errors import InvalidRow, InvalidSchema
from spark_kafka_eos.kafka.wire.columns import from_offsets, interleave, lengths
from spark_kafka_eos.kafka.wire.varint import varint_column, varints
from spark_kafka_eos.registry.avro_defaults import default_of
from spark_kafka_eos.registry.avro_logical import factor
from spark_kafka_eos.registry.avro_schema import NULL, Array, Avro, Enum, Field, Fixed, Map, Primitive, Record, Union
from spark_kafka_eos.registry.avro_schema import arrow_type as arrow_type_of
from spark_kafka_eos.registry.kinds import field_names, is_bytes, is_number, is_text
from spark_kafka_eos.registry.nesting import UnsupportedSchema

Pieces = list[pa.BinaryArray]


def write(avro: Avro, column: pa.Array, prefix: bytes = b"") -> pa.BinaryArray:
    """`column` in the binary form of `avro`, after `prefix`; null rows stay null.

    Raises InvalidSchema if the column's type does not fit, and InvalidRow if a value does not, both without content.
    """
    if column.null_count:
        valid = column.is_valid()
        return _spread(write(avro, column.filter(valid), prefix), valid)
    if not len(column):
        return pa.array([], pa.binary())
    return _joined([pa.repeat(pa.scalar(prefix, pa.binary()), len(column)), *_pieces(avro, column, "value")])


def _joined(pieces: Pieces) -> pa.BinaryArray:
    data, starts = interleave(pieces)
    return from_offsets(starts, data)


def _spread(column: pa.BinaryArray, where: pa.BooleanArray) -> pa.BinaryArray:
    """The rows of `column` at the places that are true in `where`, null at the others."""
    there = where.to_numpy(zero_copy_only=False)
    return column.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _pieces(avro: Avro, column: pa.Array, path: str) -> Pieces:
    """`path` names the field in errors."""
    if not len(column):
        return [pa.array([], pa.binary())]
    if isinstance(avro, Union):
        return _union(avro, column, path)
    if avro == NULL:
        if column.null_count != len(column):
            raise InvalidRow(f"{path} must be null by its schema")
        return []
    if column.null_count:
        raise InvalidRow(f"{path} is null in a row, and its schema does not allow null")
    match avro:
        case Record():
            return _record(avro, column, path)
        case Array():
            _check(pa.types.is_list(column.type) or pa.types.is_large_list(column.type), path, column, "an array")
            length = pc.list_value_length(column).to_numpy(zero_copy_only=False)
            return _blocks(length, _pieces(avro.items, column.flatten(), f"{path}.element"))
        case Map():
            _check(pa.types.is_map(column.type), path, column, "a map")
            bounds = column.offsets.to_numpy()
            part = slice(int(bounds[0]), int(bounds[-1]))
            keys = _cast(column.keys[part], pa.string(), f"{path}.key")
            entries = _text(keys) + _pieces(avro.values, column.items[part], f"{path}.value")
            return _blocks(np.diff(bounds), entries)
        case Enum():
            return [_enum(avro, column, path)]
        case Fixed():
            return [_fixed(avro, column, path)]
    return _primitive(avro, column, path)


def _check(fits: bool, path: str, column: pa.Array, expected: str) -> None:
    if not fits:
        raise InvalidSchema(f"{path} has the type {column.type}, and its Avro schema wants {expected}")


def _record(avro: Record, column: pa.Array, path: str) -> Pieces:
    _check(pa.types.is_struct(column.type), path, column, "a record")
    names = field_names(column.type, path)
    unknown = names - {field.name for field in avro.fields}
    if unknown:
        raise InvalidSchema(f"{path} has fields that its Avro schema lacks: {', '.join(sorted(unknown))}")
    return [
        piece
        for field in avro.fields
        for piece in _pieces(
            field.type,
            column.field(field.name) if field.name in names else _missing(field, len(column), path),
            f"{path}.{field.name}",
        )
    ]


def _missing(field: Field, rows: int, path: str) -> pa.Array:
    if not field.has_default:
        raise InvalidSchema(f"{path} lacks the field {field.name}, which has no default in its Avro schema")
    try:
        return pa.repeat(default_of(field), rows)
    except UnsupportedSchema as error:
        raise InvalidSchema(f"{path}: {error}") from error


def _union(avro: Union, column: pa.Array, path: str) -> Pieces:
    """The number of the branch, and the value."""
    which = _branches(avro, column, path)
    if (which == which[0]).all():
        branch = avro.branches[which[0]]
        return [_numbers(which), *_pieces(branch, _of_branch(avro, branch, column), path)]
    values: Pieces = []
    for number, branch in enumerate(avro.branches):
        there = pa.array(which == number)
        if branch == NULL or not there.true_count:
            continue
        pieces = _pieces(branch, _of_branch(avro, branch, column.filter(there)), path)
        if pieces:
            values.append(_spread(_joined(pieces), there))
    return [_numbers(which), *values]


def _branches(avro: Union, column: pa.Array, path: str) -> NDArray[np.int64]:
    """Each row's number of a branch."""
    null = column.is_null().to_numpy(zero_copy_only=False)
    if avro.single is not None or not avro.present:
        which = np.full(len(column), _number_of(avro, avro.single or NULL))
    else:
        _check(pa.types.is_struct(column.type), path, column, "a union: a struct of member0, member1, …")
        members = np.array(
            [
                column.field(f"member{number}").is_valid().to_numpy(zero_copy_only=False)
                for number in range(len(avro.present))
            ]
        )
        if (members.sum(axis=0)[~null] != 1).any():
            raise InvalidRow(f"{path} is a union, and in a row not exactly one of its members is set")
        numbers = np.array([avro.branches.index(branch) for branch in avro.present])
        which = numbers[members.argmax(axis=0)]
    if null.any():
        if NULL not in avro.branches:
            raise InvalidRow(f"{path} is null in a row, and its schema does not allow null")
        which[null] = avro.branches.index(NULL)
    return which


def _number_of(avro: Union, kind: Avro) -> int:
    """Of int and long, the one number of Spark is the long, whatever its logical type."""
    names = [branch.name if isinstance(branch, Primitive) else "" for branch in avro.branches]
    return avro.branches.index(kind) if kind in avro.branches else names.index(getattr(kind, "name", ""))


def _of_branch(avro: Union, branch: Avro, column: pa.Array) -> pa.Array:
    if branch == NULL or avro.single is not None:
        return column
    return column.field(f"member{avro.present.index(branch)}")


def _blocks(count: NDArray[np.integer], items: Pieces) -> Pieces:
    """One block with all items, and the empty block that ends it."""
    length: NDArray[np.int64] = count.astype(np.int64)
    ends = np.zeros(len(length) + 1, np.int64)
    np.cumsum(length, out=ends[1:])
    joined = _joined(items) if items and ends[-1] else pa.array([b""] * int(ends[-1]), pa.binary())
    bounds = np.frombuffer(joined.buffers()[1] or bytes(4), np.int32, len(joined) + 1, 4 * joined.offset)
    values = from_offsets(bounds[ends], np.frombuffer(joined.buffers()[2] or b"", np.uint8))
    end = np.where(length > 0, 1, 0).astype(np.int32)  # an empty array is its end alone, and that is its count
    ends_at = np.zeros(len(length) + 1, np.int32)
    np.cumsum(end, out=ends_at[1:])
    return [_numbers(length), values, from_offsets(ends_at, np.zeros(int(ends_at[-1]), np.uint8))]


def _numbers(values: NDArray[np.int64]) -> pa.BinaryArray:
    return varint_column([varints(values)], len(values))


def _text(column: pa.Array) -> Pieces:
    """The length and the bytes."""
    column = column.cast(pa.binary())
    if not len(column):
        return [column]
    return [_numbers(lengths(column).astype(np.int64)), column]


def _enum(avro: Enum, column: pa.Array, path: str) -> pa.BinaryArray:
    index = pc.index_in(_cast(column, pa.string(), path), pa.array(avro.symbols))
    if index.null_count:
        raise InvalidRow(f"{path} has a value that is not a symbol of {avro.name}")
    return _numbers(index.to_numpy().astype(np.int64))


def _cast(column: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """The column as `kind`, which must hold all its values and mean the same: Arrow would take a number for a time of
    any unit, a local time for one in UTC, and a text for anything that it can be read as.
    """
    if column.type == kind:
        return column
    meanings = _meaning(column.type), _meaning(kind)
    if meanings[0] != meanings[1] and meanings not in _SAME_MEANING:
        raise InvalidSchema(
            f"{path} has the type {column.type}, and its Avro schema wants {kind}",
            action="Cast the column: what a text says, a unit and a time zone are not guessed.",
        )
    try:
        if pa.types.is_decimal(kind) and (pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
            # Of a whole number, Arrow would ask for the digits of the largest one of its type. And a decimal that does
            # not fit into the 128 bits of another one often becomes another number without an error.
            cast = column.cast(pa.decimal256(76, kind.scale)).cast(kind)
        elif column.type in _FLOATS and pa.types.is_decimal(kind):
            if not _has_size(kind, column):
                raise _out_of_range(kind, path)
            cast = column.cast(pa.string()).cast(kind)
        elif kind in _FLOATS and pa.types.is_decimal(column.type):
            cast = column.cast(pa.string()).cast(kind)
        elif pa.types.is_floating(kind) and pa.types.is_integer(column.type):
            if not _has_digits(kind, column):
                raise _out_of_range(kind, path)
            cast = column.cast(kind, safe=False)  # else Arrow refuses all that are larger than 2^53 or 2^24
        else:
            cast = column.cast(kind)
    except pa.ArrowNotImplementedError:
        raise InvalidSchema(f"{path} has the type {column.type}, and its Avro schema wants {kind}") from None
    except pa.ArrowInvalid:  # its text has the value
        raise _out_of_range(kind, path) from None
    if pa.types.is_float32(kind) and is_number(column.type) and _overflows(cast, column):
        raise _out_of_range(kind, path)
    return cast


# Between a decimal and one of these, a text is in the middle: of a decimal the digits, whose nearest number is taken,
# of a number the fewest digits that are the same number, of which none may be lost. Arrow's own casts miss the last bit
# of many numbers: the decimal 8623.88 would be 8623.880000000001, and the double, with 18 digits after the point,
# 8623.879999999999199645.
_FLOATS = {pa.float32(), pa.float64()}


def _has_size(decimal: pa.DataType, column: pa.Array) -> bool:
    """Whether no number is too large for the decimal, or less than half of its last digit. Arrow makes any number of
    the texts of such ones.
    """
    size = pc.abs(column)
    too_large = pc.greater_equal(size, 10.0 ** (decimal.precision - decimal.scale))
    too_small = pc.and_(pc.less(size, 10.0**-decimal.scale / 2), pc.not_equal(size, 0))
    return not pc.any(pc.or_(too_large, too_small)).as_py()


def _overflows(cast: pa.Array, column: pa.Array) -> bool:
    """Whether Arrow has made infinity of a number."""
    return bool(pc.any(pc.and_(pc.is_inf(cast), pc.is_finite(column))).as_py())


def _has_digits(kind: pa.DataType, column: pa.Array) -> bool:
    """Whether a double or float has the digits, in binary, of each whole number, its last zeros left out."""
    magnitude = np.abs(column.cast(pa.int64()).to_numpy()).view(np.uint64)  # also of -2^63
    last = np.maximum(magnitude & -magnitude, 1)
    return bool((magnitude // last < 2 ** (53 if pa.types.is_float64(kind) else 24)).all())


def _out_of_range(kind: pa.DataType, path: str) -> InvalidRow:
    return InvalidRow(f"{path} has a value that is out of the range of {kind}, which its Avro schema wants")


_SAME_MEANING = {
    ("date", "local time"),  # its midnight, as where it is read
    ("bytes", "text"),  # if they are UTF-8, as the key and the value of a record are
}


def _meaning(kind: pa.DataType) -> str:
    """What values of the type are; "" for those of several values."""
    if pa.types.is_dictionary(kind):
        return _meaning(kind.value_type)
    if pa.types.is_timestamp(kind):
        return "local time" if kind.tz is None else "point in time"
    if pa.types.is_date(kind):
        return "date"
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return "other time"
    if pa.types.is_boolean(kind):
        return "truth"
    if is_text(kind):
        return "text"
    if is_bytes(kind):
        return "bytes"
    return "number" if is_number(kind) else ""


def _fixed(avro: Fixed, column: pa.Array, path: str) -> pa.BinaryArray:
    match avro.logical:
        case "decimal":
            table, length = _unscaled(_cast(column, arrow_type_of(avro), path))
            if int(length.max()) > avro.size:
                raise InvalidRow(f"{path} has a decimal that does not fit the {avro.size} bytes of {avro.name}")
            filled = np.repeat(np.where(table[:, :1] > 0x7F, 0xFF, 0).astype(np.uint8), max(avro.size, 16), axis=1)
            filled[:, -16:] = table
            table = np.ascontiguousarray(filled[:, -avro.size :])
            return from_offsets(np.arange(len(table) + 1, dtype=np.int32) * np.int32(avro.size), table.reshape(-1))
        case "uuid":
            texts = _cast(column, pa.string(), path).to_pylist()
            return pa.array([_uuid(value, path) for value in texts], pa.binary())
    column = _cast(column, pa.binary(), path)
    if (lengths(column) != avro.size).any():
        raise InvalidRow(f"{path} has a value that is not {avro.size} bytes long, as {avro.name} wants")
    return column


def _uuid(value: str, path: str) -> bytes:
    try:
        return UUID(value).bytes
    except ValueError:
        raise InvalidRow(f"{path} has a value that is not a UUID") from None


def _unscaled(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The unscaled numbers of decimal128 in 16 bytes, highest first; and how many of them each needs."""
    data = np.frombuffer(column.buffers()[1], np.uint8, 16 * len(column), 16 * column.offset)
    table = data.reshape(-1, 16)[:, ::-1]
    # A byte is needed unless it and the highest bit of the next only repeat the sign.
    sign = np.where(table[:, :1] > 0x7F, 0xFF, 0)
    spare = (table[:, :-1] == sign) & ((table[:, 1:] > 0x7F) == (sign > 0))
    return table, 16 - np.logical_and.accumulate(spare, axis=1).sum(axis=1, dtype=np.int64)


def _decimal(column: pa.Array) -> Pieces:
    table, length = _unscaled(column)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(length, out=offsets[1:])
    kept = table[np.arange(16) >= (16 - length)[:, None]]
    return [_numbers(length), from_offsets(offsets, kept)]


def _primitive(avro: Primitive, column: pa.Array, path: str) -> Pieces:
    kind = arrow_type_of(avro)
    column = _cast(column, kind, path)
    match avro.name:
        case "string" | "bytes":
            length_and_bytes = _decimal(column) if avro.logical == "decimal" else _text(column)
            return length_and_bytes[1:] if avro.alone else length_and_bytes
        case "boolean":
            table = column.to_numpy(zero_copy_only=False).astype(np.uint8)
        case "float" | "double":
            table = np.ascontiguousarray(column.to_numpy()).view(np.uint8)
        case _:
            number = column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_numpy()
            if (times := factor(avro, avro)) > 1:
                number = number // times
            return [_numbers(number.astype(np.int64))]
    size = len(table) // len(column)
    return [from_offsets(np.arange(len(column) + 1, dtype=np.int32) * np.int32(size), table)]
