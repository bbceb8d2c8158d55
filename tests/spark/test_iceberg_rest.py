"""The protocol on Apache Iceberg through a REST catalog, on an older release of Spark than the other tests use."""

from __future__ import annotations

import pytest

from tests.spark import own_spark

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3_600)]


def test_a_table_in_a_rest_catalog_takes_part() -> None:
    packages = own_spark.installed(own_spark.iceberg(own_spark.PYSPARK))
    own_spark.passes(["table_protocol.py", "iceberg_rest_protocol.py"], plugin="iceberg_rest_tables", packages=packages)
