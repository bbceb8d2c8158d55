"""The columns are the built-in source's, or a choice of them, and the Arrow batches that are read fit them."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType, TimestampType

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.records import arrow_schema
from spark_kafka_eos.spark.schema import selected, selecting, source_schema

BUILT_IN = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
)


def test_columns_are_the_built_in_sources() -> None:
    assert source_schema(include_headers=False).simpleString() == BUILT_IN + ">"


def test_headers_are_a_last_column_on_request() -> None:
    expected = BUILT_IN + ",headers:array<struct<key:string,value:binary>>>"
    assert source_schema(include_headers=True).simpleString() == expected


@pytest.mark.parametrize("include_headers", [False, True])
def test_arrow_batches_have_exactly_the_schema_that_spark_checks(include_headers: bool) -> None:
    expected = to_arrow_schema(source_schema(include_headers=include_headers), timezone="UTC")
    assert arrow_schema(include_headers=include_headers).equals(expected)


def schema(*columns: tuple[str, DataType], nullable: bool = True) -> StructType:
    return StructType([StructField(name, kind, nullable) for name, kind in columns])


VALUE = ("value", BinaryType())


def test_a_schema_chooses_columns_in_its_own_order() -> None:
    own = schema(("timestamp", TimestampType()), VALUE)
    assert selected(own, include_headers=False) == (("timestamp", "value"), ())
    chosen = arrow_schema(include_headers=False, columns=("timestamp", "value"))
    assert chosen.equals(to_arrow_schema(own, timezone="UTC"))


def test_the_whole_schema_chooses_nothing() -> None:
    assert selected(source_schema(include_headers=True), include_headers=True) == ((), ())


def test_a_schema_may_select_headers_only_if_the_options_include_them() -> None:
    own = StructType([field for field in source_schema(include_headers=True) if field.name in ("value", "headers")])
    options = {"kafka.bootstrap.servers": "broker.invalid:9092", "subscribe": "orders"}
    assert selecting(source_options(options | {"includeHeaders": "true"}), own).columns == ("value", "headers")
    with pytest.raises(ConfigurationError, match="headers"):
        selecting(source_options(options), own)


def test_a_schema_may_say_that_what_every_record_has_is_not_null() -> None:
    own = StructType([*schema(VALUE), *schema(("timestamp", TimestampType()), nullable=False)])
    columns, required = selected(own, include_headers=False)
    assert (columns, required) == (("value", "timestamp"), ("timestamp",))
    chosen = arrow_schema(include_headers=False, columns=columns, required=required)
    assert chosen.equals(to_arrow_schema(own, timezone="UTC"))


@pytest.mark.parametrize("name", ["key", "value", "headers"])
def test_what_a_record_need_not_have_may_be_null(name: str) -> None:
    source = source_schema(include_headers=True)
    own = schema((name, source[name].dataType), nullable=False)
    with pytest.raises(ConfigurationError, match=f"declares {name} NOT NULL"):
        selected(own, include_headers=True)


@pytest.mark.parametrize(
    "own",
    [
        schema(("value", StringType())),
        schema(VALUE, ("payload", BinaryType())),
        schema(("Value", BinaryType())),
        schema(VALUE, VALUE),
        schema(),
        StructType([field for field in source_schema(include_headers=True) if field.name == "headers"]),
    ],
    ids=["another type", "another name", "another case", "a column twice", "no column", "headers nobody asked for"],
)
def test_anything_but_a_choice_of_columns_is_refused(own: StructType) -> None:
    with pytest.raises(ConfigurationError, match="may only select columns of struct<key:binary"):
        selected(own, include_headers=False)
