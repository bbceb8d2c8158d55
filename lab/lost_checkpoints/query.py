"""What the drivers run: copies a topic from where the last committed transaction ended.

PySpark is imported on demand only, because the run itself imports this module's constants.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, COPY = "orders", "orders-copy"
TRANSACTIONAL_ID = "copy-orders"
# A driver that is killed between its ledger record and EndTxn delays the next one until this is over (10 to 20 s).
_TRANSACTION_TIMEOUT_MS = 10_000


def main(bootstrap: str, checkpoint: str, offsets_per_trigger: str) -> None:
    """Run the query to the end of the source, unless it is killed before."""
    from pyspark.sql import SparkSession

    from spark_kafka_eos.tools.listener.follow import print_progress

    kafka = {"kafka.bootstrap.servers": bootstrap}
    spark: SparkSession = SparkSession.builder.appName(TRANSACTIONAL_ID).getOrCreate()
    orders = (
        spark.readStream.format("kafka-eos")
        .options(**kafka, subscribe=SOURCE, startingOffsets="committed-or-earliest")
        .option("sink.kafka.transactional.id", TRANSACTIONAL_ID)
        .option("maxOffsetsPerTrigger", offsets_per_trigger)
        .load()
    )
    stream = (
        orders.select("key", "value")
        .writeStream.format("kafka-eos")
        .options(**kafka, topic=COPY)
        .option("kafka.transactional.id", TRANSACTIONAL_ID)
        .option("kafka.transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)
        .option("checkpointLocation", checkpoint)
    )
    print_progress(stream.queryName(TRANSACTIONAL_ID).trigger(availableNow=True).start())


if __name__ == "__main__":
    main(*sys.argv[1:])
