"""Copy a topic exactly once: keys, values and headers, partitioned by key as the Java client would.

spark-submit jobs/copy_topic.py --bootstrap-servers localhost:9092 --from orders --to orders-copy --checkpoint /tmp/copy
spark-submit jobs/copy_topic.py --properties client.properties --from orders --to orders-copy

The second one keeps no checkpoint: each start continues where the last committed transaction ended. With --real-time,
records arrive within milliseconds (docs/real-time.md), in transactions of some of the partitions each.
It exits with 2 for a wrong option, 90 if another driver has taken over (do not restart it then), else 1 for a failure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_kafka_eos import (
    TransactionalWriter,
    arrow_stream,
    from_properties,
    must_not_restart,
    print_progress,
    stop_on_sigterm,
)
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
    add(
        "--real-time",
        metavar="DURATION",
        help="commit within milliseconds; Spark's batches are as long, e.g. 5 minutes",
    )
    add("--buckets", type=int, help="number of transactions at the same time with --real-time")
    add("--commit-interval", metavar="DURATION", help="with --real-time: least time between transactions of a task")
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
        if args.real_time and (args.append_mode != "driver" or args.max_offsets_per_trigger):
            parser.error("--real-time has neither --append-mode nor --max-offsets-per-trigger")
        if (args.buckets or args.commit_interval) and not args.real_time:
            parser.error("--buckets and --commit-interval need --real-time")
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


def stream(
    spark: SparkSession, args: argparse.Namespace, reading: dict[str, str], writing: dict[str, str]
) -> DataStreamWriter:
    if args.real_time:
        sink = TransactionalWriter(writing)
        return arrow_stream(
            spark,
            reading,
            sink,
            real_time=args.real_time,
            buckets=args.buckets,
            commit_interval=args.commit_interval,
        )
    writer = build(spark.readStream.format("kafka-eos").options(**reading).load()).writeStream
    if args.append_mode == "driver":
        return writer.format("kafka-eos").options(**writing)
    return writer.foreachBatch(TransactionalWriter(writing | {"appendMode": args.append_mode}))


def copy(args: argparse.Namespace, reading: dict[str, str], writing: dict[str, str]) -> None:
    spark = SparkSession.builder.appName("copy-topic").getOrCreate()
    stop_on_sigterm(spark)
    writer = stream(spark, args, reading, writing).queryName("copy-topic")
    writer = writer.option("checkpointLocation", writing["checkpointLocation"])
    try:
        print_progress((writer.trigger(availableNow=True) if args.available_now else writer).start())
    except StreamingQueryException as error:
        if not must_not_restart(error):
            raise
        print(error, file=sys.stderr)
        sys.exit(args.fenced_exit_code)


if __name__ == "__main__":
    main()
