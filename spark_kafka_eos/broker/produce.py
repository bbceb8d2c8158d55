"""Append complete record batches to partitions, pipelined, in sequence order per partition, across retries.

The bytes of a batch never change once it was sent: a resend carries the same sequence, and the broker recognises it
(KIP-98, "idempotent producer"). Three rules keep the order of a partition:

- After a failure nothing more is sent to the partition until all it has in flight is answered; then everything that was
  not acknowledged is sent again, first sequence first. A batch behind a failed one is answered
  OUT_OF_ORDER_SEQUENCE_NUMBER, which is no error then.
- At most five batches of a partition are in flight, because the broker remembers five.
- The first batch goes alone. Where it knows nothing of a producer the broker takes any sequence, so a second batch
  could be appended in front of a first one that failed.

A broker takes one request of a connection after the other. So where there are megabytes to send a leader gets a second
connection, and reads from one while it appends what came by the other; a partition changes over only while it has
nothing in flight. First batches all go by the first one: they add partitions to the transaction, and of two requests
that do so at once a broker turns one away (AddPartitionsToTxnManager).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from kafka.protocol.producer.produce import ProduceRequest

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.connection import Connection
from spark_kafka_eos.broker.responses import incomplete
from spark_kafka_eos.broker.retry import pause
from spark_kafka_eos.broker.versions import transactional
from spark_kafka_eos.core.acl_hints import Subject
from spark_kafka_eos.core.error_codes import RETRIABLE, Reaction, failure, reaction
from spark_kafka_eos.errors import BrokerUnreachable, KafkaEosError
from spark_kafka_eos.model import Ack, ProducerIdentity, TopicPartition

_OUT_OF_ORDER_SEQUENCE = 45
_DUPLICATE_SEQUENCE = 46
_CONNECTIONS = 2  # to each leader, at most
_WORTH_A_CONNECTION = 1 << 20  # bytes in flight
_REQUEST_BYTES = 8 << 20  # several partitions share a request up to this; brokers refuse 100 MB


@dataclass(slots=True, kw_only=True, eq=False)
class _Batch:
    data: bytes | bytearray | memoryview
    records: int
    base_sequence: int
    size: int
    sent: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class _Lane:
    """One partition: what waits, what is in flight, what failed and waits for the rest to be answered."""

    partition: TopicPartition
    waiting: deque[_Batch] = field(default_factory=deque)
    in_flight: deque[_Batch] = field(default_factory=deque)
    failed: list[_Batch] = field(default_factory=list)
    known: bool = False  # to the broker, by an acknowledged batch
    sent_to: tuple[int, int] = (-1, 0)  # leader, and which connection to it

    def may_send(self, max_in_flight: int) -> bool:
        return bool(self.waiting) and not self.failed and len(self.in_flight) < (max_in_flight if self.known else 1)

    def settle(self) -> int:
        """Once nothing is in flight any more, what failed is the next to be sent, in its old order: so many bytes."""
        if self.in_flight:
            return 0
        size = sum(batch.size for batch in self.failed)
        self.waiting.extendleft(reversed(self.failed))
        self.failed.clear()
        return size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _InFlight:
    connection: Connection
    correlation_id: int
    lanes: tuple[_Lane, ...]  # one batch of each, the oldest it has in flight


class Appender:
    """Appends record batches, stamped already with producer id, epoch and sequence; collects the acknowledgements.

    `identity` must be what the batches are stamped with: of a transaction, idempotent (empty transactional_id), or None
    for neither. `transaction_version` is the transaction's (by default the cluster's); the wrong one would mix
    protocols. `max_held_bytes` bounds what is queued and in flight: `append` blocks above it. Up to `linger_bytes` are
    gathered before the first request, so that partitions share it: the broker takes one request after the other, and in
    TV2 each costs it a round trip to the coordinator when it holds new partitions. Not for several threads.

    Rides through moved leaders and lost connections within delivery.timeout.ms. Raises InvalidRow for a record the
    broker will never take, TransactionAborted when this try of the batch is void, UnknownTopic, AuthorizationFailed,
    ProducerFenced, BrokerError, BrokerUnreachable; then all in flight is given up, and the object with it.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: ProducerIdentity | None,
        *,
        transaction_version: int | None = None,
        acks: int = -1,
        max_in_flight: int = 5,
        max_held_bytes: int = 32 << 20,
        linger_bytes: int = 4 << 20,
    ) -> None:
        self._cluster, self._acks = cluster, acks
        self._transactional_id = identity.transactional_id or None if identity else None
        self._max_in_flight = max_in_flight if identity else 1
        self._newest: int | None = None
        if self._transactional_id is not None:
            version = cluster.transaction_version() if transaction_version is None else transaction_version
            self._newest = transactional("Produce", version)
        self._max_held_bytes, self._held_bytes = max_held_bytes, 0
        self._linger_bytes, self._waiting_bytes = linger_bytes, 0
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._flights: deque[_InFlight] = deque()
        self._acks_in: list[Ack] = []
        self._budget = cluster.budget(cluster.options.delivery_timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def append(
        self, partition: TopicPartition, batch: bytes | bytearray | memoryview, records: int, base_sequence: int
    ) -> None:
        """Queue one record batch, which must not be changed until it is flushed; sends what may be sent."""
        if not self._held_bytes:
            self._budget.restart()
        lane = self._lanes.setdefault(partition, _Lane(partition=partition))
        size = len(batch)
        lane.waiting.append(_Batch(data=batch, records=records, base_sequence=base_sequence, size=size))
        self._held_bytes += size
        self._waiting_bytes += size
        try:
            if self._waiting_bytes >= self._linger_bytes or self._held_bytes > self._max_held_bytes:
                self._send()
            while self._flights and (self._held_bytes > self._max_held_bytes or self._flights[0].connection.readable()):
                self._receive()
        except BaseException:
            self.close()
            raise

    def flush(self) -> list[Ack]:
        """Wait until everything is acknowledged; returns the acknowledgements since the last flush."""
        try:
            while self._held_bytes:
                self._send()
                self._receive()
        except BaseException:
            self.close()
            raise
        acks, self._acks_in = self._acks_in, []
        return acks

    def close(self) -> None:
        """Give up what is queued and in flight (the broker may still append what it has received)."""
        for flight in self._flights:
            flight.connection.close()
        self._flights.clear()
        self._lanes.clear()
        self._held_bytes = self._waiting_bytes = 0

    # -- sending

    def _send(self) -> None:
        """Requests by each connection that has room, each with one batch of every partition of it that may send."""
        while True:
            try:
                ready = self._ready()
                sent = [self._send_to(self._cluster.connection(*to), lanes) for to, lanes in ready.items()]
                if not any(sent):
                    return
            except BrokerUnreachable as error:
                self._recover(error, Reaction.REFRESH_METADATA)

    def _ready(self) -> dict[tuple[int, int], list[_Lane]]:
        """The partitions that may send, by their leader and the number of the connection to it."""
        busy: Counter[tuple[int, int]] = Counter()  # bytes in flight
        for lane in self._lanes.values():
            busy[lane.sent_to] += sum(batch.size for batch in lane.in_flight)
        ready: dict[tuple[int, int], list[_Lane]] = {}
        for lane in self._lanes.values():
            if not lane.may_send(self._max_in_flight):
                continue
            leader = self._cluster.leader(lane.partition)
            numbers = [lane.sent_to[1]] if lane.in_flight else range(_CONNECTIONS if lane.known else 1)
            ways = [(leader, number) for number in numbers]
            lane.sent_to = min(ways, key=lambda way: busy[way] // _WORTH_A_CONNECTION)
            busy[lane.sent_to] += lane.waiting[0].size
            ready.setdefault(lane.sent_to, []).append(lane)
        return ready

    def _send_to(self, connection: Connection, lanes: list[_Lane]) -> bool:
        if connection.in_flight >= self._max_in_flight:
            return False
        chosen: list[_Lane] = []
        size = 0
        for lane in lanes:
            size += lane.waiting[0].size
            if chosen and size > _REQUEST_BYTES:
                break
            chosen.append(lane)
        request = self._request(chosen)
        for lane in chosen:
            batch = lane.waiting.popleft()
            self._waiting_bytes -= batch.size
            batch.sent += 1
            lane.in_flight.append(batch)
        try:
            correlation_id = connection.send(request, newest=self._newest)
        except BrokerUnreachable:
            self._unanswered(chosen)
            self._lost(connection)
            raise
        self._flights.append(_InFlight(connection=connection, correlation_id=correlation_id, lanes=tuple(chosen)))
        return True

    def _request(self, lanes: Iterable[_Lane]) -> Any:
        topic_class: Any = ProduceRequest.TopicProduceData
        topics: dict[str, list[Any]] = {}
        for lane in lanes:
            topics.setdefault(lane.partition.topic, []).append(
                topic_class.PartitionProduceData(index=lane.partition.partition, records=lane.waiting[0].data)
            )
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._cluster.options.request_timeout_ms // 2,  # the broker gives up first, and says so
            topic_data=[topic_class(name=topic, partition_data=partitions) for topic, partitions in topics.items()],
        )

    # -- answers

    def _receive(self) -> None:
        """Settle the oldest request in flight."""
        flight = self._flights.popleft()
        try:
            response = flight.connection.receive(flight.correlation_id)
        except BrokerUnreachable as error:
            self._unanswered(flight.lanes)
            self._lost(flight.connection)
            self._recover(error, Reaction.REFRESH_METADATA)
            return
        answers = {
            TopicPartition(topic.name, p.index): p for topic in response.responses for p in topic.partition_responses
        }
        trouble: tuple[KafkaEosError, Reaction] | None = None
        if useless := incomplete("Produce", (lane.partition for lane in flight.lanes), answers):
            flight.connection.close()
            self._unanswered(flight.lanes)
            self._lost(flight.connection)
            self._recover(useless, Reaction.REFRESH_METADATA)
            return
        for lane in flight.lanes:
            trouble = self._settle(lane, answers[lane.partition]) or trouble
        if trouble is not None:
            self._recover(*trouble)
        self._send()

    def _settle(self, lane: _Lane, answer: Any) -> tuple[KafkaEosError, Reaction] | None:
        """Account for the lane's oldest batch; returns what to recover from, raises what no retry mends."""
        batch = lane.in_flight.popleft()
        code, trouble = answer.error_code, None
        if not code or (code == _DUPLICATE_SEQUENCE and batch.sent > 1):
            self._acknowledge(lane, batch, answer.base_offset if not code else -1)
        elif code == _OUT_OF_ORDER_SEQUENCE and lane.failed:
            lane.failed.append(batch)  # only because the one before it failed
        else:
            what = f", a record batch of {batch.records} records and {batch.size} bytes"
            details = [answer.error_message, *(e.batch_index_error_message for e in answer.record_errors)]
            subject = Subject(
                partition=lane.partition,
                transactional_id=self._transactional_id or "",
                note=": ".join([what, *dict.fromkeys(filter(None, details))]),
            )
            error = failure("Produce", code, subject)
            react = reaction("Produce", code)
            if react not in RETRIABLE:
                raise error
            lane.failed.append(batch)
            trouble = error, react
        self._waiting_bytes += lane.settle()
        return trouble

    def _acknowledge(self, lane: _Lane, batch: _Batch, base_offset: int) -> None:
        lane.known = True
        self._held_bytes -= batch.size
        self._budget.restart()
        self._acks_in.append(
            Ack(
                partition=lane.partition,
                base_sequence=batch.base_sequence,
                records=batch.records,
                bytes=batch.size,
                base_offset=base_offset,
            )
        )

    def _unanswered(self, lanes: Iterable[_Lane]) -> None:
        for lane in lanes:
            lane.failed.append(lane.in_flight.popleft())
            self._waiting_bytes += lane.settle()

    def _lost(self, connection: Connection) -> None:
        for flight in [flight for flight in self._flights if flight.connection is connection]:
            self._flights.remove(flight)
            self._unanswered(flight.lanes)

    def _recover(self, error: KafkaEosError, react: Reaction) -> None:
        pause(error, react, self._budget, self._cluster.sleep)
        if react is Reaction.REFRESH_METADATA:
            topics = {lane.partition.topic for lane in self._lanes.values() if lane.waiting or lane.failed}
            self._cluster.refresh(topics)
