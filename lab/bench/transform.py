"""Measures a query that decodes Avro of a schema registry, keeps some records, and joins two fields of each.

arrow_stream does it by a function and by SQL, exactly-once, and its records stay out of the JVM. Beside it, Spark's
`from_avro` with the header cut off, and Spark's expressions: from the `kafka-eos` source by foreachBatch, exactly-once,
and with the built-in connector, at-least-once. Every query reads the topic to its end, from a new checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from lab.bench import registry
from lab.bench.alternating import Side, alternate
from lab.bench.figures import Comparison
from lab.bench.lab import Lab, temporary_directory
from lab.bench.sides import BUILT_IN_FORMAT, FETCH_WAIT, OUR_FORMAT
from lab.bench.steady import cpu_of
from spark_kafka_eos.registry.arrow import confluent_decoder
from spark_kafka_eos.spark.arrow_stream import arrow_stream
from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.process_tree import process_tree

FUNCTION, SQL = "arrow_stream, function", "arrow_stream, SQL"
EOS_AVRO, BUILT_IN_AVRO = "from_avro, kafka-eos", "from_avro, built-in connector"
_QUERY = "SELECT key, value.customer || '|' || value.product AS value FROM records WHERE value.paid"
_SCHEMA = "key binary, value binary"
_PARTITIONS = 4


def paid(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Customer and product of the orders that are paid."""
    kept = rows.filter(pc.struct_field(rows["value"], "paid"))
    customer, product = (pc.struct_field(kept["value"], name) for name in ("customer", "product"))
    return pa.RecordBatch.from_pydict(
        {"key": kept["key"], "value": pc.binary_join_element_wise(customer, product, "|")}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What the sides have in common: the options of the source and of the sink, and the registry."""

    source: dict[str, str]
    kafka: dict[str, str]
    registry: str


def transform(lab: Lab, spark: SparkSession, *, records: int = 1_000_000, runs: int = 5) -> Comparison:
    """A series has the seconds of each run of a query; `settings["cpu_seconds"]` the CPU seconds, without the
    broker's.
    """
    with registry.records_of_a_registry() as (url, orders, values), temporary_directory() as folder:
        (topic,) = lab.topics("in", 1, _PARTITIONS)
        batches = max(1, records // len(values))
        rows = spark.read.parquet(str(registry.written(values, batches, folder)))
        kafka = {"kafka.bootstrap.servers": lab.bootstrap}
        rows.write.format(OUR_FORMAT).options(**kafka, topic=topic).mode("append").save()
        query = Query(source=kafka | {"subscribe": topic, "startingOffsets": "earliest"}, kafka=kafka, registry=url)
        expected = batches * sum(order["paid"] for order in orders)
        cpu: dict[str, list[float]] = {name: [] for name in _STREAMS}
        sides = [_side(lab, spark, folder, name, query, expected, cpu[name]) for name in _STREAMS]
        series = alternate(sides, records=batches * len(values), runs=runs, show=lab.show)
        lab.kafka.delete_topics([topic])
    return Comparison(
        title="decode Avro of a schema registry, filter and join fields, topic to topic",
        series=series,
        settings={
            "records": batches * len(values),
            "runs": runs,
            "fields": 10,
            "cpu_seconds": {name: used[-runs:] for name, used in cpu.items()},
        },
    )


def _side(
    lab: Lab, spark: SparkSession, folder: Path, name: str, query: Query, expected: int, cpu: list[float]
) -> Side:
    output: list[str] = []

    def before() -> None:
        output[:] = lab.topics("out", 1, _PARTITIONS)

    def run() -> None:
        used = _cpu(lab)
        stream = _STREAMS[name](spark, query, output[0], lab.name("id"))
        stream.option("checkpointLocation", str(folder / output[0])).trigger(
            availableNow=True
        ).start().awaitTermination()
        cpu.append(_cpu(lab) - used)

    return Side(name=name, before=before, run=run, after=lambda: lab.check(output, expected, name))


def _cpu(lab: Lab) -> float:
    """Of this process and all that it started, but for the broker."""
    return sum(cpu_of(process) for process in process_tree(os.getpid()) if process.pid != lab.kafka.pid())


def _writer(query: Query, topic: str, transactional_id: str) -> TransactionalWriter:
    return TransactionalWriter({**query.kafka, "topic": topic, "kafka.transactional.id": transactional_id})


def _in_arrow(**how: Any) -> Callable[[SparkSession, Query, str, str], Any]:
    def stream(spark: SparkSession, query: Query, topic: str, transactional_id: str) -> Any:
        decode = {"value": confluent_decoder(query.registry, schema=registry.SCHEMA)}
        writer = _writer(query, topic, transactional_id)
        return arrow_stream(spark, query.source, writer, schema=_SCHEMA, decode=decode, **how)

    return stream


def _decoded(frame: DataFrame) -> DataFrame:
    order: Column = from_avro(F.expr(f"substring(value, {registry.HEADER + 1})"), registry.SCHEMA)
    orders = frame.select("key", order.alias("order")).where("order.paid")
    return orders.selectExpr("key", "order.customer || '|' || order.product AS value")


def _from_eos(spark: SparkSession, query: Query, topic: str, transactional_id: str) -> Any:
    rows = spark.readStream.format(OUR_FORMAT).options(**query.source).load()
    return _decoded(rows).writeStream.foreachBatch(_writer(query, topic, transactional_id))


def _built_in(spark: SparkSession, query: Query, topic: str, _: str) -> Any:
    options = query.source | FETCH_WAIT | {"kafka.isolation.level": "read_committed"}
    rows = spark.readStream.format(BUILT_IN_FORMAT).options(**options).load()
    return _decoded(rows).writeStream.format(BUILT_IN_FORMAT).options(**query.kafka, topic=topic)


_STREAMS = {
    FUNCTION: _in_arrow(transform=paid),
    SQL: _in_arrow(sql=_QUERY),
    EOS_AVRO: _from_eos,
    BUILT_IN_AVRO: _built_in,
}
