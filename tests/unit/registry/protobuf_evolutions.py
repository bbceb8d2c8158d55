"""Protobuf files as a writer has them and as a query has them after some changes, and messages of the writer."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, text_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.unit.registry.protobuf_samples import KEYS, MODULES, SCALARS, UNPACKABLE, WELL_KNOWN, Sample

_F: TypeAlias = descriptor_pb2.FieldDescriptorProto
_File: TypeAlias = descriptor_pb2.FileDescriptorProto
_Message: TypeAlias = descriptor_pb2.DescriptorProto
# Types that the wire does not tell apart, or a reader's default for what it takes for another field.
_ALIKE = (
    (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM),
    (_F.TYPE_SINT32, _F.TYPE_SINT64),
    (_F.TYPE_FIXED32, _F.TYPE_SFIXED32, _F.TYPE_FLOAT),
    (_F.TYPE_FIXED64, _F.TYPE_SFIXED64, _F.TYPE_DOUBLE),
    (_F.TYPE_STRING, _F.TYPE_BYTES),
)
_NUMERIC = (*_ALIKE[0][:4], *_ALIKE[1], *_ALIKE[2], *_ALIKE[3])


@dataclass(frozen=True)
class Evolution:
    """Two files, the message in both, and messages of the writer's as Python writes them."""

    writer: _File
    reader: _File
    message: str
    bodies: tuple[bytes, ...]

    def __str__(self) -> str:
        files = (text_format.MessageToString(file, as_one_line=True) for file in (self.writer, self.reader))
        writer, reader = (file.replace("dependency: ", "").split(" message_type", 1)[-1] for file in files)
        bodies = [body.hex() for body in self.bodies]
        return (
            f"{self.message} ({self.writer.syntax}, {self.reader.syntax})\nwriter {writer}\nreader {reader}\n{bodies}"
        )


def evolution(seed: int, values: int = 2) -> Evolution:
    """A writer's file, a query's file with up to four changes, and messages of the writer."""
    chance = random.Random(seed)
    sample = Sample(chance)
    name = sample.message.full_name
    for field in (field for message in messages(sample.file) for field in message.field):
        if field.label == _F.LABEL_REPEATED:
            field.ClearField("default_value")  # Java refuses it
    reader = sample.file
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 4))):
        reader = _changed(chance, reader, name)
    made = [sample.value() for _ in range(values)]
    for value in made:
        _to_the_edge(chance, value)
    return Evolution(sample.file, reader, name, tuple(value.SerializeToString() for value in made))


def _to_the_edge(chance: random.Random, message: Any) -> None:
    """Some times with nanoseconds or far away, some numbers that JSON has not."""
    name = message.DESCRIPTOR.full_name
    if name in {"google.protobuf.Timestamp", "google.protobuf.Duration"} and chance.random() < 0.1:
        message.nanos += 1 if message.seconds >= 0 else -1 if name.endswith("Duration") else 1
        message.seconds = chance.choice((message.seconds, message.seconds, 2**62, -(2**62), 10**12))
    elif name == "google.protobuf.Value" and message.WhichOneof("kind") == "number_value" and chance.random() < 0.1:
        message.number_value = math.nan
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in sorted(value):
                    _to_the_edge(chance, value[key])
        else:
            for item in value if field.is_repeated else [value]:
                _to_the_edge(chance, item)


def descriptor_of(file: _File, name: str) -> Descriptor:
    """Raises TypeError for a file that Protobuf refuses, KeyError for one that lacks the message."""
    pool = DescriptorPool()
    for module in MODULES:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName(name)


def messages(file: _File) -> Iterator[_Message]:
    """All that the file defines, but for the entries of maps."""
    pending = list(file.message_type)
    while pending:
        message = pending.pop()
        pending += message.nested_type
        if not message.options.map_entry:
            yield message


# What changes.


def _changed(chance: random.Random, file: _File, name: str) -> _File:
    """The file with one change; the same if Protobuf refuses that."""
    changed = _File()
    changed.CopyFrom(file)
    _change(chance, changed)
    for message in messages(changed):
        _tidy(message)
    try:
        has_fields = bool(descriptor_of(changed, name).fields)
    except (TypeError, KeyError):
        return file
    return changed if has_fields else file


def _change(chance: random.Random, file: _File) -> None:
    message = chance.choice([message for message in messages(file) if message.field])
    field = chance.choice(message.field)
    match chance.randrange(22):
        case 0:
            field.name += "_new"
        case 1 | 2:
            message.field.remove(field)
        case 3 | 4:
            _add(chance, message, file)
        case 5:
            _replace(message.field, chance.sample(list(message.field), len(message.field)))
        case 6:
            _replace(file.message_type, chance.sample(list(file.message_type), len(file.message_type)))
        case 7 | 8 | 9 | 10:
            _change_type(chance, message, field, file)
        case 11 | 12 | 13 | 14 | 15:
            _change_form(chance, message, field, file.syntax)
        case 16 | 17:
            _change_meaning(chance, file)
        case _:
            _change_syntax_or_enum(chance, file)


def _change_form(chance: random.Random, message: _Message, field: _F, syntax: str) -> None:
    """How many values a field has, whether it knows that it is set, and how it is in the bytes."""
    match chance.randrange(5):
        case 0 if field.label == _F.LABEL_REPEATED and field.type not in UNPACKABLE:
            field.options.packed = not field.options.packed
        case 1 if syntax == "proto3":
            _change_presence(message, field)
        case 2 if field.label == _F.LABEL_OPTIONAL and not field.proto3_optional:
            _change_oneof(chance, message, field)
        case _:
            _change_label(chance, message, field, syntax)


def _change_meaning(chance: random.Random, file: _File) -> None:
    fields = [each for message in messages(file) for each in message.field]
    fields = [each for kind in (_F.TYPE_BYTES, _F.TYPE_MESSAGE) for each in fields if each.type == kind]
    if fields := [each for each in fields if _other(each) is not None]:
        field = chance.choice(fields[:3])
        field.type, type_name = _other(field)  # type: ignore[misc]
        field.ClearField("type_name")
        if type_name:
            field.type_name = type_name


def _change_syntax_or_enum(chance: random.Random, file: _File) -> None:
    enums = [*file.enum_type, *(enum for each in messages(file) for enum in each.enum_type)]
    if chance.random() < 0.2:
        _change_syntax(file, enums)
    else:
        _change_enum(chance, chance.choice(enums))


def _other(field: _F) -> tuple[Any, str] | None:
    """Another type of the same bytes, which means something else; None for most types."""
    times = (".google.protobuf.Timestamp", ".google.protobuf.Duration")
    if field.type_name in times:
        return field.type, times[1 - times.index(field.type_name)]
    return (_F.TYPE_STRING, "") if field.type == _F.TYPE_BYTES else None


def _replace(container: Any, items: list[Any]) -> None:
    copies = [type(item)() for item in items]
    for copy, item in zip(copies, items, strict=True):
        copy.CopyFrom(item)
    del container[:]
    container.extend(copies)


def _add(chance: random.Random, message: _Message, file: _File) -> None:
    number = chance.choice([each for each in range(1, 60) if each not in {field.number for field in message.field}])
    field = message.field.add(name=f"g{number}", number=number)
    labels = [_F.LABEL_OPTIONAL, _F.LABEL_OPTIONAL, _F.LABEL_REPEATED]
    field.label = chance.choice([*labels, _F.LABEL_REQUIRED] if file.syntax == "proto2" else labels)
    if any(each.name == field.name for each in message.field[:-1]):
        field.name += "_again"
    _set_type(chance, field, file)


def _set_type(chance: random.Random, field: _F, file: _File) -> None:
    draw = chance.random()
    scope = f".{file.package}" if file.package else ""
    if draw < 0.15:
        field.type, field.type_name = _F.TYPE_MESSAGE, f".google.protobuf.{chance.choice(WELL_KNOWN)}"
    elif draw < 0.25:
        field.type, field.type_name = _F.TYPE_MESSAGE, f"{scope}.{chance.choice(file.message_type).name}"
    elif draw < 0.35:
        field.type, field.type_name = _F.TYPE_ENUM, f"{scope}.{chance.choice(file.enum_type).name}"
    else:
        field.type = chance.choice(SCALARS)
        field.ClearField("type_name")


def _change_type(chance: random.Random, message: _Message, field: _F, file: _File) -> None:
    """Of a map, that of its keys or values, or it becomes a repeated message."""
    entry = next((each for each in message.nested_type if _is_entry(each, field)), None)
    if entry is not None:
        draw = chance.randrange(3)
        if draw == 0:
            entry.options.ClearField("map_entry")
            return
        field = entry.field[draw - 1]
        if draw == 1:
            field.type = chance.choice(KEYS)
            return
    alike = next((kinds for kinds in _ALIKE if field.type in kinds), None)
    if alike and chance.random() < 0.7:
        field.type = chance.choice(alike)
        field.ClearField("type_name")
        if field.type == _F.TYPE_ENUM:
            field.type_name = f".{file.package}.{file.enum_type[0].name}".replace("..", ".")
    else:
        _set_type(chance, field, file)
    if field.HasField("default_value") and field.type not in _NUMERIC:
        field.ClearField("default_value")
    if field.type in UNPACKABLE:
        field.options.ClearField("packed")


def _is_entry(nested: _Message, field: _F) -> bool:
    return bool(nested.options.map_entry) and field.type_name.endswith(f".{nested.name}")


def _is_map(message: _Message, field: _F) -> bool:
    return any(_is_entry(each, field) for each in message.nested_type)


def _change_label(chance: random.Random, message: _Message, field: _F, syntax: str) -> None:
    if _is_map(message, field):
        return
    labels = [_F.LABEL_OPTIONAL, _F.LABEL_REPEATED, *([_F.LABEL_REQUIRED] if syntax == "proto2" else [])]
    field.label = chance.choice([label for label in labels if label != field.label])
    if field.label == _F.LABEL_REPEATED:
        field.ClearField("default_value")
    else:
        field.options.ClearField("packed")
    field.ClearField("oneof_index")
    field.ClearField("proto3_optional")


def _change_presence(message: _Message, field: _F) -> None:
    if field.proto3_optional:
        field.ClearField("proto3_optional")
        field.ClearField("oneof_index")
    elif field.label == _F.LABEL_OPTIONAL and not field.HasField("oneof_index"):
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _change_oneof(chance: random.Random, message: _Message, field: _F) -> None:
    if field.HasField("oneof_index"):
        field.ClearField("oneof_index")
        return
    synthetic = {each.oneof_index for each in message.field if each.proto3_optional}
    real = [at for at in range(len(message.oneof_decl)) if at not in synthetic]
    if not real:
        real = [len(message.oneof_decl)]
        message.oneof_decl.add(name="two")
    field.oneof_index = chance.choice(real)
    field.ClearField("default_value")


def _change_syntax(file: _File, enums: list[Any]) -> None:
    """Where what the other syntax lacks is not used."""
    fields = [field for message in messages(file) for field in message.field]
    if file.syntax == "proto3":
        file.syntax = "proto2"
        for field in fields:
            if field.proto3_optional:
                field.ClearField("proto3_optional")
                field.ClearField("oneof_index")
        return
    if any(enum.value[0].number for enum in enums) or any(field.type == _F.TYPE_GROUP for field in fields):
        return
    file.syntax = "proto3"
    for field in fields:
        field.ClearField("default_value")
        if field.label == _F.LABEL_REQUIRED:
            field.label = _F.LABEL_OPTIONAL


def _change_enum(chance: random.Random, enum: descriptor_pb2.EnumDescriptorProto) -> None:
    at = chance.randrange(len(enum.value))
    match chance.randrange(5):
        case 0 if at:
            del enum.value[at]
        case 1:
            enum.value[at].name += "_NEW"
        case 2:
            enum.options.allow_alias = True
            enum.value.add(name=f"{enum.value[at].name}_AGAIN", number=enum.value[at].number)
        case 3 if len(enum.value) > 2:
            last = enum.value[-1]
            _replace(enum.value, [*enum.value[:1], last, *enum.value[1:-1]])
        case _:
            number = chance.choice([9, 10, -9])
            if all(value.number != number for value in enum.value):
                enum.value.add(name=f"{enum.value[0].name}_{abs(number)}", number=number)


def _tidy(message: _Message) -> None:
    """Without oneofs that no field is in, and with those of single fields last, as Protobuf wants them."""
    used = {field.oneof_index: field.proto3_optional for field in message.field if field.HasField("oneof_index")}
    order = sorted(used, key=lambda at: (used[at], at))
    names = [message.oneof_decl[at].name for at in order]
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = order.index(field.oneof_index)
    del message.oneof_decl[:]
    for name in names:
        message.oneof_decl.add(name=name)


# What a failure is told with.


def smaller(case: Evolution) -> Iterator[Evolution]:
    """With a body less, a field less, or a part of the file less; every one is a pair of files that Protobuf takes."""
    if len(case.bodies) > 1:
        for body in case.bodies:
            yield replace(case, bodies=(body,))
    numbers = {field.number for message in messages(case.writer) for field in message.field}
    numbers |= {field.number for message in messages(case.reader) for field in message.field}
    names = {message.name for file in (case.writer, case.reader) for message in messages(file)}
    for name in sorted(names):
        for number in sorted(numbers):
            yield from _valid(case, _without_field(case, name, number))
    names |= {enum.name for file in (case.writer, case.reader) for enum in file.enum_type} | {"Inner"}
    for name in sorted(names):
        yield from _valid(case, _without_type(case, name))


def _without_type(case: Evolution, name: str) -> Evolution:
    """Without the messages and enums of this name, wherever they are."""
    files = []
    for file in (case.writer, case.reader):
        made = _File()
        made.CopyFrom(file)
        _replace(made.message_type, [each for each in made.message_type if each.name != name])
        _replace(made.enum_type, [each for each in made.enum_type if each.name != name])
        for message in messages(made):
            _replace(message.enum_type, [each for each in message.enum_type if each.name != name])
            _replace(message.nested_type, [each for each in message.nested_type if each.name != name])
        files.append(made)
    return replace(case, writer=files[0], reader=files[1])


def _without_field(case: Evolution, name: str, number: int) -> Evolution:
    files = []
    for file in (case.writer, case.reader):
        made = _File()
        made.CopyFrom(file)
        for message in messages(made):
            if message.name == name:
                kept = [field for field in message.field if field.number != number]
                _replace(message.field, kept)
                named = {field.type_name.rpartition(".")[2] for field in kept}
                entries = [each for each in message.nested_type if not each.options.map_entry or each.name in named]
                _replace(message.nested_type, entries)
                _tidy(message)
        files.append(made)
    return replace(case, writer=files[0], reader=files[1])


def _valid(case: Evolution, made: Evolution) -> Iterator[Evolution]:
    """What was made of a case, with bodies that have no more than their file; nothing if Protobuf refuses the files."""
    if (made.writer, made.reader) == (case.writer, case.reader):
        return
    try:
        writer, reader = descriptor_of(made.writer, made.message), descriptor_of(made.reader, made.message)
    except (TypeError, KeyError):
        return
    if not reader.fields:
        return
    values = [GetMessageClass(writer).FromString(body) for body in made.bodies]
    for value in values:
        value.DiscardUnknownFields()
    yield replace(made, bodies=tuple(value.SerializePartialToString() for value in values))
