r"""Orders in Avro, cleaned, exactly once; those that cannot be decoded or written go to a topic of dead letters.

spark-submit jobs/decode_orders.py --bootstrap-servers localhost:9092 --registry http://localhost:8081 \
  --checkpoint /tmp/decode

It reads `orders` (Avro in Confluent's wire format) and writes `orders-clean` (JSON, keyed by customer) and
`orders-dead` (the original records, with the cause in their headers). It needs Spark 4.1 or later, and
pip install 'spark-kafka-eos[registry]'. Exit codes are those of copy_topic.py.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import (
    TransactionalWriter,
    from_properties,
    must_not_restart,
    print_progress,
    stop_on_sigterm,
    to_dead_letters,
)
from spark_kafka_eos.errors import ConfigurationError, RegistryError
from spark_kafka_eos.options import sink_options, source_options


def build(orders: DataFrame) -> DataFrame:
    """Rows for the sink. `orders` has the source's columns and `order`, decoded permissively.

    A cleaned order is JSON, keyed by customer: the customer without spaces around, the amount in units of its currency.
    Records that could not be decoded stay as they are, with their error.
    """
    customer, cents = F.trim("order.value.customer"), F.col("order.value.cents")
    clean = F.struct(
        F.col("order.value.id").alias("id"),
        customer.alias("customer"),
        (cents / 100).cast("decimal(12,2)").alias("amount"),
        F.upper("order.value.currency").alias("currency"),
        F.col("order.value.note").alias("note"),
    )
    return to_dead_letters(orders, "order", key=customer, value=F.to_json(clean))


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description="Decode and clean orders, exactly once, with dead letters.")
    add = parser.add_argument
    add("--checkpoint", required=True, help="folder of the query's checkpoint")
    add("--registry", required=True, help="URL of the schema registry")
    add("--bootstrap-servers", help="brokers, host:port, separated by commas")
    add("--properties", metavar="FILE", help="Kafka client properties: brokers, TLS, SASL")
    add("--from", dest="source", default="orders", help="topic with the orders")
    add("--subject", help="subject of their schema; default: FROM-value")
    add("--to", dest="target", default="orders-clean", help="topic for the cleaned orders")
    add("--dead-letters", default="orders-dead", help="topic for records that cannot be decoded or written")
    add("--max-dead-letters", help="a batch with more fails, for example 1000 or 5%%")
    add("--transactional-id", default="decode-orders", help="stable name of the writer")
    add("--append-mode", default="auto", help="who appends: auto, driver or executors")
    add("--max-offsets-per-trigger", help="maximum number of offsets of a micro-batch")
    add("--available-now", action="store_true", help="stop at the input's present end, instead of never")
    add("--fenced-exit-code", type=int, default=90, help="exit code if another driver has taken over (90)")
    return parser


def main() -> None:
    parser = arguments()
    args = parser.parse_args()
    try:  # before Spark starts, which would show its traceback with the error
        kafka = from_properties(args.properties) if args.properties else {}
        if args.bootstrap_servers:
            kafka["kafka.bootstrap.servers"] = args.bootstrap_servers
        reading = {**kafka, "subscribe": args.source, "startingOffsets": "earliest", "includeHeaders": "true"}
        if args.max_offsets_per_trigger:
            reading["maxOffsetsPerTrigger"] = args.max_offsets_per_trigger
        writing = {**kafka, "topic": args.target, "deadLetterTopic": args.dead_letters}
        writing |= {"kafka.transactional.id": args.transactional_id, "appendMode": args.append_mode}
        if args.max_dead_letters:
            writing["maxDeadLetters"] = args.max_dead_letters
        source_options(reading, streaming=True)
        sink_options(writing)
    except (ConfigurationError, OSError) as error:
        parser.error(str(error))
    try:
        from spark_kafka_eos import from_confluent
    except ModuleNotFoundError as error:
        sys.exit(f"Error: {error}. Run: pip install 'spark-kafka-eos[registry]'")
    spark = SparkSession.builder.appName("decode-orders").getOrCreate()
    stop_on_sigterm(spark)
    subject = args.subject or f"{args.source}-value"
    try:
        order = from_confluent("value", args.registry, subject=subject, mode="permissive")
    except (ConfigurationError, RegistryError) as error:
        sys.exit(f"Error: {error}")
    orders = spark.readStream.format("kafka-eos").options(**reading).load().withColumn("order", order)
    writer = build(orders).writeStream.foreachBatch(TransactionalWriter(writing))
    writer = writer.option("checkpointLocation", args.checkpoint).queryName("decode-orders")
    try:
        print_progress((writer.trigger(availableNow=True) if args.available_now else writer).start())
    except StreamingQueryException as error:
        if not must_not_restart(error):
            raise
        print(error, file=sys.stderr)
        sys.exit(args.fenced_exit_code)


if __name__ == "__main__":
    main()
