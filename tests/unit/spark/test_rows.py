"""Which of a frame's columns the sink takes, and as what; the expressions are Spark's to run (tests/spark)."""

from __future__ import annotations

import datetime as dt
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from spark_kafka_eos.appending.blocks import ROWS
from spark_kafka_eos.errors import InvalidSchema
from spark_kafka_eos.spark.rows import ERROR, SOURCE, arrow_rows, check_schema, sink_rows

NESTED: dict[str, DataType] = {"ERROR": ERROR, "SOURCE": SOURCE}
ERROR_TYPE = pa.struct([("cause", pa.string()), ("message", pa.string()), ("schema_id", pa.int32())])
SOURCE_TYPE = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


class Frame:
    """A frame that notes what it is asked to select."""

    def __init__(self, columns: str) -> None:
        self.schema = StructType()
        for column in columns.split(", "):
            name, kind = column.split(" ")
            self.schema.add(name, NESTED.get(kind, kind))
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


def names(columns: str, *, dead_letters: bool, topic: str | None = "t") -> list[str]:
    return check_schema(Frame(columns).schema, topic=topic, dead_letters=dead_letters)


def test_the_columns_of_dead_letters_count_if_there_is_a_topic_for_them() -> None:
    columns = "key binary, value binary, error ERROR, source SOURCE"
    assert names(columns, dead_letters=True) == ["key", "value", "error", "source"]


def test_without_that_topic_a_source_is_another_column_but_an_error_is_noticed() -> None:
    assert names("value binary, error ERROR, source SOURCE", dead_letters=False) == ["value", "error"]
    assert names("value binary, error string, source string", dead_letters=False) == ["value"]


@pytest.mark.parametrize("column", ["error string", "error SOURCE", "source string"])
def test_with_that_topic_they_have_their_types(column: str) -> None:
    with pytest.raises(InvalidSchema, match=f"column '{column.split(maxsplit=1)[0]}' has type"):
        names(f"value binary, {column}", dead_letters=True)


def test_only_rows_for_the_dead_letters_need_no_topic() -> None:
    assert names("value binary, error ERROR", dead_letters=True, topic=None) == ["value", "error"]
    for columns, dead_letters in (("value binary", True), ("value binary, error ERROR", False)):
        with pytest.raises(InvalidSchema, match="neither the option 'topic' nor a column 'topic'"):
            names(columns, dead_letters=dead_letters, topic=None)


def test_sparks_batches_become_what_the_encoder_takes() -> None:
    moment = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
    given = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"good", b"bad"]),
            "error": pa.array([None, {"cause": "c", "message": "m", "schema_id": 7}], ERROR_TYPE),
            "source": pa.array([None, {"topic": "in", "partition": 1, "offset": 5, "timestamp": moment}], SOURCE_TYPE),
        }
    )
    [rows] = arrow_rows(iter([given]), dead_letters=True)
    assert {name: rows.schema.field(name).type for name in rows.schema.names} == {
        name: ROWS[name] for name in ("key", "value", "error", "source")
    }
    assert rows["error"].to_pylist() == given["error"].to_pylist()
    millis = int(moment.timestamp() * 1_000)
    assert rows["source"].to_pylist() == [None, {"topic": "in", "partition": 1, "offset": 5, "timestamp": millis}]
    [rows] = arrow_rows(iter([given]))
    assert set(rows.schema.names) == {"key", "value", "error"}
    [rows] = arrow_rows(iter([given.set_column(1, "error", pa.array(["x", "y"]))]))
    assert set(rows.schema.names) == {"key", "value"}
