"""Values of a schema registry in Spark: the page's examples, every type, and what happens when something is wrong."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC
from typing import Any, Literal

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import ConfigurationError, TransactionalWriter, from_confluent, to_confluent, to_dead_letters
from spark_kafka_eos.registry.client import close_sessions
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.registry import RegistryServer
from tests.pages import ROOT, here, python_blocks, run
from tests.producing import produce
from tests.reading import read_committed
from tests.unit.registry.avro_samples import EVERY_KIND, order, row
from tests.unit.registry.change_events import change_events
from tests.unit.registry.test_connect import expected

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server():
    with RegistryServer(user_info="reader:secret") as running:
        yield running
    close_sessions()


@pytest.fixture
def registry(server: RegistryServer) -> dict:
    return {"url": server.url, "basic.auth.user.info": "reader:secret", "max.retries": 0}


@pytest.fixture
def serialize(registry: dict):
    with SchemaRegistryClient(registry) as client:
        yield lambda record, headers=None, **conf: AvroSerializer(client, EVERY_KIND, conf=conf)(
            record, SerializationContext("orders", MessageField.VALUE, headers)
        )


@pytest.mark.broker
def test_the_pages_examples_run(kafka: EmbeddedKafka, spark: SparkSession):
    kafka.create_topic("sales", 1)
    with RegistryServer() as server:
        assert run("docs/schemas.md", kafka.bootstrap, spark=spark, registry=server.url) == 7
        close_sessions()


@pytest.mark.broker
def test_the_page_on_debezium_leaves_the_rows_that_the_database_has(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path
):
    events = change_events(seed=7, count=150)
    kafka.create_topic("shop.public.orders", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for event in events:
        producer.produce("shop.public.orders", event.json, event.key)
    assert producer.flush(30) == 0
    assert run("docs/debezium.md", kafka.bootstrap, str(tmp_path)) == 3
    table = {event.key: event.after for event in events}
    rows = {row["id"]: row for row in map(expected, table.values()) if row is not None}
    read_back = spark.read.parquet(str(tmp_path / "orders"))
    assert {row["id"]: row["amount"] for row in read_back.collect()} == {
        number: row["amount"] for number, row in rows.items()
    }
    with sqlite3.connect(tmp_path / "shop.db") as database:
        applied = database.execute("SELECT id, amount, state FROM orders").fetchall()
    assert sorted(applied) == sorted(
        (number, row["amount"] and str(row["amount"]), row["state"]) for number, row in rows.items()
    )


@pytest.mark.broker
@pytest.mark.parametrize("untold", ["a truncated table", "a value that is left out"])
def test_the_page_on_debezium_stops_at_an_event_that_does_not_say_what_the_row_is(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path, untold
):
    """Debezium leaves truncations out by default, and values that PostgreSQL stores apart and an update does not change
    unless REPLICA IDENTITY is FULL.
    """
    topic = kafka.create_topic(f"shop.public.orders.{untold.replace(' ', '-')}", 1)
    events = change_events(seed=7, count=20)
    last = next(event for event in reversed(events) if event.json is not None and event.after is not None)
    event = json.loads(last.json or b"")
    if untold == "a truncated table":
        event["payload"] |= {"op": "t", "before": None, "after": None}
    else:
        event["payload"]["after"]["state"] = "__debezium_unavailable_value"
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for each in events:
        producer.produce(topic, each.json, each.key)
    producer.produce(topic, json.dumps(event), None if untold == "a truncated table" else last.key)
    assert producer.flush(30) == 0

    names: dict[str, Any] = {}
    read, as_it_is, as_it_changes = (
        here(block, kafka.bootstrap, str(tmp_path), "").replace("shop.public.orders", topic)
        for block in python_blocks(ROOT / "docs/debezium.md")
    )
    exec(read + as_it_is, names)
    assert names["silent"].count() == 1
    with pytest.raises(StreamingQueryException, match="does not say what the row is"):
        exec(as_it_changes, names)
    with sqlite3.connect(tmp_path / "shop.db") as database:
        assert database.execute("SELECT count(*) FROM orders").fetchall() == [(0,)]


def test_every_type_comes_and_goes_as_confluents_serializer_has_it(spark, registry, serialize):
    values = [serialize(order(number)) for number in range(20)]
    frame = spark.createDataFrame([(value,) for value in [*values, None]], "value binary").repartition(1)
    decoded = frame.select("value", from_confluent("value", registry, topic="orders").alias("order"))
    again = decoded.select("value", "order", to_confluent("order", registry, topic="orders").alias("again"))
    table = again.toArrow()
    assert table["again"].to_pylist() == table["value"].to_pylist()
    found = table["order"].to_pylist()
    assert found[-1] is None
    for each, number in zip(found, range(20), strict=False):
        each["at"], each["exactly_at"] = each["at"].astimezone(UTC), each["exactly_at"].astimezone(UTC)
        assert each == row(order(number))


def test_inherited_fields_and_columns_of_every_kind_of_json_come_and_go(spark, registry):
    """With Confluent's deserializer as the witness of what is written."""
    with SchemaRegistryClient(registry) as client:
        base = {"$id": "base.json", "type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
        client.register_schema("base-value", Schema(json.dumps(base), "JSON"))
        schema_of_event = {
            "allOf": [{"$ref": "base.json"}],
            "type": "object",
            "properties": {
                "price": {"type": "number", "multipleOf": 0.01},
                "day": {"type": "string", "format": "date"},
                "user": {"type": ["string", "null"]},
                "note": {"type": ["string", "null"]},
                "any": {},
            },
            "required": ["user"],
        }
        schema = Schema(json.dumps(schema_of_event), "JSON", [SchemaReference("base.json", "base-value", 1)])
        event_id = client.register_schema("event-value", schema)
        event = {"at": "1969-12-31T23:59:59.999999Z", "price": 9.25, "day": "1969-12-31", "user": None, "any": [1, "x"]}
        body = b"\0" + event_id.to_bytes(4, "big") + json.dumps(event).encode()
        frame = spark.createDataFrame([(body,)], "value binary")
        decoded = frame.select(from_confluent("value", registry, topic="event").alias("event")).select("event.*")
        assert decoded.first().asDict() == event | {"any": '[1, "x"]', "note": None}
        properties: dict[str, dict] = {name: {"type": ["string", "null"]} for name in ("at", "day", "user")}
        properties |= {"price": {"type": "number"}, "any": {}}
        flat = json.dumps({"type": "object", "properties": properties, "required": ["user"]})
        columns = [
            decoded["at"].cast("timestamp").alias("at"),
            decoded["price"].cast("decimal(38,18)").alias("price"),
            decoded["day"].cast("date").alias("day"),
            "user",
            "any",
        ]
        encoded = decoded.select(F.struct(*columns).alias("event")).select(
            to_confluent("event", registry, topic="flat", schema=flat, schema_type="JSON", register=True).alias("value")
        )
        context = SerializationContext("flat", MessageField.VALUE)
        deserialize = JSONDeserializer(flat, schema_registry_client=client)
        assert deserialize(encoded.first().value, context) == event


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_columns_whose_texts_have_large_offsets_come_and_go(kafka: EmbeddedKafka, spark, registry, kind):
    topic = kafka.create_topic(f"large-{kind}", 1)
    field = {"name": "a", "type": "string"}
    schema = json.dumps(
        {"type": "record", "name": "R", "fields": [field]}
        if kind == "AVRO"
        else {"properties": {"a": {"type": "string"}}}
    )
    options = {"kafka.bootstrap.servers": kafka.bootstrap}
    given: dict = {"topic": topic, "schema": schema, "schema_type": kind}
    setting = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(setting, "true")
    try:
        rows = spark.sql("SELECT struct('Zoë' AS a) AS row UNION ALL SELECT null")
        values = rows.select(
            to_confluent("row", registry, register=True, **given).alias("value"), F.lit("k").alias("key")
        )
        sink = {"kafka.transactional.id": f"large-{kind}", "topic": topic}
        values.write.format("kafka-eos").options(**options, **sink).mode("append").save()
        read = spark.read.format("kafka-eos").options(**options, subscribe=topic, includeHeaders="true").load()
        decoded = read.select("key", from_confluent("value", registry, headers="headers", **given).alias("row"))
        assert sorted(decoded.collect(), key=str) == [(b"k", None), (b"k", ("Zoë",))]
    finally:
        spark.conf.unset(setting)


def test_schema_ids_in_headers_are_found(spark, registry, serialize):
    headers: list = []
    body = serialize(order(3), headers, **{"schema.id.serializer": header_schema_id_serializer})
    kind = "value binary, headers array<struct<key: string, value: binary>>"
    rows = [(body, headers), (serialize(order(4)), [("other", b"x")]), (serialize(order(5)), None)]
    frame = spark.createDataFrame(rows, kind)
    decoded = frame.select(from_confluent("value", registry, topic="orders", headers="headers").alias("order"))
    assert [found.id for found in decoded.select("order.id").collect()] == [order(number)["id"] for number in (3, 4, 5)]


def test_apicurios_ids_in_headers_are_no_bytes_of_the_value_and_can_be_put_before_it(spark, registry):
    """The bare values begin as those do that have the id 1 before them, which the registry has."""
    schema = '{"type": "record", "name": "Note", "fields": [{"name": "by", "type": ["null", "string"]}, %s]}'
    fields = ", ".join(f'{{"name": "{name}", "type": "long"}}' for name in "abcd")
    with SchemaRegistryClient(registry) as client:
        schema_id = client.register_schema("notes-value", Schema(schema % fields, "AVRO"))
    bare = bytes([0, 0, 0, 0, schema_id])
    row = {"by": None, "a": 0, "b": 0, "c": 0, "d": (schema_id >> 1) ^ -(schema_id & 1)}
    content_id = schema_id.to_bytes(8, "big")
    rows = [(bare, [("apicurio.value.contentId", content_id)]), (content_id[3:] + bare, [("other", b"x")])]
    frame = spark.createDataFrame(rows, "value binary, headers array<struct<key: string, value: binary>>")
    decoded = frame.select(
        from_confluent("value", registry, topic="notes", headers="headers", mode="permissive").alias("note")
    )
    assert [each.note.error and each.note.error.cause for each in decoded.collect()] == ["not-framed", None]
    ids = F.filter("headers", lambda header: header["key"] == "apicurio.value.contentId")
    framed = F.concat(F.lit(b"\0"), F.substring(F.try_element_at(ids, F.lit(-1))["value"], 5, 4), "value")
    values = F.when(F.size(ids) > 0, framed).otherwise(F.col("value"))
    decoded = frame.select(from_confluent(values, registry, topic="notes").alias("note"))
    assert [each.note.asDict() for each in decoded.collect()] == [row, row]


@pytest.mark.broker
def test_what_is_written_has_no_header_that_names_the_schema_of_what_was_read(
    kafka: EmbeddedKafka, spark: SparkSession, registry: dict, serialize, tmp_path
):
    """With either sink, read by Confluent's deserializer, which looks into the header first. A dead letter keeps it."""
    narrow = '{"type": "record", "name": "shop.Order", "fields": [{"name": "customer", "type": "string"}]}'
    headers: list = []
    body = serialize(order(3), headers, **{"schema.id.serializer": header_schema_id_serializer})
    rows = [(body, [*headers, ("trace", b"1")]), (b"bad", headers)]
    kind = "value binary, headers array<struct<key: string, value: binary>>"
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    for topic in ("headers-in", "headers-batch", "headers-out", "headers-dead"):
        kafka.create_topic(topic, 1)
    frame = spark.createDataFrame(rows, kind).repartition(1)
    frame.write.format("kafka-eos").options(**servers, topic="headers-in").mode("append").save()
    source = {**servers, "includeHeaders": "true", "startingOffsets": "earliest"}
    decode = from_confluent("value", registry, schema=narrow, headers="headers", mode="permissive").alias("decoded")
    encoded = to_confluent("decoded.value", registry, topic="headers", schema=narrow, register=True)

    read = spark.read.format("kafka-eos").options(**source, subscribe="headers-in").load().select("*", decode)
    good = read.where("decoded.error is null").select(encoded.alias("value"), "headers")
    good.write.format("kafka-eos").options(**servers, topic="headers-batch").mode("append").save()

    options = servers | {"kafka.transactional.id": "headers", "topic": "headers-out", "deadLetterTopic": "headers-dead"}
    writer = TransactionalWriter(options)
    stream = spark.readStream.format("kafka-eos").options(**source, subscribe="headers-in").load().select("*", decode)
    asides = to_dead_letters(stream, "decoded", value=encoded)
    query = asides.writeStream.foreachBatch(writer).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    def written(topic: str) -> list:
        frame = spark.read.format("kafka-eos").options(**source, subscribe=topic).load()
        return [(bytes(row.value), [(each.key, bytes(each.value)) for each in row.headers]) for row in frame.collect()]

    with SchemaRegistryClient(registry) as client:
        for topic in ("headers-batch", "headers-out"):
            ((value, left),) = written(topic)
            assert [key for key, _ in left] == ["trace"]
            context = SerializationContext("headers", MessageField.VALUE, left)
            assert AvroDeserializer(client)(value, context) == {"customer": order(3)["customer"]}
    ((value, kept),) = written("headers-dead")
    assert value == b"bad" and kept[: len(headers)] == headers


def test_what_is_encoded_of_a_changed_row_must_be_null_where_a_dead_letter_is(spark, registry):
    """Spark calls `to_confluent` for dead letters, too, before `to_dead_letters` chooses."""
    schema = '{"type": "record", "name": "N", "fields": [{"name": "id", "type": "long"}]}'
    given: dict[str, Any] = {"topic": "changed", "schema": schema, "register": True}
    ids = spark.range(3).select(to_confluent(F.struct("id"), registry, **given).alias("value"))
    frame = ids.union(spark.createDataFrame([(b"bad",)], "value binary")).repartition(1)
    decoded = frame.select("*", from_confluent("value", registry, topic="changed", mode="permissive").alias("decoded"))
    changed = F.struct((F.col("decoded.value.id") + 10).alias("id"))

    def written(struct: Column) -> list[tuple[bytes, str | None]]:
        rows = to_dead_letters(decoded, "decoded", value=to_confluent(struct, registry, **given))
        return [(bytes(row.value), row.error and row.error.cause) for row in rows.collect()]

    with pytest.raises(PySparkException, match="value.id is null in a row, and its schema does not allow null"):
        written(changed)
    framed = bytes(ids.collect()[0].value)[:5]
    expected = [(framed + bytes([2 * (number + 10)]), None) for number in range(3)]
    assert sorted(written(F.when(F.col("decoded.error").isNull(), changed))) == sorted(
        [*expected, (b"bad", "not-framed")]
    )


def test_a_bad_record_fails_the_query_or_is_told(spark, registry, serialize):
    frame = spark.createDataFrame([(serialize(order(1)),), (b"bad content",)], "value binary").repartition(1)
    told = frame.select(from_confluent("value", registry, topic="orders", mode="permissive").alias("decoded"))
    assert sorted(str(found.cause) for found in told.select("decoded.error.cause").collect()) == ["None", "not-framed"]
    failing = frame.select(from_confluent("value", registry, topic="orders").alias("order"))
    with pytest.raises(PySparkException, match=r"UndecodableRecord: row \d of a batch of 2 \(not-framed\)") as raised:
        failing.collect()
    assert "content" not in str(raised.value).partition("See docs")[0].partition("UndecodableRecord")[2]


@pytest.mark.broker
def test_a_batch_that_cannot_be_decoded_is_invisible_and_written_when_it_can_be(
    kafka: EmbeddedKafka, spark: SparkSession, server: RegistryServer, registry: dict, serialize, tmp_path
):
    """First for an outage of the registry, then for a record without a schema."""
    source, target = kafka.create_topic("undecoded", 1), kafka.create_topic("decoded", 1)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    produce(kafka.bootstrap, source, [serialize(order(number)) for number in range(3)])

    def decoded(mode: Literal["fail", "permissive"]) -> DataFrame:
        config = registry | {"timeout": 11}  # a session of its own in the workers
        stream = spark.readStream.format("kafka-eos").options(**servers, subscribe=source, startingOffsets="earliest")
        value = from_confluent("value", config, topic="orders", mode=mode).alias("decoded")
        field = "decoded.id" if mode == "fail" else "decoded.value.id"
        return stream.load().select(value).select(F.col(field).cast("string").alias("value"))

    def copy(ids: DataFrame) -> None:
        writer = TransactionalWriter({**servers, "kafka.transactional.id": target, "topic": target})
        query = ids.writeStream.foreachBatch(writer).option("checkpointLocation", str(tmp_path))
        query.trigger(availableNow=True).start().awaitTermination()

    def written() -> list[bytes | None]:
        return sorted((message.value() for message in read_committed(kafka.bootstrap, target)), key=str)

    ids, strict = sorted(b"%d" % order(number)["id"] for number in range(3)), decoded("fail")
    server.fail = 503
    try:
        with pytest.raises(StreamingQueryException, match="RegistryError"):
            copy(strict)
    finally:
        server.fail = None
    assert written() == []
    copy(strict)
    assert written() == ids
    produce(kafka.bootstrap, source, [b"bad"])
    with pytest.raises(StreamingQueryException, match="UndecodableRecord"):
        copy(strict)
    assert written() == ids
    copy(decoded("permissive"))
    assert written() == sorted([*ids, None], key=str), "it was still there"


def test_an_outage_fails_the_query_and_no_secret_is_shown(spark, server, registry, serialize, capsys):
    other = registry | {"timeout": 10}  # a session of its own in the workers
    frame = spark.createDataFrame([(serialize(order(1)),)], "value binary")
    decoded = frame.select(from_confluent("value", other, topic="orders", mode="permissive").alias("decoded"))
    decoded.explain(extended=True)
    server.fail = 503
    try:
        with pytest.raises(PySparkException, match=r"RegistryError: the schema registry at .* \(HTTP 503") as raised:
            decoded.collect()
    finally:
        server.fail = None
    assert "secret" not in str(raised.value) + capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"topic": "nothing"}, "has no subject 'nothing-value'"),
        ({}, "the schema is not known"),
        ({"topic": "orders", "subject": "orders-value"}, "not both"),
        ({"topic": "orders", "mode": "ignore"}, "must be 'fail' or 'permissive'"),
        ({"schema": '{"type": "record", "name": "T", "fields": [{"name": "t", "type": "T"}]}'}, "T contains itself"),
    ],
)
def test_wrong_arguments_are_refused_before_the_query_runs(spark, registry, arguments, said):
    with pytest.raises(ConfigurationError, match=said):
        from_confluent("value", registry, **arguments)


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ({"topic": "sent"}, "sent-value"),
        ({"topic": "sent", "key": True}, "sent-key"),
        ({"strategy": "record"}, "shop.Order"),
        ({"topic": "sent", "strategy": "topic-record"}, "sent-shop.Order"),
    ],
)
def test_a_schema_is_registered_under_the_subject_of_its_strategy(spark, server, registry, arguments, subject):
    with pytest.raises(ConfigurationError, match="does not have this schema"):
        to_confluent("value", registry, schema=EVERY_KIND, **arguments)
    to_confluent("value", registry, schema=EVERY_KIND, register=True, **arguments)
    assert f"POST /subjects/{subject}/versions" in server.requests


def test_the_arrow_type_is_what_spark_says(spark, registry, serialize):
    serialize(order(0))
    column = from_confluent("value", registry, topic="orders")
    frame = spark.createDataFrame([(serialize(order(2)),)], "value binary").select(column.alias("order"))
    assert frame.toArrow().schema.field("order").type.field("amount").type == pa.decimal128(20, 2)
