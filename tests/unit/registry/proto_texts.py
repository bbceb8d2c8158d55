"""The texts of random .proto files, as people can write them: names of types in full or in part, numbers in each base,
keywords as names, comments anywhere, strings in pieces, and statements that say nothing of how a message is encoded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2

from tests.unit.registry.protobuf_samples import Sample

_F = descriptor_pb2.FieldDescriptorProto
# Names of fields and oneofs, and of values of enums, which are in the scope around these.
_KEYWORDS = (
    "message", "enum", "oneof", "optional", "required", "repeated", "group", "reserved", "extensions", "option",
    "packed", "map", "string", "int32", "service", "rpc", "extend", "export", "local", "true",
)  # fmt: skip
_VALUES = (
    "to", "max", "import", "public", "weak", "stream", "package", "syntax", "edition", "inf", "nan", "returns", "false",
    "allow_alias", "json_name", "bytes", "default",
)  # fmt: skip
_SPACES = (" ", " ", " ", "\n", "\t", " /* } */ ", " // {\n", "\r\n", " /* a\n * b */ ", "/**/ ")
_LABELS = {_F.LABEL_OPTIONAL: "optional", _F.LABEL_REQUIRED: "required", _F.LABEL_REPEATED: "repeated"}
_WHOLE = {
    _F.TYPE_INT32: (-(2**31), 2**31 - 1), _F.TYPE_SINT32: (-(2**31), 2**31 - 1), _F.TYPE_SFIXED32: (-7, 7),
    _F.TYPE_INT64: (-(2**63), 2**63 - 1), _F.TYPE_SINT64: (-(2**63), 2**63 - 1), _F.TYPE_SFIXED64: (-7, 7),
    _F.TYPE_UINT32: (0, 2**32 - 1), _F.TYPE_FIXED32: (0, 2**32 - 1),
    _F.TYPE_UINT64: (0, 2**64 - 1), _F.TYPE_FIXED64: (0, 2**64 - 1),
}  # fmt: skip
_FLOATS = (
    "0", "-0", "1", "-1.5", "1.", ".5", "1e3", "1.e3", ".5E-3", "1.5e+3", "inf", "-inf", "nan", "-nan", "0.1", "3.4e38",
    "3.5e38", "1e400", "-1e400", "1e-400", "0x10", "017", "-0xFFFFFFFFFFFFFFFF", "16777217", "18446744073709551616",
)  # fmt: skip
_STRINGS = (
    "", "a", "Zoë", "💥", "//", "/* */", "}", r"\n\t\r\a\b\f\v\\", r"\'\"\?", r"\x41\x4", r"\x4g", r"\x411", r"\X41",
    r"\101\7\12", r"\0001", r"\08", r"\u00e9\u20ac", r"\u00e9a", r"\ud83d\ude00", r"\U0001F600", r"\U0010ffff",
)  # fmt: skip
_BYTES = (*_STRINGS, r"\377\xff", r"\200\0", r"\xfe\x00a", r"\400\777")


def proto_text(seed: int) -> str:
    """A file without groups, in a package that has the seed in its name."""
    return _Writer(seed).text()


def _messages(file: Any) -> Iterator[tuple[str, Any]]:
    """All of a file, with their full names."""
    pending = [(f"{file.package}.{message.name}", message) for message in file.message_type]
    while pending:
        name, message = pending.pop()
        pending += [(f"{name}.{inner.name}", inner) for inner in message.nested_type]
        yield name, message


class _Writer:
    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(seed)
        self._file = Sample(chance).file
        while any(field.type == _F.TYPE_GROUP for _, message in _messages(self._file) for field in message.field):
            self._file = Sample(chance).file
        self._move(f"{self._file.package or 'p'}{seed}")
        self._is_proto3 = self._file.syntax == "proto3"
        self._values = chance.sample(_VALUES, len(_VALUES))
        package = self._file.package.split(".")
        self._names = {".".join(package[:at]) for at in range(1, len(package) + 1)}  # all that have names in them
        self._last_values: dict[str, str] = {}
        for name, part in [(self._file.package, self._file), *_messages(self._file)]:
            enums = {f"{name}.{enum.name}": enum.value[-1].name for enum in part.enum_type}
            self._names |= {name, *enums}
            self._last_values |= enums

    def _move(self, package: str) -> None:
        """To another package."""
        scope = f".{self._file.package}" if self._file.package else ""
        for _, message in _messages(self._file):
            for field in message.field:
                if field.type_name and not field.type_name.startswith(".google."):
                    field.type_name = f".{package}{field.type_name.removeprefix(scope)}"
        self._file.package = package

    def text(self) -> str:
        file, chance = self._file, self._chance
        tokens: list[str] = []
        if self._is_proto3 or chance.random() < 0.5:
            tokens += ["syntax", "=", *self._string(file.syntax), ";"]
        imports = [
            token
            for name in file.dependency
            for token in ("import", *(["public"] if chance.random() < 0.2 else []), *self._string(name), ";")
        ]
        parts = [imports, ["package", *self._dotted(file.package), ";"]]
        parts += [self._enum(enum) for enum in file.enum_type]
        parts += [self._message(message, [file.package]) for message in file.message_type]
        if chance.random() < 0.3:
            parts.append(["option", "java_package", "=", *self._string("x"), ";"])
        if chance.random() < 0.3:
            parts.append(self._service(file))
        if chance.random() < 0.3 and not self._is_proto3:
            parts.append(self._extension())
        if chance.random() < 0.3:
            chance.shuffle(parts)
        for part in parts:
            tokens += part
            tokens += [";"] * (chance.random() < 0.1)
        return self._spaced(tokens)

    def _spaced(self, tokens: list[str]) -> str:
        made = ""
        for token in tokens:
            glued = made[-1:] and (made[-1] in "{};,=<>()[]:'\"" or token in "{};,=<>()[]:")
            made += token if glued and self._chance.random() < 0.5 else self._chance.choice(_SPACES) + token
        return made.removeprefix("\n") + self._chance.choice(("", "\n", " // the end", "/* end */"))

    # -- parts

    def _message(self, message: Any, scopes: list[str]) -> list[str]:
        chance = self._chance
        scopes = [*scopes, message.name]
        entries = {f".{'.'.join(scopes)}.{inner.name}": inner for inner in message.nested_type}
        entries = {name: inner for name, inner in entries.items() if inner.options.map_entry}
        free = chance.sample(_KEYWORDS, len(_KEYWORDS))
        if chance.random() < 0.4:
            for field in message.field:
                if field.type_name not in entries and free and chance.random() < 0.3:
                    field.name = free.pop()
        parts: list[list[str]] = []
        oneofs: dict[int, list[str]] = {}
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                oneofs.setdefault(field.oneof_index, []).extend(self._field(field, scopes, label=False))
            elif field.type_name in entries:
                parts.append(self._map(field, entries[field.type_name], scopes))
            else:
                parts.append(self._field(field, scopes, label=True))
        parts += [["oneof", free.pop() if free else "one", "{", *fields, "}"] for fields in oneofs.values()]
        parts += [self._enum(enum) for enum in message.enum_type]
        parts += [self._message(inner, scopes) for inner in message.nested_type if not inner.options.map_entry]
        parts += self._without_effect(message)
        if chance.random() < 0.5:
            chance.shuffle(parts)
        return ["message", message.name, "{", *(token for part in parts for token in part), "}"]

    def _without_effect(self, message: Any) -> list[list[str]]:
        statements = [
            ["option", "deprecated", "=", "true", ";"],
            ["reserved", "41", ",", "0x2a", "to", "50", ",", "60", "to", "61", ";"],
            ["reserved", *self._string("gone"), ",", *self._string("gone_too"), ";"],
        ]
        if not self._is_proto3 and all(field.number != 2**29 - 1 for field in message.field):
            statements.append(["extensions", "100", "to", "199", ",", "536870000", "to", "max", ";"])
        return [statement for statement in statements if self._chance.random() < 0.2]

    def _field(self, field: Any, scopes: list[str], *, label: bool) -> list[str]:
        written = field.label != _F.LABEL_OPTIONAL or not self._is_proto3 or field.proto3_optional
        start = [_LABELS[field.label]] if label and written else []
        number = ["=", self._whole(field.number)]
        return [*start, *self._type(field, scopes), field.name, *number, *self._options(field), ";"]

    def _map(self, field: Any, entry: Any, scopes: list[str]) -> list[str]:
        key, value = (self._type(part, scopes) for part in entry.field)
        number = ["=", self._whole(field.number)]
        options = ["[", "deprecated", "=", "true", "]"] if self._chance.random() < 0.2 else []
        return ["map", "<", *key, ",", *value, ">", field.name, *number, *options, ";"]

    def _type(self, field: Any, scopes: list[str]) -> list[str]:
        if field.type not in (_F.TYPE_MESSAGE, _F.TYPE_ENUM):
            return [_F.Type.Name(field.type).removeprefix("TYPE_").lower()]
        if self._chance.random() < 0.4:
            return self._dotted(field.type_name)
        name = field.type_name.lstrip(".")
        parts = name.split(".")
        short = [part for at in range(len(parts)) if self._found(part := parts[at:], scopes) == name]
        return self._dotted(".".join(self._chance.choice([parts, *short])))

    def _found(self, parts: list[str], scopes: list[str]) -> str:
        """What a name stands for: its first part is looked up in the innermost scope first."""
        around = ".".join(scopes).split(".")
        for at in range(len(around), -1, -1):
            if ".".join([*around[:at], parts[0]]) in self._names:
                return ".".join([*around[:at], *parts])
        return ""

    def _options(self, field: Any) -> list[str]:
        chance = self._chance
        options: list[list[str]] = []
        if field.options.HasField("packed"):
            options.append(["packed", "=", "true" if field.options.packed else "false"])
        if chance.random() < 0.2:
            options.append(["deprecated", "=", chance.choice(("true", "false"))])
        if chance.random() < 0.2:
            options.append(["json_name", "=", *self._string(f"j{field.number}")])
        if not self._is_proto3 and field.label != _F.LABEL_REPEATED and chance.random() < 0.5:
            default = self._default(field)
            options += [["default", "=", *default]] if default else []
        if not options:
            return []
        chance.shuffle(options)
        joined = [token for option in options for token in (",", *option)]
        return ["[", *joined[1:], "]"]

    def _default(self, field: Any) -> list[str]:
        chance = self._chance
        if field.type in _WHOLE:
            low, high = _WHOLE[field.type]
            number = chance.choice((low, high, 0, 8, 64))
            return ["-", self._whole(-number)] if number < 0 else [self._whole(number)]
        match field.type:
            case _F.TYPE_BOOL:
                return [chance.choice(("true", "false"))]
            case _F.TYPE_FLOAT | _F.TYPE_DOUBLE:
                text = chance.choice(_FLOATS)
                return ["-", text[1:]] if text[0] == "-" else [text]
            case _F.TYPE_STRING:
                return self._string(chance.choice(_STRINGS))
            case _F.TYPE_BYTES:
                return self._string(chance.choice(_BYTES))
            case _F.TYPE_ENUM:
                return [self._last_values[field.type_name[1:]]]
        return []

    def _enum(self, enum: Any) -> list[str]:
        chance = self._chance
        values = []
        for value in enum.value:
            options = ["[", "deprecated", "=", "true", "]"] if chance.random() < 0.2 else []
            number = ["-", self._whole(-value.number)] if value.number < 0 else [self._whole(value.number)]
            values.append([value.name, "=", *number, *options, ";"])
        if chance.random() < 0.2:
            values.append([f"{enum.value[0].name}_again", "=", *values[0][2:]])
            values.append(["option", "allow_alias", "=", "true", ";"])
        if chance.random() < 0.2:
            values.append(["reserved", "90", "to", "95", ",", "-", "90", ";"])
        if chance.random() < 0.2 and self._values:
            values.append([self._values.pop(), "=", "1234", ";"])
        return ["enum", enum.name, "{", *(token for value in values for token in value), "}"]

    def _service(self, file: Any) -> list[str]:
        name = file.message_type[0].name
        rpc = ["rpc", "Get", "(", "stream", name, ")", "returns", "(", name, ")"]
        ends = ([";"], ["{", "}"], ["{", "option", "deprecated", "=", "true", ";", "}"])
        return ["service", "Things", "{", *rpc, *self._chance.choice(ends), "}"]

    def _extension(self) -> list[str]:
        extended = ["message", "Extended", "{", "extensions", "4", "to", "max", ";", "}"]
        return [*extended, "extend", "Extended", "{", "optional", "int32", "more", "=", "50000", ";", "}"]

    # -- tokens

    def _dotted(self, name: str) -> list[str]:
        if self._chance.random() < 0.8:
            return [name]
        first, *others = name.lstrip(".").split(".")
        return ["."] * name.startswith(".") + [first, *(part for piece in others for part in (".", piece))]

    def _whole(self, number: int) -> str:
        return self._chance.choice((str(number), str(number), hex(number), f"0{number:o}" if number else "0"))

    def _string(self, content: str) -> list[str]:
        quote = self._chance.choice("'\"")
        at = self._chance.randrange(len(content) + 1) if "\\" not in content and self._chance.random() < 0.2 else 0
        pieces = [content[:at], content[at:]] if at else [content]
        return [f"{quote}{piece}{quote}" for piece in pieces]
