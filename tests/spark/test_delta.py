"""The protocol on Delta Lake, which supports older releases of Spark than the other tests use."""

from __future__ import annotations

import pytest

from tests.spark import own_spark

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3_600)]

DELTA = "4.4.0"


def test_a_table_of_delta_lake_takes_part() -> None:
    packages = own_spark.installed(own_spark.delta_lake(own_spark.PYSPARK, DELTA), f"delta-spark=={DELTA}")
    own_spark.passes(["table_protocol.py", "delta_protocol.py"], plugin="delta_tables", packages=packages)
