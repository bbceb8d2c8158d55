"""Offset ranges pass through Spark as rows and come back as they were."""

from __future__ import annotations

import uuid

from pyspark.sql.pandas.types import to_arrow_schema

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.reading.ranges import SCHEMA, as_rows, from_rows
from spark_kafka_eos.spark.schema import ranges_schema

KNOWN = OffsetRange(
    partition=TopicPartition("orders", 3), start=5, end=1 << 40, topic_id=uuid.UUID(int=7), leader_epoch=9
)
UNKNOWN = OffsetRange(partition=TopicPartition("orders", 0), start=0, end=0)


def test_ranges_come_back_as_they_were() -> None:
    assert from_rows([as_rows([KNOWN, UNKNOWN]), as_rows([]), as_rows([KNOWN])]) == [KNOWN, UNKNOWN, KNOWN]


def test_the_rows_say_what_the_ranges_are() -> None:
    assert as_rows([UNKNOWN]).to_pylist() == [
        {"topic": "orders", "partition": 0, "fromOffset": 0, "untilOffset": 0, "topicId": None, "leaderEpoch": -1}
    ]


def test_the_rows_have_exactly_the_schema_that_spark_checks() -> None:
    assert SCHEMA.equals(to_arrow_schema(ranges_schema(), timezone="UTC"))
