"""Copy a topic exactly once: keys, values and headers, partitioned by key as the Java client would.

spark-submit jobs/copy_topic.py --bootstrap-servers localhost:9092 --from orders --to orders-copy --checkpoint /tmp/copy
spark-submit jobs/copy_topic.py --properties client.properties --from orders --to orders-copy --checkpoint /tmp/copy
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_kafka_eos import follow, from_properties
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import sink_options, source_options


def build(records: DataFrame) -> DataFrame:
    """What the sink writes of what the source reads; the partition is left to the key, as the topics may differ."""
    return records.select("key", "value", "headers")


def main(
    source: Annotated[str, typer.Option("--from", help="Topics to read, separated by commas.")],
    target: Annotated[str, typer.Option("--to", help="Topic to write.")],
    checkpoint: Annotated[Path, typer.Option(help="Folder of the query's checkpoint.")],
    bootstrap_servers: Annotated[str, typer.Option(help="Brokers, host:port, separated by commas.")] = "",
    properties: Annotated[Path | None, typer.Option(help="Kafka client properties: brokers, TLS, SASL.")] = None,
    transactional_id: Annotated[str, typer.Option(help="Default: copy-FROM-TO.")] = "",
    starting_offsets: Annotated[str, typer.Option(help="earliest, latest, committed or JSON.")] = "earliest",
    append_mode: Annotated[str, typer.Option(help="Who appends: auto, driver or executors.")] = "auto",
    max_offsets_per_trigger: Annotated[int | None, typer.Option(help="Offsets of a micro-batch at most.")] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now/--continuous", help="Stop at the input's present end, or never.")
    ] = False,
) -> None:
    """Copy one topic to another, exactly once."""
    kafka = from_properties(properties) if properties else {}
    if bootstrap_servers:
        kafka["kafka.bootstrap.servers"] = bootstrap_servers
    reading = {**kafka, "subscribe": source, "startingOffsets": starting_offsets, "includeHeaders": "true"}
    if max_offsets_per_trigger is not None:
        reading["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    writing = {**kafka, "topic": target, "appendMode": append_mode, "checkpointLocation": str(checkpoint)}
    writing["kafka.transactional.id"] = transactional_id or f"copy-{source}-{target}"
    try:  # before Spark starts, which would show its traceback with the error
        source_options(reading, streaming=True)
        sink_options(writing)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None
    spark = SparkSession.builder.appName("copy-topic").getOrCreate()
    records = spark.readStream.format("kafka-eos").options(**reading).load()
    writer: DataStreamWriter = build(records).writeStream.format("kafka-eos").options(**writing)
    follow((writer.trigger(availableNow=True) if available_now else writer).queryName("copy-topic").start())


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)  # they show local variables: passwords, too
app.command()(main)

if __name__ == "__main__":
    app()
