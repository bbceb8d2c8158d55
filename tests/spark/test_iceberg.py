"""The protocol on Apache Iceberg, which supports older releases of Spark than the other tests use."""

from __future__ import annotations

import pytest

from tests.spark import own_spark

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3_600)]


def test_a_table_of_apache_iceberg_takes_part() -> None:
    packages = own_spark.installed(own_spark.iceberg(own_spark.PYSPARK))
    own_spark.passes(["table_protocol.py", "iceberg_protocol.py"], plugin="iceberg_tables", packages=packages)
