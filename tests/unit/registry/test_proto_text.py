"""The text of a .proto file says what protoc says that it does, or is refused by name."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.proto_text import descriptor_of

# Texts and descriptors of the same files, as Google publishes them.
PUBLISHED = Path(str(importlib.import_module("google.type.date_pb2").__file__)).parents[2]
FILES = sorted(str(path.relative_to(PUBLISHED)) for path in PUBLISHED.glob("google/**/*.proto"))


def declared(
    file: descriptor_pb2.FileDescriptorProto, imports: Iterable[FileDescriptor]
) -> descriptor_pb2.FileDescriptorProto:
    """What the pool makes of the file, without what says nothing of messages."""
    pool, made = DescriptorPool(), descriptor_pb2.FileDescriptorProto()
    _add(pool, imports, set())
    pool.Add(file)
    pool.FindFileByName(file.name).CopyToProto(made)
    for part in ("options", "service", "extension", "name"):
        made.ClearField(part)
    enums, messages = list(made.enum_type), list(made.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        enums += message.enum_type
        for part in ("extension", "extension_range", "reserved_range", "reserved_name"):
            message.ClearField(part)
        _keep(message, "map_entry")
        for field in message.field:
            _keep(field, "packed")
            field.ClearField("json_name")
        for oneof in message.oneof_decl:
            oneof.ClearField("options")
    for enum in enums:
        enum.ClearField("reserved_range")
        enum.ClearField("reserved_name")
        _keep(enum, "allow_alias")
        for value in enum.value:
            value.ClearField("options")
    return made


def entries_last(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Changes the file: protoc has the entry of a map where its field stands, Confluent's registry after the messages
    of the text, whose places it counts.
    """
    messages = list(file.message_type)
    while messages:
        message = messages.pop()
        message.nested_type.sort(key=lambda nested: nested.options.map_entry)
        messages += message.nested_type
    return file


def _add(pool: DescriptorPool, files: Iterable[FileDescriptor], added: set[str]) -> None:
    for file in files:
        if file.name not in added:
            added.add(file.name)
            _add(pool, file.dependencies, added)
            pool.AddSerializedFile(file.serialized_pb)


def _keep(part: Any, option: str) -> None:
    there, value = part.options.HasField(option), getattr(part.options, option)
    part.ClearField("options")
    if there:
        setattr(part.options, option, value)


@pytest.mark.parametrize("name", FILES)
def test_a_published_file_says_what_its_descriptor_says(name: str) -> None:
    published = importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2").DESCRIPTOR
    expected = descriptor_pb2.FileDescriptorProto()
    published.CopyToProto(expected)
    file = descriptor_of((PUBLISHED / name).read_text())
    file.name = name
    assert declared(file, published.dependencies) == declared(entries_last(expected), published.dependencies)


def test_google_publishes_files() -> None:
    assert len(FILES) > 50


PROTO_2 = r"""
// a comment with "quotes" and { braces }
syntax = "proto2"; /* and
another */
package shop.orders;
import "google/protobuf/timestamp.proto";
option java_package = "x";
message Order {
  option deprecated = true;
  required int64 id = 1 [deprecated = true, json_name = "theId"];
  optional string name = 0x2 [default = "a\"b\n" 'c\x41\101'];
  optional bytes raw = 3 [default = "\001\377'\"\\"];
  repeated sint32 many = 4 [packed=true];
  optional double d = 5 [default = -1.5e3];
  optional float f = 6 [default = inf];
  optional bool flag = 7 [default = true];
  optional State state = 8 [default = SENT];
  optional Inner.Deep deep = 9;
  optional .shop.orders.Order.Inner inner = 10;
  optional google.protobuf.Timestamp at = 11;
  map<string, Inner> by_name = 12;
  map<int32, State> state_by_id = 13;
  oneof kind { string text = 14; Inner other = 15; }
  optional int32 message = 16 [default = -0x10];
  optional int32 map = 18; optional int32 reserved = 20 [default = 017];
  extensions 100 to 199, 1000 to max;
  reserved 30, 40 to 50; reserved "old", "older";
  enum State { option allow_alias = true; UNKNOWN = 0; NEW = 1 [deprecated = true]; FRESH = 1; SENT = -2; reserved 9; }
  message Inner { message Deep { optional State state = 1; optional Deep deep = 2; } optional Deep deep = 1; };
  extend Order { optional int32 ext = 100; }
}
extend Order { optional string more = 101 [default = "}"]; }
service Orders { rpc Get (Order) returns (stream Order) {} option deprecated = true; }
"""
PROTO_3 = """
syntax = 'proto3';
package a.b;
import public "google/protobuf/timestamp.proto";
message Line { string sku = 1; repeated int32 n = 2 [packed = false]; }
message A {
  optional int32 x = 1; oneof first { Line line = 2; int64 number = 3; } optional Line y = 4;
  repeated Line lines = 5; b.A.Line own = 6; map<uint64, google.protobuf.Timestamp> times_of_day = 7;
  optional string optional_text = 8;
  message Line { double d = 1; A.Line line = 2; Kind kind = 3; }
  enum Kind { KIND_UNSPECIFIED = 0; KIND_ONE = 0x1; }
  Kind kind = 9; repeated Kind kinds = 10; bytes raw = 11; google . protobuf . Timestamp at = 12;
}
enum Top { ZERO = 0; }
"""
# As protoc 33 compiles them.
COMPILED_2 = (
    "Cgx0cmlja3kucHJvdG8SC3Nob3Aub3JkZXJzGh9nb29nbGUvcHJvdG9idWYvdGltZXN0YW1wLnByb3RvIo0JCgVPcmRlchIVCgJpZBgBIAIoA0"
    "ICGAFSBXRoZUlkEhsKBG5hbWUYAiABKAk6B2EiYgpjQUFSBG5hbWUSIAoDcmF3GAMgASgMOg5cMDAxXDM3N1wnXCJcXFIDcmF3EhYKBG1hbnkY"
    "BCADKBFCAhABUgRtYW55EhMKAWQYBSABKAE6BS0xNTAwUgFkEhEKAWYYBiABKAI6A2luZlIBZhIYCgRmbGFnGAcgASgIOgR0cnVlUgRmbGFnEj"
    "QKBXN0YXRlGAggASgOMhguc2hvcC5vcmRlcnMuT3JkZXIuU3RhdGU6BFNFTlRSBXN0YXRlEjEKBGRlZXAYCSABKAsyHS5zaG9wLm9yZGVycy5P"
    "cmRlci5Jbm5lci5EZWVwUgRkZWVwEi4KBWlubmVyGAogASgLMhguc2hvcC5vcmRlcnMuT3JkZXIuSW5uZXJSBWlubmVyEioKAmF0GAsgASgLMh"
    "ouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcFICYXQSNwoHYnlfbmFtZRgMIAMoCzIeLnNob3Aub3JkZXJzLk9yZGVyLkJ5TmFtZUVudHJ5UgZi"
    "eU5hbWUSQQoLc3RhdGVfYnlfaWQYDSADKAsyIS5zaG9wLm9yZGVycy5PcmRlci5TdGF0ZUJ5SWRFbnRyeVIJc3RhdGVCeUlkEhQKBHRleHQYDi"
    "ABKAlIAFIEdGV4dBIwCgVvdGhlchgPIAEoCzIYLnNob3Aub3JkZXJzLk9yZGVyLklubmVySABSBW90aGVyEh0KB21lc3NhZ2UYECABKAU6Ay0x"
    "NlIHbWVzc2FnZRIQCgNtYXAYEiABKAVSA21hcBIeCghyZXNlcnZlZBgUIAEoBToCMTVSCHJlc2VydmVkGlMKC0J5TmFtZUVudHJ5EhAKA2tleR"
    "gBIAEoCVIDa2V5Ei4KBXZhbHVlGAIgASgLMhguc2hvcC5vcmRlcnMuT3JkZXIuSW5uZXJSBXZhbHVlOgI4ARpWCg5TdGF0ZUJ5SWRFbnRyeRIQ"
    "CgNrZXkYASABKAVSA2tleRIuCgV2YWx1ZRgCIAEoDjIYLnNob3Aub3JkZXJzLk9yZGVyLlN0YXRlUgV2YWx1ZToCOAEapQEKBUlubmVyEjEKBG"
    "RlZXAYASABKAsyHS5zaG9wLm9yZGVycy5PcmRlci5Jbm5lci5EZWVwUgRkZWVwGmkKBERlZXASLgoFc3RhdGUYASABKA4yGC5zaG9wLm9yZGVy"
    "cy5PcmRlci5TdGF0ZVIFc3RhdGUSMQoEZGVlcBgCIAEoCzIdLnNob3Aub3JkZXJzLk9yZGVyLklubmVyLkRlZXBSBGRlZXAiSQoFU3RhdGUSCw"
    "oHVU5LTk9XThAAEgsKA05FVxABGgIIARIJCgVGUkVTSBABEhEKBFNFTlQQ/v//////////ARoCEAEiBAgJEAkqBQhkEMgBKgkI6AcQgICAgAIy"
    "JAoDZXh0EhIuc2hvcC5vcmRlcnMuT3JkZXIYZCABKAVSA2V4dDoCGAFCBgoEa2luZEoECB4QH0oECCgQM1IDb2xkUgVvbGRlcjJACgZPcmRlcn"
    "MSMQoDR2V0EhIuc2hvcC5vcmRlcnMuT3JkZXIaEi5zaG9wLm9yZGVycy5PcmRlciIAMAEaA4gCATopCgRtb3JlEhIuc2hvcC5vcmRlcnMuT3Jk"
    "ZXIYZSABKAk6AX1SBG1vcmVCAwoBeA=="
)
COMPILED_3 = (
    "Cg10cmlja3kzLnByb3RvEgNhLmIaH2dvb2dsZS9wcm90b2J1Zi90aW1lc3RhbXAucHJvdG8iKgoETGluZRIQCgNza3UYASABKAlSA3NrdRIQCg"
    "FuGAIgAygFQgIQAFIBbiKhBQoBQRIRCgF4GAEgASgFSAFSAXiIAQESIQoEbGluZRgCIAEoCzILLmEuYi5BLkxpbmVIAFIEbGluZRIYCgZudW1i"
    "ZXIYAyABKANIAFIGbnVtYmVyEh4KAXkYBCABKAsyCy5hLmIuQS5MaW5lSAJSAXmIAQESIQoFbGluZXMYBSADKAsyCy5hLmIuQS5MaW5lUgVsaW"
    "5lcxIdCgNvd24YBiABKAsyCy5hLmIuQS5MaW5lUgNvd24SOAoMdGltZXNfb2ZfZGF5GAcgAygLMhYuYS5iLkEuVGltZXNPZkRheUVudHJ5Ugp0"
    "aW1lc09mRGF5EigKDW9wdGlvbmFsX3RleHQYCCABKAlIA1IMb3B0aW9uYWxUZXh0iAEBEh8KBGtpbmQYCSABKA4yCy5hLmIuQS5LaW5kUgRraW"
    "5kEiEKBWtpbmRzGAogAygOMgsuYS5iLkEuS2luZFIFa2luZHMSEAoDcmF3GAsgASgMUgNyYXcSKgoCYXQYDCABKAsyGi5nb29nbGUucHJvdG9i"
    "dWYuVGltZXN0YW1wUgJhdBpZCg9UaW1lc09mRGF5RW50cnkSEAoDa2V5GAEgASgEUgNrZXkSMAoFdmFsdWUYAiABKAsyGi5nb29nbGUucHJvdG"
    "9idWYuVGltZXN0YW1wUgV2YWx1ZToCOAEaVgoETGluZRIMCgFkGAEgASgBUgFkEh8KBGxpbmUYAiABKAsyCy5hLmIuQS5MaW5lUgRsaW5lEh8K"
    "BGtpbmQYAyABKA4yCy5hLmIuQS5LaW5kUgRraW5kIioKBEtpbmQSFAoQS0lORF9VTlNQRUNJRklFRBAAEgwKCEtJTkRfT05FEAFCBwoFZmlyc3"
    "RCBAoCX3hCBAoCX3lCEAoOX29wdGlvbmFsX3RleHQqDwoDVG9wEggKBFpFUk8QAFAAYgZwcm90bzM="
)


@pytest.mark.parametrize(("text", "compiled"), [(PROTO_2, COMPILED_2), (PROTO_3, COMPILED_3)], ids=["proto2", "proto3"])
@pytest.mark.parametrize("custom", ["", 'option (my.own) = { a: 1 b { c: [1, "}"] } };'])
def test_a_file_with_rare_syntax_says_what_protoc_makes_of_it(text: str, compiled: str, custom: str) -> None:
    expected = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(compiled))
    file = descriptor_of(f"{text}{custom}")
    file.name = expected.name
    assert declared(file, [timestamp_pb2.DESCRIPTOR]) == declared(entries_last(expected), [timestamp_pb2.DESCRIPTOR])


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("float", "017", "15"),
        ("double", "-0X10", "-16"),
        ("float", "3.5e38", "inf"),
        ("double", "-1e400", "-inf"),
        ("float", "1e-400", "0"),
        ("double", "9" * 5_000, "inf"),
        ("string", r"'\X41\x4'", "A\4"),
        ("string", r"'\ud83d\ude00\u00e9'", "😀é"),
        ("bytes", r"'\uD83D\uDE00'", r"\360\237\230\200"),
    ],
)
def test_a_default_is_the_one_that_protoc_makes_of_it(kind: str, text: str, expected: str) -> None:
    file = descriptor_of(f"message A {{ optional {kind} a = 1 [default = {text}]; }}")
    file.name = "a.proto"
    assert declared(file, []).message_type[0].field[0].default_value == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('edition = "2023"; message A { int64 a = 1; }', "edition"),
        ('syntax = "proto4";', "proto4"),
        ("message A { optional group G = 1 { optional int32 a = 1; } }", "a group"),
        ("message A { oneof o { group G = 1 { optional int32 a = 1; } } }", "a group"),
        ("message A { option message_set_wire_format = true; }", "message_set"),
        ('syntax = "proto3"; message A { int32 a = 1 [features.field_presence = IMPLICIT]; }', "features"),
        ("message A { int32 a = 1; }", "without a label"),
        ('syntax = "proto3"; message A { int32 a = 1 }', "unexpected"),
        ('syntax = "proto3"; message A { int32 = 1; }', "a name is missing"),
        ('syntax = "proto3"; message A { int32 a = x; }', "no whole number"),
        ('syntax = "proto3"; message A { int32 a = 99999999999; }', "ValueError"),
        ("message A { optional double a = 1 [default = 08]; }", "ValueError"),
        (r"message A { optional string a = 1 [default = '\ud83d']; }", "UnicodeDecodeError"),
        ('syntax = "proto3"; message A {', "unexpected"),
        ('{"type": "record"}', "at the start of a declaration"),
        ("message A { /* } ", "* }"),
        ('import "a.proto', "a.proto"),
        ("option a = " + "(" * 10_000, "RecursionError"),
        ("message A {" * 100, "messages in messages"),
        ('syntax = "proto3"; message A { int32 a = ' + "9" * 10_000 + "; }", "cannot be read"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_read_as_it_is_meant_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedSchema, match="cannot be read") as refused:
        descriptor_of(text)
    assert reason in str(refused.value) and len(str(refused.value)) < 500
