"""Which of a frame's columns the sink takes, and as what; the expressions are Spark's to run (tests/spark)."""

from __future__ import annotations

import datetime as dt
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from spark_kafka_eos.appending.blocks import ROWS
from spark_kafka_eos.errors import InvalidSchema
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.spark.rows import (
    ERROR,
    SCHEMA_ID,
    SOURCE,
    arrow_rows,
    check_schema,
    schema_ids,
    sink_rows,
    without_stale_ids,
)
from spark_kafka_eos.spark.schema import HEADERS as HEADERS_OF_SPARK


def not_null(kind: DataType) -> DataType:
    """The type that literals have: nothing within it may be null."""
    if isinstance(kind, ArrayType):
        return ArrayType(not_null(kind.elementType), containsNull=False)
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, field.dataType, nullable=False) for field in kind.fields])
    return kind


TYPES: dict[str, DataType] = {"HEADERS": HEADERS_OF_SPARK, "ERROR": ERROR, "SOURCE": SOURCE}
NESTED = TYPES | {f"{name}_OF_LITERALS": not_null(kind) for name, kind in TYPES.items()}
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


def selected(columns: str, *, topic: str | None = "t", dead_letters: bool = False) -> tuple[str, ...] | None:
    frame = Frame(columns)
    sink_rows(cast("DataFrame", frame), topic=topic, dead_letters=dead_letters)
    return frame.selected


@pytest.mark.parametrize(
    "columns",
    ["key binary, value binary", "value binary, key binary", "key binary, value binary, timestamp timestamp"],
)
def test_a_frame_that_is_what_the_sink_takes_is_not_projected(columns: str) -> None:
    assert selected(columns) is None


def test_its_own_topics_and_partitions_need_no_projection_either() -> None:
    assert selected("key binary, value binary, topic string, partition integer", topic=None) is None


@pytest.mark.parametrize(
    ("columns", "expressions"),
    [
        ("key string, value binary", ("CAST(`key` AS BINARY) AS `key`", "CAST(`value` AS BINARY) AS `value`")),
        ("Key binary, value binary", ("CAST(`Key` AS BINARY) AS `key`", "CAST(`value` AS BINARY) AS `value`")),
        (
            "key binary, value binary, Timestamp timestamp",
            ("CAST(`key` AS BINARY) AS `key`", "CAST(`value` AS BINARY) AS `value`", "`Timestamp` AS `timestamp`"),
        ),
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
            "key string, value binary, timestamp timestamp",
            ("CAST(`key` AS BINARY) AS `key`", "CAST(`value` AS BINARY) AS `value`", "`timestamp`"),
        ),
    ],
)
def test_any_other_frame_is_projected_onto_the_sinks_columns(columns: str, expressions: tuple[str, ...]) -> None:
    assert selected(columns) == expressions


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_of_literals_which_are_never_null_becomes_the_sinks_as_a_row_may_lack_them(kind: str) -> None:
    name = kind.lower()
    ready = f"key binary, value binary, {name} {kind}"
    assert selected(ready, dead_letters=True) is None
    expressions = selected(f"{ready}_OF_LITERALS", dead_letters=True)
    assert expressions is not None
    assert expressions[2:] == (f"CAST(`{name}` AS {TYPES[kind].simpleString()}) AS `{name}`",)


@pytest.mark.parametrize(
    "column", ["key void", "value void", "topic void", "partition void", "headers void", "timestamp void"]
)
def test_a_column_of_nulls_without_a_type_is_refused_as_by_the_built_in_sink(column: str) -> None:
    name, _ = column.split()
    with pytest.raises(InvalidSchema, match=f"column '{name}' has type void, but the sink accepts") as raised:
        names(
            column if name == "value" else f"value binary, {column}",
            dead_letters=False,
            topic=None if name == "topic" else "t",
        )
    assert "null" not in raised.value.what.partition("accepts")[2]


def test_two_columns_whose_names_differ_in_case_only_are_refused_as_nobody_knows_which_one_is_meant() -> None:
    with pytest.raises(InvalidSchema, match="there are 2 columns 'value'"):
        names("value binary, Value binary", dead_letters=False)
    assert names("value binary, offset long, Offset long", dead_letters=False) == ["value"]


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
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"good", b"bad"]),
            "error": pa.array([None, {"cause": "c", "message": "m", "schema_id": 7}], ERROR_TYPE),
            "source": pa.array([None, {"topic": "in", "partition": 1, "offset": 5, "timestamp": moment}], SOURCE_TYPE),
        }
    )
    [rows] = arrow_rows(iter([batch]), dead_letters=True)
    assert {name: rows.schema.field(name).type for name in rows.schema.names} == {
        name: ROWS[name] for name in ("key", "value", "error", "source")
    }
    assert rows["error"].to_pylist() == batch["error"].to_pylist()
    millis = int(moment.timestamp() * 1_000)
    assert rows["source"].to_pylist() == [None, {"topic": "in", "partition": 1, "offset": 5, "timestamp": millis}]
    [rows] = arrow_rows(iter([batch]))
    assert set(rows.schema.names) == {"key", "value", "error"}
    [rows] = arrow_rows(iter([batch.set_column(1, "error", pa.array(["x", "y"]))]))
    assert set(rows.schema.names) == {"key", "value"}


def test_a_row_that_was_encoded_loses_the_headers_of_what_was_read_and_no_other_row_does() -> None:
    schema = StructType().add("value", "binary", True, {SCHEMA_ID: 7}).add("KEY", "binary", True, {SCHEMA_ID: 8})
    ids = schema_ids(schema.add("headers", HEADERS_OF_SPARK).add("other", "binary", True, {SCHEMA_ID: 9}))
    assert ids == {("value", 7), ("key", 8)}
    headers = [{"key": name, "value": b"x"} for name in ("__value_schema_id", "a", "__key_schema_id")]
    batch = pa.RecordBatch.from_pydict({
        "key": pa.array([None, b"\0\0\0\0\x08k", None, None], pa.binary()),
        "value": pa.array([b"\0\0\0\0\x07v", b"\0\0\0\0\x07v", b"\0\0\0\0\x09v", b"\0\0\0\0\x07v"], pa.binary()),
        "headers": pa.array([headers] * 4, HEADERS),
        "error": pa.array([None] * 3 + [{"cause": "c", "message": "m", "schema_id": 7}], ERROR_TYPE),
    })  # fmt: skip
    names = [[each["key"] for each in row] for row in without_stale_ids(batch, ids)["headers"].to_pylist()]
    everything = ["__value_schema_id", "a", "__key_schema_id"]
    assert names == [["a", "__key_schema_id"], ["a"], everything, everything]
    assert without_stale_ids(batch, frozenset()) is batch
    assert schema_ids(StructType().add("value", "binary")) == frozenset()


@pytest.mark.parametrize("start", [0, 1, 3])
def test_a_headers_key_in_other_bytes_than_utf_8_changes_no_other_header(start: int) -> None:
    given = [[(b"a", b"1"), (b"\xff", b"\xff")], None, [], [(None, b"2"), None], [(b"\xffb", None)]]
    entries = [
        None if header is None else {"key": header[0], "value": header[1]} for row in given for header in row or []
    ]
    raw = pa.array(entries, pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    keys = raw.field("key")
    unchecked = pa.Array.from_buffers(pa.string(), len(keys), keys.buffers())
    headers = pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 2, 4, 5], pa.int32()),
        pa.StructArray.from_arrays([unchecked, raw.field("value")], ["key", "value"], mask=raw.is_null()),
        mask=pa.array([row is None for row in given]),
    )
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b""] * 5), "headers": headers}).slice(start)
    [rows] = arrow_rows(iter([batch]))
    assert rows["headers"].type == HEADERS
    texts = {b"a": "a", b"\xff": "\ufffd", b"\xffb": "\ufffdb", None: None}
    assert rows["headers"].to_pylist() == [
        row and [header and {"key": texts[header[0]], "value": header[1]} for header in row] for row in given[start:]
    ]


UNITS = ("s", "ms", "us", "ns")


@given(nanoseconds=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), unit=st.sampled_from(UNITS))
@example(nanoseconds=[-1, 0, 1, -500_000, -1_000_000, -1_000_001, 999_999, None], unit="ns")
@example(nanoseconds=[-302_486_399_876_544_000], unit="us")  # 1960-06-01 00:00:00.123456
def test_an_instant_is_its_millisecond_also_before_1970(nanoseconds: list[int | None], unit: str) -> None:
    ticks = 1_000 ** (3 - UNITS.index(unit))  # nanoseconds
    instants = [None if number is None else number // ticks for number in nanoseconds]
    source = [None if instant is None else {"topic": "in", "partition": 0, "offset": 0} for instant in instants]
    kind = pa.timestamp(unit, "Europe/Berlin")
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b""] * len(instants), pa.binary()),
            "timestamp": pa.array(instants, kind),
            "source": pa.StructArray.from_arrays(
                [*pa.array(source, SOURCE_TYPE).flatten()[:3], pa.array(instants, kind)],
                names=SOURCE_TYPE.names,
            ),
        }
    )
    [rows] = arrow_rows(iter([batch]), dead_letters=True)
    milliseconds = [None if instant is None else instant * ticks // 1_000_000 for instant in instants]
    assert rows["timestamp"].to_pylist() == milliseconds
    assert [row["timestamp"] for row in rows["source"].to_pylist()] == milliseconds
