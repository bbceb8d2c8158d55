"""What the JVM tells of a running query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.spark.jvm import RunningQuery

pytestmark = pytest.mark.spark

Plan = Callable[[DataFrame], DataFrame]

PLANS: dict[str, tuple[Plan, bool]] = {
    "a projection": (lambda rows: rows.where("value > 2").selectExpr("value + 1"), False),
    "a join with a table": (lambda rows: rows.join(rows.sparkSession.range(9), rows.value == 1, "left"), False),
    "a watermark": (lambda rows: rows.withWatermark("timestamp", "1 second"), True),
    "an aggregation": (lambda rows: rows.groupBy("value").count(), True),
    "a join of two streams": (lambda rows: rows.join(rows.selectExpr("value"), "value"), True),
    "deduplication": (lambda rows: rows.dropDuplicates(["value"]), True),
    "a limit": (lambda rows: rows.limit(3), True),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_batch_must_be_computed_if_its_plan_has_state_or_a_watermark(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    plan, needed = PLANS[name]
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="5", numPartitions="1").load()
    told: list[tuple[bool, str | None]] = []

    def process(batch_df: DataFrame, batch_id: int) -> None:
        query = RunningQuery(batch_df, None)
        told.append((query.needs_evaluation(), query.run_id))
        batch_df.collect()

    stream = plan(rows).writeStream.outputMode("update" if name == "an aggregation" else "append")
    stream = stream.foreachBatch(process).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = stream.start()
    query.awaitTermination()
    assert told[0] == (needed, str(query.runId))
