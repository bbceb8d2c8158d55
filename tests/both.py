"""A table and a topic on the model of Kafka, and the drivers that write micro-batches to both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended, CommitReport
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions, sink_options
from spark_kafka_eos.participants.participant import Conflict, Participant, TableVersion
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, appended_to, reads
from tests.model_kafka import CLIENT, KafkaModel

OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id", "topic": "out"})
PATIENCE = replace(CLIENT, request_timeout_ms=10_000, delivery_timeout_ms=10_000)  # less than a transaction's timeout
SOURCE, OUTPUT = TopicPartition("in", 0), TopicPartition("out", 0)


class Killed(BaseException):
    """What ends a process at once: nothing is cleaned up."""


def kill(*_: object) -> None:
    raise Killed


def nothing() -> None:
    """What usually happens before and after a commit of the table."""


class Table:
    """The participant, in memory. `before` and `after` happen around the next commit with rows."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.now = TableVersion()
        self.asked = 0
        self.before = self.after = self.unasked = nothing
        self.log: list[str] = []

    def held(self) -> TableVersion:
        self.asked += 1
        self.unasked()
        return self.now

    def commit(self, rows: list[bytes] | None, token: str | None, *, after: int) -> None:
        happens, self.before = (self.before, nothing) if rows is not None else (nothing, self.before)
        happens()
        if self.now.version != after:
            raise Conflict
        self.log.append("fence" if rows is None and token == self.now.token else "commit")
        self.rows += rows or []
        self.now = TableVersion(version=after + 1, token=token)
        happens, self.after = (self.after, nothing) if rows is not None else (nothing, self.after)
        happens()


class Kafka(KafkaModel):
    """The model, and what happens to it here."""

    def __init__(self, version: int) -> None:
        super().__init__(version, {"in": 1, "out": 1})

    @property
    def values(self) -> list[bytes]:
        return [value for entry in self.partitions[OUTPUT].committed() for value in entry.content]

    def entry(self) -> LedgerEntry:
        """The ledger's last committed record."""
        (value,) = self.partitions[TopicPartition(OPTIONS.ledger_topic, 0)].committed()[-1].content
        return entry_format.decode_record(value)

    def time_out(self) -> None:
        self.world.now += 61
        for coordinator in self.transactions.coordinators.values():
            coordinator.time_out()


def begin(kafka: Kafka) -> None:
    """Another driver takes the id, and opens a transaction."""
    coordinator = kafka.transactions._made(OPTIONS.transactional_id)
    while coordinator.init(-1, -1, 60_000)[0]:
        pass
    kafka.transactions.add(
        OPTIONS.transactional_id, coordinator.producer_id, coordinator.epoch, list(kafka.partitions)[:1]
    )


def driver(kafka: Kafka, table: Participant, options: SinkOptions = OPTIONS) -> SharedTransaction:
    """A new process of the query."""
    cluster, decide = kafka.cluster(PATIENCE), decide_micro_batch(options)
    return SharedTransaction(options, cluster, decide, participant=table, clock=kafka.clock)


def batch(number: int, run: str = "run", **changes: Any) -> MicroBatch:
    sources = reads({SOURCE: number}, {SOURCE: number + 1})
    return replace(
        MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}", sources=sources, run_id=run), **changes
    )


def rows_of(number: int) -> list[bytes]:
    return [b"%d a" % number, b"%d b" % number]


def writing(transaction: SharedTransaction, values: list[bytes]) -> Callable[..., Appended]:
    def write(identity: ProducerIdentity) -> Appended:
        block = encode(pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()), 0)
        topics = appended_to(transaction.cluster, OUTPUT, records=len(values))
        append(transaction.cluster, identity, [(OUTPUT, len(values), block)])
        return Appended(partitions=1, records=len(values), bytes=len(block), topics=topics)

    return write


def run(
    transaction: SharedTransaction,
    number: int,
    *,
    values: list[bytes] | None = None,
    max_attempts: int = 2,
    **changes: Any,
) -> CommitReport:
    """The whole micro-batch `number`, with the same rows for both."""
    values = rows_of(number) if values is None else values
    transaction.table_rows = values
    write = writing(transaction, values)
    return commit_batch(transaction, batch(number, **changes), write, max_attempts=max_attempts, choice=BY_DRIVER)


def both_have(kafka: Kafka, table: Table, *numbers: int) -> None:
    expected = [value for number in numbers for value in rows_of(number)]
    assert (kafka.values, table.rows) == (expected, expected)
