"""What the drivers run: decodes orders, and writes them as JSON after their provenance; the others are dead letters.

PySpark is imported on demand only, because the run itself imports this module's constants.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from spark_kafka_eos.testing.demo.orders import SUBJECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE, GOOD, DEAD = "orders", "orders-clean", "orders-dead"
TRANSACTIONAL_ID = "decode-orders"


def main(bootstrap: str, registry: str, checkpoint: str, offsets_per_trigger: str, append_mode: str) -> None:
    """Run the query to the end of the source, unless it is killed before."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from spark_kafka_eos import TransactionalWriter, from_confluent, to_dead_letters
    from spark_kafka_eos.tools.listener.follow import print_progress
    from spark_kafka_eos.tools.verify import provenance

    kafka = {"kafka.bootstrap.servers": bootstrap}
    spark: SparkSession = SparkSession.builder.appName(TRANSACTIONAL_ID).getOrCreate()
    orders = (
        spark.readStream.format("kafka-eos")
        .options(**kafka, subscribe=SOURCE, startingOffsets="earliest", includeHeaders="true")
        .option("maxOffsetsPerTrigger", offsets_per_trigger)
        .load()
        .withColumn("order", from_confluent("value", registry, subject=SUBJECT, mode="permissive"))
    )
    writing = {"kafka.transactional.id": TRANSACTIONAL_ID, "topic": GOOD, "deadLetterTopic": DEAD}
    writer = TransactionalWriter({**kafka, **writing, "appendMode": append_mode})

    def write(batch_df: DataFrame, batch_id: int) -> None:
        value = F.concat(provenance(batch_id), F.to_json("order.value").cast("binary"))
        with writer.transaction(batch_df, batch_id) as transaction:
            transaction.write(to_dead_letters(batch_df, "order", value=value))

    stream = orders.writeStream.foreachBatch(write).queryName(TRANSACTIONAL_ID).option("checkpointLocation", checkpoint)
    print_progress(stream.trigger(availableNow=True).start())


if __name__ == "__main__":
    main(*sys.argv[1:])
