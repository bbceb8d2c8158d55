"""Fetches ranges of offsets as whole record batches from the partitions' leaders, or from followers in the same rack.

`fetching.fetch_plan` decides what to request and what answers mean; this module performs its steps. While the caller
processes a response, the next request to each broker is already in flight.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from kafka.protocol.consumer.fetch import FetchRequest

from spark_kafka_eos.kafka.errors import BrokerUnreachable, CorruptRecordBatch
from spark_kafka_eos.kafka.fetching.fetch_plan import FetchPlan
from spark_kafka_eos.kafka.fetching.fetch_response import FetchResponse, PartitionData, read_fetch_response
from spark_kafka_eos.kafka.fetching.fetch_sizes import FetchSizes, SizeEstimates
from spark_kafka_eos.kafka.fetching.fetch_steps import (
    Answer,
    Arrival,
    Ask,
    BrokerStep,
    Fetched,
    FetchPartition,
    FindBounds,
    Locate,
    PartitionLeader,
    PartitionResult,
    ReadReplica,
    Receive,
    Refused,
    Step,
    Wait,
)
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import IsolationLevel, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection, wait_for_any
from spark_kafka_eos.kafka.protocol.log_pace import Failing
from spark_kafka_eos.kafka.protocol.offsets import ISOLATION_LEVELS, earliest, latest
from spark_kafka_eos.kafka.protocol.retry import log_and_sleep, new_request
from spark_kafka_eos.kafka.wire.record_batch import RecordBatches, extents, has_messages, scan

log = logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FetchInFlight:
    connection: Connection
    correlation_id: int
    parts: Mapping[tuple[uuid.UUID, int], FetchPartition]  # in the order of the request

    def has_come(self) -> bool:
        """Whether the response, or its loss, need not be waited for."""
        return self.connection.arrived(self.correlation_id)


class Fetcher:
    """Reads ranges of offsets. `fetch_max_bytes` limits a response, `max_partition_fetch_bytes` each partition in it.

    A larger record batch exceeds both (KIP-74). How much less is asked for follows the `estimates`, which earlier
    objects may share (`estimates_of`). A leader may send a reader with a `rack` to a follower there (KIP-392), as its
    `replica.selector.class` decides. With `headers_only`, a truncated record batch counts like a whole one: a broker
    returns whole ones, however large, only of a request's first partition (KIP-74).
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation_level: IsolationLevel = "read_committed",
        fetch_max_bytes: int = 50 << 20,
        max_partition_fetch_bytes: int = 8 << 20,
        fetch_max_wait_ms: int = 500,
        rack: str = "",
        headers_only: bool = False,
        estimates: SizeEstimates | None = None,
    ) -> None:
        self._cluster, self._rack = cluster, rack
        self._whole = not headers_only
        self._isolation_level: IsolationLevel = isolation_level
        self._fetch_max_wait_ms = fetch_max_wait_ms
        self._sizes = FetchSizes(
            fetch_max_bytes=fetch_max_bytes, max_partition_fetch_bytes=max_partition_fetch_bytes, estimates=estimates
        )

    def fetch(self, ranges: Sequence[OffsetRange]) -> Generator[Fetched, None, None]:
        """Read every range to its end (at most one per partition): partitions interleaved, each in order.

        Empty ranges need no request. Moved leaders, lost connections and throttling are handled, as long as some range
        makes progress within delivery.timeout.ms; the caller's own time does not count. Raises DataLoss for offsets
        that are gone, UnknownTopic, AuthorizationFailed, CorruptRecordBatch, BrokerError, BrokerUnreachable.
        """
        with contextlib.closing(self._steps(ranges)) as steps:
            yield from (step for step in steps if isinstance(step, Fetched))

    def follow(
        self, ranges: Sequence[OffsetRange], seconds_left: Callable[[], float]
    ) -> Generator[list[Fetched], None, None]:
        """Read on from where the ranges start, without end (theirs must be `NO_END`): what each answer of a broker has;
        an empty list before each wait for the next one, which ends after `fetch_max_wait_ms`, and once nothing is left
        of `seconds_left`. Raises what `fetch` raises. Close it to end it.
        """
        parts: list[Fetched] = []
        with contextlib.closing(self._steps(ranges, seconds_left)) as steps:
            for step in steps:
                if isinstance(step, Fetched):
                    parts.append(step)
                elif parts or isinstance(step, Receive):
                    yield parts
                    parts = []

    def _steps(
        self, ranges: Sequence[OffsetRange], seconds_left: Callable[[], float] | None = None
    ) -> Generator[Step, None, None]:
        """Each part that comes, and each other step before it is performed. With `seconds_left`, answers are waited for
        at most for as long.
        """
        plan = FetchPlan(
            ranges,
            sizes=self._sizes,
            clock=self._cluster.clock,
            budget=self._cluster.budget,
            patience_ms=self._cluster.options.delivery_timeout_ms,
            follows=seconds_left is not None,
        )
        in_flight: dict[int, _FetchInFlight] = {}
        failing = new_request()
        try:
            while (action := plan.next()) is not None:
                yield action
                match action:
                    case Fetched():
                        failing.got_through()
                    case Wait():
                        self._wait(action, failing, in_flight.values())
                    case _:
                        if isinstance(action, Receive) and seconds_left is not None:
                            action = replace(action, seconds=min(action.seconds, max(0.0, seconds_left())))
                        try:
                            self._perform(action, plan, in_flight)
                        except BrokerUnreachable as error:
                            plan.failed(action, error)
        finally:
            for flight in in_flight.values():
                flight.connection.close()  # its response would be taken for that of another request

    def _perform(self, action: BrokerStep, plan: FetchPlan, in_flight: dict[int, _FetchInFlight]) -> None:
        match action:
            case Ask(node=node):
                in_flight[node] = self._send(action)
            case Receive():
                self._receive(action, plan, in_flight)
            case Locate(partitions=partitions, outdated=topics):
                if topics:
                    self._cluster.refresh(topics, elsewhere=True)
                self._cluster.look_up(partition.topic for partition in partitions)
                plan.located({partition: self._leader(partition) for partition in partitions})
            case FindBounds(partitions=partitions):
                plan.bounded(self._bounds(partitions))

    def _receive(self, action: Receive, plan: FetchPlan, in_flight: dict[int, _FetchInFlight]) -> None:
        """Take the first answer, if one comes in time."""
        if len(action.nodes) > 1 or action.seconds < math.inf:
            _wait_for_any([in_flight[node] for node in action.nodes], action.seconds)
            nodes = [node for node in action.nodes if in_flight[node].has_come()][:1]
        else:
            nodes = [*action.nodes]
        for node in nodes:
            flight = in_flight.pop(node)
            try:
                answer = _answer(flight, whole=self._whole)
            except BrokerUnreachable as error:
                plan.failed(Receive(nodes=(node,)), error, _arrival(flight, is_cut=True))
            else:
                plan.answered(node, answer)

    def _wait(self, action: Wait, failing: Failing, in_flight: Collection[_FetchInFlight]) -> None:
        def sleep(seconds: float) -> None:
            if in_flight:
                _wait_for_any(in_flight, seconds)
            else:
                self._cluster.sleep(seconds)

        if action.because is not None:
            log_and_sleep(action.seconds, action.because, sleep, failing)
            return
        log.info("waiting %d ms for brokers that throttle this client, or failed", action.seconds * 1000)
        sleep(action.seconds)

    def _leader(self, partition: TopicPartition) -> PartitionLeader:
        return PartitionLeader(
            node=self._cluster.known_leader(partition),
            leader_epoch=self._cluster.leader_epoch(partition),
            topic_id=self._cluster.topic(partition.topic).id,
        )

    def _bounds(self, partitions: Iterable[TopicPartition]) -> list[OffsetRange]:
        first = earliest(self._cluster, partitions)
        end = latest(self._cluster, partitions, isolation_level=self._isolation_level)
        return [OffsetRange(partition=tp, start=first[tp], end=end[tp]) for tp in partitions]

    def _send(self, ask: Ask) -> _FetchInFlight:
        connection = self._cluster.connection(ask.node)
        return _FetchInFlight(
            connection=connection,
            correlation_id=connection.send(self._request(ask), decode=read_fetch_response),
            parts={(part.topic_id, part.partition.partition): part for part in ask.parts},
        )

    def _request(self, ask: Ask) -> Any:
        topic_class: Any = FetchRequest.FetchTopic
        topics: dict[uuid.UUID, list[Any]] = {}
        for part in ask.parts:
            topics.setdefault(part.topic_id, []).append(
                topic_class.FetchPartition(
                    partition=part.partition.partition,
                    current_leader_epoch=part.leader_epoch,
                    fetch_offset=part.position,
                    last_fetched_epoch=part.last_epoch,
                    log_start_offset=-1,
                    partition_max_bytes=part.max_bytes,
                )
            )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=ask.max_bytes,
            isolation_level=ISOLATION_LEVELS["read_uncommitted" if ask.is_peek else self._isolation_level],
            session_id=0,
            session_epoch=-1,
            topics=[topic_class(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
            forgotten_topics_data=[],
            rack_id=self._rack if ask.with_rack else "",
        )


def estimates_of(cluster: Cluster) -> SizeEstimates:
    """The estimates for this cluster: kept as long as the object, which a worker process has for all its tasks."""
    return _estimates.setdefault(cluster, SizeEstimates())


_estimates: WeakKeyDictionary[Cluster, SizeEstimates] = WeakKeyDictionary()


def _wait_for_any(flights: Iterable[_FetchInFlight], seconds: float) -> None:
    wait_for_any([(flight.connection, flight.correlation_id) for flight in flights], seconds)


def _arrival(flight: _FetchInFlight, *, is_cut: bool = False) -> Arrival:
    size, seconds = flight.connection.arrival
    return Arrival(size=size, seconds=seconds, is_cut=is_cut)


def _answer(flight: _FetchInFlight, *, whole: bool) -> Answer:
    """Raises BrokerUnreachable if no answer comes, or one that does not match the request; CorruptRecordBatch."""
    response: FetchResponse = flight.connection.receive(flight.correlation_id)
    answered = [(data.topic_id, data.partition) for data in response.partitions]
    if len(set(answered)) < len(answered) or set(answered) - flight.parts.keys():
        flight.connection.close()
        raise BrokerUnreachable(f"{flight.connection.address}: a response contains partitions that were not requested")
    first = next(iter(flight.parts))
    parts = {}
    for key, data in zip(answered, response.partitions, strict=True):
        asked = flight.parts[key]
        parts[asked.partition] = _outcome(asked, data, is_first=key == first, whole=whole)
    return Answer(
        address=flight.connection.address,
        arrival=_arrival(flight),
        parts=parts,
        error_code=response.error_code,
        throttle_ms=response.throttle_ms,
    )


def _outcome(asked: FetchPartition, data: PartitionData, *, is_first: bool, whole: bool) -> PartitionResult:
    if data.error_code:
        return Refused(error_code=data.error_code)
    if data.diverging is not None:
        return data.diverging
    if data.preferred_read_replica >= 0 and not data.records:
        return ReadReplica(node=data.preferred_read_replica)
    try:
        records, batches = _overlapping(asked, data.records, is_first=is_first, whole=whole)
    except CorruptRecordBatch as error:
        raise CorruptRecordBatch(
            f"{asked.partition}, fetched from offset {asked.position}: {error.what}", action=error.action
        ) from None
    return Fetched(
        partition=asked.partition,
        buffer=records,
        batches=batches,
        aborted=data.aborted,
        next_offset=batches[-1].next_offset if batches else asked.position,
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        lacking=0 if batches else _size_of_first(records),
    )


def _size_of_first(records: memoryview) -> int:
    """The size of the first record batch, which may be truncated; 0 if its header is, too."""
    return next((header.size for header in scan(records, whole=False)), 0)


def _overlapping(
    asked: FetchPartition, records: memoryview, *, is_first: bool, whole: bool
) -> tuple[memoryview, RecordBatches]:
    """The batches that overlap the range, and the buffer that they are in: `records`, or, if some have the format
    before Kafka 0.11, a copy without it.
    """
    try:
        return records, _batches(asked, records, is_first=is_first, whole=whole)
    except CorruptRecordBatch:
        if not has_messages(records):
            raise
    from spark_kafka_eos.kafka.wire.legacy import as_record_batches  # loads Arrow

    records = memoryview(as_record_batches(records))
    return records, _batches(asked, records, is_first=is_first, whole=whole)


def _batches(asked: FetchPartition, records: memoryview, *, is_first: bool, whole: bool) -> RecordBatches:
    """The batches of `records` that overlap the range."""
    positions: list[int] = []
    expected = asked.position  # no checksum covers a batch's offset
    for position, base_offset, next_offset in extents(records, whole=whole):
        if base_offset >= asked.end and positions:
            break
        if next_offset <= expected and not positions:
            continue  # a broker may start earlier; the Java client skips that, too
        if base_offset < expected and positions:
            raise CorruptRecordBatch(
                f"found a batch with offsets {base_offset} to {next_offset - 1}, expected {expected}"
            )
        expected = next_offset
        positions.append(position)
    if not positions and records and is_first:
        # The first partition of a request gets at least one whole batch, however large (KIP-74).
        raise CorruptRecordBatch(f"{len(records)} bytes contain no complete record batch")
    return RecordBatches(records, positions)
