"""The examples of docs/table-streams.md, on an older release of Spark than the other tests use."""

from __future__ import annotations

import pytest

from tests.spark import own_spark

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3_600)]


def test_streams_from_and_to_tables_are_exactly_once() -> None:
    packages = own_spark.installed(own_spark.iceberg(own_spark.PYSPARK))
    own_spark.installed(own_spark.delta_lake(own_spark.PYSPARK))
    own_spark.passes(["table_streams_protocol.py"], packages=packages)
