"""Protobuf files from a seed, with every kind of field, and messages of them, made with Protobuf's own classes; and the
row that a message stands for, read off it one field at a time.
"""

from __future__ import annotations

import base64
import random
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from spark_kafka_eos.registry.client import SchemaText

_F = descriptor_pb2.FieldDescriptorProto
MODULES = (duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
SCALARS = [kind for kind in range(1, 19) if kind not in (_F.TYPE_GROUP, _F.TYPE_MESSAGE, _F.TYPE_ENUM)]
KEYS = [kind for kind in SCALARS if kind not in (_F.TYPE_FLOAT, _F.TYPE_DOUBLE, _F.TYPE_BYTES)]
UNPACKABLE = (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE, _F.TYPE_GROUP)
WELL_KNOWN = [
    "Timestamp", "Duration", "Struct", "Value", "ListValue", "Empty", "DoubleValue", "FloatValue", "Int64Value",
    "UInt64Value", "Int32Value", "UInt32Value", "BoolValue", "StringValue", "BytesValue",
]  # fmt: skip
_DEPTH = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Sample:
    """A file, one of its messages, and that message's class. `path` is its place in the file."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.file = _file(chance)
        path = [chance.randrange(len(self.file.message_type))]
        here = self.file.message_type[path[0]]
        while chance.random() < 0.4 and (inner := [at for at, each in enumerate(here.nested_type) if _is_target(each)]):
            path.append(chance.choice(inner))
            here = here.nested_type[path[-1]]
        self.path = path
        self.message = message_of(self.file, path)
        self.type = GetMessageClass(self.message)

    @property
    def text(self) -> SchemaText:
        return text_of(self.file)

    def value(self) -> Message:
        made = self.type()
        _fill(self._chance, made, 0)
        return made

    def repacked(self) -> Sample:
        """The same, but for whether repeated fields are packed: other bytes of the same values."""
        other: Sample = object.__new__(Sample)
        other._chance, other.path, other.file = self._chance, self.path, descriptor_pb2.FileDescriptorProto()
        other.file.CopyFrom(self.file)
        messages = list(other.file.message_type)
        while messages:
            message = messages.pop()
            messages += message.nested_type
            for field in message.field:
                if field.label == _F.LABEL_REPEATED and field.type not in UNPACKABLE:
                    field.options.packed = self._chance.random() < 0.5
        other.message = message_of(other.file, self.path)
        other.type = GetMessageClass(other.message)
        return other


def text_of(made: descriptor_pb2.FileDescriptorProto) -> SchemaText:
    return SchemaText("PROTOBUF", base64.b64encode(made.SerializeToString()).decode())


def message_of(made: descriptor_pb2.FileDescriptorProto, path: list[int]) -> Descriptor:
    pool = DescriptorPool()
    for module in MODULES:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    among = list(pool.AddSerializedFile(made.SerializeToString()).message_types_by_name.values())
    for at in path:
        found = among[at]
        among = list(found.nested_types)
    return found


def _is_target(message: descriptor_pb2.DescriptorProto) -> bool:
    return bool(message.field) and not message.options.map_entry


def _file(chance: random.Random) -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto(name="sample.proto", syntax=chance.choice(("proto2", "proto3")))
    if chance.random() < 0.8:
        made.package = chance.choice(("p", "some.where"))
    made.dependency.extend(module.DESCRIPTOR.name for module in MODULES)
    scope = f".{made.package}" if made.package else ""
    enums = [_enum(chance, made.enum_type.add(name="Kind"), scope, made.syntax)]
    known: list[str] = []  # messages that a later one may have as a field
    for number in range(chance.randrange(1, 4)):
        name = f"M{number}"
        _message(chance, made.message_type.add(name=name), f"{scope}.{name}", made.syntax, list(known), enums, 0)
        known.append(f"{scope}.{name}")
    return made


def _enum(chance: random.Random, enum: descriptor_pb2.EnumDescriptorProto, scope: str, syntax: str) -> str:
    numbers = [0] if syntax == "proto3" else [chance.choice((-1, 0, 5))]
    numbers += chance.sample([-(2**31), -7, 1, 2, 300, 2**31 - 1], chance.randrange(4))
    for at, number in enumerate(numbers):
        enum.value.add(name=f"{scope}_{enum.name}_{at}".replace(".", "_").lstrip("_"), number=number)
    return f"{scope}.{enum.name}"


def _message(
    chance: random.Random,
    message: descriptor_pb2.DescriptorProto,
    full_name: str,
    syntax: str,
    known: list[str],
    enums: list[str],
    depth: int,
) -> None:
    enums = list(enums)
    if chance.random() < 0.3:
        enums.append(_enum(chance, message.enum_type.add(name="Inner"), full_name, syntax))
    for at in range(chance.randrange(3) if depth < _DEPTH else 0):
        inner = message.nested_type.add(name=f"N{at}")
        _message(chance, inner, f"{full_name}.N{at}", syntax, list(known), enums, depth + 1)
        known.append(f"{full_name}.N{at}")
    numbers = chance.sample([*range(1, 40), 1000, 18_999, 20_000, 2**29 - 1], chance.randrange(1, 8))
    if depth and chance.random() < 0.1:
        numbers = []  # an empty message
    chosen = set(chance.sample(numbers, chance.randrange(len(numbers) + 1))) if chance.random() < 0.4 else set()
    if chosen:
        message.oneof_decl.add(name="one")
    for number in numbers:
        field = message.field.add(name=f"f{number}", number=number, label=_F.LABEL_OPTIONAL)
        if number in chosen:
            field.oneof_index = 0
            _type(chance, field, message, full_name, syntax, known, enums)
        elif chance.random() < 0.15:
            _map(chance, field, message, full_name, known, enums, syntax)
        else:
            _type(chance, field, message, full_name, syntax, known, enums)
            field.label = _label(chance, syntax)
            if field.label == _F.LABEL_REPEATED and field.type not in UNPACKABLE and chance.random() < 0.5:
                field.options.packed = chance.random() < 0.5
    if syntax == "proto3":
        _with_optional(chance, message)


def _with_optional(chance: random.Random, message: descriptor_pb2.DescriptorProto) -> None:
    """Some fields with `optional`, whose own oneofs come last."""
    for field in message.field:
        single = field.label == _F.LABEL_OPTIONAL and not field.HasField("oneof_index")
        if single and field.type != _F.TYPE_MESSAGE and chance.random() < 0.3:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _label(chance: random.Random, syntax: str) -> Any:
    labels = [_F.LABEL_OPTIONAL, _F.LABEL_REPEATED]
    return chance.choice([*labels, _F.LABEL_REQUIRED] if syntax == "proto2" else labels)


def _type(
    chance: random.Random,
    field: descriptor_pb2.FieldDescriptorProto,
    message: descriptor_pb2.DescriptorProto,
    full_name: str,
    syntax: str,
    known: list[str],
    enums: list[str],
) -> None:
    draw = chance.random()
    if draw < 0.12:
        field.type, field.type_name = _F.TYPE_ENUM, chance.choice(enums)
    elif draw < 0.27 and known:
        field.type, field.type_name = _F.TYPE_MESSAGE, chance.choice(known)
    elif draw < 0.45:
        field.type, field.type_name = _F.TYPE_MESSAGE, f".google.protobuf.{chance.choice(WELL_KNOWN)}"
    elif draw < 0.5 and syntax == "proto2":
        group = message.nested_type.add(name=f"G{field.number}")
        group.field.add(name="a", number=1, label=_F.LABEL_OPTIONAL, type=chance.choice(SCALARS))
        field.name = group.name.lower()
        field.type, field.type_name = _F.TYPE_GROUP, f"{full_name}.{group.name}"
    else:
        field.type = chance.choice(SCALARS)
        if syntax == "proto2" and field.type == _F.TYPE_INT32 and chance.random() < 0.5:
            field.default_value = "42"


def _map(
    chance: random.Random,
    field: descriptor_pb2.FieldDescriptorProto,
    message: descriptor_pb2.DescriptorProto,
    full_name: str,
    known: list[str],
    enums: list[str],
    syntax: str,
) -> None:
    entry = message.nested_type.add(name=f"F{field.number}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL, type=chance.choice(KEYS))
    value = entry.field.add(name="value", number=2, label=_F.LABEL_OPTIONAL)
    draw = chance.random()
    if draw < 0.2 and syntax == "proto3":  # an enum of a map needs 0
        value.type, value.type_name = _F.TYPE_ENUM, enums[0]
    elif draw < 0.4 and known:
        value.type, value.type_name = _F.TYPE_MESSAGE, chance.choice(known)
    elif draw < 0.5:
        value.type, value.type_name = _F.TYPE_MESSAGE, f".google.protobuf.{chance.choice(WELL_KNOWN)}"
    else:
        value.type = chance.choice(SCALARS)
    field.label, field.type, field.type_name = _F.LABEL_REPEATED, _F.TYPE_MESSAGE, f"{full_name}.{entry.name}"


# -- values


def _fill(chance: random.Random, message: Message, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and chance.random() < 0.3:
            continue
        if is_map(field):
            target = getattr(message, field.name)
            key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            for _ in range(chance.randrange(3)):
                if value.message_type is None:
                    target[_scalar(chance, key)] = _scalar(chance, value)
                else:
                    each = target[_scalar(chance, key)]
                    each.Clear()
                    _inner(chance, each, depth)
        elif field.is_repeated:
            for _ in range(chance.randrange(4)):
                if field.message_type is None:
                    getattr(message, field.name).append(_scalar(chance, field))
                else:
                    _inner(chance, getattr(message, field.name).add(), depth)
        elif field.message_type is None:
            setattr(message, field.name, _scalar(chance, field))
        else:
            getattr(message, field.name).SetInParent()
            _inner(chance, getattr(message, field.name), depth)


def _inner(chance: random.Random, message: Any, depth: int) -> None:
    name = message.DESCRIPTOR.full_name
    match name.removeprefix("google.protobuf."):
        case "Timestamp":
            message.seconds = chance.randrange(-62_135_596_800, 253_402_300_800)
            message.nanos = chance.randrange(1_000_000) * 1_000
        case "Duration":
            micros = chance.randrange(-(2**52), 2**52)
            message.FromMicroseconds(micros)
        case "Struct":
            for at in range(chance.randrange(3)):
                _inner(chance, message.fields[f"k{at}"], depth + 1)
        case "ListValue":
            for _ in range(chance.randrange(3)):
                _inner(chance, message.values.add(), depth + 1)
        case "Value":
            _any(chance, message, depth)
        case _:
            _fill(chance, message, depth + 1)


def _any(chance: random.Random, message: Any, depth: int) -> None:
    match chance.randrange(6 if depth < _DEPTH else 4):
        case 0:
            message.null_value = 0
        case 1:
            message.number_value = chance.choice((0.0, -0.0, 1.5, 1e300, -7))
        case 2:
            message.string_value = chance.choice(("", "Zoë", '"\\'))
        case 3:
            message.bool_value = chance.random() < 0.5
        case 4:
            message.list_value.SetInParent()
            _inner(chance, message.list_value, depth + 1)
        case 5:
            message.struct_value.SetInParent()
            _inner(chance, message.struct_value, depth + 1)


def _scalar(chance: random.Random, field: FieldDescriptor) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_ENUM:
            return chance.choice(field.enum_type.values).number
        case FieldDescriptor.TYPE_STRING:
            return chance.choice(("", "Zoë", "\0", "a" * 200))
        case FieldDescriptor.TYPE_BYTES:
            return chance.randbytes(chance.choice((0, 1, 200)))
        case FieldDescriptor.TYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.TYPE_DOUBLE:
            return chance.choice((0.0, -0.0, 1.5, float("inf"), struct.unpack("<d", chance.randbytes(8))[0]))
        case FieldDescriptor.TYPE_FLOAT:
            return chance.choice((0.0, -0.0, 1.5, float("-inf"), struct.unpack("<f", chance.randbytes(4))[0]))
        case FieldDescriptor.TYPE_UINT32 | FieldDescriptor.TYPE_FIXED32:
            return chance.choice((0, 1, 2**32 - 1, chance.getrandbits(32)))
        case FieldDescriptor.TYPE_UINT64 | FieldDescriptor.TYPE_FIXED64:
            return chance.choice((0, 1, 2**64 - 1, chance.getrandbits(64)))
        case FieldDescriptor.TYPE_INT32 | FieldDescriptor.TYPE_SINT32 | FieldDescriptor.TYPE_SFIXED32:
            return chance.choice((0, -1, -(2**31), 2**31 - 1, chance.getrandbits(32) - 2**31))
    return chance.choice((0, -1, -(2**63), 2**63 - 1, chance.getrandbits(64) - 2**63))


# -- rows


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def row_of(message: Message) -> dict[str, Any]:
    """The row that the page of types says."""
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if is_map(field):
            inner = field.message_type.fields_by_name["value"]
            key = field.message_type.fields_by_name["key"]
            row[field.name] = sorted((_plain(key, each), _plain(inner, value[each])) for each in value)
        elif field.is_repeated:
            row[field.name] = [_plain(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = _plain(field, value)
    return row


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        return Decimal(value)
    if field.message_type is None:
        return value
    match field.message_type.full_name.removeprefix("google.protobuf."):
        case "Timestamp":
            return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
        case "Duration":
            return timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
        case "Struct" | "Value" | "ListValue":
            return _json(value)
        case "Empty":
            return True
        case name if name.endswith("Value") and field.message_type.full_name.startswith("google.protobuf."):
            return _plain(field.message_type.fields_by_name["value"], value.value)
    return row_of(value) if field.message_type.fields else True


def _json(value: Any) -> Any:
    """As JSON has it, but not as its text: two texts may be the same."""
    match value.DESCRIPTOR.name:
        case "Struct":
            return {key: _json(each) for key, each in value.fields.items()}
        case "ListValue":
            return [_json(each) for each in value.values]
    kind = value.WhichOneof("kind")
    match kind:
        case "null_value":
            return None
        case "struct_value" | "list_value":
            return _json(getattr(value, kind))
    return getattr(value, kind)
