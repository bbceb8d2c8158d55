"""Copy a topic exactly once: keys, values and headers, partitioned by key as the Java client would.

spark-submit jobs/copy_topic.py --bootstrap-servers localhost:9092 --from orders --to orders-copy --checkpoint /tmp/copy
spark-submit jobs/copy_topic.py --properties client.properties --from orders --to orders-copy

The second one keeps no checkpoint: each start continues where the last committed transaction ended.
It exits with 2 for a wrong option, 90 if another driver has taken over (do not restart it then), else 1 for a failure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos import TransactionalWriter, from_properties, must_not_restart, print_progress, stop_on_sigterm
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import sink_options, source_options


def build(records: DataFrame) -> DataFrame:
    """What the sink writes of what the source reads; the partition is left to the key, as the topics may differ."""
    return records.select("key", "value", "headers")


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description="Copy one topic to another, exactly once.")
    add = parser.add_argument
    add("--from", dest="source", required=True, help="topics to read, separated by commas")
    add("--to", dest="target", required=True, help="topic to write")
    add("--checkpoint", help="folder of the query's checkpoint; without it, Kafka is the checkpoint")
    add("--bootstrap-servers", help="brokers, host:port, separated by commas")
    add("--properties", metavar="FILE", help="Kafka client properties: brokers, TLS, SASL")
    add("--transactional-id", help="default: copy-FROM-TO")
    add("--starting-offsets", default="committed-or-earliest", help="earliest, latest, committed or JSON")
    add("--append-mode", default="driver", help="who appends: driver (the sink); auto or executors (foreachBatch)")
    add("--max-offsets-per-trigger", help="maximum number of offsets of a micro-batch")
    add("--available-now", action="store_true", help="stop at the input's present end, instead of never")
    add("--fenced-exit-code", type=int, default=90, help="exit code if another driver has taken over (90)")
    return parser


def main() -> None:
    parser = arguments()
    args = parser.parse_args()
    transactional_id = args.transactional_id or f"copy-{args.source}-{args.target}"
    try:  # before Spark starts, which would show its traceback with the error
        kafka = from_properties(args.properties) if args.properties else {}
        if args.bootstrap_servers:
            kafka["kafka.bootstrap.servers"] = args.bootstrap_servers
        reading = {**kafka, "subscribe": args.source, "startingOffsets": args.starting_offsets}
        reading |= {"sink.kafka.transactional.id": transactional_id, "includeHeaders": "true"}
        if args.max_offsets_per_trigger:
            reading["maxOffsetsPerTrigger"] = args.max_offsets_per_trigger
        writing = {**kafka, "topic": args.target, "kafka.transactional.id": transactional_id}
        source_options(reading, streaming=True)
        sink_options(writing | {"appendMode": args.append_mode})
    except (ConfigurationError, OSError) as error:
        parser.error(str(error))
    # Without --checkpoint, Kafka is the checkpoint, and Spark's own is nothing that the next run needs.
    with tempfile.TemporaryDirectory(prefix="kafka-eos-checkpoint-") as folder:
        writing["checkpointLocation"] = args.checkpoint or Path(folder).as_uri()
        copy(args, reading, writing)


def copy(args: argparse.Namespace, reading: dict[str, str], writing: dict[str, str]) -> None:
    spark = SparkSession.builder.appName("copy-topic").getOrCreate()
    stop_on_sigterm(spark)
    records = spark.readStream.format("kafka-eos").options(**reading).load()
    writer = build(records).writeStream.queryName("copy-topic")
    writer = writer.option("checkpointLocation", writing["checkpointLocation"])
    if args.append_mode == "driver":
        writer = writer.format("kafka-eos").options(**writing)
    else:
        writer = writer.foreachBatch(TransactionalWriter(writing | {"appendMode": args.append_mode}))
    try:
        print_progress((writer.trigger(availableNow=True) if args.available_now else writer).start())
    except StreamingQueryException as error:
        if not must_not_restart(error):
            raise
        print(error, file=sys.stderr)
        sys.exit(args.fenced_exit_code)


if __name__ == "__main__":
    main()
