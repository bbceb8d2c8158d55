"""Which of a frame's columns the sink takes, and as what; the expressions are Spark's to run (tests/spark)."""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spark_kafka_eos.errors import InvalidSchema
from spark_kafka_eos.spark.rows import sink_rows


class Frame:
    """A frame that notes what it is asked to select."""

    def __init__(self, columns: str) -> None:
        self.schema = StructType()
        for column in columns.split(", "):
            name, kind = column.split(" ")
            self.schema.add(name, kind)
        self.selected: tuple[str, ...] | None = None

    def selectExpr(self, *expressions: str) -> Frame:
        self.selected = expressions
        return self


def selected(columns: str, *, topic: str | None = "t") -> tuple[str, ...] | None:
    frame = Frame(columns)
    sink_rows(cast("DataFrame", frame), topic=topic)
    return frame.selected


@pytest.mark.parametrize("columns", ["key binary, value binary", "value binary, key binary"])
def test_a_frame_that_is_what_the_sink_takes_is_not_projected(columns: str) -> None:
    assert selected(columns) is None


def test_its_own_topics_and_partitions_need_no_projection_either() -> None:
    assert selected("key binary, value binary, topic string, partition integer", topic=None) is None


@pytest.mark.parametrize(
    ("columns", "expressions"),
    [
        ("key string, value binary", ("CAST(`key` AS BINARY) AS `key`", "CAST(`value` AS BINARY) AS `value`")),
        ("Key binary, value binary", ("CAST(`key` AS BINARY) AS `key`", "CAST(`value` AS BINARY) AS `value`")),
        ("value binary", ("CAST(NULL AS BINARY) AS key", "CAST(`value` AS BINARY) AS `value`")),
        (
            "key binary, value binary, offset long",
            ("CAST(`key` AS BINARY) AS `key`", "CAST(`value` AS BINARY) AS `value`"),
        ),
        (
            "key binary, value binary, topic string",  # the option wins
            ("CAST(`key` AS BINARY) AS `key`", "CAST(`value` AS BINARY) AS `value`"),
        ),
        (
            "key binary, value binary, timestamp timestamp",
            (
                "CAST(`key` AS BINARY) AS `key`",
                "CAST(`value` AS BINARY) AS `value`",
                "unix_millis(`timestamp`) AS `timestamp`",
            ),
        ),
    ],
)
def test_any_other_frame_is_projected_onto_the_sinks_columns(columns: str, expressions: tuple[str, ...]) -> None:
    assert selected(columns) == expressions


def test_a_frame_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="no column 'value'"):
        selected("key binary")
