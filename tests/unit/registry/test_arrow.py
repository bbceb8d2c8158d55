"""`confluent_decoder` and `confluent_encoder`: what they do to Arrow arrays, and around the transform of
`arrow_stream`.
"""

from __future__ import annotations

import inspect
import json
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_eos import confluent_decoder, confluent_encoder, from_confluent, to_confluent
from spark_kafka_eos.appending.blocks import EncodeSettings
from spark_kafka_eos.dead_letters.rows import DeadLetterTopic
from spark_kafka_eos.errors import ConfigurationError, InvalidSchema, UndecodableRecord
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.ranges import as_rows
from spark_kafka_eos.reading.records import arrow_schema
from spark_kafka_eos.registry.arrow import ConfluentEncoder
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.spark import arrow_stream as module
from spark_kafka_eos.spark.arrow_columns import needed
from spark_kafka_eos.spark.arrow_stream import RangeReader, arrow_stream
from spark_kafka_eos.spark.sql_transform import SqlTransform
from spark_kafka_eos.spark.writer import TransactionalWriter

ORDER = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}]}'
)
ORDERS = [{"id": 1, "who": "Zoë"}, {"id": 2, "who": ""}]
SOURCE = {"kafka.bootstrap.servers": "broker.invalid:9092", "subscribe": "orders"}
SINK = {"kafka.bootstrap.servers": "broker.invalid:9092", "kafka.transactional.id": "copy", "topic": "out"}
NO_SPARK: Any = None
OUT = EncodeSettings(topic="out", targets={}, dead_letters=DeadLetterTopic(topic="dead"))


@pytest.fixture
def encoder(server):
    return confluent_encoder(server.url, topic="orders", schema=ORDER, register=True)


@pytest.fixture
def values(encoder):
    return encoder(pa.array(ORDERS, encoder.type))


def records(values: pa.Array, **more: pa.Array) -> pa.RecordBatch:
    """As the source has them, with all columns."""
    count = len(values)
    made = {"key": pa.array([b"%d" % n for n in range(count)]), "value": values, "topic": pa.array(["orders"] * count)}
    made |= {"partition": pa.array([3] * count, pa.int32()), "offset": pa.array(range(count))}
    made |= {"timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC"))}
    return pa.RecordBatch.from_pydict(
        made | {"timestampType": pa.array([0] * count, pa.int32())} | more,
        schema=arrow_schema(include_headers="headers" in more),
    )


def rows_of(reader: RangeReader, read: list[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    monkeypatch.setattr(module, "read_records", lambda *_: iter(read))
    ranges = as_rows([OffsetRange(partition=TopicPartition("orders", 0), start=0, end=2)])
    return pa.Table.from_batches(reader(iter([ranges]), OUT))


# -- of arrays


def test_what_is_encoded_is_decoded_and_null_stays_null(server, encoder):
    decoder = confluent_decoder(server.url, topic="orders")
    server.requests.clear()
    framed = encoder(pa.array([*ORDERS, None], encoder.type))
    assert server.requests == [], "it was asked before"
    assert framed[0].as_py()[:5] == b"\0\0\0\0\1"
    assert decoder(framed).to_pylist() == [*ORDERS, None]
    assert decoder(framed).type == decoder.type == decoder.returns == encoder.type


def test_a_permissive_decoder_returns_value_and_error(server, values):
    decoder = confluent_decoder(server.url, topic="orders", mode="permissive")
    found = decoder(pa.concat_arrays([values, pa.array([b"bad"])]))
    assert found.type == decoder.returns
    assert found.field("value").to_pylist() == [*ORDERS, None]
    assert [error and error["cause"] for error in found.field("error").to_pylist()] == [None, None, "not-framed"]


def test_a_decoder_that_is_not_permissive_raises(server, values):
    with pytest.raises(UndecodableRecord, match="not-framed"):
        confluent_decoder(server.url, topic="orders")(pa.array([b"bad"]))


def test_both_can_be_pickled_and_show_no_password(server, encoder, values):
    secret = {"url": server.url, "basic.auth.user.info": "reader:s3cret"}
    decoder = confluent_decoder(secret, topic="orders")
    assert "s3cret" not in repr(decoder)
    assert pickle.loads(pickle.dumps(decoder))(values).to_pylist() == ORDERS
    assert pickle.loads(pickle.dumps(encoder))(pa.array(ORDERS, encoder.type)).equals(values)


def test_a_schema_id_in_a_header_is_found(server, values):
    body = pa.array([value.as_py()[5:] for value in values], pa.binary())
    ids = [[{"key": "__value_schema_id", "value": value.as_py()[:5]}] for value in values]
    headers = pa.array(ids, arrow_schema(include_headers=True).field("headers").type)
    assert confluent_decoder(server.url, topic="orders")(body, headers).to_pylist() == ORDERS


@pytest.mark.parametrize(
    ("of_arrow", "of_spark"), [(confluent_decoder, from_confluent), (confluent_encoder, to_confluent)]
)
def test_the_arguments_are_those_of_the_functions_for_spark(of_arrow, of_spark):
    """But for the columns, which are the arguments of the function that is returned."""
    arrow, spark = (inspect.signature(each).parameters for each in (of_arrow, of_spark))
    assert dict(arrow) == {name: spark[name] for name in spark if name not in {"column", "headers"}}


def test_arguments_are_checked_as_those_of_the_functions_for_spark(server):
    with pytest.raises(ConfigurationError, match="no subject 'lost-value'"):
        confluent_decoder(server.url, topic="lost")
    with pytest.raises(ConfigurationError, match="does not have this schema"):
        confluent_encoder(server.url, topic="lost", schema=ORDER)


# -- around a transform


def test_sql_sees_what_was_decoded_and_its_result_is_encoded(server, encoder, values, monkeypatch):
    decode = {"value": confluent_decoder(server.url, topic="orders")}
    query = (
        "SELECT key, struct_pack(id := value.id * 10, who := upper(value.who)) AS value FROM records WHERE value.id > 1"
    )
    reader = RangeReader(source_options(SOURCE), SqlTransform(query), decode=decode, encode={"value": encoder})
    reader.check(OUT)
    rows = rows_of(reader, [records(values)], monkeypatch)
    assert decode["value"](rows["value"].combine_chunks()).to_pylist() == [{"id": 20, "who": ""}]


@pytest.mark.parametrize("number_bad", [0, 1, 3])
def test_what_cannot_be_decoded_skips_the_transform_and_is_a_dead_letter_as_it_was_read(
    server, values, monkeypatch, number_bad
):
    decode = {"value": confluent_decoder(server.url, topic="orders", mode="permissive")}
    given = []

    def transform(rows: pa.RecordBatch) -> pa.RecordBatch:
        given.append(rows)
        who = pc.struct_field(rows["value"], "who")
        return pa.RecordBatch.from_pydict({"value": who, "topic": pa.array(["other"] * len(who))})

    everything = pa.concat_arrays([values, pa.array([b"bad"] * number_bad, pa.binary())])
    rows = rows_of(RangeReader(source_options(SOURCE), transform, decode=decode), [records(everything)], monkeypatch)
    assert given[0].num_rows == 2
    assert rows["value"].to_pylist() == ["Zoë".encode(), b""] + [b"bad"] * number_bad
    dead = rows.slice(2).to_pylist()
    assert [row["error"]["cause"] for row in dead] == ["not-framed"] * number_bad
    assert [(row["key"], row["source"]["partition"], row["source"]["offset"]) for row in dead] == [
        (b"%d" % n, 3, n) for n in range(2, 2 + number_bad)
    ]


def test_batches_with_and_without_dead_letters_have_the_same_columns(server, values, monkeypatch):
    decode = {"value": confluent_decoder(server.url, topic="orders", mode="permissive")}
    reader = RangeReader(source_options(SOURCE), SqlTransform("SELECT value.who AS value FROM records"), decode=decode)
    batches = [records(values), records(pa.array([b"bad"])), records(values)]
    assert rows_of(reader, batches, monkeypatch).num_rows == 5


def test_a_key_and_a_value_that_cannot_be_decoded_are_one_dead_letter(server, encoder, values, monkeypatch):
    confluent_encoder(server.url, topic="orders", key=True, schema='"long"', register=True)
    decode: Any = {
        name: confluent_decoder(server.url, topic="orders", key=name == "key", mode="permissive")
        for name in ("key", "value")
    }
    batch = records(pa.concat_arrays([values, pa.array([b"bad"])]))
    transform = SqlTransform("SELECT value.who AS value FROM records")
    rows = rows_of(RangeReader(source_options(SOURCE), transform, decode=decode), [batch], monkeypatch)
    assert [(row["key"], row["error"]["cause"]) for row in rows.to_pylist()] == [
        (b"%d" % n, "not-framed") for n in range(3)
    ]


def test_a_row_with_an_error_of_the_query_keeps_what_was_read(server, encoder, values, monkeypatch):
    decode = {"value": confluent_decoder(server.url, topic="orders")}
    query = "SELECT value, encoded_value, CASE WHEN value.id > 1 THEN {'cause': 'too-many'} END AS error FROM records"
    reader = RangeReader(source_options(SOURCE), SqlTransform(query), decode=decode, encode={"value": encoder})
    reader.check(OUT)
    rows = rows_of(reader, [records(values)], monkeypatch)
    assert rows["value"].to_pylist() == values.to_pylist()
    assert [row and row["cause"] for row in rows["error"].to_pylist()] == [None, "too-many"]

    without = SqlTransform(query.replace("encoded_value, ", ""))
    with pytest.raises(InvalidSchema, match="no column 'encoded_value' with what was read"):
        RangeReader(source_options(SOURCE), without, decode=decode, encode={"value": encoder}).check(OUT)


@pytest.mark.parametrize("transform", ["none", "sql", "function"])
def test_what_is_encoded_has_no_header_that_names_the_schema_of_what_was_read(
    server, client, encoder, monkeypatch, transform
):
    """Confluent's deserializers look into the header first. A row with an error keeps it, as it was read."""
    headers: list = []
    conf = {"schema.id.serializer": header_schema_id_serializer, "auto.register.schemas": True}
    wider = ORDER.replace('"fields": [', '"fields": [{"name": "no", "type": "double"}, ')
    context = SerializationContext("wide", MessageField.VALUE, headers)
    body = AvroSerializer(client, wider, conf=conf)({"no": 0.5, "id": 1, "who": "Zoë"}, context)
    stale = [{"key": key, "value": value} for key, value in headers]
    kept = [{"key": "trace", "value": b"1"}, {"key": "__key_schema_id", "value": b"2"}]
    column = pa.array([kept[:1] + stale + kept[1:]] * 2, arrow_schema(include_headers=True).field("headers").type)
    batch = records(pa.array([body, body], pa.binary()), headers=column)
    decode = {"value": confluent_decoder(server.url, topic="orders")}
    source = source_options(SOURCE | {"includeHeaders": "true"})
    error = "CASE WHEN key = '1' THEN {'cause': 'c', 'message': 'm', 'schema_id': 1} END AS error"
    transforms: dict[str, Any] = {
        "none": None,
        "sql": SqlTransform(f"SELECT key, value, headers, encoded_value, {error} FROM records"),
        "function": lambda rows: rows.select(["key", "value", "headers"]),
    }
    columns = ("key", "value", "headers") if transform == "none" else ()
    reader = RangeReader(source, transforms[transform], columns, decode=decode, encode={"value": encoder})
    rows = rows_of(reader, [batch], monkeypatch).to_pylist()
    assert rows[0]["headers"] == kept
    witness = AvroDeserializer(client, ORDER)
    context = SerializationContext(
        "orders", MessageField.VALUE, [(each["key"], each["value"]) for each in rows[0]["headers"]]
    )
    assert witness(rows[0]["value"], context) == ORDERS[0]
    if transform == "sql":
        assert (rows[1]["value"], rows[1]["headers"]) == (body, kept[:1] + stale + kept[1:])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT value.nothing AS value FROM records", "nothing"),
        ("SELECT {'id': 1, 'who': 'x', 'whom': 'x'} AS value FROM records", "whom"),
        ("SELECT {'who': 'x'} AS value FROM records", "lacks the field id"),
        ("SELECT key FROM records", "no column 'value' to encode"),
    ],
)
def test_fields_that_are_not_there_are_refused_when_the_stream_is_made(server, encoder, query, said):
    coded: Any = {"decode": {"value": confluent_decoder(server.url, topic="orders")}, "encode": {"value": encoder}}
    with pytest.raises(ConfigurationError, match=said):
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), sql=query, **coded)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("AVRO", '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'),
        ("PROTOBUF", 'syntax = "proto3"; message R { int64 id = 1; }'),
        ("JSON", '{"type": "object", "properties": {"id": {"type": "integer"}}}'),
    ],
)
def test_a_struct_with_two_fields_of_one_name_as_after_a_join_is_refused_in_each_format(kind, schema):
    joined = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(InvalidSchema, match="has more than one field of the name id"):
        format_of(QuerySchema(SchemaText(kind, schema))).write(joined, b"")


def test_a_decoded_struct_that_nothing_encodes_does_not_fit_the_sink(server, values):
    decode = {"value": confluent_decoder(server.url, topic="orders")}
    with pytest.raises(InvalidSchema, match="'value' has type struct"):
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), decode=decode)


def test_a_permissive_decoder_needs_a_topic_for_dead_letters(server, values):
    decode = {"value": confluent_decoder(server.url, topic="orders", mode="permissive")}
    with pytest.raises(ConfigurationError, match="'deadLetterTopic': is not set.*permissive"):
        arrow_stream(
            NO_SPARK, SOURCE, TransactionalWriter(SINK), sql="SELECT value.who AS value FROM records", decode=decode
        )


def test_only_key_and_value_can_be_coded(server, encoder):
    with pytest.raises(ConfigurationError, match="'encode': has 'headers', but only key and value can be coded"):
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), encode={"headers": encoder})


def test_only_what_a_dead_letter_needs_is_read_beside_the_schema(server, values):
    strict = {"value": confluent_decoder(server.url, topic="orders")}
    permissive = {"value": confluent_decoder(server.url, topic="orders", mode="permissive")}
    assert needed(("offset",), strict, headers=False) == ("offset", "value")
    assert needed(("value",), strict, headers=True) == ("value", "headers")
    assert needed(("value",), permissive, headers=False) == (
        "value",
        "key",
        "topic",
        "partition",
        "offset",
        "timestamp",
    )
    assert needed((), permissive, headers=True) == ()
    assert needed(("value",), {}, headers=True) == ("value",)


RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("long", pa.timestamp("us")),
        ("string", pa.list_(pa.string())),
        ({"type": "map", "values": "int"}, pa.int32()),
        ({"type": "array", "items": "int"}, pa.list_(pa.struct([("a", pa.int32())]))),
        (RECORD, pa.int64()),
        (RECORD, pa.struct([("a", pa.list_(pa.date32()))])),
    ],
    ids=str,
)
def test_an_encoder_refuses_a_type_that_certainly_does_not_fit(schema, kind):
    target = QuerySchema(SchemaText("AVRO", json.dumps(schema)))
    with pytest.raises(InvalidSchema):
        ConfluentEncoder(target, 1).check(kind)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("long", pa.int32()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary()),
        (["null", "int", "string"], pa.struct([("member0", pa.int32()), ("member1", pa.string())])),
        (RECORD, pa.struct([("a", pa.list_(pa.int32()))])),
        (RECORD, pa.null()),
        ({"type": "map", "values": {"type": "bytes", "logicalType": "decimal", "precision": 4}},
         pa.map_(pa.string(), pa.decimal128(3, 0))),
    ],
    ids=str,
)  # fmt: skip
def test_an_encoder_takes_a_type_whose_values_may_fit(schema, kind):
    ConfluentEncoder(QuerySchema(SchemaText("AVRO", json.dumps(schema))), 1).check(kind)
