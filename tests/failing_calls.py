"""Ways in which the call of a writer fails, each within the function of foreachBatch."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter

Failure = Callable[[dict[str, str], DataFrame, int], None]

NO_BROKER = {"kafka.bootstrap.servers": "localhost:1", "kafka.request.timeout.ms": "1000"}


def writes_a_row_for_no_partition(options: dict[str, str], batch_df: DataFrame, batch_id: int) -> None:
    TransactionalWriter(options)(batch_df.withColumn("partition", F.lit(99)), batch_id)


def writes_columns_that_the_sink_does_not_have(options: dict[str, str], batch_df: DataFrame, batch_id: int) -> None:
    TransactionalWriter(options)(batch_df.select(F.lit(1).alias("value")), batch_id)


def meets_no_broker(options: dict[str, str], batch_df: DataFrame, batch_id: int) -> None:
    TransactionalWriter(options | NO_BROKER)(batch_df, batch_id)


def raises_in_the_block(options: dict[str, str], batch_df: DataFrame, batch_id: int) -> None:
    with TransactionalWriter(options).transaction(batch_df, batch_id):
        raise RuntimeError("the user's")


def runs_a_spark_action_that_fails_in_the_block(options: dict[str, str], batch_df: DataFrame, batch_id: int) -> None:
    with TransactionalWriter(options).transaction(batch_df, batch_id) as transaction:
        batch_df.select(F.raise_error(F.lit("the action's"))).collect()
        transaction.write(batch_df)


def makes_no_writer(options: dict[str, str], batch_df: DataFrame, batch_id: int) -> None:
    TransactionalWriter(options | {"appendMode": "none"})(batch_df, batch_id)


FAILURES: list[Failure] = [
    writes_a_row_for_no_partition,
    writes_columns_that_the_sink_does_not_have,
    meets_no_broker,
    raises_in_the_block,
    runs_a_spark_action_that_fails_in_the_block,
    makes_no_writer,
]

# Without makes_no_writer: there, nobody knows of a writer that cannot be made.
KNOWN_OVER_CONNECT = [fails for fails in FAILURES if fails is not makes_no_writer]
