"""Arrow batches of large values are small while the writer stages them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.spark.arrow_batches import small_arrow_batches

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not hasattr(SparkSession, "addTag"), reason="Spark 3.4 counts rows only"),
]

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"


def sizes(spark: SparkSession) -> list[int]:
    """The bytes of each Arrow batch of 30 MB in values of 10,000 bytes."""

    def measured(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"bytes": pa.array([batch.nbytes], pa.int64())})

    rows = spark.range(0, 3_000, 1, 1).select(F.repeat(F.lit("v"), 10_000).alias("value"))
    return [row.bytes for row in rows.mapInArrow(measured, "bytes long").collect()]


def test_a_session_has_small_batches_for_as_long_as_the_job_and_what_it_had_after_it(spark: SparkSession) -> None:
    usual = sizes(spark)
    with small_arrow_batches(spark):
        small = sizes(spark)
    assert sum(usual) == pytest.approx(sum(small), rel=0.01)
    assert max(small) < 5 << 20 < max(usual)
    assert spark.conf.get(LIMIT, None) is None


def test_a_limit_that_the_session_has_stays(spark: SparkSession) -> None:
    spark.conf.set(LIMIT, str(8 << 20))
    try:
        with small_arrow_batches(spark):
            assert spark.conf.get(LIMIT, None) == str(8 << 20)
        assert spark.conf.get(LIMIT, None) == str(8 << 20)
    finally:
        spark.conf.unset(LIMIT)
