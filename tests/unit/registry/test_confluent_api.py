"""What the registry is asked, and what is made of its answers: contexts, rules, references, versions, texts."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import RuleError
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import descriptor_pb2

from spark_kafka_eos import confluent_decoder, confluent_encoder
from spark_kafka_eos.errors import ConfigurationError, RegistryError, UndecodableRecord
from spark_kafka_eos.registry import client
from spark_kafka_eos.registry.client import close_sessions
from spark_kafka_eos.testing.registry import ErrorAnswer
from tests.unit.registry.confluent_api import ConfluentApi, WithoutDescriptors
from tests.unit.registry.test_hostile_records import framed
from tests.unit.registry.test_protobuf import field, file

PROD = ":.prod:orders-value"


@pytest.fixture
def api() -> Iterator[ConfluentApi]:
    with ConfluentApi() as running:
        yield running
    close_sessions()


def record(**fields: Any) -> str:
    made = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": made})


def array(*values: bytes) -> pa.Array:
    return pa.array(values, pa.binary())


def of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


# -- contexts


def test_an_id_is_looked_up_in_the_context_of_the_subject(api: ConfluentApi) -> None:
    api.put("orders-value", record(a="long", b="long"))
    there = api.put(PROD, record(b="long", a="long"))
    with SchemaRegistryClient({"url": api.url}) as client:
        written = AvroSerializer(client, conf={
            "use.latest.version": True, "auto.register.schemas": False, "subject.name.strategy": lambda *_: PROD,
        })({"a": 1, "b": 2}, of("orders"))  # fmt: skip
        assert written is not None and written[:5] == framed(there.schema_id, b"")
        witness = AvroDeserializer(client, conf={"subject.name.strategy": lambda *_: PROD})(written, of("orders"))
    for schema in (None, record(a="long", b="long")):
        decoder = confluent_decoder(api.url, subject=PROD, schema=schema)
        assert decoder(array(written)).to_pylist() == [{"a": 1, "b": 2}] == [witness]
    encoder = confluent_encoder(api.url, subject=PROD)
    assert encoder(pa.array([{"a": 1, "b": 2}], encoder.type)).to_pylist() == [written]


def test_two_contexts_with_the_same_ids_are_read_side_by_side(api: ConfluentApi) -> None:
    api.put("orders-value", record(a="long", b="long"))
    api.put(PROD, record(b="long", a="long"))
    value = array(framed(1, b"\x02\x04"))
    for _ in range(2):
        assert confluent_decoder(api.url, subject="orders-value")(value).to_pylist() == [{"a": 1, "b": 2}]
        assert confluent_decoder(api.url, subject=PROD)(value).to_pylist() == [{"b": 1, "a": 2}]


def test_what_a_schema_of_a_context_refers_to_is_in_that_context(api: ConfluentApi) -> None:
    api.put("money", json.dumps({"type": "record", "name": "Money", "fields": [{"name": "wrong", "type": "string"}]}))
    money = json.dumps({"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "Unit"}]})
    api.put(":.prod:unit", json.dumps({"type": "enum", "name": "Unit", "symbols": ["A", "B"]}))
    api.put(":.prod:money", money, references={"Unit": ("unit", 1)})
    version = api.put(PROD, record(price="Money"), references={"Money": ("money", 1)})
    decoder = confluent_decoder(api.url, subject=PROD)
    assert decoder(array(framed(version.schema_id, b"\x02"))).to_pylist() == [{"price": {"cents": "B"}}]


@pytest.mark.parametrize("context", ["", ":.prod:"])
def test_an_id_of_another_subject_is_found_where_the_registry_asks_for_the_right_one(context: str) -> None:
    """As where records are named by their own name, and the query's schema by the topic."""
    with ConfluentApi(strict=True) as strict:
        strict.put("shop.Order", record(other="string"))
        strict.put("orders-value", record(other="string"))
        written = strict.put(f"{context}shop.Order", record(a="long"))
        strict.put(f"{context}orders-value", record(a="long"))
        decoder = confluent_decoder(strict.url, subject=f"{context}orders-value")
        assert decoder(array(framed(written.schema_id, b"\x02"))).to_pylist() == [{"a": 1}]
    close_sessions()


# -- outages


@pytest.mark.parametrize("options", [{}, {"timeout": 1}])
def test_a_registry_that_accepts_a_request_and_never_answers_is_an_outage(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Confluent's client alone waits for ever."""
    assert client.ANSWER_S == 30
    monkeypatch.setattr(client, "ANSWER_S", 60 if options else 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RegistryError, match="did not answer.*ReadTimeout"):
            confluent_decoder({"url": url, "max.retries": 0, **options}, topic="orders")
    close_sessions()


# -- refusals

INCOMPATIBLE = "Schema being registered is incompatible with an earlier schema for subject"


class Refusing(ConfluentApi):
    """It answers each POST to the path that ends with `path` with this status."""

    def __init__(self, status: int, code: int, message: str, path: str = "/versions") -> None:
        super().__init__()
        self.refusal, self.path = ErrorAnswer(status, code, message), path

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        if method == "POST" and urlsplit(path).path.endswith(self.path):
            raise self.refusal
        return super().answer(method, path, body)


@pytest.mark.parametrize(
    ("status", "code", "message", "path"),
    [
        (409, 409, INCOMPATIBLE, "/versions"),
        (422, 42201, "Invalid schema", "/versions"),
        (422, 42201, "Invalid schema", "-value"),
        (422, 42205, "Subject orders-value is in read-only mode", "/versions"),
    ],
)
def test_a_schema_that_the_registry_refuses_is_told_with_its_reason(status, code, message, path):
    with Refusing(status, code, message, path) as refusing:
        refusing.put("orders-value", record(a="long"))
        with pytest.raises(ConfigurationError, match=f"'schema': the registry at .* refuses it under the subject "
                           f"'orders-value': {message}.*compatibility"):  # fmt: skip
            confluent_encoder(refusing.url, topic="orders", schema=record(a="string"), register=True)
    close_sessions()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, r"refused the request for subject 'orders-value' \(HTTP 401.*credentials"),
        (403, r"refused the request for subject 'orders-value' \(HTTP 403.*credentials"),
        (400, r"refused the request for subject 'orders-value' \(HTTP 400.*URL"),
        (408, r"is too busy for subject 'orders-value' \(HTTP 408.*later, or with fewer tasks"),
        (429, r"is too busy for subject 'orders-value' \(HTTP 429.*later, or with fewer tasks"),
        (500, r"failed at the request for subject 'orders-value' \(HTTP 500.*is up"),
    ],
)
def test_a_registry_that_answers_with_an_error_is_not_said_not_to_have_answered(status, said):
    with Refusing(status, status, "no", "-value") as refusing:
        refusing.put("orders-value", record(a="long"))
        options = {"url": refusing.url, "max.retries": 0}
        with pytest.raises(RegistryError, match=said):
            confluent_encoder(options, topic="orders", schema=record(a="string"), register=True)
    close_sessions()


# -- rules

ENCRYPT = {
    "name": "encryptPII", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT", "tags": ["PII"],
    "params": {"encrypt.kek.name": "kek"}, "onFailure": "ERROR,NONE",
}  # fmt: skip


def ruled(phase: str = "domainRules", **changes: Any) -> dict[str, Any]:
    return {phase: [ENCRYPT | changes]}


@pytest.mark.parametrize(
    ("rules", "reads", "writes"),
    [
        (ruled(), False, False),
        (ruled(mode="WRITE"), True, False),
        (ruled(mode="READ"), False, True),
        (ruled("encodingRules", type="ENCRYPT_PAYLOAD"), False, False),
        (ruled(kind="CONDITION", type="CEL", expr="true"), False, False),
        (ruled(type="OF_A_LATER_RELEASE"), False, False),
        (ruled("migrationRules", mode="UPGRADE", type="JSONATA"), False, True),
        (ruled("migrationRules", mode="DOWNGRADE", type="JSONATA"), False, True),
        (ruled("migrationRules", mode="UPDOWN", type="JSONATA"), False, True),
        (ruled(disabled=True), True, True),
        (ruled() | {"enableAt": "GATEWAY"}, True, True),
        (ruled() | {"enableAt": "CLIENT"}, False, False),
    ],
    ids=str,
)
def test_a_schema_with_a_rule_is_refused_by_name_unless_rules_are_ignored(
    api: ConfluentApi, rules: dict[str, Any], reads: bool, writes: bool
) -> None:
    api.put("orders-value", record(ssn="string"), rules=rules)
    row = [{"ssn": "123-45-6789"}]
    for made, allowed in ((confluent_decoder, reads), (confluent_encoder, writes)):
        if allowed:
            made(api.url, topic="orders")
            continue
        with pytest.raises(ConfigurationError, match=r"'encryptPII' \(\w+\).*ignore_rules"):
            made(api.url, topic="orders")
    encoder = confluent_encoder(api.url, topic="orders", ignore_rules=True)
    plain = encoder(pa.array(row, encoder.type))
    assert confluent_decoder(api.url, topic="orders", ignore_rules=True)(plain).to_pylist() == row


def test_confluents_serializer_too_refuses_a_rule_that_it_cannot_run(api: ConfluentApi) -> None:
    api.put("orders-value", record(ssn="string"), rules=ruled())
    conf = {"use.latest.version": True, "auto.register.schemas": False}
    with SchemaRegistryClient({"url": api.url}) as client:
        serialize = AvroSerializer(client, conf=conf, rule_registry=RuleRegistry())
        with pytest.raises((RuleError, SerializationError)):
            serialize({"ssn": "123-45-6789"}, of("orders"))


def test_a_rule_of_a_records_own_schema_makes_it_a_fault(api: ConfluentApi) -> None:
    version = api.put("orders-value", record(ssn="string"), rules=ruled())
    value = array(framed(version.schema_id, b"\x02a"))
    given: dict[str, Any] = {"topic": "orders", "schema": record(ssn="string")}
    with pytest.raises(UndecodableRecord, match=r"'encryptPII' \(ENCRYPT\)"):
        confluent_decoder(api.url, **given)(value)
    (fault,) = confluent_decoder(api.url, mode="permissive", **given)(value).field("error").to_pylist()
    assert fault["cause"] == "incompatible"
    assert confluent_decoder(api.url, ignore_rules=True, **given)(value).to_pylist() == [{"ssn": "a"}]


@pytest.mark.parametrize("register", [False, True])
def test_a_schema_that_is_given_has_the_rules_of_the_one_under_the_subject(api: ConfluentApi, register: bool) -> None:
    api.put("orders-value", record(ssn="string"), rules=ruled())
    api.put("orders-value", record(ssn="string", b="int"), rules=ruled())
    schema = record(ssn="string", b="int", c="int") if register else record(ssn="string")
    with pytest.raises(ConfigurationError, match="'encryptPII'"):
        confluent_encoder(api.url, topic="orders", schema=schema, register=register)
    assert len(api.versions) == 2, "nothing was registered"


# -- versions


def test_a_schema_with_references_is_written_with_by_topic(api: ConfluentApi) -> None:
    money = {"type": "record", "name": "Money", "namespace": "n", "fields": [{"name": "cents", "type": "long"}]}
    api.put("money-value", json.dumps(money))
    text = record(price="n.Money")
    version = api.put("orders-value", text, references={"n.Money": ("money-value", 1)})
    row = {"price": {"cents": 5}}
    for schema in (None, json.dumps(dict(reversed(json.loads(text).items())))):
        api.requests.clear()
        encoder = confluent_encoder(api.url, topic="orders", schema=schema)
        assert encoder(pa.array([row], encoder.type)).to_pylist() == [framed(version.schema_id, b"\x0a")]
        assert not [request for request in api.requests if request.startswith("POST")], "it was there"


def test_a_reference_whose_version_is_deleted_is_read(api: ConfluentApi) -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    api.put("money-value", json.dumps(money)).deleted = True
    version = api.put("orders-value", record(price="Money"), references={"Money": ("money-value", 1)})
    value = array(framed(version.schema_id, b"\x0a"))
    assert confluent_decoder(api.url, topic="orders")(value).to_pylist() == [{"price": {"cents": 5}}]


def test_the_latest_version_is_asked_for_by_each_call(api: ConfluentApi) -> None:
    api.put("orders-value", '"int"')
    assert confluent_decoder(api.url, topic="orders").type == pa.int32()
    api.put("orders-value", '"long"')
    assert confluent_decoder(api.url, topic="orders").type == pa.int64()
    assert confluent_encoder(api.url, topic="orders")(pa.array([1])).to_pylist() == [framed(2, b"\x02")]


REFERRING: dict[str, tuple[str, str, pa.Array, bytes]] = {
    "AVRO": (
        '{"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}', record(price="Money"),
        pa.array([{"price": {"cents": 5}}]), b"\x0a",
    ),
    "JSON": (
        '{"type": "object", "properties": {"cents": {"type": "integer"}}}',
        '{"type": "object", "properties": {"price": {"$ref": "Money"}}}',
        pa.array([{"price": {"cents": 5}}]), b'{"price": {"cents": 5}}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("context", ["", ":.prod:"])
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_schema_that_is_given_has_the_references_that_are_given(api: ConfluentApi, kind: Any, context: str) -> None:
    money, text, rows, body = REFERRING[kind]
    api.put(f"{context}money", money.replace("cents", "euros"), kind)
    api.put(f"{context}money", money, kind)
    given: dict[str, Any] = {"subject": f"{context}orders-value", "schema": text, "schema_type": kind}
    given["references"] = {"Money": ("money", 2)}
    with pytest.raises(ConfigurationError, match="does not have this schema"):
        confluent_encoder(api.url, **given)
    encoder = confluent_encoder(api.url, **given, register=True)
    (value,) = encoder(rows.cast(encoder.type)).to_pylist()
    assert value == framed(3, body)
    assert api.versions[-1].references == [{"name": "Money", "subject": "money", "version": 2}]
    assert confluent_encoder(api.url, **given).schema_id == 3
    assert confluent_decoder(api.url, **given)(array(value)).to_pylist() == rows.to_pylist()
    with pytest.raises(ConfigurationError, match="does not have this schema"):
        confluent_encoder(api.url, **given | {"references": {"Money": ("money", 1)}})
    for lost in (("money", 3), ("lost", 1)):
        with pytest.raises(ConfigurationError, match="lacks one of these versions"):
            confluent_decoder(api.url, **given | {"references": {"Money": lost}})


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_schema_whose_keys_are_in_another_order_is_the_one_that_the_registry_has(
    api: ConfluentApi, kind: Any
) -> None:
    text = record(a="int") if kind == "AVRO" else '{"type": "object", "properties": {"a": {"type": "integer"}}}'
    api.put("orders-value", text, kind)
    other = json.dumps(dict(reversed(json.loads(text).items())), indent=1)
    assert confluent_encoder(api.url, topic="orders", schema=other, schema_type=kind).schema_id == 1
    with pytest.raises(ConfigurationError, match="does not have this schema"):
        confluent_encoder(api.url, topic="orders", schema=other.replace("a", "b"), schema_type=kind)


@pytest.mark.parametrize("register", [False, True])
@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_a_schema_that_says_the_same_as_an_older_version_in_other_words_is_that_one(
    api: ConfluentApi, kind: Any, register: bool
) -> None:
    texts = {
        "AVRO": [record(**{name: "int"}) for name in "abc"],
        "JSON": [json.dumps({"type": "object", "properties": {name: {"type": "integer"}}}) for name in "abc"],
        "PROTOBUF": [f'syntax = "proto3"; message Order {{ int32 {name} = 1; }}' for name in "abc"],
    }[kind]
    for text in texts:
        api.put("orders-value", text, kind)
    words = texts[1].replace("{", "{ ").replace(" = 1;", " =1 ; // in other words\n")
    encoder = confluent_encoder(api.url, topic="orders", schema=words, schema_type=kind, register=register)
    assert encoder.schema_id == 2
    assert len(api.versions) == 3
    api.versions[1].deleted = True
    if register:
        assert confluent_encoder(api.url, topic="orders", schema=words, schema_type=kind, register=True).schema_id == 4
        return
    with pytest.raises(ConfigurationError, match="does not have this schema"):
        confluent_encoder(api.url, topic="orders", schema=words, schema_type=kind)


# -- Protobuf, which the registry has as text

PROTO = '// orders\nsyntax = "proto3"; package shop; import "addr.proto"; message Order { addr.Addr to = 1; }'
ADDRESS_TEXT = 'syntax = "proto3"; package addr; message Addr { string city = 1; }'
ADDRESS = file("addr", 'name: "Addr" ' + field("city", 1, "STRING"))
ORDER = descriptor_pb2.FileDescriptorProto()
ORDER.CopyFrom(file("shop", 'name: "Order" ' + field("to", 1, "MESSAGE", of=".addr.Addr")))
ORDER.dependency.append("addr.proto")
FRAME = b"\0"  # the first message of its file
BODY = b"\x0a\x06\x0a\x04Rome"


def serialized(made: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(made.SerializeToString()).decode()


@pytest.fixture
def in_text(api: ConfluentApi) -> ConfluentApi:
    api.put("addr.proto", ADDRESS_TEXT, "PROTOBUF", serialized=serialized(ADDRESS))
    api.put(
        "orders-value", PROTO, "PROTOBUF", serialized=serialized(ORDER), references={"addr.proto": ("addr.proto", 1)}
    )
    return api


def test_a_proto_that_was_registered_as_text_is_read_and_written_by_topic(in_text: ConfluentApi) -> None:
    decoder, encoder = (made(in_text.url, topic="orders") for made in (confluent_decoder, confluent_encoder))
    value = framed(2, FRAME + BODY)
    rows = decoder(array(value))
    assert rows.to_pylist() == [{"to": {"city": "Rome"}}]
    assert encoder(rows).to_pylist() == [value]
    assert not [request for request in in_text.requests if request.startswith("POST")], "its id is known"


def test_a_guid_of_such_a_proto_is_read(in_text: ConfluentApi) -> None:
    value = b"\1" + UUID(in_text.versions[1].guid).bytes + FRAME + BODY
    assert confluent_decoder(in_text.url, topic="orders")(array(value)).to_pylist() == [{"to": {"city": "Rome"}}]


def test_records_of_such_a_proto_are_read_with_a_schema_of_ones_own(in_text: ConfluentApi) -> None:
    both = descriptor_pb2.FileDescriptorProto()
    both.CopyFrom(file("own", 'name: "Order" ' + field("to", 1, "MESSAGE", of=".shop.Addr")))
    both.package = "shop"
    both.message_type.add().CopyFrom(ADDRESS.message_type[0])
    decoder = confluent_decoder(in_text.url, schema=serialized(both), schema_type="PROTOBUF")
    assert decoder(array(framed(2, FRAME + BODY))).to_pylist() == [{"to": {"city": "Rome"}}]


def test_what_was_registered_as_a_descriptor_needs_no_other_form_of_it() -> None:
    """Also what it refers to; and records of another type are bad ones where the registry refuses to serialize Avro."""
    with WithoutDescriptors() as plain:
        plain.put("addr.proto", serialized(ADDRESS), "PROTOBUF")
        orders = plain.put("orders-value", serialized(ORDER), "PROTOBUF", references={"addr.proto": ("addr.proto", 1)})
        other = plain.put("other-value", record(a="long"))
        decoder = confluent_decoder({"url": plain.url, "max.retries": 0}, topic="orders", mode="permissive")
        encoder = confluent_encoder({"url": plain.url, "max.retries": 0}, topic="orders")
        written = encoder(pa.array([{"to": {"city": "Bern"}}], encoder.type)).to_pylist()
        assert written[0][:5] == framed(orders.schema_id, b"")
        result = decoder(array(*written, framed(other.schema_id, b"\0\2"))).to_pylist()
        assert result[0] == {"value": {"to": {"city": "Bern"}}, "error": None}
        assert result[1]["error"]["cause"] == "wrong-schema"
    close_sessions()


def test_a_proto_of_which_the_registry_has_only_the_text_is_read_and_written_by_topic() -> None:
    with WithoutDescriptors() as plain:
        plain.put("addr.proto", ADDRESS_TEXT, "PROTOBUF")
        plain.put("orders-value", PROTO, "PROTOBUF", references={"addr.proto": ("addr.proto", 1)})
        decoder, encoder = (
            made({"url": plain.url, "max.retries": 0}, topic="orders")
            for made in (confluent_decoder, confluent_encoder)
        )
        value = framed(2, FRAME + BODY)
        rows = decoder(array(value))
        assert rows.to_pylist() == [{"to": {"city": "Rome"}}]
        assert encoder(rows).to_pylist() == [value]
        assert len([request for request in plain.requests if "format=serialized" in request]) == 1
        given: Any = {"schema": PROTO, "schema_type": "PROTOBUF", "references": {"addr.proto": ("addr.proto", 1)}}
        assert confluent_encoder({"url": plain.url, "max.retries": 0}, topic="orders", **given).schema_id == 2
        assert (
            confluent_decoder({"url": plain.url, "max.retries": 0}, **given)(array(value)).to_pylist()
            == rows.to_pylist()
        )
    close_sessions()


def test_a_reader_of_another_type_does_not_spoil_what_is_read_of_a_proto(in_text: ConfluentApi) -> None:
    """It asks for the same id, and needs no descriptor."""
    value = array(framed(2, FRAME + BODY))
    other = confluent_decoder(in_text.url, schema='"string"', mode="permissive")
    assert other(value).field("error").to_pylist()[0]["cause"] == "wrong-schema"
    assert confluent_decoder(in_text.url, topic="orders")(value).to_pylist() == [{"to": {"city": "Rome"}}]


def test_a_descriptor_that_says_the_same_in_other_words_is_the_one_that_the_registry_has(in_text: ConfluentApi) -> None:
    own = descriptor_pb2.FileDescriptorProto()
    own.CopyFrom(ORDER)
    own.name = "of_my_own.proto"
    own.message_type[0].field[0].json_name = "to"
    own.message_type[0].field[0].type_name = "addr.Addr"
    encoder = confluent_encoder(in_text.url, topic="orders", schema=serialized(own), schema_type="PROTOBUF")
    assert encoder(pa.array([{"to": {"city": "Rome"}}], encoder.type)).to_pylist() == [framed(2, FRAME + BODY)]
    given: Any = {"schema": serialized(own), "schema_type": "PROTOBUF", "references": {"addr.proto": ("addr.proto", 1)}}
    assert confluent_decoder(in_text.url, **given)(array(framed(2, FRAME + BODY))).to_pylist() == [
        {"to": {"city": "Rome"}}
    ]
    assert confluent_encoder(in_text.url, topic="new", register=True, **given).schema_id == 3
    own.message_type[0].field[0].number = 2
    with pytest.raises(ConfigurationError, match="does not have this schema"):
        confluent_encoder(in_text.url, topic="orders", schema=serialized(own), schema_type="PROTOBUF")
