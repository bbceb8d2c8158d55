"""Decides what to send next, and what a response means: the order of record batches in each partition, with retries.
Pure.

It has no sockets and no clock. The caller reports what happened (`queued`, `sent`, `answered`, `lost`) and performs
what the plan returns: send a `SendRequest`, keep an `Ack`, perform a `Recover` before the next attempt, raise an error.

The bytes of a batch do not change after it was sent: a retry has the same sequence number, so the broker recognizes it
(KIP-98, "idempotent producer"). There is one exception, where idempotence is only requested:
UNSUPPORTED_FOR_MESSAGE_FORMAT says that the partition's message format has no room for a producer id, and that nothing
was appended. From then on this partition's batches are sent without one, one at a time. Other partitions go on as
before.

Three rules preserve the order in a partition:

- After a failure, nothing is sent to the partition until all its requests in flight are answered. Then everything that
  was not acknowledged is sent again, lowest sequence number first. A batch after a failed one is answered with
  OUT_OF_ORDER_SEQUENCE_NUMBER, which is not an error in this case.
- A batch is sent if at most four before it are not acknowledged, because the broker remembers five. It would take an
  older one that is sent once more for a gap. So it is not enough to count those in flight: behind one that failed,
  others may have been acknowledged.
- The first batch is sent alone. If a broker does not know a producer, it accepts any sequence number, so a second batch
  could be appended before a first one that failed.

A broker handles the requests of a connection one after the other. So if there are megabytes to send, a second
connection to the leader is opened: the broker reads from one while it appends what it received on the other. A
partition only switches connections while it has nothing in flight. All first batches use the first connection: they add
partitions to the transaction, and of two such requests at the same time, a broker rejects one
(AddPartitionsToTxnManager).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_kafka_eos.kafka.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import Ack
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.error_codes import RETRIABLE, Reaction, failure, reaction

_CONNECTIONS = 2  # to each leader, at most
_WORTH_A_CONNECTION = 1 << 20  # bytes in flight
_REQUEST_BYTES = 8 << 20  # maximum if several partitions share a request; brokers reject 100 MB


class LeaderConnection(NamedTuple):
    """The connection of a request: the leader's node id, and the number of the connection to it."""

    leader: int
    number: int


@dataclass(slots=True, kw_only=True, eq=False)
class Batch:
    """A record batch to append. `number` counts the batches of its partition, `sent` its attempts. Of a partition that
    `is_without_producer_id`, the sender takes the producer id out of the batch before it sends it, and sets
    `without_producer_id`.
    """

    partition: TopicPartition
    data: bytes | bytearray | memoryview
    records: int
    base_sequence: int
    size: int
    number: int
    sent: int = 0
    without_producer_id: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SendRequest:
    """One batch each of several partitions, sent together."""

    connection: LeaderConnection
    batches: Sequence[Batch]


class PartitionResponse(NamedTuple):
    """The leader's response for one batch; `details` are its messages for an error code."""

    code: int
    base_offset: int = -1
    details: Sequence[str] = ()


class Recover(NamedTuple):
    """What to do before the next attempt, unless time is up; look up `topics` again."""

    error: KafkaEosError
    reaction: Reaction
    topics: frozenset[str]


@dataclass(slots=True, kw_only=True, eq=False)
class _PartitionQueue:
    """One partition: batches that wait, are in flight, or failed and wait for the other responses."""

    queued: int = 0
    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)  # the oldest first
    failed: list[Batch] = field(default_factory=list)
    acknowledged: bool = False  # the broker knows the producer: a batch was acknowledged
    without_producer_id: bool = False
    connection: int = 0  # the number of the one that the last batch took

    def may_send(self, max_in_flight: int) -> bool:
        if not self.waiting or self.failed:
            return False
        if self.without_producer_id or not self.acknowledged:
            return not self.in_flight
        oldest = (self.in_flight or self.waiting)[0]
        return self.waiting[0].number < oldest.number + max_in_flight

    def is_behind_another(self, batch: Batch) -> bool:
        """Whether an earlier one failed or may still fail."""
        return any(other.number < batch.number for other in (*self.failed, *self.in_flight))

    def requeue_failed(self) -> int:
        """If nothing is in flight, queue the failed batches again, in their order. Returns their size in bytes."""
        if self.in_flight or not self.failed:
            return 0
        again = sorted(self.failed, key=lambda batch: batch.number)
        self.waiting.extendleft(reversed(again))
        self.failed.clear()
        return sum(batch.size for batch in again)


class SendPlan:
    """The record batches of one producer, each from `queued` to its `Ack`.

    `max_in_flight` limits the batches of a partition and the requests of a connection. The plan is `due` when at least
    `linger_bytes` have gathered since it was last asked what to send, and `full` when more than `max_held_bytes` wait
    or are in flight. `transactional_id` is for messages. If idempotence is only `requested`, partitions whose format
    has no room for a producer id are appended to without one; `without` has the topics that are known to be such.
    """

    def __init__(
        self,
        *,
        transactional_id: str = "",
        max_in_flight: int,
        max_held_bytes: int,
        linger_bytes: int,
        requested: bool = False,
        without: Iterable[str] = (),
    ) -> None:
        self._transactional_id = transactional_id
        self._max_in_flight, self._max_held_bytes, self._linger_bytes = max_in_flight, max_held_bytes, linger_bytes
        self._requested, self._without = requested, frozenset(without)
        self.refused: dict[str, KafkaEosError] = {}  # the topics that answered so, with the first answer
        self._queues: dict[TopicPartition, _PartitionQueue] = {}
        self._sendable: dict[TopicPartition, None] = {}  # the queues that may send, the first to become so first
        self._requests: defaultdict[LeaderConnection, int] = defaultdict(int)  # in flight
        self._bytes: defaultdict[LeaderConnection, int] = defaultdict(int)  # in flight
        self.held_bytes = 0  # not acknowledged yet
        self._gathered_bytes = 0  # since `sendable` was asked for

    # -- what happened

    def queued(
        self, partition: TopicPartition, data: bytes | bytearray | memoryview, records: int, base_sequence: int
    ) -> None:
        """Add a batch to append after those that were queued before for its partition."""
        if partition not in self._queues:
            is_old_format = partition.topic in self._without or partition.topic in self.refused
            self._queues[partition] = _PartitionQueue(without_producer_id=self._requested and is_old_format)
        queue = self._queues[partition]
        size = len(data)
        batch = Batch(
            partition=partition,
            data=data,
            records=records,
            base_sequence=base_sequence,
            size=size,
            number=queue.queued,
        )
        queue.queued += 1
        queue.waiting.append(batch)
        self.held_bytes += size
        self._gathered_bytes += size
        self._note(partition)

    def sent(self, request: SendRequest) -> None:
        """The request is in flight. Call it before the first byte is sent."""
        self._requests[request.connection] += 1
        for batch in request.batches:
            queue = self._queues[batch.partition]
            queue.in_flight.append(queue.waiting.popleft())
            queue.connection = request.connection.number
            batch.sent += 1
            self._bytes[request.connection] += batch.size
            self._sendable.pop(batch.partition, None)
            self._note(batch.partition)

    def answered(
        self, request: SendRequest, answers: Mapping[TopicPartition, PartitionResponse]
    ) -> list[Ack | Recover]:
        """Handle the broker's response for each batch of the request; raise an error that is not retriable."""
        self._landed(request)
        actions: list[Ack | Recover] = []
        trouble: tuple[KafkaEosError, Reaction] | None = None
        for batch in request.batches:
            queue, answer = self._queues[batch.partition], answers[batch.partition]
            if not answer.code or (answer.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and batch.sent > 1):
                queue.acknowledged = True
                self.held_bytes -= batch.size
                actions.append(_acknowledged(batch, answer.base_offset if not answer.code else -1))
            elif answer.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.is_behind_another(batch):
                queue.failed.append(batch)
            elif (
                answer.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
                and self._requested
                and not batch.without_producer_id
            ):
                queue.without_producer_id = True
                queue.failed.append(batch)
                self.refused.setdefault(batch.partition.topic, self._failure(batch, answer))
            else:
                trouble = self._trouble(batch, answer)
                queue.failed.append(batch)
            self._gathered_bytes += queue.requeue_failed()
            self._note(batch.partition)
        if trouble is not None:
            actions.append(self._recover(*trouble))
        return actions

    def lost(self, requests: Iterable[SendRequest]) -> None:
        """A connection was lost: the outcome of these requests, all that were in flight on it, is unknown."""
        for request in requests:
            self._landed(request)
            for batch in request.batches:
                self._queues[batch.partition].failed.append(batch)
        for tp, queue in self._queues.items():
            self._gathered_bytes += queue.requeue_failed()
            self._note(tp)

    def unreachable(self, error: KafkaEosError) -> Recover:
        """A leader could not be found or reached, or closed the connection."""
        return self._recover(error, Reaction.REFRESH_METADATA)

    def given_up(self) -> None:
        """Drop everything that is queued or in flight."""
        self._queues.clear()
        self._sendable.clear()
        self._requests.clear()
        self._bytes.clear()
        self.held_bytes = self._gathered_bytes = 0

    # -- what to do

    def is_without_producer_id(self, partition: TopicPartition) -> bool:
        """Whether this partition, which has a batch, is appended to without the producer id that was requested."""
        return self._queues[partition].without_producer_id

    @property
    def due(self) -> bool:
        return self._gathered_bytes >= self._linger_bytes or self.full

    @property
    def full(self) -> bool:
        return self.held_bytes > self._max_held_bytes

    def sendable(self) -> list[TopicPartition]:
        """The partitions with a batch that may be sent now; `requests` needs their leaders. What cannot be sent now is
        not `due` again before more has gathered: it waits for an answer, and is looked at then.
        """
        self._gathered_bytes = 0
        return list(self._sendable)

    def requests(self, leaders: Mapping[TopicPartition, int]) -> list[SendRequest]:
        """One request for each connection that has room, with one batch of each of its partitions in `leaders`.

        These are proposals, which take effect with `sent`. After `lost` or `answered`, the remaining ones are outdated.
        """
        load = self._bytes.copy()
        ready: dict[LeaderConnection, list[Batch]] = {}
        for tp, leader in leaders.items():
            queue = self._queues[tp]
            connection = LeaderConnection(leader, queue.connection)
            if queue.acknowledged and not queue.in_flight:
                connections = [LeaderConnection(leader, number) for number in range(_CONNECTIONS)]
                connection = min(connections, key=lambda connection: load[connection] // _WORTH_A_CONNECTION)
            load[connection] += queue.waiting[0].size
            ready.setdefault(connection, []).append(queue.waiting[0])
        return [
            SendRequest(connection=connection, batches=_one_request(batches))
            for connection, batches in ready.items()
            if self._requests[connection] < self._max_in_flight
        ]

    # -- inside

    def _note(self, tp: TopicPartition) -> None:
        """Note whether the queue may send: with thousands of partitions, not all can be looked at for each request."""
        if self._queues[tp].may_send(self._max_in_flight):
            self._sendable[tp] = None
        else:
            self._sendable.pop(tp, None)

    def _landed(self, request: SendRequest) -> None:
        self._requests[request.connection] -= 1
        for batch in request.batches:
            self._queues[batch.partition].in_flight.remove(batch)
            self._bytes[request.connection] -= batch.size

    def _failure(self, batch: Batch, answer: PartitionResponse) -> KafkaEosError:
        what = f", a record batch of {batch.records} records and {batch.size} bytes"
        resource = ResourceRef(
            partition=batch.partition,
            transactional_id=self._transactional_id,
            note=": ".join([what, *dict.fromkeys(filter(None, answer.details))]),
        )
        return failure("Produce", answer.code, resource)

    def _trouble(self, batch: Batch, answer: PartitionResponse) -> tuple[KafkaEosError, Reaction]:
        """The error to recover from; raises one that is not retriable."""
        error = self._failure(batch, answer)
        react = reaction("Produce", answer.code)
        if react not in RETRIABLE:
            raise error
        return error, react

    def _recover(self, error: KafkaEosError, react: Reaction) -> Recover:
        topics: frozenset[str] = frozenset()
        if react is Reaction.REFRESH_METADATA:
            topics = frozenset(tp.topic for tp, queue in self._queues.items() if queue.waiting or queue.failed)
        return Recover(error, react, topics)


def _acknowledged(batch: Batch, base_offset: int) -> Ack:
    return Ack(
        partition=batch.partition,
        base_sequence=batch.base_sequence,
        records=batch.records,
        bytes=batch.size,
        base_offset=base_offset,
    )


def _one_request(batches: Sequence[Batch]) -> Sequence[Batch]:
    """As many batches as fit into one request: at least the first."""
    size = 0
    for count, batch in enumerate(batches):
        size += batch.size
        if count and size > _REQUEST_BYTES:
            return batches[:count]
    return batches
