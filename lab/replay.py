"""KAFKA-17754 replayed: an EndTxn that the network delays into the producer's next transaction ends that one early.

    transaction 1   write "first"; its EndTxn is held, so the client sends it again, and this one is answered
    transaction 2   write "early"; now the held EndTxn arrives; write "late"; EndTxn

In the protocol before KIP-890, a client may keep its epoch from transaction to transaction. Then the coordinator takes
the late EndTxn for one of transaction 2, and "early" and "late" have different ends. The connector takes a new epoch
for every batch, so the late EndTxn is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from confluent_kafka import Producer

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.testing.topic_reader import read_topic
from spark_kafka_eos.tools.operators.open_transactions import oldest_open
from spark_kafka_eos.transaction.shared import SharedTransaction

_GIVE_UP_MS = 1_000  # the client's wait for a response, before it sends the request again
_SECONDS = 30.0


class Client(Protocol):
    """A transactional producer of values to the partitions of one topic."""

    def begin(self) -> None:
        """Begin the next transaction."""

    def write(self, partition: int, value: bytes) -> None:
        """Append a record and wait until it is acknowledged."""

    def end(self, *, commit: bool) -> None:
        """Commit or abort; returns when the outcome is known."""


Connect = Callable[[str, str], AbstractContextManager[Client]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How the application ends its two transactions; the first end is what arrives late."""

    first: bool
    second: bool

    def __str__(self) -> str:
        return f"{_word(self.first)}, then {_word(self.second)}"

    @property
    def expected(self) -> set[str]:
        """What a read_committed consumer should see."""
        return ({"first"} if self.first else set()) | ({"early", "late"} if self.second else set())


CASES = (Case(first=True, second=False), Case(first=False, second=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a read_committed consumer saw of a client's transactions, and whether transaction 2 is torn."""

    client: str
    case: Case
    seen: set[str]

    @property
    def torn(self) -> bool:
        return self.seen != self.case.expected


def replay(kafka: EmbeddedKafka) -> Iterator[Outcome]:
    """Both cases for each client. Raises ToolFailed if a request does not arrive, or a transaction does not end."""
    for client, connect in CLIENTS.items():
        for case in CASES:
            topic = kafka.create_topic(f"replay-{client}-{_word(case.first)}".replace(" ", "-"), 2)
            with Proxy(kafka.bootstrap) as proxy, connect(proxy.bootstrap, topic) as producer:
                _replay(producer, case, proxy)
            _await_markers(kafka.bootstrap, topic)
            values = (message.value() or b"" for message in read_topic(kafka.bootstrap, topic, "read_committed"))
            yield Outcome(client=client, case=case, seen={bytes(value).decode() for value in values})


def _await_markers(bootstrap: str, topic: str) -> None:
    """They are written after the producer has the answer that its transaction has ended."""
    options = sink_options({"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": topic, "topic": topic})
    with Cluster(options.client) as cluster:
        partitions = [TopicPartition(topic, number) for number in (0, 1)]
        deadline = cluster.clock() + _SECONDS
        while oldest_open(cluster, partitions, now_ms=0):
            if cluster.clock() > deadline:
                raise ToolFailed(f"a transaction in {topic} is still open after {_SECONDS:g} s")
            cluster.sleep(0.05)


def _replay(producer: Client, case: Case, proxy: Proxy) -> None:
    producer.begin()
    producer.write(0, b"first")
    rule = proxy.add("EndTxn:1:hold")
    producer.end(commit=case.first)
    producer.begin()
    producer.write(0, b"early")
    rule.release()
    rule.wait_answered(timeout=_SECONDS)
    producer.write(1, b"late")
    producer.end(commit=case.second)


class _Librdkafka:
    """confluent-kafka's producer."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, partition: int, value: bytes) -> None:
        self._producer.produce(self._topic, value, partition=partition)
        self._producer.flush(_SECONDS)

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(_SECONDS)
        else:
            self._producer.abort_transaction(_SECONDS)


@contextlib.contextmanager
def _librdkafka(bootstrap: str, topic: str) -> Iterator[Client]:
    config = {"bootstrap.servers": bootstrap, "transactional.id": topic, "socket.timeout.ms": _GIVE_UP_MS}
    with Producer({**config, "transaction.timeout.ms": 60_000, "log_level": 0}) as producer:
        producer.init_transactions(_SECONDS)
        yield _Librdkafka(producer, topic)


class _Connector:
    """The connector's own transaction, without Spark."""

    def __init__(self, cluster: Cluster, transaction: SharedTransaction, topic: str) -> None:
        self._cluster, self._transaction, self._topic = cluster, transaction, topic
        self._number = 0

    def begin(self) -> None:
        self._transaction.begin(self._batch)
        self._transaction.appending()

    def write(self, partition: int, value: bytes) -> None:
        block = encode(pa.array([None], pa.binary()), pa.array([value], pa.binary()), 0)
        append(self._cluster, self._transaction.identity, [(TopicPartition(self._topic, partition), 1, block)])

    def end(self, *, commit: bool) -> None:
        if commit:
            self._transaction.commit(self._batch)
            self._number += 1
        else:
            self._transaction.abort()

    @property
    def _batch(self) -> MicroBatch:
        return MicroBatch(query_id="replay", batch_id=self._number, digest=str(self._number))


@contextlib.contextmanager
def _connector(bootstrap: str, topic: str) -> Iterator[Client]:
    connection = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": topic, "topic": topic}
    options = sink_options({**connection, "kafka.request.timeout.ms": _GIVE_UP_MS})
    with Cluster(options.client) as cluster:
        yield _Connector(cluster, SharedTransaction(options, cluster, None), topic)


LIBRDKAFKA = "librdkafka"
CLIENTS: dict[str, Connect] = {LIBRDKAFKA: _librdkafka, "spark-kafka-eos": _connector}


def _word(commit: bool) -> str:
    return "commit" if commit else "abort"
