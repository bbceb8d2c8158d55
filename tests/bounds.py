"""The bounds for what others choose, each with what happens at its edge: what is still taken, and at what cost.

`python -m tests.bounds` prints the table of docs/security.md, with the CPU time of each edge on this machine. A test
runs each edge with a limit that a busy machine keeps, too.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2

from spark_kafka_eos.dead_letters import causes
from spark_kafka_eos.dead_letters.headers import DeadLetter, letter_of
from spark_kafka_eos.errors import AuthenticationFailed
from spark_kafka_eos.kafka.auth import authentication, oauth
from spark_kafka_eos.kafka.auth.authentication import sasl_exchange
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.observe import metrics
from spark_kafka_eos.observe.metrics import by_topic
from spark_kafka_eos.options import Secret, Security
from spark_kafka_eos.registry import client, json_schema, nesting
from spark_kafka_eos.registry.avro_schema import parse
from spark_kafka_eos.registry.client import Registry, SchemaText, SchemaType, TooLargeSchema, close_sessions
from spark_kafka_eos.registry.decoding import decode
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.testing.registry import RegistryServer
from tests.letters import headers_of


class Bound(NamedTuple):
    """`value` is the bound as the page writes it, `why` the reason. `edge` does what just fits and what just does not,
    and raises AssertionError if either is otherwise. It must take less than `seconds` of CPU time.
    """

    what: str
    value: str
    why: str
    edge: Callable[[], None]
    seconds: float


def refused(schema: SchemaText) -> None:
    try:
        format_of(QuerySchema(schema)).reader(schema)
    except UnsupportedSchema:
        return
    raise AssertionError("it was taken")


def wide(kind: SchemaType, fields: int) -> SchemaText:
    """A schema of one record with so many fields."""
    if kind == "AVRO":
        parts = [{"name": f"f{number}", "type": "long"} for number in range(fields)]
        return SchemaText(kind, json.dumps({"type": "record", "name": "wide", "fields": parts}))
    if kind == "JSON":
        return SchemaText(
            kind, json.dumps({"properties": {f"f{number}": {"type": "string"} for number in range(fields)}})
        )
    made = descriptor_pb2.FileDescriptorProto(name="wide.proto", syntax="proto3")  # a message may have 64 KiB of fields
    outer, inner = made.message_type.add(name="Wide"), made.message_type.add(name="Inner")
    for number in range(fields // 100):
        outer.field.add(name=f"f{number}", number=number + 1, type=11, label=1, type_name=".Inner")
    for number in range(99):
        inner.field.add(name=f"f{number}", number=number + 1, type=3, label=1)
    return SchemaText(kind, base64.b64encode(made.SerializeToString()).decode())


def parts_of(kind: SchemaType) -> Callable[[], None]:
    def edge() -> None:
        format_of(QuerySchema(wide(kind, nesting.MOST_PARTS - 100)))
        refused(wide(kind, nesting.MOST_PARTS + 100))

    return edge


def doubling() -> None:
    """1,755 bytes, as they took 24 s once: a record of two fields of a record of two fields, and so on."""
    inner: object = "long"
    for level in range(18):
        before = f"R{level - 1}" if level else "long"
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": before}]
        inner = {"type": "record", "name": f"R{level}", "fields": fields}
    text = json.dumps(inner)
    try:
        parse(text + " " * (1_755 - len(text)))
    except UnsupportedSchema:
        return
    raise AssertionError("it was taken")


def deep() -> None:
    try:
        parse('{"type": "array", "items": ' * 5_000 + '"long"' + "}" * 5_000)
    except UnsupportedSchema:
        return
    raise AssertionError("it was taken")


def pattern(text: str) -> Callable[[], None]:
    def edge() -> None:
        schema = SchemaText("JSON", json.dumps({"properties": {"name": {"type": "string", "pattern": text}}}))
        body = json.dumps({"name": "a" * 100_000 + "!"}).encode()
        assert len(on_registry(schema, [b"\0\0\0\0\1" + body])) == 1

    return edge


def on_registry(schema: SchemaText, values: list[bytes]) -> dict[int, object]:
    """The faults of values that were written with the registry's first schema."""
    with RegistryServer() as server:
        try:
            server.register("any", schema.text, schema.kind)
            return dict(
                decode(pa.array(values, pa.binary()), None, Registry.of(server.url), QuerySchema(schema)).faults
            )
        finally:
            close_sessions()


def unknown_ids() -> None:
    values = [b"\0" + number.to_bytes(4, "big") + b"\2" for number in range(1_000, 6_000)]
    with RegistryServer() as server:
        try:
            target = QuerySchema(SchemaText("AVRO", '"long"'))
            found = decode(pa.array(values, pa.binary()), None, Registry.of(server.url), target)
        finally:
            close_sessions()
        assert len(found.faults) == 5_000
        assert len(server.requests) == client._MOST_UNKNOWN


def references() -> None:
    with RegistryServer() as server:
        try:
            session = Registry.of(server.url).session
            for count in (client.MOST_REFERENCES, client.MOST_REFERENCES + 1):
                named = [refer(server, f"R{number}") for number in range(count)]
                number = register(server, f"all-{count}", '"long"', named)
                try:
                    assert len(session.schema(number).references) == count <= client.MOST_REFERENCES
                except TooLargeSchema:
                    assert count > client.MOST_REFERENCES
        finally:
            close_sessions()


def refer(server: RegistryServer, name: str) -> dict[str, object]:
    server.register(name, json.dumps({"type": "fixed", "name": name, "size": 4}))
    return {"name": name, "subject": name, "version": 1}


def register(server: RegistryServer, subject: str, text: str, referring: list[dict[str, object]]) -> int:
    body = {"schema": text, "schemaType": "AVRO", "references": referring}
    found = server.answer("POST", f"/subjects/{subject}/versions", body)
    assert isinstance(found, dict)
    return int(found["id"])


def long_text() -> None:
    """A schema of as many characters, in one field's documentation, and a longer one."""
    empty = len(json.dumps({"type": "long", "doc": ""}))
    for more in (0, 1):
        text = json.dumps({"type": "long", "doc": "x" * (client.LARGEST_TEXT - empty + more)})
        faults = on_registry(SchemaText("AVRO", text), [b"\0\0\0\0\1\2"])
        assert len(faults) == more, faults


def json_value() -> None:
    """A value that is nested as deeply as its size allows, and a number that is as long."""
    schema = SchemaText("JSON", json.dumps({"properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}))
    bodies = [b'{"other": ' + b"[" * 500_000 + b"]" * 500_000 + b"}", b'{"count": ' + b"9" * 1_000_000 + b"}"]
    assert len(on_registry(schema, [b"\0\0\0\0\1" + body for body in bodies])) == 2


def iterations() -> None:
    """The login that just is answered: the client must compute as many."""
    first = b""

    def broker(data: bytes) -> bytes:
        nonlocal first
        if first:
            return b"v=" + base64.b64encode(b"x" * 64)
        nonce = data.rpartition(b"r=")[2].decode()
        salt = base64.b64encode(b"salt").decode()
        first = f"r={nonce}more,s={salt},i={authentication._MOST_ITERATIONS}".encode()
        return first

    login = Security(protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="ann", password=Secret("hunter2"))
    try:
        sasl_exchange(login, "broker:9092", broker)
    except AuthenticationFailed:
        return
    raise AssertionError("a broker that does not know the password was trusted")


def token() -> None:
    token_, lifetime = oauth._read(
        json.dumps({"access_token": "t" * (oauth._LARGEST_ANSWER - 100)}).encode(), "the server"
    )
    assert len(token_) > 1_000_000 and lifetime == 0


def message() -> None:
    letter = letter_of(headers_of(DeadLetter(cause="x" * 10_000_000, message="y" * 10_000_000)))
    assert letter is not None and letter.message is not None
    assert len(letter.message) == causes.LONGEST_MESSAGE and len(letter.cause) < 200


def series() -> None:
    values = {TopicPartition(f"t{number}", 0): 1.0 for number in range(10_000)}
    assert len(by_topic(values, sum)) == metrics.MOST_TOPICS + 1


_KINDS: tuple[tuple[str, SchemaType], ...] = (("Avro", "AVRO"), ("JSON", "JSON"), ("Protobuf", "PROTOBUF"))

BOUNDS = [
    *(
        Bound(
            f"parts that a schema unfolds to, {name}",
            f"{nesting.MOST_PARTS:,}",
            "the widest tables have a thousand columns",
            parts_of(kind),
            20,
        )
        for name, kind in _KINDS
    ),
    Bound("the same, 1,755 bytes that stand for 524,287", f"{nesting.MOST_PARTS:,}", "they took 24 s", doubling, 2),
    Bound("depth of an Avro schema", "Python's recursion", "deeper ones are refused", deep, 2),
    Bound(
        "steps of a pattern that looks around or back, for a value of 100 kB",
        f"{json_schema.BACKTRACKS:,}",
        "a plain engine needs hours; the value is then not valid",
        pattern(r"^(a|a)*\1$"),
        5,
    ),
    Bound("a pattern without these", "linear in the value", "the engine has no backtracking", pattern("^(a+)+$"), 5),
    Bound("depth and digits of a JSON value, 1 MB", "Python's own", "4,300 digits; recursion", json_value, 5),
    Bound(
        "unknown ids that a task asks for, of 5,000 records",
        f"{client._MOST_UNKNOWN} in half a minute",
        "each is a request; the others are `unknown-schema` unasked",
        unknown_ids,
        20,
    ),
    Bound("references of a schema", f"{client.MOST_REFERENCES}", "each is a request, once", references, 20),
    Bound(
        "characters of a schema, with its references",
        f"{client.LARGEST_TEXT:,}",
        "most have some thousand",
        long_text,
        20,
    ),
    Bound(
        "iterations of SCRAM",
        f"{authentication._FEWEST_ITERATIONS:,} to {authentication._MOST_ITERATIONS:,}",
        "fewer give the password away, more cost CPU time at each login",
        iterations,
        30,
    ),
    Bound("a token server's answer", "1 MiB", "tokens have some kilobytes", token, 2),
    Bound("a dead letter's message", f"{causes.LONGEST_MESSAGE} characters", "it is a sentence", message, 5),
    Bound("topics of a query with series of their own", f"{metrics.MOST_TOPICS}", "the others share one", series, 2),
]


def table() -> str:
    """The page's table, with what each edge costs here."""
    lines = ["| bound for | value | why | CPU time at the edge |", "|---|---|---|---|"]
    for each in BOUNDS:
        began = time.process_time()
        each.edge()
        took = time.process_time() - began
        shown = f"{took * 1e3:.0f} ms" if took < 1 else f"{took:.1f} s"
        lines.append(f"| {each.what} | {each.value} | {each.why} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
