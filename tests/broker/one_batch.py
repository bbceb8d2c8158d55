"""One micro-batch to a topic and a table, as a process of its own: the driver that a test kills. It prints `ready`,
then the outcome, or the error's class and message. A batch's rows are the numbers of its range.
"""

from __future__ import annotations

import json
import resource
import sqlite3
import sys
from typing import Any

import psycopg

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.participants.sql import SqlTable
from tests.batches import reads
from tests.broker.write_both import transaction_of, write_rows

_LOCKED_FOR_MS = 300  # as long a commit waits for another one's


def table_at(address: str) -> SqlTable:
    """The participant in a PostgreSQL, or in the SQLite database at this path, whose table `rows` has one column."""
    if address.startswith("postgresql:"):
        settings = f"-c lock_timeout={_LOCKED_FOR_MS}"
        return SqlTable(
            lambda: psycopg.connect(address, options=settings),
            insert="INSERT INTO rows VALUES (%s)",
            key="key",
            mark="%s",
        )
    return SqlTable(
        lambda: sqlite3.connect(address, timeout=_LOCKED_FOR_MS / 1e3), insert="INSERT INTO rows VALUES (?)", key="key"
    )


def main(told: dict[str, Any]) -> None:
    bootstrap, topic = told["bootstrap"], told["topic"]
    if told["file_limit"] is not None:  # as a disk that takes no more
        resource.setrlimit(resource.RLIMIT_FSIZE, (told["file_limit"], resource.RLIM_INFINITY))
    source, start, end = TopicPartition(told["source"], 0), told["start"], told["end"]
    batch = MicroBatch(
        query_id=told["query"],
        batch_id=told["batch"],
        digest=f"{start} to {end}",
        run_id=told["run"],
        sources=reads({source: start}, {source: end}),
    )
    options = sink_options({"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": "-", "topic": topic})
    with Cluster(options.client) as cluster:
        table = table_at(told["table"])
        transaction = transaction_of(bootstrap, topic, cluster, table, timeout_ms=told["timeout_ms"])
        print("ready", flush=True)
        try:
            report = write_rows(transaction, cluster, topic, batch, [b"%d" % number for number in range(start, end)])
        except KafkaEosError as error:
            print(json.dumps([type(error).__name__, str(error)]))
        else:
            print(json.dumps([report.outcome, ""]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
