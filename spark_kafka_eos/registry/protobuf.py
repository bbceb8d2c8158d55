"""Protobuf: messages are parsed by protobuf's own library, and their fields become columns one after the other.

| Protobuf | Arrow, and so Spark |
|---|---|
| int32, int64 (and sint, sfixed), float, double, bool, string, bytes | the same |
| uint32, fixed32; uint64, fixed64 | int64; decimal128(20, 0) |
| enum | string: the name; for a number without a name, the number |
| message, repeated, map | struct, list, map |
| google.protobuf.Timestamp, Duration | timestamp[us, UTC], duration[us] |
| google.protobuf.Int64Value and other wrappers | the wrapped type |
| google.protobuf.Struct, Value, ListValue | string: the text in JSON |
| a field of a message without fields, as google.protobuf.Empty | bool: true if it is set |
| with `connect_types`: confluent.type.Decimal | string: the number's digits |
| with `connect_types`: google.type.Date, TimeOfDay | date32, int32: milliseconds |

A field that knows whether it is set (`optional`, in a oneof, a message) is null if it is not. Other fields have their
default. A record is read with the query's schema by the fields' numbers, as Protobuf means it.

Source: Protocol Buffers, "Encoding" and "Well-Known Types"; Confluent Schema Registry, "Wire format".
"""

from __future__ import annotations

import base64
import importlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, json_format, wrappers_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import InvalidRow, InvalidSchema
from spark_kafka_eos.kafka.wire.varint import varint_column, varints
from spark_kafka_eos.registry.avro_reading import Incompatible
from spark_kafka_eos.registry.client import SchemaText, is_descriptor
from spark_kafka_eos.registry.connect_types import digits
from spark_kafka_eos.registry.json_values import JSON_OF_DOUBLES
from spark_kafka_eos.registry.kinds import field_names, in_utc, is_bytes, is_list, is_number, is_text
from spark_kafka_eos.registry.nesting import Nesting, UnsupportedSchema
from spark_kafka_eos.registry.proto_text import descriptor_of
from spark_kafka_eos.registry.rows import ReadColumn, Rows, longs

# Files that a registry has without a reference, and the modules that have them, too.
_BUILT_IN = {
    f"{folder}/{name}.proto": f"{package}.{name}_pb2"
    for folder, package, names in (
        ("google/protobuf", "google.protobuf", (
            "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp",
            "type", "wrappers",
        )),
        ("google/type", "google.type", (
            "calendar_period", "color", "date", "datetime", "dayofweek", "expr", "fraction", "latlng", "money", "month",
            "postal_address", "quaternion", "timeofday",
        )),
        ("confluent", "confluent_kafka.schema_registry.confluent", ("meta",)),
        ("confluent/type", "confluent_kafka.schema_registry.confluent.type", ("decimal", "variant")),
        ("confluent/types", "confluent_kafka.schema_registry.confluent.types", ("decimal",)),
    )
    for name in names
}  # fmt: skip
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_WRAPPERS = {wrapper.full_name for wrapper in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()}
_JSON = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
_F = FieldDescriptor
_SCALARS = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), pa.int32()),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), pa.int64()),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), pa.int64()),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), pa.decimal128(20, 0)),
    _F.TYPE_FLOAT: pa.float32(), _F.TYPE_DOUBLE: pa.float64(), _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(), _F.TYPE_BYTES: pa.binary(), _F.TYPE_ENUM: pa.string(),
}  # fmt: skip
# As which other types each value of a writer's type is read as it is. Protobuf itself cuts off bits of others.
_EXACT = {
    _F.TYPE_INT32: {_F.TYPE_INT64, _F.TYPE_ENUM},
    _F.TYPE_UINT32: {_F.TYPE_UINT64, _F.TYPE_INT64},
    _F.TYPE_SINT32: {_F.TYPE_SINT64},
    _F.TYPE_BOOL: {_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_ENUM},
    _F.TYPE_ENUM: {_F.TYPE_INT32, _F.TYPE_INT64},
    _F.TYPE_STRING: {_F.TYPE_BYTES},
    _F.TYPE_BYTES: {_F.TYPE_STRING},
}
# Messages of the same fields that mean something else.
_OTHER_QUANTITIES = ({_TIMESTAMP, _DURATION}, {"google.type.Date", "google.type.TimeOfDay"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_INDEXES = 64  # of a message in its file: how deep it is nested


class ProtobufFormat:
    def __init__(self, text: SchemaText, message: str = "", *, connect_types: bool = False) -> None:
        files = _files(text)
        try:
            self._message = files.pool.FindMessageTypeByName(message) if message else next(iter(files.messages))
        except (KeyError, StopIteration):
            raise UnsupportedSchema(f"the file has no message {message}".rstrip()) from None
        self._value_types = _CONNECT_VALUE_TYPES if connect_types else _VALUE_TYPES
        self.arrow: pa.DataType = _struct(self._message, Nesting(), self._value_types)
        self.name: str = self._message.full_name
        self._class = GetMessageClass(self._message)
        self._is_own = self._message.file.name == files.file.name
        self._has_required = _has_required(self._message, set())
        self._fitting: set[pa.DataType] = set()  # types of columns that were checked

    def reader(self, written: SchemaText) -> ReadColumn:
        files = _files(written)

        def read(rows: Rows) -> pa.Array:
            self._check_message(rows, files)
            data, empty = rows.data.data, self._class()
            messages = []
            for number, (at, end) in enumerate(zip(rows.at.tolist(), rows.end.tolist(), strict=True)):
                try:
                    messages.append(self._class.FromString(bytes(data[at:end])))
                except DecodeError:
                    rows.note_one(number, Cause.UNDECODABLE)
                    messages.append(empty)
            rows.at = np.maximum(rows.at, rows.end)
            return _columns(self._message, messages, rows, self._value_types)

        with suppress(KeyError):  # of a file that lacks the message, every record is one of another message
            _check_fields(files.pool.FindMessageTypeByName(self.name), self._message, set())
        return read

    def _check_message(self, rows: Rows, files: _Files) -> None:
        """Read each row's indexes, and note those of another message than the query's."""
        paths = _paths(rows)
        rows.note(rows.at > rows.end)
        for path, which in paths:
            written = files.message(path)
            if written is None or written.full_name != self.name:
                for number in which.tolist():
                    rows.note_one(number, Cause.UNDECODABLE if written is None else Cause.WRONG_SCHEMA)

    @cached_property
    def indexes(self) -> bytes:
        """The place of the message in the schema's file, which a value has before it. Raises UnsupportedSchema for one
        of a file that it imports: its place there would be that of another message here.
        """
        if not self._is_own:
            raise UnsupportedSchema(
                f"the file has no message {self.name}, but imports it; to write it, give the schema that declares it"
            )
        return _indexes(self._message)

    def write(self, column: pa.Array, prefix: bytes) -> pa.BinaryArray:
        start = prefix + self.indexes
        if column.type not in self._fitting:
            _check_message(self._message, column.type, self.name)
            self._fitting.add(column.type)
        try:
            rows = in_utc(column).to_pylist()
        except (ValueError, OverflowError):  # its text has the value
            raise InvalidRow(
                "a timestamp or an interval is longer than Python's, or has parts of a microsecond"
            ) from None
        values = (None if value is None else self._written(value, start) for value in rows)
        return pa.array(list(values), pa.binary())

    def _written(self, value: dict[str, Any], start: bytes) -> bytes:
        message = self._class()
        _fill(message, value, self._message.full_name)
        if self._has_required and not message.IsInitialized():  # else Protobuf raises with keys of maps, or crashes
            raise InvalidRow(f"a required field of message {self.name} is null, or one within it")
        return start + cast(bytes, message.SerializeToString(deterministic=True))


def same_file(first: SchemaText, second: SchemaText) -> bool:
    """Whether two descriptors declare the same, whatever they leave to be inferred. Both are read with the files that
    `second` refers to.
    """
    try:
        return _declared(SchemaText(first.kind, first.text, second.references)) == _declared(second)
    except UnsupportedSchema:
        return False


def _declared(text: SchemaText) -> bytes:
    """What a file declares of bytes: with the full names of types, and neither its own name nor those for JSON."""
    made = descriptor_pb2.FileDescriptorProto()
    _files(text).file.CopyToProto(made)
    made.name = ""
    made.ClearField("source_code_info")
    messages = list(made.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
    return cast(bytes, made.SerializeToString(deterministic=True))


class _Files:
    """A file and what it imports."""

    def __init__(self, pool: DescriptorPool, name: str) -> None:
        self.pool = pool
        self.file = pool.FindFileByName(name)
        self._roots = list(self.file.message_types_by_name.values())

    @property
    def messages(self) -> Iterator[Descriptor]:
        yield from self._roots

    def message(self, path: tuple[int, ...]) -> Descriptor | None:
        descriptor, among = None, self._roots
        for index in path:
            if not 0 <= index < len(among):
                return None
            descriptor = among[index]
            among = list(descriptor.nested_types)
        return descriptor


def _files(text: SchemaText) -> _Files:
    """Raises UnsupportedSchema."""
    pool = DescriptorPool()
    added: set[str] = set()
    protos = {}
    for name, content in (*text.references, ("", text.text)):
        proto = _descriptor(content) if is_descriptor(content) else descriptor_of(content)
        proto.name = name or proto.name or "schema.proto"
        protos[proto.name] = proto
    for name in protos:
        _add(name, protos, pool, added)
    try:
        return _Files(pool, proto.name)
    except (KeyError, TypeError) as error:
        raise UnsupportedSchema(f"the Protobuf file cannot be used: {type(error).__name__}") from error


def _descriptor(content: str) -> descriptor_pb2.FileDescriptorProto:
    proto = descriptor_pb2.FileDescriptorProto()
    try:
        proto.ParseFromString(base64.b64decode(content))
    except DecodeError:
        raise UnsupportedSchema(
            "a Protobuf schema must be the text of a .proto file, or a serialized FileDescriptorProto in base64"
        ) from None
    return proto


def _add(name: str, protos: dict[str, Any], pool: DescriptorPool, added: set[str]) -> None:
    if name in added:
        return
    added.add(name)
    if name in protos:
        for needed in protos[name].dependency:
            _add(needed, protos, pool, added)
        try:
            pool.Add(protos[name])
        except TypeError as error:
            raise UnsupportedSchema(f"the Protobuf file {name} cannot be used") from error
    else:
        built_in = _built_in(name)
        for needed in built_in.dependencies:
            _add(needed.name, protos, pool, added)
        pool.AddSerializedFile(built_in.serialized_pb)


def _built_in(name: str) -> FileDescriptor:
    if name not in _BUILT_IN:
        raise UnsupportedSchema(f"the Protobuf file imports {name}, which the registry's schema does not refer to")
    try:
        return cast(FileDescriptor, importlib.import_module(_BUILT_IN[name]).DESCRIPTOR)
    except Exception as error:  # of generated code, which checks releases, and the names in this process
        raise UnsupportedSchema(
            f"the Protobuf file imports {name}, and the module {_BUILT_IN[name]} cannot be imported: "
            f"{type(error).__name__}"
        ) from error


def _indexes(message: Descriptor) -> bytes:
    """The place of a message in its file, as in the wire format; the first message is 0."""
    path: list[int] = []
    here: Any = message
    while here.containing_type is not None:
        path.insert(0, [part.full_name for part in here.containing_type.nested_types].index(here.full_name))
        here = here.containing_type
    path.insert(0, list(message.file.message_types_by_name).index(here.name))
    numbers = [0] if path == [0] else [len(path), *path]
    return b"".join(varint_column([varints(part)], 1)[0].as_py() for part in numbers)


def _paths(rows: Rows) -> list[tuple[tuple[int, ...], Any]]:
    """The distinct indexes, and the rows that have each. Moves the cursors to the message."""
    count = longs(rows)
    if not count.any():
        return [((0,), np.arange(len(rows)))]
    rows_by_path: dict[tuple[int, ...], list[int]] = {}
    wrong = (count < 0) | (count > _MOST_INDEXES)
    rows.note(wrong)
    count[wrong] = 0
    paths: list[list[int]] = [[] for _ in range(len(rows))]
    for step in range(int(count.max(initial=0))):
        which = np.flatnonzero(count > step)
        some = rows.some(which)
        for row, index in zip(which.tolist(), longs(some).tolist(), strict=True):
            paths[row].append(index)
        rows.join(which, some)
    for row, path in enumerate(paths):
        rows_by_path.setdefault(tuple(path) or (0,), []).append(row)
    return [(path, np.array(which)) for path, which in rows_by_path.items()]


def _check_fields(written: Descriptor, target: Descriptor, seen: set[tuple[str, str]]) -> None:
    """Raises Incompatible if a field's number has another type in the writer's schema, whose values it cannot hold:
    Protobuf would cut them, or take the field for one that it does not know and leave the reader's at its default. Of
    many values for a single one it would take the last, and of packed ones none.
    """
    if (written.full_name, target.full_name) in seen:
        return
    seen.add((written.full_name, target.full_name))
    for field in target.fields:
        other = written.fields_by_number.get(field.number)
        if other is None:
            continue
        if field.type != other.type and field.type not in _EXACT.get(other.type, ()):
            raise Incompatible(f"field {field.full_name} (number {field.number}) has another type in the writer's")
        if _repeated(other) and not _repeated(field):
            raise Incompatible(f"field {field.full_name} (number {field.number}) is repeated in the writer's")
        if field.message_type is not None:
            if {other.message_type.full_name, field.message_type.full_name} in _OTHER_QUANTITIES:
                raise Incompatible(f"field {field.full_name} (number {field.number}) has another type in the writer's")
            _check_fields(other.message_type, field.message_type, seen)


# Types.


def _repeated(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == _F.LABEL_REPEATED)


def _has_required(message: Descriptor, seen: set[str]) -> bool:
    """Whether the message, or one within it, has a field that must be set."""
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(
        _is_required(field) or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in message.fields
    )


def _is_required(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_required"):
        return bool(field.is_required)
    return bool(field.label == _F.LABEL_REQUIRED)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


class _Value(NamedTuple):
    """A message that is a single value in Spark: its type, and the value of a message as `pa.array` takes it."""

    arrow: pa.DataType
    of: Callable[[Any], Any]


_ValueTypes = Mapping[str, _Value]  # by the full name of the message
_UNFIT = object()  # what `pa.array` takes for no type: the row is out of range

_VALUE_TYPES: _ValueTypes = {
    _TIMESTAMP: _Value(pa.timestamp("us", "UTC"), lambda time: time.seconds * 1_000_000 + time.nanos // 1000),
    _DURATION: _Value(pa.duration("us"), lambda duration: duration.ToMicroseconds()),
    **{
        wrapper.full_name: _Value(_SCALARS[wrapper.fields_by_name["value"].type], lambda message: message.value)
        for wrapper in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()
    },
    **dict.fromkeys(_JSON, _Value(pa.string(), lambda message: json_format.MessageToJson(message, indent=None))),
}


def _decimal(message: Any) -> Any:
    text = digits(message.value, message.scale)
    return _UNFIT if text is None else text


def _date(message: Any) -> Any:
    """One without year, month or day, which the type may have, is no date."""
    try:
        return date(message.year, message.month, message.day)
    except ValueError:
        return _UNFIT


def _time_of_day(message: Any) -> Any:
    """Milliseconds, as Connect's Time has them."""
    milliseconds, rest = divmod(message.nanos, 1_000_000)
    seconds = (message.hours * 60 + message.minutes) * 60 + message.seconds
    return _UNFIT if rest else seconds * 1000 + milliseconds


_CONNECT_VALUE_TYPES: _ValueTypes = {
    **_VALUE_TYPES,
    **dict.fromkeys(("confluent.type.Decimal", "confluent.types.Decimal"), _Value(pa.string(), _decimal)),
    "google.type.Date": _Value(pa.date32(), _date),
    "google.type.TimeOfDay": _Value(pa.int32(), _time_of_day),
}


def _struct(message: Descriptor, above: Nesting, value_types: _ValueTypes) -> pa.DataType:
    inside = above.within(message.full_name, f"message {message.full_name}")
    if not message.fields:
        raise UnsupportedSchema(f"message {message.full_name} has no fields, and Spark cannot read such a struct")
    return pa.struct([pa.field(field.name, _type(field, inside, value_types)) for field in message.fields])


def _type(field: FieldDescriptor, above: Nesting, value_types: _ValueTypes) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        return pa.map_(_single(key, above, value_types), _single(value, above, value_types))
    if _repeated(field):
        return pa.list_(pa.field("element", _single(field, above, value_types)))
    return _single(field, above, value_types)


def _single(field: FieldDescriptor, above: Nesting, value_types: _ValueTypes) -> pa.DataType:
    above.count()
    if field.message_type is None:
        return _SCALARS[field.type]
    if field.message_type.full_name in value_types:
        return value_types[field.message_type.full_name].arrow
    return _struct(field.message_type, above, value_types) if field.message_type.fields else pa.bool_()


# Reading.


def _columns(message: Descriptor, values: Sequence[Any], rows: Rows | None, value_types: _ValueTypes) -> pa.Array:
    """The struct of `values`, some of which may be None. `rows` are theirs, if there is one for each."""
    kind = _struct(message, Nesting(), value_types)
    columns = []
    for field, part in zip(message.fields, kind, strict=True):
        take = _taker(field, value_types)
        taken = [None if value is None else take(value) for value in values]
        if _is_map(field) or _repeated(field) or not _is_struct(field, value_types):
            columns.append(_array(taken, part.type, rows))
        else:
            columns.append(_columns(field.message_type, taken, rows, value_types))
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _array(values: list[Any], kind: pa.DataType, rows: Rows | None) -> pa.Array:
    try:
        return pa.array(values, kind)
    except _MISFITS:
        if rows is None:
            raise
    kept = list(values)
    for number, value in enumerate(values):
        try:
            pa.array([value], kind)
        except _MISFITS:
            rows.note_one(number, Cause.UNDECODABLE if _has_no_text(value, kind) else Cause.OUT_OF_RANGE)
            kept[number] = None
    return pa.array(kept, kind)


def _has_no_text(value: Any, kind: pa.DataType) -> bool:
    """Whether a string of proto2 in the value is not UTF-8: Protobuf has its bytes then."""
    if value is None:
        return False
    if pa.types.is_map(kind):
        return any(_has_no_text(key, kind.key_type) or _has_no_text(item, kind.item_type) for key, item in value)
    if pa.types.is_list(kind):
        return any(_has_no_text(item, kind.value_type) for item in value)
    if pa.types.is_struct(kind):
        return any(_has_no_text(value[part.name], part.type) for part in kind)
    return bool(pa.types.is_string(kind) and isinstance(value, bytes))


_MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError)


def _is_struct(field: FieldDescriptor, value_types: _ValueTypes) -> bool:
    """Whether a single value of the field is a struct in Spark."""
    message = field.message_type
    return message is not None and bool(message.fields) and message.full_name not in value_types


def _taker(field: FieldDescriptor, value_types: _ValueTypes) -> Callable[[Any], Any]:
    """The function from a message to the field's value, None if it is not set."""
    name = field.name
    if _is_map(field):
        value = _python(field.message_type.fields_by_number[2], value_types)
        return lambda message: [(key, value(item)) for key, item in getattr(message, name).items()]
    single = _python(field, value_types)
    if _repeated(field):
        return lambda message: [single(item) for item in getattr(message, name)]
    plain = _is_struct(field, value_types) or (field.message_type is None and field.type != _F.TYPE_ENUM)
    if not field.has_presence:
        return (lambda message: getattr(message, name)) if plain else lambda message: single(getattr(message, name))
    if plain:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    return lambda message: single(getattr(message, name)) if message.HasField(name) else None


def _python(field: FieldDescriptor, value_types: _ValueTypes) -> Callable[[Any], Any]:
    """The function from a single value to what `pa.array` takes."""
    if field.type == _F.TYPE_ENUM:
        names = {symbol.number: symbol.name for symbol in reversed(field.enum_type.values)}  # of several the first
        return lambda number: names.get(number, str(number))
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name in value_types:
        return value_types[field.message_type.full_name].of
    if not field.message_type.fields:
        return lambda _: True
    takers = [
        (inner.name, _taker(inner, value_types), _is_struct(inner, value_types) and not _repeated(inner))
        for inner in field.message_type.fields
    ]
    nested = {
        inner.name: _python(inner, value_types) for inner in field.message_type.fields if _is_struct(inner, value_types)
    }

    def row_of(message: Any) -> dict[str, Any]:
        row = {}
        for inner, take, is_struct in takers:
            value = take(message)
            row[inner] = nested[inner](value) if is_struct and value is not None else value
        return row

    return row_of


# Writing.


def _check_message(message: Descriptor, kind: pa.DataType, path: str) -> None:
    """Raise InvalidSchema if no value of the type, but null, is one of the message."""
    if pa.types.is_null(kind):
        return
    if not pa.types.is_struct(kind):
        raise _wrong_type(path, kind, f"message {message.full_name}")
    fields = message.fields_by_name
    unknown = field_names(kind, path) - set(fields)
    if unknown:
        raise InvalidSchema(f"{path} has fields that its message lacks: {', '.join(sorted(unknown))}")
    for part in kind:
        _check_field(fields[part.name], part.type, f"{path}.{part.name}")


def _check_field(field: FieldDescriptor, kind: pa.DataType, path: str) -> None:
    """Python would take a text for a list of its letters, and a list of pairs for a map of their fields' names."""
    if not _repeated(field):
        _check_single(field, kind, path)
    elif _is_map(field) and pa.types.is_map(kind):
        of_key, of_value = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        _check_single(of_key, kind.key_type, f"{path}.key")
        _check_single(of_value, kind.item_type, f"{path}.value")
    elif is_list(kind) and not _is_map(field):
        _check_single(field, kind.value_type, f"{path}.element")
    elif not pa.types.is_null(kind):
        raise _wrong_type(path, kind, "a map" if _is_map(field) else "an array")


def _check_single(field: FieldDescriptor, kind: pa.DataType, path: str) -> None:
    message = field.message_type
    name = "" if message is None else message.full_name
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if name in _WRAPPERS:
        _check_single(message.fields_by_name["value"], kind, path)
    elif message is not None and message.fields and name not in _VALUE_TYPES:
        _check_message(message, kind, path)
    elif not (pa.types.is_null(kind) or _takes(field)(kind)):
        raise _wrong_type(path, kind, str(_single(field, Nesting(), _VALUE_TYPES)))


def _takes(field: FieldDescriptor) -> Callable[[pa.DataType], bool]:
    if field.message_type is None:
        return _TAKES.get(field.type, is_number)
    return _TAKES.get(field.message_type.full_name, _TAKES[_F.TYPE_BOOL])  # without fields


def _wrong_type(path: str, kind: pa.DataType, wanted: str) -> InvalidSchema:
    return InvalidSchema(
        f"{path} has the type {kind}, and its Protobuf schema wants {wanted}",
        action="Cast the column, or leave it out.",
    )


@lru_cache(maxsize=256)
def _oneofs(message: Descriptor) -> dict[str, str]:
    """By the names of fields, the oneof in which they are with others. An optional field is in one of its own."""
    return {field.name: oneof.name for oneof in message.oneofs if len(oneof.fields) > 1 for field in oneof.fields}


def _fill(message: Any, value: dict[str, Any], path: str) -> None:
    fields, oneofs = message.DESCRIPTOR.fields_by_name, _oneofs(message.DESCRIPTOR)
    for name, part in value.items():
        if part is None:
            continue
        where = f"{path}.{name}"
        oneof = oneofs.get(name)
        other = oneof and message.WhichOneof(oneof)
        try:
            _set(message, fields[name], part, where)
        except (
            TypeError,
            ValueError,
            OverflowError,
            AttributeError,
            json_format.ParseError,
        ):  # their texts have values
            raise InvalidRow(f"{where} has a value that does not fit its Protobuf field") from None
        if other and message.WhichOneof(oneof) != other:
            raise InvalidRow(f"{path} has {other} and {name} set in a row, of which its oneof {oneof} has one at most")


def _set(message: Any, field: FieldDescriptor, value: Any, path: str) -> None:
    target = getattr(message, field.name)
    if _is_map(field):
        of_key, inner = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        for key, item in value:
            if inner.message_type is None:
                target[_scalar(of_key, key)] = _scalar(inner, item)
            else:
                _set_message(target[_scalar(of_key, key)], item, path)
    elif _repeated(field):
        for item in value:
            if field.message_type is None:
                target.append(_scalar(field, item))
            else:
                _set_message(target.add(), item, path)
    elif field.message_type is None:
        setattr(message, field.name, _scalar(field, value))
    elif field.message_type.fields or value is not False:
        target.SetInParent()
        _set_message(target, value, path)


def _set_message(target: Any, value: Any, path: str) -> None:
    name = target.DESCRIPTOR.full_name
    if name == _TIMESTAMP:
        micros = (value - _EPOCH) // timedelta(microseconds=1)
        target.seconds, target.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
    elif name == _DURATION:
        target.FromMicroseconds(value // timedelta(microseconds=1))
    elif name in _WRAPPERS:
        target.value = _scalar(target.DESCRIPTOR.fields_by_name["value"], value)
    elif name in _JSON:
        json_format.ParseDict(JSON_OF_DOUBLES.decode(value), target)
    elif not target.DESCRIPTOR.fields:
        if value is not True:
            raise ValueError
    else:
        _fill(target, value, path)


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    """The value as the field takes it. Raises ValueError or OverflowError rather than cut it: Protobuf takes any number
    for a boolean, and infinity for what a float cannot hold.
    """
    kind = field.cpp_type
    if type(value) in _PLAIN[kind]:
        return value
    match kind:
        case _F.CPPTYPE_FLOAT if type(value) is float and abs(value) <= _LARGEST_SINGLE:
            return value
        case _F.CPPTYPE_ENUM:
            symbol = field.enum_type.values_by_name.get(value)
            if symbol is not None:
                return symbol.number
            return int(value) if isinstance(value, str) else _whole(value)
        case _F.CPPTYPE_BOOL:
            raise ValueError
        case _F.CPPTYPE_DOUBLE | _F.CPPTYPE_FLOAT:
            return _floating(value, is_single=kind == _F.CPPTYPE_FLOAT)
        case _F.CPPTYPE_STRING:
            return value
    return _whole(value)


def _whole(value: Any) -> int:
    if isinstance(value, str) or int(value) != value:
        raise ValueError
    return int(value)


def _floating(value: Any, *, is_single: bool) -> float:
    """Of a decimal or a float the nearest number, of a whole number itself."""
    if isinstance(value, str):
        raise TypeError
    number = float(value)
    if is_single:
        (number,) = _SINGLE.unpack(_SINGLE.pack(number))
    if isinstance(value, int) and number != value:
        raise ValueError
    return number


# The types of columns that a field takes, by its type or message; all others take numbers.
_TAKES: dict[int | str, Callable[[pa.DataType], bool]] = {
    _F.TYPE_BOOL: pa.types.is_boolean,
    _F.TYPE_STRING: lambda kind: is_text(kind) or is_bytes(kind),
    _F.TYPE_BYTES: is_bytes,
    _F.TYPE_ENUM: lambda kind: is_text(kind) or is_number(kind),
    _TIMESTAMP: lambda kind: bool(pa.types.is_timestamp(kind) and kind.tz is not None),
    _DURATION: pa.types.is_duration,
    **dict.fromkeys(_JSON, is_text),
}
# Python's types of values that a field takes as they are.
_PLAIN = {
    **dict.fromkeys((_F.CPPTYPE_INT32, _F.CPPTYPE_INT64, _F.CPPTYPE_UINT32, _F.CPPTYPE_UINT64), frozenset({int})),
    _F.CPPTYPE_DOUBLE: frozenset({float}),
    _F.CPPTYPE_BOOL: frozenset({bool}),
    _F.CPPTYPE_STRING: frozenset({str, bytes}),
    **dict.fromkeys((_F.CPPTYPE_FLOAT, _F.CPPTYPE_ENUM), frozenset[type]()),
}
_LARGEST_SINGLE = 3.4028234663852886e38
_SINGLE = struct.Struct("<f")  # raises OverflowError for a larger number
