"""What Confluent's clients and this package do with a real registry, Apicurio, and that ours for tests answers as it
does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.struct_pb2 import Struct

from spark_kafka_eos import confluent_decoder, confluent_encoder
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.registry.client import close_sessions
from spark_kafka_eos.registry.framing import EIGHT_BYTES
from spark_kafka_eos.testing import schema_registry
from tests.apicurio import VERSION_2, VERSION_3, apicurio, serialized
from tests.matrix import Cell
from tests.unit.registry.avro_samples import EVERY_KIND, order, row
from tests.unit.registry.test_json import ORDER, ROW
from tests.unit.registry.test_json import SCHEMA as JSON_SCHEMA

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Works = Callable[[str], None]

MONEY = '{"type": "record", "name": "Money", "namespace": "n", "fields": [{"name": "cents", "type": "long"}]}'
PRICED = '{"type": "record", "name": "Priced", "fields": [{"name": "price", "type": "n.Money"}]}'
OTHER = '{"type": "record", "name": "Other", "fields": [{"name": "a", "type": "int"}]}'


# Releases, and the versions of Confluent's API that they have.
APIS = [(VERSION_2, "v7"), (VERSION_3, "v7"), (VERSION_3, "v8")]


@pytest.fixture(scope="module", params=APIS, ids="-".join)
def api(request: pytest.FixtureRequest) -> tuple[str, str]:
    version, of_confluent = request.param
    return version, of_confluent


@pytest.fixture(scope="module")
def url(api: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    version, of_confluent = api
    with apicurio(tmp_path_factory.mktemp("apicurio"), version) as running:
        yield running.replace("/v7", f"/{of_confluent}")
    close_sessions()


@pytest.fixture
def works(cell: Cell, api: tuple[str, str]) -> Works:
    """Notes in the table of the run that this works."""
    version, of_confluent = api
    release = ".".join(version.split(".")[:2])
    return lambda what: cell("Registries", f"Apicurio {release} {of_confluent}", what, "ok")


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as made:
        yield made


def of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_comes_and_goes(url: str, client: SchemaRegistryClient, works: Works) -> None:
    serialize = AvroSerializer(client, EVERY_KIND)
    values = pa.array([serialize(order(number), of("avro")) for number in range(50)], pa.binary())
    decoded = confluent_decoder(url, topic="avro")(values)
    assert decoded.to_pylist() == [row(order(number)) for number in range(50)]
    encoded = confluent_encoder(url, topic="avro-again", schema=EVERY_KIND, register=True)(decoded)
    deserialize = AvroDeserializer(client)
    assert [deserialize(value, of("avro-again")) for value in encoded.to_pylist()] == [
        deserialize(value, of("avro")) for value in values.to_pylist()
    ]
    works("Avro")


def test_json_comes_and_goes(url: str, client: SchemaRegistryClient, works: Works) -> None:
    value = JSONSerializer(JSON_SCHEMA, client)(ORDER, of("json"))
    decoded = confluent_decoder(url, topic="json")(pa.array([value], pa.binary()))
    assert decoded.to_pylist() == [ROW]
    encoder = confluent_encoder(url, topic="json-again", schema=JSON_SCHEMA, schema_type="JSON", register=True)
    (encoded,) = encoder(decoded).to_pylist()
    assert JSONDeserializer(JSON_SCHEMA)(encoded, of("json-again"))["id"] == ORDER["id"]
    works("JSON")


def test_protobuf_comes_and_goes(url: str, client: SchemaRegistryClient, works: Works) -> None:
    struct = Struct()
    struct["paid"] = True
    value = ProtobufSerializer(Struct, client, {"use.deprecated.format": False})(struct, of("protobuf"))
    decoded = confluent_decoder(url, topic="protobuf")(pa.array([value], pa.binary()))
    assert decoded.to_pylist() == [{"fields": [("paid", "true")]}]
    (encoded,) = confluent_encoder(url, topic="protobuf")(decoded).to_pylist()
    assert ProtobufDeserializer(Struct, {"use.deprecated.format": False})(encoded, of("protobuf")) == struct
    works("Protobuf")


PROTO = """syntax = "proto3"; // as Java's clients register it
package shop;
import "line.proto";
message Order { int64 id = 1; repeated lines.Line lines = 2; optional string note = 3; map<string, double> rates = 4; }
"""
LINE = 'syntax = "proto3"; package lines; message Line { string sku = 1; Kind kind = 2; enum Kind { A = 0; B = 1; } }'


def test_protobuf_that_was_registered_as_text_comes_and_goes(
    url: str, client: SchemaRegistryClient, works: Works
) -> None:
    client.register_schema("line.proto", Schema(LINE, "PROTOBUF"))
    reference = SchemaReference("line.proto", "line.proto", 1)
    schema_id = client.register_schema("text-value", Schema(PROTO, "PROTOBUF", [reference]))
    value = b"\0" + schema_id.to_bytes(4, "big") + b"\0\x08\x07\x12\x05\x0a\x01x\x10\x01"
    decoded = confluent_decoder(url, topic="text")(pa.array([value], pa.binary()))
    assert decoded.to_pylist() == [{"id": 7, "lines": [{"sku": "x", "kind": "B"}], "note": None, "rates": []}]
    assert confluent_encoder(url, topic="text")(decoded).to_pylist() == [value]
    works("Protobuf as text")


def test_an_avro_record_is_a_bad_one_in_a_topic_of_protobuf(url: str, client: SchemaRegistryClient) -> None:
    avro = client.register_schema("mixed-avro", Schema(OTHER, "AVRO"))
    client.register_schema("mixed-value", Schema('syntax = "proto3"; message A { int64 a = 1; }', "PROTOBUF"))
    values = pa.array([b"\0" + avro.to_bytes(4, "big") + b"\2"])
    (row,) = confluent_decoder(url, topic="mixed", mode="permissive")(values).to_pylist()
    assert row["error"]["cause"] == "wrong-schema"


def test_a_schema_that_refers_to_another_one_is_read(url: str, client: SchemaRegistryClient, works: Works) -> None:
    client.register_schema("money-value", Schema(MONEY, "AVRO"))
    reference = SchemaReference("n.Money", "money-value", 1)
    schema_id = client.register_schema("priced-value", Schema(PRICED, "AVRO", [reference]))
    values = pa.array([b"\0" + schema_id.to_bytes(4, "big") + b"\x0a"], pa.binary())
    assert confluent_decoder(url, topic="priced")(values).to_pylist() == [{"price": {"cents": 5}}]
    works("references")


def test_what_the_registry_does_not_have_is_named(url: str, client: SchemaRegistryClient, works: Works) -> None:
    client.register_schema("there-value", Schema(OTHER, "AVRO"))
    values = pa.array([b"\0\0\0\x27\x0f\x02", b"\1" + bytes(15) + b"\x07\x02"], pa.binary())
    found = confluent_decoder(url, topic="there", mode="permissive")(values).field("error").to_pylist()
    assert [error["cause"] for error in found] == ["unknown-schema", "unknown-schema"]
    with pytest.raises(ConfigurationError, match="no subject 'lost-value'"):
        confluent_decoder(url, topic="lost")
    for topic in ("there", "lost"):
        with pytest.raises(ConfigurationError, match="does not have this schema"):
            confluent_encoder(url, topic=topic, schema=MONEY)
    works("what is missing")


_FIELDS = '[{"name":"by","type":["null","string"]},{"name":"cents","type":"long"}]'
NOTE = f'{{"type":"record","name":"Note","fields":{_FIELDS}}}'  # as Java writes it
IN_VALUE = "apicurio.registry.headers.enabled=false"
IN_HEADER = "apicurio.registry.headers.enabled=true"
CONTENT_ID, GLOBAL_ID = "apicurio.registry.use-id=contentId", "apicurio.registry.use-id=globalId"
AS_CONFLUENT = "apicurio.registry.as-confluent=true"


@pytest.mark.parametrize("version", [VERSION_2, VERSION_3])
@pytest.mark.parametrize("ids", ["contentId", "globalId"])
def test_what_apicurios_own_serializer_writes_is_read_or_named(tmp_path: Path, version: str, ids: str) -> None:
    """Its default is an id in a header. `ids` are those by which the registry's API of Confluent finds schemas."""
    legacy = f"{'registry' if version == VERSION_2 else 'apicurio'}.ccompat.legacy-id-mode.enabled"
    with (
        apicurio(tmp_path, version, [f"{legacy}={str(ids == 'globalId').lower()}"]) as url,
        SchemaRegistryClient({"url": url}) as client,
    ):
        for subject, schema in (("earlier-value", NOTE), ("other-value", OTHER)):  # so that the two kinds of ids differ
            client.register_schema(subject, Schema(schema, "AVRO"))
        bare = ("", f"{IN_HEADER} {CONTENT_ID}")
        framed = (f"{IN_VALUE} {more}" for more in ("", f"{GLOBAL_ID} {AS_CONFLUENT}", f"{CONTENT_ID} {AS_CONFLUENT}"))
        records = serialized(url, "notes", NOTE, *bare, *framed)
        headers = pa.array([list(headers.items()) for _, headers in records], pa.map_(pa.string(), pa.binary()))
        values = pa.array([value for value, _ in records], pa.binary())
        decode = confluent_decoder(url, topic="notes", mode="permissive")
        result = decode(values, headers.cast(HEADERS)).to_pylist()
        messages = [row["error"] and row["error"]["message"] for row in result]
        assert all(row["error"]["cause"] == "not-framed" for row in result[:3])
        assert "apicurio.value.globalId" in messages[0] and "apicurio.value.contentId" in messages[1]
        assert messages[2] == EIGHT_BYTES
        note = {"by": None, "cents": 1234}
        assert result[3 if ids == "globalId" else 4] == {"value": note, "error": None}
        if ids == "contentId":
            assert result[3]["error"]["cause"] == "unknown-schema"  # a globalId

        header = f"apicurio.value.{ids}"
        put_before = next(b"\0" + named[header][4:] + value for value, named in records if header in named)
        assert decode(pa.array([put_before])).to_pylist() == [{"value": note, "error": None}]
    close_sessions()


REQUESTS: list[tuple[str, str, Mapping[str, Any] | None]] = [
    ("GET", "/schemas/types", None),
    ("POST", "/subjects/first-value/versions", {"schema": MONEY}),
    ("POST", "/subjects/first-value/versions", {"schema": MONEY}),
    ("POST", "/subjects/second-value/versions", {"schema": MONEY, "schemaType": "AVRO"}),
    ("POST", "/subjects/second-value/versions", {"schema": OTHER}),
    ("POST", "/subjects/third-value/versions", {"schema": JSON_SCHEMA, "schemaType": "JSON"}),
    (
        "POST",
        "/subjects/fourth-value/versions",
        {"schema": PRICED, "references": [{"name": "n.Money", "subject": "first-value", "version": 1}]},
    ),
    ("POST", "/subjects/first-value", {"schema": MONEY}),
    ("POST", "/subjects/first-value", {"schema": OTHER}),
    ("POST", "/subjects/lost-value", {"schema": OTHER}),
    ("GET", "/subjects", None),
    ("GET", "/subjects/second-value/versions", None),
    ("GET", "/subjects/second-value/versions/1", None),
    ("GET", "/subjects/second-value/versions/latest", None),
    ("GET", "/subjects/second-value/versions/9", None),
    ("GET", "/subjects/lost-value/versions", None),
    ("GET", "/subjects/lost-value/versions/latest", None),
    ("GET", "/subjects/fourth-value/versions/latest", None),
    ("GET", "/schemas/ids/999999", None),
]


def test_our_registry_answers_as_the_real_one(tmp_path) -> None:
    with apicurio(tmp_path) as real, schema_registry() as ours:
        theirs, own = (list(answers(url)) for url in (real, ours))
        for request, (expected, told), (status, said) in zip(REQUESTS, theirs, own, strict=True):
            assert status == expected, request
            # Newer releases of Confluent's say more.
            assert ({name: said.get(name) for name in told} if isinstance(told, dict) else said) == told, request


def answers(url: str) -> Iterator[tuple[int, Any]]:
    """The status of each request, and what is said; of an error its code, because the words are each registry's own,
    and ids by the order in which they appear.
    """
    ids: dict[int, int] = {}
    parts = urlsplit(url)
    for method, path, body in REQUESTS:
        connection = HTTPConnection(parts.netloc, timeout=30)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, parts.path + path, sent, {"Content-Type": "application/json"})
            response = connection.getresponse()
            said = json.loads(response.read())
        finally:
            connection.close()
        if not isinstance(said, dict):
            yield response.status, sorted(said)
        elif response.status != 200:
            yield response.status, said["error_code"]
        else:
            if "id" in said:
                said["id"] = ids.setdefault(said["id"], len(ids) + 1)
            yield response.status, {name: value for name, value in said.items() if value}
