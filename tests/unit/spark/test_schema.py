"""The columns are the built-in source's, and the Arrow batches that are read fit them."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from spark_kafka_eos.eos.reading import arrow_schema
from spark_kafka_eos.spark.schema import source_schema

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
