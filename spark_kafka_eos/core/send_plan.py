"""What to send next, and what an answer means: the order of record batches within each partition, across retries.

Without sockets and without a clock: whoever has those tells what happened (`queued`, `sent`, `answered`, `lost`), and
performs what the plan answers: a `Request` is to be sent, an `Ack` to be kept, a `Recover` to be done before the next
try, an error to be raised.

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

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_kafka_eos.core.acl_hints import Subject
from spark_kafka_eos.core.error_codes import RETRIABLE, Reaction, failure, reaction
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.model import Ack, TopicPartition

_OUT_OF_ORDER_SEQUENCE = 45
_DUPLICATE_SEQUENCE = 46
_CONNECTIONS = 2  # to each leader, at most
_WORTH_A_CONNECTION = 1 << 20  # bytes in flight
_REQUEST_BYTES = 8 << 20  # several partitions share a request up to this; brokers refuse 100 MB


class Way(NamedTuple):
    """By which connection a request goes: the leader's node id, and which of the connections to it."""

    leader: int
    number: int


@dataclass(slots=True, kw_only=True, eq=False)
class Batch:
    """A record batch on its way into the log; `number` counts those of its partition, `sent` how often it was."""

    partition: TopicPartition
    data: bytes | bytearray | memoryview
    records: int
    base_sequence: int
    size: int
    number: int
    sent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """One batch each of several partitions, to go together."""

    way: Way
    batches: Sequence[Batch]


class Answer(NamedTuple):
    """The leader's word on one batch; `details` are what it says beside an error code."""

    code: int
    base_offset: int = -1
    details: Sequence[str] = ()


class Recover(NamedTuple):
    """To be done before the next try, for as long as time is left; `topics` are to be looked up again."""

    error: KafkaEosError
    reaction: Reaction
    topics: frozenset[str]


@dataclass(slots=True, kw_only=True, eq=False)
class _Lane:
    """One partition: what waits, what is in flight, what failed and waits for the rest to be answered."""

    queued: int = 0
    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    failed: list[Batch] = field(default_factory=list)
    known: bool = False  # to the broker, by an acknowledged batch
    went_by: int = 0  # which connection, the last batch

    def may_send(self, max_in_flight: int) -> bool:
        return bool(self.waiting) and not self.failed and len(self.in_flight) < (max_in_flight if self.known else 1)

    def is_behind_another(self, batch: Batch) -> bool:
        """Whether one before it failed, or may yet turn out to have failed."""
        return any(other.number < batch.number for other in (*self.failed, *self.in_flight))

    def settle(self) -> int:
        """Once nothing is in flight any more, what failed is the next to be sent, in its old order: so many bytes."""
        if self.in_flight or not self.failed:
            return 0
        again = sorted(self.failed, key=lambda batch: batch.number)
        self.waiting.extendleft(reversed(again))
        self.failed.clear()
        return sum(batch.size for batch in again)


class SendPlan:
    """The record batches of one producer, each from `queued` to its `Ack`.

    `max_in_flight` bounds a partition's batches and a connection's requests. The plan is `due` to be sent from where
    `linger_bytes` wait, and `full` above `max_held_bytes`, waiting and in flight. `transactional_id` is for messages.
    """

    def __init__(
        self, *, transactional_id: str = "", max_in_flight: int, max_held_bytes: int, linger_bytes: int
    ) -> None:
        self._transactional_id = transactional_id
        self._max_in_flight, self._max_held_bytes, self._linger_bytes = max_in_flight, max_held_bytes, linger_bytes
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._requests: defaultdict[Way, int] = defaultdict(int)  # in flight
        self._bytes: defaultdict[Way, int] = defaultdict(int)  # in flight
        self.held_bytes = 0  # not acknowledged yet
        self._waiting_bytes = 0

    # -- what happened

    def queued(
        self, partition: TopicPartition, data: bytes | bytearray | memoryview, records: int, base_sequence: int
    ) -> None:
        """A batch is to be appended, behind those of its partition that were queued before."""
        lane = self._lanes.setdefault(partition, _Lane())
        size = len(data)
        batch = Batch(
            partition=partition,
            data=data,
            records=records,
            base_sequence=base_sequence,
            size=size,
            number=lane.queued,
        )
        lane.queued += 1
        lane.waiting.append(batch)
        self.held_bytes += size
        self._waiting_bytes += size

    def sent(self, request: Request) -> None:
        """The request is in flight, or partly, or perhaps: before its first byte goes out."""
        self._requests[request.way] += 1
        for batch in request.batches:
            lane = self._lanes[batch.partition]
            lane.in_flight.append(lane.waiting.popleft())
            lane.went_by = request.way.number
            batch.sent += 1
            self._waiting_bytes -= batch.size
            self._bytes[request.way] += batch.size

    def answered(self, request: Request, answers: Mapping[TopicPartition, Answer]) -> list[Ack | Recover]:
        """The broker's answer for each of the request's batches; raises what no retry mends."""
        self._landed(request)
        actions: list[Ack | Recover] = []
        trouble: tuple[KafkaEosError, Reaction] | None = None
        for batch in request.batches:
            lane, answer = self._lanes[batch.partition], answers[batch.partition]
            if not answer.code or (answer.code == _DUPLICATE_SEQUENCE and batch.sent > 1):
                lane.known = True
                self.held_bytes -= batch.size
                actions.append(_acknowledged(batch, answer.base_offset if not answer.code else -1))
            elif answer.code == _OUT_OF_ORDER_SEQUENCE and lane.is_behind_another(batch):
                lane.failed.append(batch)
            else:
                trouble = self._trouble(batch, answer)
                lane.failed.append(batch)
            self._waiting_bytes += lane.settle()
        if trouble is not None:
            actions.append(self._recover(*trouble))
        return actions

    def lost(self, requests: Iterable[Request]) -> None:
        """A connection was lost: nobody will tell what became of these, which are all that were in flight by it."""
        for request in requests:
            self._landed(request)
            for batch in request.batches:
                self._lanes[batch.partition].failed.append(batch)
        for lane in self._lanes.values():
            self._waiting_bytes += lane.settle()

    def unreachable(self, error: KafkaEosError) -> Recover:
        """A leader could not be found or reached, or hung up."""
        return self._recover(error, Reaction.REFRESH_METADATA)

    def given_up(self) -> None:
        """Nothing of what is queued and in flight is to be sent any more."""
        self._lanes.clear()
        self._requests.clear()
        self._bytes.clear()
        self.held_bytes = self._waiting_bytes = 0

    # -- what to do

    @property
    def due(self) -> bool:
        return self._waiting_bytes >= self._linger_bytes or self.full

    @property
    def full(self) -> bool:
        return self.held_bytes > self._max_held_bytes

    def sendable(self) -> list[TopicPartition]:
        """The partitions with a batch that may be sent now, whose leaders `requests` must know."""
        return [tp for tp, lane in self._lanes.items() if lane.may_send(self._max_in_flight)]

    def requests(self, leaders: Mapping[TopicPartition, int]) -> list[Request]:
        """One request by each connection that has room, with one batch of every partition of it in `leaders`.

        Proposals: each counts from `sent` on. What is left of them after `lost` or `answered` is out of date.
        """
        load = self._bytes.copy()
        ready: dict[Way, list[Batch]] = {}
        for tp, leader in leaders.items():
            lane = self._lanes[tp]
            way = Way(leader, lane.went_by)
            if lane.known and not lane.in_flight:
                ways = [Way(leader, number) for number in range(_CONNECTIONS)]
                way = min(ways, key=lambda way: load[way] // _WORTH_A_CONNECTION)
            load[way] += lane.waiting[0].size
            ready.setdefault(way, []).append(lane.waiting[0])
        return [
            Request(way=way, batches=_one_request(batches))
            for way, batches in ready.items()
            if self._requests[way] < self._max_in_flight
        ]

    # -- inside

    def _landed(self, request: Request) -> None:
        self._requests[request.way] -= 1
        for batch in request.batches:
            self._lanes[batch.partition].in_flight.remove(batch)
            self._bytes[request.way] -= batch.size

    def _trouble(self, batch: Batch, answer: Answer) -> tuple[KafkaEosError, Reaction]:
        """What to recover from; raises what no retry mends."""
        what = f", a record batch of {batch.records} records and {batch.size} bytes"
        subject = Subject(
            partition=batch.partition,
            transactional_id=self._transactional_id,
            note=": ".join([what, *dict.fromkeys(filter(None, answer.details))]),
        )
        error = failure("Produce", answer.code, subject)
        react = reaction("Produce", answer.code)
        if react not in RETRIABLE:
            raise error
        return error, react

    def _recover(self, error: KafkaEosError, react: Reaction) -> Recover:
        topics: frozenset[str] = frozenset()
        if react is Reaction.REFRESH_METADATA:
            topics = frozenset(tp.topic for tp, lane in self._lanes.items() if lane.waiting or lane.failed)
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
    """As many of the batches as go together: at least the first."""
    size = 0
    for count, batch in enumerate(batches):
        size += batch.size
        if count and size > _REQUEST_BYTES:
            return batches[:count]
    return batches
