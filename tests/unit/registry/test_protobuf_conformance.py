"""Protobuf's official conformance suite: what its runner sends is read and written as a query does.

The runner's requests are the same in each run. A first run notes them, then all of a message are read together and
written again, as a query does, and a second run judges the answers. It fails for each test that fails and is not
listed, and for each that is listed and does not fail.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.registry import protobuf
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.decoding import decode_groups
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.framing import Group
from tests.unit.registry import conformance_testee
from tests.unit.registry.conformance_testee import joined, pieces
from tests.unit.registry.protobuf_samples import row_of, text_of
from tests.unit.registry.protoc_programs import compiled, installed_runner, published
from tests.unit.registry.test_protobuf_samples import comparable, same

PAGE = Path(__file__).parents[3] / "docs" / "schemas.md"
TABLE = "Protobuf's conformance suite"
_ID, _ID_BYTES = 7, 5

# The tests that fail, by how their answer differs, as the page has it.
UNKNOWN = "a field that the query's schema lacks"
EXTENSION = "an extension, also in a message set"
_FORMS = ("Proto2", "Proto3", "Editions_Proto2", "Editions_Proto3")
DIFFERENCES = {
    UNKNOWN: [f"Required.{form}.ProtobufInput.Unknown{what}" for form in _FORMS for what in ("Ordering", "Varint")],
    EXTENSION: [
        *(
            f"Required.Editions.ProtobufInput.{what}"
            for what in (
                "AcceptInvalidUtf8.Bytes.Extension",
                "ValidDelimitedExtension.GroupLike",
                "ValidDelimitedExtension.NotGroupLike",
            )
        ),
        "Required.Proto2.ProtobufInput.MessageSetEncoding.UnknownExtension",
        "Required.Proto2.ProtobufInput.ValidMessageSetEncoding",
        "Required.Proto2.ProtobufInput.ValidMessageSetEncoding.OutOfOrderGroupsEntries",
        "Recommended.Proto2.ProtobufInput.ValidMessageSetEncoding.SubmessageEncoding",
        "Recommended.Proto2.ProtobufInput.ValidMessageSetEncoding.SubmessageEncoding.NotUnknown",
    ],
}
LISTED = [f"{name}.ProtobufOutput" for names in DIFFERENCES.values() for name in names]


# The query's schema.


def unfolded_once(file: descriptor_pb2.FileDescriptorProto, root: Descriptor) -> SchemaText:
    """The file as a query can have it, which has no message that contains itself: the fields that lead back to a
    message around them are of a message of another file, which lacks them.
    """
    left_out = set(_leading_back(root, (), set()))
    inner, outer = (descriptor_pb2.FileDescriptorProto.FromString(file.SerializeToString()) for _ in range(2))
    inner.name, inner.package = "within.proto", "within"
    for name, message in _messages(file.package, inner):
        if not message.options.map_entry:
            names = ({f"{name}.{field.name}", f"{field.type_name[1:]}.value"} for field in message.field)
            kept = [field for field, of in zip(message.field, names, strict=True) if not of & left_out]
            del message.field[:]
            message.field.extend(kept)
    _change_names(inner, lambda name: _within(file, name))
    outer.dependency.append(inner.name)
    for name, message in _messages(file.package, outer):
        for field in message.field:
            if f"{name}.{field.name}" in left_out:
                field.type_name = _within(file, field.type_name)
    return SchemaText("PROTOBUF", text_of(outer).text, ((inner.name, text_of(inner).text),))


def _leading_back(message: Descriptor, above: tuple[str, ...], seen: set[str]) -> Iterator[str]:
    """The names of the fields whose message is one of those around them."""
    if message.full_name in seen or message.file.package == "google.protobuf":
        return
    seen.add(message.full_name)
    above = (*above, message.full_name)
    for field in message.fields:
        if field.message_type is not None and field.message_type.full_name in above:
            yield field.full_name
        elif field.message_type is not None:
            yield from _leading_back(field.message_type, above, seen)


def _messages(package: str, file: descriptor_pb2.FileDescriptorProto) -> Iterator[tuple[str, Any]]:
    """All of a file, with their full names."""
    pending = [(f"{package}.{message.name}", message) for message in file.message_type]
    while pending:
        name, message = pending.pop()
        pending += [(f"{name}.{inner.name}", inner) for inner in message.nested_type]
        yield name, message


def _change_names(file: descriptor_pb2.FileDescriptorProto, change: Callable[[str], str]) -> None:
    """Those of the types that fields and extensions refer to."""
    messages = [message for _, message in _messages(file.package, file)]
    for field in (*file.extension, *(each for message in messages for each in (*message.field, *message.extension))):
        for attribute in ("type_name", "extendee"):
            if field.HasField(attribute):
                setattr(field, attribute, change(getattr(field, attribute)))


def _within(file: descriptor_pb2.FileDescriptorProto, name: str) -> str:
    return re.sub(rf"^\.{re.escape(file.package)}\.", ".within.", name)


# What is answered.


class Message(NamedTuple):
    """What was asked for a message of the suite, and what the project makes of it."""

    query: Descriptor
    bodies: list[bytes]
    rows: list[Any]  # Causes among them
    written: list[bytes | None]


class Suite:
    """The files of the suite, and the types of its protocol."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runner = installed_runner(folder)
        self._files = compiled(folder, (name for name in published() if name.startswith("conformance/")))
        self._pool = DescriptorPool()
        for file in self._files.values():
            self._pool.Add(file)
        self.request, self.response = (
            GetMessageClass(self._pool.FindMessageTypeByName(f"conformance.Conformance{name}"))
            for name in ("Request", "Response")
        )

    def run(self, verb: str, path: Path, listed: Iterable[str] = (), only: Iterable[str] = ()) -> tuple[int, str]:
        """How the runner ends, and what it says, of all tests or a few."""
        failures = self.folder / "failures.txt"
        failures.write_text("".join(f"{name}\n" for name in listed))
        options = ["--enforce_recommended", "--maximum_edition", "2023"]
        options += ["--output_dir", f"{self.folder}/", "--failure_list", str(failures)]
        options += [part for name in only for part in ("--test", name)]
        testee = [sys.executable, str(conformance_testee.__file__), verb, str(path)]
        done = subprocess.run([str(self._runner), *options, *testee], check=False, capture_output=True, timeout=120)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    def requests(self) -> list[Any]:
        path = self.folder / "requests"
        self.run("note", path)
        return [self.request.FromString(each) for each in pieces(io.BytesIO(path.read_bytes()))]

    def read_and_written(self, name: str, bodies: list[bytes]) -> Message:
        message = self._pool.FindMessageTypeByName(name)
        file = self._files[message.file.name]
        target = unfolded_once(file, message)
        kind = format_of(QuerySchema(target, name))
        prefix = SchemaId("PROTOBUF", _ID, None, _create_index_array(message)).id_to_bytes()
        values = pa.array([prefix + body for body in bodies], pa.binary())
        group = Group(_ID, np.arange(len(values)), _ID_BYTES)
        column, faults = decode_groups(values, [(group, kind.reader(text_of(file)))], kind.arrow, {})
        column.validate(full=True)
        again = kind.write(column, prefix[:_ID_BYTES]).to_pylist()
        assert {at for at, each in enumerate(again) if each is None} == faults.keys()
        return Message(
            protobuf._files(target).pool.FindMessageTypeByName(name),
            bodies,
            [faults[at].cause if at in faults else row for at, row in enumerate(column.to_pylist())],
            [None if each is None else each.removeprefix(prefix) for each in again],
        )

    def answers(self, requests: Iterable[Any], messages: Mapping[str, Message]) -> Path:
        """A file of each request with its answer."""
        made = {
            (name, body): self.response(parse_error=row)
            if isinstance(row, Cause)
            else self.response(protobuf_payload=written)
            for name, message in messages.items()
            for body, row, written in zip(message.bodies, message.rows, message.written, strict=True)
        }
        parts: list[Any] = []
        for request in requests:
            parts.append(request)
            reason = skipped(request)
            asked = request.message_type, request.protobuf_payload
            parts.append(self.response(skipped=reason) if reason else made[asked])
        path = self.folder / "answers"
        path.write_bytes(joined(part.SerializeToString() for part in parts))
        return path


def skipped(request: Any) -> str:
    """Why the request is skipped, if it is."""
    formats = request.DESCRIPTOR.fields_by_name["requested_output_format"].enum_type.values_by_number
    asked = request.WhichOneof("payload").removesuffix("_payload").upper()
    wanted = formats[request.requested_output_format].name
    return "" if asked == wanted == "PROTOBUF" else f"{asked} to {wanted}"


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    pytest.importorskip("protoc", reason="there is a wheel for Linux on x86-64 and aarch64 only")
    return Suite(tmp_path_factory.mktemp("conformance"))


@pytest.fixture(scope="module")
def requests(suite):
    return suite.requests()


@pytest.fixture(scope="module")
def messages(suite, requests):
    bodies: defaultdict[str, dict[bytes, None]] = defaultdict(dict)  # of a message each one once
    for request in requests:
        if not skipped(request):
            bodies[request.message_type][request.protobuf_payload] = None
    return {name: suite.read_and_written(name, list(each)) for name, each in bodies.items()}


_SUMMARY = re.compile(r"(\d+) successes, (\d+) skipped, (\d+) expected failures, (\d+) unexpected failures")


def test_each_test_of_bytes_passes_but_for_what_the_page_says(suite, requests, messages, cell):
    code, told = suite.run("answer", suite.answers(requests, messages), LISTED)
    assert code == 0, told
    (passed, left_out, failed, _), texts = (tuple(map(int, each)) for each in _SUMMARY.findall(told))
    reasons = Counter(map(skipped, requests))
    asked = reasons.pop("")
    assert (passed + failed, left_out, failed) == (asked, reasons.total(), len(LISTED))
    assert passed > 2_800 and set(reasons) == {"PROTOBUF to JSON", "JSON to PROTOBUF", "JSON to JSON"}
    assert texts[0] == texts[2] == texts[3] == 0  # the other one is of Protobuf's text format
    cell(TABLE, "read and written", "passed", f"{passed:,}")
    for kind, names in DIFFERENCES.items():
        cell(TABLE, kind, "failed as listed", f"{len(names):,}")
    for reason, count in {**reasons, "of the text format": texts[1]}.items():
        cell(TABLE, reason, "skipped", f"{count:,}")


def test_a_query_has_the_columns_of_protobufs_own_classes_for_each_that_is_read(messages):
    columns = 0
    for name, message in messages.items():
        own = GetMessageClass(message.query)
        for body, row in zip(message.bodies, message.rows, strict=True):
            if not isinstance(row, Cause):
                expected = row_of(own.FromString(body))
                assert same(comparable(message.query, row), expected), f"{name}: {body.hex()}"
                columns += len(expected)
    causes = Counter(row for message in messages.values() for row in message.rows if isinstance(row, Cause))
    assert causes.keys() == {Cause.UNDECODABLE} and causes[Cause.UNDECODABLE] > 600
    assert columns > 150_000


def test_a_wrong_answer_and_a_listed_test_that_passes_are_noticed(suite, requests, messages):
    name = "protobuf_test_messages.proto3.TestAllTypesProto3"
    empty = messages[name]._replace(written=[None if each is None else b"" for each in messages[name].written])
    path = suite.answers(requests, {**messages, name: empty})
    right, wrong = (f"Required.{form}.ProtobufInput.RepeatedScalarMessageMerge.ProtobufOutput" for form in _FORMS[:2])
    code, told = suite.run("answer", path, [right], only=[right, wrong])
    assert code != 0
    assert f"ERROR, test={wrong}: Output was not equivalent" in told
    assert re.search(rf"ERROR: test {re.escape(right)} .* in the failure list, but test succeeded", told)


def test_each_difference_is_in_the_pages_table_with_its_reason():
    _, _, section = PAGE.read_text().partition("## Compared with Protobuf's conformance suite")
    rows = [line.split(" | ") for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert {row[0].removeprefix("| ") for row in rows[1:]} == set(DIFFERENCES)
    assert all(len(row) == 4 and all(row) for row in rows)
