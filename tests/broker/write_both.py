"""Micro-batches to a topic and to a SQLite table in one step; as a process of its own, one of them, so that a test can
kill it. That prints the outcome, or the error's class and what it says was committed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from typing import Any

import pyarrow as pa

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended, CommitReport
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.participants.participant import Participant
from spark_kafka_eos.participants.sql import SqlTable
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, appended_to

INSERT = "INSERT INTO rows VALUES (?)"


def table_at(path: str, name: str = "key") -> SqlTable:
    """The participant in the database at `path`, whose table `rows` has one column."""
    return SqlTable(lambda: sqlite3.connect(path), insert=INSERT, key=name)


def rows_of(number: int) -> list[bytes]:
    """The rows of a micro-batch; each partition of two gets some."""
    return [b"%d-%d" % (number, each) for each in range(4)]


def transaction_of(
    bootstrap: str, topic: str, cluster: Cluster, participant: Participant, *, timeout_ms: int | None = 60_000
) -> SharedTransaction:
    """A new driver, which knows nothing of those before. Without a timeout, it uses two-phase commit."""
    options = sink_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.transactional.id": f"id-{topic}",
            "kafka.transaction.timeout.ms": 1_000 if timeout_ms is None else timeout_ms,
            "twoPhaseCommit": timeout_ms is None,
            "topic": topic,
        }
    )
    return SharedTransaction(options, cluster, decide_micro_batch(options), participant=participant)


def write(
    transaction: SharedTransaction, cluster: Cluster, topic: str, number: int, *, run: str, max_attempts: int = 2
) -> CommitReport:
    """The whole micro-batch `number`, in the run with this id."""
    batch = MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}", run_id=run)
    return write_rows(transaction, cluster, topic, batch, rows_of(number), max_attempts=max_attempts)


def write_rows(
    transaction: SharedTransaction,
    cluster: Cluster,
    topic: str,
    batch: MicroBatch,
    rows: list[bytes],
    *,
    max_attempts: int = 2,
) -> CommitReport:
    """The whole micro-batch, to both partitions of the topic and to the table."""
    now_ms = int(time.time() * 1e3)
    halves = rows[::2], rows[1::2]

    def both_partitions(identity: ProducerIdentity) -> Appended:
        blocks = [
            (
                TopicPartition(topic, n),
                len(half),
                encode(pa.nulls(len(half), pa.binary()), pa.array(half, pa.binary()), now_ms),
            )
            for n, half in enumerate(halves)
        ]
        topics = appended_to(cluster, *(tp for tp, _, _ in blocks), records=len(halves[0]))
        append(cluster, identity, blocks, batch_id=batch.batch_id)
        size = sum(len(block) for _, _, block in blocks)
        return Appended(partitions=2, records=len(rows), bytes=size, topics=topics)

    transaction.table_rows = [(row.decode(),) for row in rows]
    return commit_batch(transaction, batch, both_partitions, max_attempts=max_attempts, choice=BY_DRIVER)


def rows_in(path: str) -> list[bytes]:
    """What the table has, sorted."""
    database = sqlite3.connect(path)
    try:
        return sorted(row.encode() for (row,) in database.execute("SELECT row FROM rows"))
    finally:
        database.close()


def main(told: dict[str, Any]) -> None:
    bootstrap, topic = told["bootstrap"], told["topic"]
    options = sink_options({"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": "-", "topic": topic})
    with Cluster(options.client) as cluster:
        participant = table_at(told["database"])
        transaction = transaction_of(bootstrap, topic, cluster, participant, timeout_ms=told["timeout_ms"])
        try:
            report = write(transaction, cluster, topic, told["number"], run=told["run"])
        except KafkaEosError as error:
            print(json.dumps([type(error).__name__, error.committed]))
        else:
            print(json.dumps([report.outcome, len(report.redone)]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
