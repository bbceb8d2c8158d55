"""The text of a .proto file becomes a descriptor, for registries that have only the text.

Messages, enums, fields, maps, oneofs and defaults are read. What says nothing of how a message is encoded is passed
over: services, extensions, reserved names, and options but for `default`, `packed`, `json_name` and `allow_alias`. What
would be read wrong without more is refused by name: editions, groups, message sets. Names of types stay as they are
written: the pool of descriptors finds them, as protoc does.

The entry of a map comes after the messages that the text has, and not where the field stands, as protoc has it: values
name a message by its place, for which Confluent's clients count the messages of the text (`ProtobufSchema` of its
protobuf-provider: `toMessageIndexes`, and `toDynamicMessage`, from which the registry's descriptor is).

Source: Protocol Buffers, language specifications of proto2 and proto3.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

from google.protobuf import descriptor_pb2

from spark_kafka_eos.registry.nesting import UnsupportedSchema

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[-+.,:;=<>()\[\]{}/])""",
    re.DOTALL | re.VERBOSE,
)
_FieldProto = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    name: _FieldProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
        "sfixed64", "bool", "string", "bytes",
    )
}  # fmt: skip
_LABELS = {
    "optional": _FieldProto.LABEL_OPTIONAL,
    "required": _FieldProto.LABEL_REQUIRED,
    "repeated": _FieldProto.LABEL_REPEATED,
}
_ESCAPE = re.compile(
    rb"\\([xX][0-9a-fA-F]{1,2}|[0-7]{1,3}|(?:u[dD][89abAB][0-9a-fA-F]{2}\\)?u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)",
    re.DOTALL,
)
_ESCAPES = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"\\": b"\\", b"'": b"'",
    b'"': b'"', b"?": b"?",
}  # fmt: skip
_SINGLE = struct.Struct("<f")
_PAIRS = {"{": "}", "[": "]", "(": ")", "<": ">"}
_AHEAD = 3  # how many tokens are looked at
_DEEPEST = 32  # messages in messages: protoc's own limit


def descriptor_of(text: str) -> descriptor_pb2.FileDescriptorProto:
    """Raises UnsupportedSchema."""
    try:
        return _Parser(text).file()
    except UnsupportedSchema:
        raise
    except (ValueError, RecursionError) as error:  # a number or a text that a descriptor does not hold
        raise UnsupportedSchema(f"the text of the Protobuf file cannot be read: {type(error).__name__}") from error


def is_readable(text: str) -> bool:
    try:
        descriptor_of(text)
    except UnsupportedSchema:
        return False
    return True


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), *[""] * _AHEAD]  # an empty one is the end
        self._at = 0
        self._file = descriptor_pb2.FileDescriptorProto()

    # -- tokens

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._next
        if not token:
            self._refuse()
        self._at += 1
        return token

    def _accept(self, *tokens: str) -> bool:
        if tuple(self._tokens[self._at : self._at + len(tokens)]) != tokens:
            return False
        self._at += len(tokens)
        return True

    def _expect(self, *tokens: str) -> None:
        for token in tokens:
            if self._next != token:
                self._refuse()
            self._at += 1

    def _refuse(self, what: str = "") -> NoReturn:
        near = " ".join(self._tokens[max(self._at - 2, 0) : self._at + 3]).strip()[:60]
        raise UnsupportedSchema(f"the text of the Protobuf file cannot be read: {what or 'unexpected'} near {near!r}")

    def _name(self) -> str:
        name = self._take()
        if not (name[0].isalpha() or name[0] == "_"):
            self._refuse("a name is missing")
        return name

    def _full_name(self) -> str:
        name = "." if self._accept(".") else ""
        name += self._name()
        while self._accept("."):
            name += f".{self._name()}"
        return name

    def _integer(self) -> int:
        sign = -1 if self._accept("-") else 1
        token = self._take()
        try:
            return sign * _whole(token)
        except ValueError:
            self._refuse("no whole number")

    def _string(self) -> bytes:
        parts = [_unescaped(self._take())]
        while self._next[:1] in ("'", '"') and self._next:
            parts.append(_unescaped(self._take()))
        return b"".join(parts)

    def _skip(self, *ends: str) -> None:
        """Until one of `ends`, outside of brackets; past it, unless it closes a bracket."""
        while self._next not in ends:
            token = self._take()
            if token in _PAIRS:
                self._skip(_PAIRS[token])
                self._expect(_PAIRS[token])

    def _block(self, statement: Callable[[str], None]) -> None:
        self._expect("{")
        while not self._accept("}"):
            if not self._accept(";"):
                statement(self._next)

    # -- statements

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        file = self._file
        if self._accept("syntax", "="):
            syntax = self._string().decode()
            if syntax not in {"proto2", "proto3"}:
                self._refuse(f"syntax {syntax}")
            if syntax == "proto3":
                file.syntax = syntax
            self._expect(";")
        while self._next:
            if not self._accept(";"):
                self._declaration(file)
        return file

    def _declaration(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        match self._take():
            case "package":
                file.package = self._full_name()
                self._expect(";")
            case "import":
                if self._accept("public"):
                    file.public_dependency.append(len(file.dependency))
                self._accept("weak")
                file.dependency.append(self._string().decode())
                self._expect(";")
            case "message":
                self._message(file.message_type.add(), 1)
            case "enum":
                self._enum(file.enum_type.add())
            case "option":
                self._option(None)
            case "service" | "extend":
                self._skip("{")
                self._block(lambda _: self._statement())
            case word:
                self._refuse(f"{word!r} at the start of a declaration")

    def _statement(self) -> None:
        """One that is passed over."""
        self._skip(";", "}")
        if self._next != "}":
            self._expect(";")

    def _option(self, options: Any) -> None:
        """After `option`. Those that `options` has as fields of its own, and that count, are set."""
        name = self._next
        self._skip("=")
        self._expect("=")
        value = self._next
        self._skip(";")
        self._expect(";")
        self._set_option(options, name, value)

    def _set_option(self, options: Any, name: str, value: str) -> None:
        if name in {"features", "message_set_wire_format"}:
            self._refuse(f"the option {name}")
        if options is not None and name in {"allow_alias", "packed"}:
            setattr(options, name, value == "true")

    def _message(self, message: Any, depth: int) -> None:
        if depth > _DEEPEST:
            self._refuse("too many messages in messages")
        message.name = self._name()
        optional: list[Any] = []

        def statement(word: str) -> None:
            match word, *self._tokens[self._at + 1 : self._at + _AHEAD]:
                case "message", _, "{":
                    self._take()
                    self._message(message.nested_type.add(), depth + 1)
                case "enum", _, "{":
                    self._take()
                    self._enum(message.enum_type.add())
                case "oneof", _, "{":
                    self._take()
                    self._oneof(message)
                case "extend", *_:
                    self._skip("{")
                    self._block(lambda _: self._statement())
                case "option", *_:
                    self._take()
                    self._option(None)
                case (("reserved" | "extensions"), *_):
                    self._statement()
                case "map", "<", *_:
                    self._map(message)
                case _:
                    field = self._field(message)
                    if field.proto3_optional:
                        optional.append(field)

        self._block(statement)
        for field in optional:  # after the real ones
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
        message.nested_type.sort(key=lambda nested: nested.options.map_entry)

    def _oneof(self, message: Any) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._name())

        def statement(word: str) -> None:
            if word == "option":
                self._statement()
            else:
                self._field(message, labelled=False).oneof_index = index

        self._block(statement)

    def _field(self, message: Any, *, labelled: bool = True) -> Any:
        field = message.field.add(label=_FieldProto.LABEL_OPTIONAL)
        label = self._next if labelled and self._next in _LABELS and self._tokens[self._at + 2] != "=" else ""
        if label:
            self._take()
            field.label = _LABELS[label]
            if label == "optional" and self._file.syntax == "proto3":
                field.proto3_optional = True
        elif labelled and self._file.syntax != "proto3":
            self._refuse("a field without a label")
        if self._next == "group":
            self._refuse("a group")
        self._type(field)
        field.name = self._name()
        self._numbered(field)
        return field

    def _type(self, field: Any) -> None:
        name = self._full_name()
        if name in _SCALARS:
            field.type = _SCALARS[name]
        else:
            field.type_name = name

    def _numbered(self, field: Any) -> None:
        self._expect("=")
        field.number = self._integer()
        if self._accept("["):
            while True:
                self._field_option(field)
                if self._accept("]"):
                    break
                self._expect(",")
        self._expect(";")

    def _field_option(self, field: Any) -> None:
        name = self._next
        self._skip("=")
        self._expect("=")
        if name == "default":
            field.default_value = self._default(field)
        elif name == "json_name":
            field.json_name = self._string().decode()
        else:
            value = self._next
            self._skip(",", "]")
            if name in {"features", "packed"}:
                self._set_option(field.options, name, value)

    def _default(self, field: Any) -> str:
        """As descriptors have it: bytes are escaped."""
        if field.type == _FieldProto.TYPE_STRING:
            return self._string().decode()
        if field.type == _FieldProto.TYPE_BYTES:
            return "".join(_escaped(byte) for byte in self._string())
        sign = "-" if self._accept("-") else ""
        token = self._take()
        if field.type_name or token in {"inf", "nan"}:
            return sign + token
        if field.type in {_FieldProto.TYPE_FLOAT, _FieldProto.TYPE_DOUBLE}:
            return f"{sign}{_nearest(token, is_single=field.type == _FieldProto.TYPE_FLOAT)}"
        return f"{sign}{_whole(token)}" if token[0].isdigit() else sign + token

    def _map(self, message: Any) -> None:
        self._expect("map", "<")
        field = message.field.add(label=_FieldProto.LABEL_REPEATED)
        entry = message.nested_type.add()
        entry.options.map_entry = True
        key, value = (
            entry.field.add(name=name, number=number, label=_FieldProto.LABEL_OPTIONAL)
            for number, name in enumerate(("key", "value"), 1)
        )
        self._type(key)
        self._expect(",")
        self._type(value)
        self._expect(">")
        field.name = self._name()
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        field.type, field.type_name = _FieldProto.TYPE_MESSAGE, entry.name
        self._numbered(field)

    def _enum(self, enum: Any) -> None:
        enum.name = self._name()

        def statement(word: str) -> None:
            following = self._tokens[self._at + 1]
            if word == "option" and following != "=":
                self._take()
                self._option(enum.options)
                if not enum.options.allow_alias:
                    enum.ClearField("options")
            elif word == "reserved" and following != "=":
                self._statement()
            else:
                value = enum.value.add(name=self._name())
                self._expect("=")
                value.number = self._integer()
                self._statement()

        self._block(statement)


def _whole(token: str) -> int:
    """Raises ValueError."""
    return int(token, 8 if re.fullmatch("0[0-7]+", token) else 0)


def _nearest(token: str, *, is_single: bool) -> float:
    """The number that a float or a double has of it, infinity of one that is too large. Raises ValueError."""
    try:
        number = float(_whole(token) if re.fullmatch("0[xX0-9a-fA-F]+", token) else token)
        return cast(float, _SINGLE.unpack(_SINGLE.pack(number))[0]) if is_single else number
    except OverflowError:
        return math.inf


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise UnsupportedSchema(f"the text of the Protobuf file cannot be read: {text[at : at + 10]!r}")
        at = token.end()
        if token.lastgroup != "space":
            yield token[0]


def _unescaped(token: str) -> bytes:
    if token[0] not in "'\"":
        raise UnsupportedSchema(f"the text of the Protobuf file cannot be read: no string, but {token[:60]!r}")

    def character(escape: re.Match[bytes]) -> bytes:
        code = escape[1]
        if code[:1] == b"u":  # one of UTF-16, or a pair
            return bytes.fromhex(code.replace(b"\\", b"").replace(b"u", b"").decode()).decode("utf-16-be").encode()
        if code[:1] == b"U":
            return chr(int(code[1:], 16)).encode()
        if code[:1] in (b"x", b"X"):
            return bytes([int(code[1:], 16)])
        if code[:1].isdigit():
            return bytes([int(code, 8) & 0xFF])
        return _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, token[1:-1].encode())


def _escaped(byte: int) -> str:
    """As a descriptor has a byte of a default."""
    return chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in "'\"\\" else f"\\{byte:03o}"
