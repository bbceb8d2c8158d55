"""The job on a broker and a registry: good orders are cleaned, bad ones are dead letters, and nothing else happens."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spark_kafka_eos import TransactionalWriter, from_confluent
from spark_kafka_eos.testing.demo.orders import LARGEST, SUBJECT, expected, produce, register, value_of, way_of
from spark_kafka_eos.testing.registry import RegistryServer
from spark_kafka_eos.tools.cli.main import app
from tests.pages import ROOT
from tests.reading import read_committed

pytestmark = pytest.mark.spark

RECORDS = 2_100  # three bad ones of each kind

build = runpy.run_path(str(ROOT / "jobs" / "decode_orders.py"))["build"]


def test_good_orders_are_cleaned_and_bad_ones_are_dead_letters(spark: SparkSession, kafka, tmp_path: Path) -> None:
    source = kafka.create_topic("raw-orders", partitions=2)
    clean = kafka.create_topic("clean-orders", config={"max.message.bytes": LARGEST})
    dead = kafka.create_topic("dead-orders")
    there = {"kafka.bootstrap.servers": kafka.bootstrap}
    with RegistryServer() as registry:
        ids = register(registry.url)
        produce(kafka.bootstrap, source, RECORDS, ids)
        order = from_confluent("value", registry.url, subject=SUBJECT, mode="permissive")
        orders = spark.readStream.format("kafka-eos").options(**there, subscribe=source, startingOffsets="earliest")
        rows = build(orders.option("includeHeaders", True).load().withColumn("order", order))
        writing = {"kafka.transactional.id": "decode-orders", "topic": clean, "deadLetterTopic": dead}
        writer = TransactionalWriter({**there, **writing})
        stream = rows.writeStream.foreachBatch(writer).option("checkpointLocation", str(tmp_path))
        stream.trigger(availableNow=True).start().awaitTermination()

    found = {
        value["id"]: value
        for each in read_committed(kafka.bootstrap, clean)
        if (value := json.loads(each.value() or b""))
    }
    good = [number for number in range(RECORDS) if way_of(number) is None]
    assert sorted(found) == good
    assert found[1] == {"id": 1, "customer": "customer-1", "amount": 0.07, "currency": "CHF"}
    assert found[0]["currency"] == "EUR", "the default of the second schema"
    assert found[5]["note"] == "note 5"

    shown = CliRunner().invoke(app, ["dead-letters", "count", dead, "--bootstrap-servers", kafka.bootstrap, "--json"])
    assert {row["cause"]: row["records"] for row in json.loads(shown.stdout)} == expected(RECORDS)
    originals = {value_of(number, ids) for number in range(RECORDS) if way_of(number) not in (None, "too large")}
    assert {each.value() for each in read_committed(kafka.bootstrap, dead)} > originals, "byte for byte"
