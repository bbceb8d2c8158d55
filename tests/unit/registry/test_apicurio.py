"""What Confluent's clients and this package do with a real registry, Apicurio, and that ours for tests answers as it
does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
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
from spark_kafka_eos.registry.client import close_sessions
from spark_kafka_eos.testing import schema_registry
from tests.apicurio import apicurio
from tests.matrix import Cell
from tests.unit.registry.avro_samples import EVERY_KIND, order, row
from tests.unit.registry.test_json import ORDER, ROW
from tests.unit.registry.test_json import SCHEMA as JSON_SCHEMA

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MONEY = '{"type": "record", "name": "Money", "namespace": "n", "fields": [{"name": "cents", "type": "long"}]}'
PRICED = '{"type": "record", "name": "Priced", "fields": [{"name": "price", "type": "n.Money"}]}'
OTHER = '{"type": "record", "name": "Other", "fields": [{"name": "a", "type": "int"}]}'


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("apicurio")) as running:
        yield running
    close_sessions()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as made:
        yield made


def of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_comes_and_goes(url: str, client: SchemaRegistryClient, cell: Cell) -> None:
    serialize = AvroSerializer(client, EVERY_KIND)
    values = pa.array([serialize(order(number), of("avro")) for number in range(50)], pa.binary())
    decoded = confluent_decoder(url, topic="avro")(values)
    assert decoded.to_pylist() == [row(order(number)) for number in range(50)]
    encoded = confluent_encoder(url, topic="avro-again", schema=EVERY_KIND, register=True)(decoded)
    deserialize = AvroDeserializer(client)
    assert [deserialize(value, of("avro-again")) for value in encoded.to_pylist()] == [
        deserialize(value, of("avro")) for value in values.to_pylist()
    ]
    cell("Registries", "Apicurio 2.6", "Avro", "ok")


def test_json_comes_and_goes(url: str, client: SchemaRegistryClient, cell: Cell) -> None:
    value = JSONSerializer(JSON_SCHEMA, client)(ORDER, of("json"))
    decoded = confluent_decoder(url, topic="json")(pa.array([value], pa.binary()))
    assert decoded.to_pylist() == [ROW]
    encoder = confluent_encoder(url, topic="json-again", schema=JSON_SCHEMA, schema_type="JSON", register=True)
    (encoded,) = encoder(decoded).to_pylist()
    assert JSONDeserializer(JSON_SCHEMA)(encoded, of("json-again"))["id"] == ORDER["id"]
    cell("Registries", "Apicurio 2.6", "JSON", "ok")


def test_protobuf_comes_and_goes(url: str, client: SchemaRegistryClient, cell: Cell) -> None:
    struct = Struct()
    struct["paid"] = True
    value = ProtobufSerializer(Struct, client, {"use.deprecated.format": False})(struct, of("protobuf"))
    decoded = confluent_decoder(url, topic="protobuf")(pa.array([value], pa.binary()))
    assert decoded.to_pylist() == [{"fields": [("paid", "true")]}]
    (encoded,) = confluent_encoder(url, topic="protobuf")(decoded).to_pylist()
    assert ProtobufDeserializer(Struct, {"use.deprecated.format": False})(encoded, of("protobuf")) == struct
    cell("Registries", "Apicurio 2.6", "Protobuf", "ok")


def test_a_schema_that_refers_to_another_one_is_read(url: str, client: SchemaRegistryClient, cell: Cell) -> None:
    client.register_schema("money-value", Schema(MONEY, "AVRO"))
    reference = SchemaReference("n.Money", "money-value", 1)
    schema_id = client.register_schema("priced-value", Schema(PRICED, "AVRO", [reference]))
    values = pa.array([b"\0" + schema_id.to_bytes(4, "big") + b"\x0a"], pa.binary())
    assert confluent_decoder(url, topic="priced")(values).to_pylist() == [{"price": {"cents": 5}}]
    cell("Registries", "Apicurio 2.6", "references", "ok")


def test_what_the_registry_does_not_have_is_named(url: str, client: SchemaRegistryClient, cell: Cell) -> None:
    client.register_schema("there-value", Schema(OTHER, "AVRO"))
    values = pa.array([b"\0\0\0\x27\x0f\x02", b"\1" + bytes(15) + b"\x07\x02"], pa.binary())
    found = confluent_decoder(url, topic="there", mode="permissive")(values).field("error").to_pylist()
    assert [error["cause"] for error in found] == ["unknown-schema", "unknown-schema"]
    with pytest.raises(ConfigurationError, match="no subject 'lost-value'"):
        confluent_decoder(url, topic="lost")
    for topic in ("there", "lost"):
        with pytest.raises(ConfigurationError, match="does not have this schema"):
            confluent_encoder(url, topic=topic, schema=MONEY)
    cell("Registries", "Apicurio 2.6", "what is missing", "ok")


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
