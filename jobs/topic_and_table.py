"""Copy a topic into a topic and a table of SQLite or PostgreSQL: both have each record once, or neither has it.

spark-submit jobs/topic_and_table.py --bootstrap-servers localhost:9092 --from bookings --to bookings-seen \\
  --database /data/shop.db --table bookings --checkpoint /tmp/both

The table has the columns `record_key` and `record_value`, as text, and is created if it does not exist. A PostgreSQL is
named by its address (`postgresql://…`), and needs pip install psycopg. Exit codes are those of copy_topic.py.
For `kafka-eos query show --table jobs.topic_and_table:from_environment`, set TOPIC_AND_TABLE to DATABASE#TABLE.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos import (
    SqlTable,
    TransactionalWriter,
    from_properties,
    must_not_restart,
    print_progress,
    stop_on_sigterm,
)
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import sink_options, source_options


def table_at(database: str, name: str) -> SqlTable:
    """The participant whose rows go to the table of this name. Raises ConfigurationError for what is no name."""
    if not name.isidentifier():
        raise ConfigurationError("table", f"{name!r} is not the name of a table")
    mark = "%s" if database.startswith("postgresql:") else "?"
    insert = f"INSERT INTO {name} (record_key, record_value) VALUES ({mark}, {mark})"  # noqa: S608 - an identifier
    return SqlTable(lambda: connect(database), insert=insert, key=name, mark=mark)


def connect(database: str) -> Any:
    """A connection without autocommit: to a PostgreSQL, or to the SQLite file at this path."""
    if not database.startswith("postgresql:"):
        return sqlite3.connect(database)
    import psycopg  # an own requirement, of those who have a PostgreSQL

    return psycopg.connect(database)


def from_environment() -> SqlTable:
    """The same for commands, which take it by its name."""
    database, _, name = os.environ["TOPIC_AND_TABLE"].rpartition("#")
    return table_at(database, name)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description="Copy a topic into a topic and a table, exactly once.")
    add = parser.add_argument
    add("--from", dest="source", required=True, help="topics to read, separated by commas")
    add("--to", dest="target", required=True, help="topic to write")
    add("--database", required=True, help="path of a SQLite file, or the address of a PostgreSQL, postgresql://…")
    add("--table", required=True, help="table to write")
    add("--checkpoint", required=True, help="folder of the query's checkpoint")
    add("--bootstrap-servers", help="brokers, host:port, separated by commas")
    add("--properties", metavar="FILE", help="Kafka client properties: brokers, TLS, SASL")
    add("--transactional-id", help="default: both-FROM-TO")
    add("--starting-offsets", default="earliest", help="earliest, latest or JSON, for the first start")
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
        reading = {**kafka, "subscribe": args.source, "startingOffsets": args.starting_offsets}
        if args.max_offsets_per_trigger:
            reading["maxOffsetsPerTrigger"] = args.max_offsets_per_trigger
        transactional_id = args.transactional_id or f"both-{args.source}-{args.target}"
        writing = {**kafka, "topic": args.target, "kafka.transactional.id": transactional_id}
        source_options(reading, streaming=True)
        sink_options(writing)
        table = table_at(args.database, args.table)
    except (ConfigurationError, OSError) as error:
        parser.error(str(error))
    table.create()
    connection = connect(args.database)
    connection.cursor().execute(f"CREATE TABLE IF NOT EXISTS {args.table} (record_key TEXT, record_value TEXT)")
    connection.commit()
    connection.close()
    copy(args, reading, TransactionalWriter(writing), table)


def copy(args: argparse.Namespace, reading: dict[str, str], writer: TransactionalWriter, table: SqlTable) -> None:
    spark = SparkSession.builder.appName("topic-and-table").getOrCreate()
    stop_on_sigterm(spark)

    def both(batch: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch, batch_id, participant=table) as transaction:
            transaction.write(batch.select("key", "value"))
            transaction.write_table(batch.selectExpr("cast(key as string)", "cast(value as string)"))

    records = spark.readStream.format("kafka-eos").options(**reading).load()
    stream = records.writeStream.queryName("topic-and-table").foreachBatch(both)
    stream = stream.option("checkpointLocation", args.checkpoint)
    try:
        print_progress((stream.trigger(availableNow=True) if args.available_now else stream).start())
    except StreamingQueryException as error:
        if not must_not_restart(error):
            raise
        print(error, file=sys.stderr)
        sys.exit(args.fenced_exit_code)


if __name__ == "__main__":
    main()
