"""Appends complete record batches to partitions, pipelined: sends over connections what `send_plan` decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kafka.protocol.producer.produce import ProduceRequest

from spark_kafka_eos.kafka.errors import BrokerUnreachable, InvalidRow, KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import Ack, ProducerIdentity
from spark_kafka_eos.kafka.producing.send_plan import Batch, PartitionResponse, Recover, SendPlan, SendRequest
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.kafka.protocol.responses import incomplete
from spark_kafka_eos.kafka.protocol.retry import new_request, pause
from spark_kafka_eos.kafka.protocol.versions import transactional
from spark_kafka_eos.kafka.reserved_topics import ReservedTopics
from spark_kafka_eos.kafka.wire.record_batch import stamp_without_producer_id


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SentRequest:
    connection: Connection
    correlation_id: int
    request: SendRequest


class Appender:
    """Appends record batches that are already stamped with producer id, epoch and sequence; collects acknowledgements.

    `identity` must be that of the batches: transactional, idempotent (empty transactional_id), or None for neither. If
    it is only `requested`, batches (bytearrays) for a topic whose message format has no room for it are appended
    without it: for the topics in `without` at once, for others when a leader says so, which is then in `refused`.
    `transaction_version` is the transaction's (by default the cluster's); another one would mix protocols.
    Nothing is sent to a topic that `Cluster.why_reserved` names for `reserved`; None is for who writes such a topic.
    `own` topics are not checked: those that the caller itself writes beside what others gave it.
    `max_in_flight` limits a partition's requests in flight: by default 5 (KIP-98), and 1 without idempotence, where
    more could change the order when one is sent again.
    `max_held_bytes` limits what is queued and in flight; `append` blocks above it. Up to `linger_bytes` are collected
    before the first request, so that partitions share it: the broker handles one request after the other, and in TV2
    each request with new partitions costs a round trip to the coordinator. Not thread-safe.

    Tolerates moved leaders and lost connections within delivery.timeout.ms. Raises InvalidRow for a record that the
    broker will never accept, TransactionAborted if this attempt is aborted, UnknownTopic, AuthorizationFailed,
    ProducerFenced, BrokerError, BrokerUnreachable. After an error, the object cannot be used.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: ProducerIdentity | None,
        *,
        transaction_version: int | None = None,
        acks: int = -1,
        max_in_flight: int | None = None,
        max_held_bytes: int = 32 << 20,
        linger_bytes: int = 4 << 20,
        reserved: ReservedTopics | None = ReservedTopics(),  # noqa: B008 - frozen
        own: Iterable[str] = (),
        without: Iterable[str] = (),
    ) -> None:
        self._cluster, self._acks = cluster, acks
        self._transactional_id = identity.transactional_id or None if identity else None
        self._newest: int | None = None
        if self._transactional_id is not None:
            version = cluster.transaction_version() if transaction_version is None else transaction_version
            self._newest = transactional("Produce", version)
        self._plan = SendPlan(
            transactional_id=self._transactional_id or "",
            max_in_flight=max_in_flight or (5 if identity else 1),
            max_held_bytes=max_held_bytes,
            linger_bytes=linger_bytes,
            requested=identity is not None and identity.requested,
            without=without,
        )
        self._reserved = reserved
        self._allowed = set(own)
        self._looked_up = False
        self._flights: deque[_SentRequest] = deque()
        self._acks_in: list[Ack] = []
        self._budget = cluster.budget(cluster.options.delivery_timeout_ms)
        self._failing = new_request()

    @property
    def refused(self) -> Mapping[str, KafkaEosError]:
        """The topics whose leaders take no producer id, with what one of them answered."""
        return self._plan.refused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def append(
        self, partition: TopicPartition, batch: bytes | bytearray | memoryview, records: int, base_sequence: int
    ) -> None:
        """Queue one record batch, which must not be changed until it is flushed; send what can be sent."""
        if not self._plan.held_bytes:
            self._budget.restart()
        self._plan.queued(partition, batch, records, base_sequence)
        try:
            if self._plan.due:
                self._send()
            while self._flights and (self._plan.full or self._flights[0].connection.readable()):
                self._receive()
        except BaseException:
            self.close()
            raise

    def flush(self) -> list[Ack]:
        """Wait until everything is acknowledged; return the acknowledgements since the last flush."""
        try:
            while self._plan.held_bytes:
                self._send()
                self._receive()
        except BaseException:
            self.close()
            raise
        acks, self._acks_in = self._acks_in, []
        return acks

    def close(self) -> None:
        """Abandon what is queued and in flight (the broker may still append what it has received)."""
        for flight in self._flights:
            flight.connection.close()
        self._flights.clear()
        self._plan.given_up()

    def _send(self) -> None:
        """Send everything that can be sent."""
        while True:
            try:
                sendable = self._plan.sendable()
                self._cluster.look_up(tp.topic for tp in sendable)
                self.allow({tp.topic for tp in sendable})
                requests = self._plan.requests({tp: self._cluster.leader(tp) for tp in sendable})
                if not requests:
                    return
                for request in requests:
                    self._send_to(self._cluster.connection(*request.connection), request)
            except BrokerUnreachable as error:
                self._recover(self._plan.unreachable(error))

    def allow(self, topics: set[str]) -> None:
        """Raise InvalidRow for a reserved topic. What is sent is checked anyway;
        on TV1, this comes before its partitions are part of the transaction.
        """
        if self._reserved is None:
            return
        if not self._looked_up:
            self._cluster.look_up_reserved(self._reserved)
            self._looked_up = True
        for topic in sorted(topics - self._allowed):
            if (why := self._cluster.why_reserved(topic, self._reserved)) is not None:
                raise InvalidRow(
                    f"a record for topic {topic!r} was not sent: it {why}",
                    action="Correct the topic that the option, the row or the dead letter names.",
                )
            self._allowed.add(topic)

    def _send_to(self, connection: Connection, request: SendRequest) -> None:
        for batch in request.batches:
            if self._plan.is_without_producer_id(batch.partition) and not batch.without_producer_id:
                assert isinstance(batch.data, bytearray), "see the class"
                stamp_without_producer_id(batch.data)
                batch.without_producer_id = True
        self._plan.sent(request)
        try:
            correlation_id = connection.send(self._produce(request.batches), newest=self._newest)
        except BrokerUnreachable:
            self._lost(connection, request)
            raise
        self._flights.append(_SentRequest(connection=connection, correlation_id=correlation_id, request=request))

    def _produce(self, batches: Iterable[Batch]) -> Any:
        topic_class: Any = ProduceRequest.TopicProduceData
        topics: dict[str, list[Any]] = {}
        for batch in batches:
            topics.setdefault(batch.partition.topic, []).append(
                topic_class.PartitionProduceData(index=batch.partition.partition, records=batch.data)
            )
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._cluster.options.request_timeout_ms // 2,  # the broker gives up first, with an error
            topic_data=[topic_class(name=topic, partition_data=partitions) for topic, partitions in topics.items()],
        )

    def _receive(self) -> None:
        """Handle the response to the oldest request in flight."""
        flight = self._flights.popleft()
        try:
            answers = self._answers(flight)
        except BrokerUnreachable as error:
            flight.connection.close()
            self._lost(flight.connection, flight.request)
            self._recover(self._plan.unreachable(error))
            return
        for action in self._plan.answered(flight.request, answers):
            match action:
                case Ack():
                    self._budget.restart()
                    self._failing.got_through()
                    self._acks_in.append(action)
                case Recover():
                    self._recover(action)
        self._send()

    def _answers(self, flight: _SentRequest) -> dict[TopicPartition, PartitionResponse]:
        response = flight.connection.receive(flight.correlation_id)
        answers = {
            TopicPartition(topic.name, p.index): _answer(p)
            for topic in response.responses
            for p in topic.partition_responses
        }
        if useless := incomplete("Produce", (batch.partition for batch in flight.request.batches), answers):
            raise useless
        return answers

    def _lost(self, connection: Connection, request: SendRequest) -> None:
        """The connection was lost, with `request` and its other requests in flight."""
        others = [flight for flight in self._flights if flight.connection is connection]
        for flight in others:
            self._flights.remove(flight)
        self._plan.lost([request, *(flight.request for flight in others)])

    def _recover(self, needed: Recover) -> None:
        pause(needed.error, needed.reaction, self._budget, self._cluster.sleep, self._failing)
        if needed.topics:
            self._cluster.refresh(needed.topics, elsewhere=True)


def _answer(partition: Any) -> PartitionResponse:
    if not partition.error_code:
        return PartitionResponse(0, partition.base_offset)
    details = [partition.error_message, *(e.batch_index_error_message for e in partition.record_errors)]
    return PartitionResponse(partition.error_code, details=details)
