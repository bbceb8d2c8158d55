"""Decodes and encodes Avro of a schema registry: this package, Confluent's classes, and Spark's `from_avro` with the
header cut off.

Alone, everything runs on one core, in this process, and CPU time counts. In Spark, the same records are read from a
Parquet file, decoded, and written to noop. Confluent's class is there in a function of Arrow columns, as one would
write it by hand. The last side returns rows that it has ready: what Spark takes to send values to Python and rows back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from lab.bench.alternating import Show, Side, alternate, silent
from lab.bench.codec import one_core, repeated
from lab.bench.figures import Comparison
from spark_kafka_eos.registry.arrow import ConfluentEncoder
from spark_kafka_eos.registry.client import Registry, SchemaText, close_sessions
from spark_kafka_eos.registry.decoding import decode
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.testing.registry import RegistryServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, CONFLUENT, FROM_AVRO = "kafka-eos", "Confluent's class", "Spark's from_avro"
FLOOR = "the same rows, ready-made"
DECODE, ENCODE = "decode", "encode"
_TOPIC = "orders"
_VALUE = SerializationContext(_TOPIC, MessageField.VALUE)
_BATCH = 10_000  # rows: Spark's default for functions of Arrow columns
HEADER = 5  # bytes
SCHEMA = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "product", "type": "string"},
    {"name": "pieces", "type": "int"},
    {"name": "price", "type": "double"},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "paid", "type": "boolean"},
    {"name": "note", "type": ["null", "string"], "default": null},
    {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"]}}
]}"""
_START = datetime(2026, 1, 1, tzinfo=UTC)


def _order(number: int) -> dict[str, Any]:
    return {
        "id": number * 7919,
        "customer": f"customer-{number % 5000}",
        "product": f"product number {number % 300}",
        "pieces": number % 40,
        "price": number % 1000 / 8,
        "amount": Decimal(number % 100_000) / 100,
        "at": _START + timedelta(milliseconds=number),
        "paid": number % 3 > 0,
        "note": None if number % 4 else "please ring twice",
        "status": ("NEW", "PAID", "SENT")[number % 3],
    }


@contextmanager
def records_of_a_registry() -> Iterator[tuple[str, list[dict[str, Any]], list[bytes]]]:
    """A registry's URL, and a batch of records before and after Confluent's serializer."""
    with RegistryServer() as server, SchemaRegistryClient({"url": server.url}) as client:
        orders = [_order(number) for number in range(_BATCH)]
        serialize = AvroSerializer(client, SCHEMA)
        yield server.url, orders, [serialize(order, _VALUE) for order in orders]
        close_sessions()


def written(values: list[bytes], times: int, folder: Path) -> Path:
    """A Parquet file with a column `value`: these values, so many times."""
    path = folder / "values.parquet"
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    with pq.ParquetWriter(path, batch.schema, compression="none", use_dictionary=False) as writer:
        for _ in range(times):
            writer.write_batch(batch, row_group_size=_BATCH * 10)
    return path


def alone(*, records: int = 200_000, runs: int = 5, show: Show = silent) -> list[Comparison]:
    """Decode, then encode, on one core."""
    with records_of_a_registry() as (url, orders, values), SchemaRegistryClient({"url": url}) as client:
        registry, target = Registry.of(url), QuerySchema(SchemaText("AVRO", SCHEMA))
        column = pa.array(values, pa.binary())
        rows = decode(column, None, registry, target).values
        kind, encoder = format_of(target).arrow, ConfluentEncoder(target, int.from_bytes(values[0][1:HEADER], "big"))
        deserialize, serialize = AvroDeserializer(client), AvroSerializer(client, SCHEMA)
        work = {
            DECODE: {
                OURS: lambda: decode(column, None, registry, target),
                CONFLUENT: lambda: pa.array([deserialize(value, _VALUE) for value in values], kind),
            },
            ENCODE: {
                OURS: lambda: encoder(rows),
                CONFLUENT: lambda: pa.array([serialize(order, _VALUE) for order in orders], pa.binary()),
            },
        }
        times = max(1, records // _BATCH)
        with one_core():
            return [
                Comparison(
                    title=f"{what} Avro of a schema registry, seconds of a core",
                    series=alternate(
                        [Side(name=name, run=repeated(task, times)) for name, task in sides.items()],
                        records=times * _BATCH, runs=runs, show=show,
                    ),
                    settings={"records": times * _BATCH, "runs": runs, "fields": 10},
                )
                for what, sides in work.items()
            ]  # fmt: skip


def in_spark(
    spark: SparkSession, folder: Path, *, records: int = 1_000_000, runs: int = 5, show: Show = silent
) -> Comparison:
    """Decode a file's records to noop."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    from spark_kafka_eos.registry import from_confluent

    times = max(1, records // _BATCH)
    with records_of_a_registry() as (url, _, values):
        read = spark.read.parquet(str(written(values, times, folder)))
        columns = {
            OURS: from_confluent("value", url, topic=_TOPIC),
            CONFLUENT: _by_hand(url)("value"),
            FROM_AVRO: from_avro(F.expr(f"substring(value, {HEADER + 1})"), SCHEMA),
        }

        def decoding(column: Any, frame: DataFrame = read) -> DataFrame:
            return frame.select(column.alias("order")).select("order.*")

        columns[FLOOR] = _ready_made(url)("value")
        few = spark.createDataFrame([(value,) for value in values[:100]], "value binary")
        checked = {name: decoding(column, few).collect() for name, column in columns.items()}
        assert checked[OURS] == checked[CONFLUENT] == checked[FROM_AVRO] == checked[FLOOR]

        def side(name: str) -> Side:
            def run() -> None:
                decoding(columns[name]).write.format("noop").mode("overwrite").save()

            return Side(name=name, run=run)

        return Comparison(
            title="decode Avro of a schema registry in Spark, two cores",
            series=alternate([side(name) for name in columns], records=times * _BATCH, runs=runs, show=show),
            settings={"records": times * _BATCH, "runs": runs, "fields": 10},
        )


def _ready_made(url: str) -> Any:
    """A function of Arrow columns that decodes a task's first batch of each size, and returns it for the others."""
    registry, target = Registry.of(url), QuerySchema(SchemaText("AVRO", SCHEMA))
    kept: dict[int, pa.Array] = {}

    def ready_made(column: pa.Array) -> pa.Array:
        if len(column) not in kept:
            kept[len(column)] = decode(column, None, registry, target).values
        return kept[len(column)]

    return _of_columns(ready_made)


def _by_hand(url: str) -> Any:
    """A function of Arrow columns with Confluent's deserializer."""
    kind = format_of(QuerySchema(SchemaText("AVRO", SCHEMA))).arrow

    def by_hand(column: pa.Array) -> pa.Array:
        deserialize = _deserializer(url)
        return pa.array([deserialize(value, _VALUE) for value in column.to_pylist()], kind)

    return _of_columns(by_hand)


def _of_columns(function: Any) -> Any:
    from pyspark.sql.pandas import functions
    from pyspark.sql.pandas.types import from_arrow_type

    arrow_udf: Any = functions.arrow_udf
    return arrow_udf(function, from_arrow_type(format_of(QuerySchema(SchemaText("AVRO", SCHEMA))).arrow))


@lru_cache
def _deserializer(url: str) -> Any:
    return AvroDeserializer(SchemaRegistryClient({"url": url}))
