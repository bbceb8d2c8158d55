"""Fetches ranges of offsets as whole record batches from the partitions' leaders.

One request per leader is always in flight while the caller processes the previous response. A range ends at an offset:
offsets have gaps (control batches, aborted data, compaction), so waiting for a number of records would never end.

Two checks ensure that the records belong together. Requests contain the topic's id, which changes if the topic is
created again. And they contain the leader epoch of the last fetched record batch (KIP-595, as for followers), so that a
leader whose log was truncated by an unclean election reports this instead of returning other records at these offsets.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.consumer.fetch import FetchRequest

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.connection import Connection
from spark_kafka_eos.broker.fetch_response import EpochEndOffset, FetchResponse, PartitionData, read_fetch_response
from spark_kafka_eos.broker.leaders import OUTDATED_LEADER_MS
from spark_kafka_eos.broker.offsets import ISOLATION_LEVELS, earliest, latest
from spark_kafka_eos.broker.retry import pause
from spark_kafka_eos.core.acl_hints import Subject
from spark_kafka_eos.core.backoff import Budget
from spark_kafka_eos.core.error_codes import RETRIABLE, Reaction, failure, reaction
from spark_kafka_eos.errors import BrokerUnreachable, CorruptRecordBatch, DataLoss, KafkaEosError
from spark_kafka_eos.model import AbortedTransaction, IsolationLevel, OffsetRange, RecordBatchHeader, TopicPartition
from spark_kafka_eos.wire.record_batch import scan

# The assumed size of a record until the first response; and the surplus over the estimate, so that a range rarely needs
# another round trip, but a small range of a large topic does not fetch megabytes in vain.
_BYTES_PER_OFFSET = 128.0
_SURPLUS, _SURPLUS_BYTES = 1.25, 65_536
# The metadata here, or on the broker, may be older than the plan.
_OUTDATED_METADATA_MS = 2_000
_GO_ON = "Set failOnDataLoss=false to continue with the remaining records, or start with a new checkpoint."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Whole record batches of one partition, in order; the first may start before the range, the last may end after it.

    `buffer` is a slice of the response's buffer, and `batches` has each batch's position in it. `aborted` are the
    aborted transactions that overlap this response (empty with read_uncommitted); a transaction's abort marker may be
    in a later response. `next_offset` is where the next fetch continues.
    """

    partition: TopicPartition
    buffer: memoryview
    batches: tuple[tuple[int, RecordBatchHeader], ...]
    aborted: tuple[AbortedTransaction, ...]
    next_offset: int
    high_watermark: int
    last_stable_offset: int


@dataclass(slots=True, kw_only=True)
class _Cursor:
    partition: TopicPartition
    position: int
    end: int
    topic_id: uuid.UUID | None  # from the plan or the first data: a topic that was created again is another topic
    epoch: int = -1  # of the last fetched record batch
    doubt: Budget | None = None  # how long to doubt a leader whose log ends before the position


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFlight:
    connection: Connection
    correlation_id: int
    cursors: dict[tuple[uuid.UUID, int], _Cursor]  # in the order of the request


class Fetcher:
    """Reads ranges of offsets. `max_bytes` limits a response, `max_partition_bytes` a partition's part of it, in bytes.

    A larger record batch exceeds both (KIP-74). It remembers the partitions' record sizes, so use one object for many
    calls.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation: IsolationLevel = "read_committed",
        max_bytes: int = 50 << 20,
        max_partition_bytes: int = 8 << 20,
        max_wait_ms: int = 500,
    ) -> None:
        self._cluster = cluster
        self._isolation: IsolationLevel = isolation
        self._max_bytes, self._max_partition_bytes, self._max_wait_ms = max_bytes, max_partition_bytes, max_wait_ms
        self._bytes_per_offset: dict[TopicPartition, float] = {}

    def fetch(self, ranges: Sequence[OffsetRange]) -> Generator[Fetched, None, None]:
        """Fetch every range to its end; partitions are interleaved, each in order. An empty range sends no request.

        Tolerates moved leaders and lost connections while some range makes progress within delivery.timeout.ms.
        Raises DataLoss for offsets that are gone, UnknownTopic, AuthorizationFailed, CorruptRecordBatch, BrokerError,
        BrokerUnreachable.
        """
        waiting = deque(
            _Cursor(partition=r.partition, position=r.start, end=r.end, topic_id=r.topic_id)
            for r in ranges
            if r.start < r.end
        )
        in_flight: dict[int, _InFlight] = {}
        budget = self._cluster.budget(self._cluster.options.delivery_timeout_ms)
        try:
            while waiting or in_flight:
                trouble: tuple[KafkaEosError, Reaction] | None = None
                found: list[Fetched] = []
                try:
                    self._send(waiting, in_flight)
                    node = next(iter(in_flight))
                    flight = in_flight.pop(node)
                    try:
                        response = flight.connection.receive(flight.correlation_id)
                    except BrokerUnreachable:
                        waiting.extend(flight.cursors.values())
                        raise
                    found, trouble = self._accept(response, flight, waiting)
                    if found:
                        budget.restart()
                    if trouble is None:
                        self._send(waiting, in_flight)
                except BrokerUnreachable as error:
                    trouble = error, Reaction.REFRESH_METADATA
                yield from found
                if trouble is not None:
                    pause(*trouble, budget, self._cluster.sleep)
                    if trouble[1] is Reaction.REFRESH_METADATA:
                        self._refresh(waiting)
                elif not found and budget.delay() is None:
                    raise _stuck(flight)
        finally:
            for flight in in_flight.values():
                flight.connection.close()  # its response would be taken for that of another request

    # -- requests

    def _send(self, waiting: deque[_Cursor], in_flight: dict[int, _InFlight]) -> None:
        """Send each idle leader a request for everything that waits for it; the rest stays waiting."""
        by_leader: dict[int, list[_Cursor]] = {}
        for cursor in waiting:
            by_leader.setdefault(self._cluster.leader(cursor.partition), []).append(cursor)
        for node, cursors in by_leader.items():
            if node in in_flight:
                continue
            connection = self._cluster.connection(node)
            asked = {(self._topic_id(cursor), cursor.partition.partition): cursor for cursor in cursors}
            correlation_id = connection.send(self._request(asked), decode=read_fetch_response)
            in_flight[node] = _InFlight(connection=connection, correlation_id=correlation_id, cursors=asked)
            for cursor in cursors:
                waiting.remove(cursor)

    def _topic_id(self, cursor: _Cursor) -> uuid.UUID:
        topic = cursor.partition.topic
        budget = self._cluster.budget(_OUTDATED_METADATA_MS)
        while cursor.topic_id not in (None, found := self._cluster.topic(topic).id):
            delay = budget.delay()
            if delay is None:
                raise DataLoss(
                    f"topic {topic!r} was deleted and created again while {cursor.partition} was read at offset "
                    f"{cursor.position}: offsets up to {cursor.end} of topic id {cursor.topic_id} were not read, "
                    f"the new topic id is {found}",
                    action=_GO_ON,
                )
            self._cluster.sleep(delay)
            self._cluster.refresh([topic])
        return found

    def _request(self, asked: dict[tuple[uuid.UUID, int], _Cursor]) -> Any:
        topic_class: Any = FetchRequest.FetchTopic
        topics: dict[uuid.UUID, list[Any]] = {}
        for (topic_id, number), cursor in asked.items():
            topics.setdefault(topic_id, []).append(
                topic_class.FetchPartition(
                    partition=number,
                    current_leader_epoch=self._cluster.leader_epoch(cursor.partition),
                    fetch_offset=cursor.position,
                    last_fetched_epoch=cursor.epoch,
                    log_start_offset=-1,
                    partition_max_bytes=self._partition_bytes(cursor),
                )
            )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=ISOLATION_LEVELS[self._isolation],
            session_id=0,
            session_epoch=-1,
            topics=[topic_class(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
            forgotten_topics_data=[],
            rack_id="",
        )

    def _partition_bytes(self, cursor: _Cursor) -> int:
        estimate = self._bytes_per_offset.get(cursor.partition, _BYTES_PER_OFFSET) * (cursor.end - cursor.position)
        return min(self._max_partition_bytes, int(estimate * _SURPLUS) + _SURPLUS_BYTES)

    def _refresh(self, cursors: Iterable[_Cursor]) -> None:
        self._cluster.refresh({cursor.partition.topic for cursor in cursors})

    # -- responses

    def _accept(
        self, response: FetchResponse, flight: _InFlight, waiting: deque[_Cursor]
    ) -> tuple[list[Fetched], tuple[KafkaEosError, Reaction] | None]:
        """Advance the cursors; those without data wait before the others, to be served first next time."""
        if response.error_code:
            raise failure("Fetch", response.error_code, f"a request to {flight.connection.where}")
        answered = [(data.topic_id, data.partition) for data in response.partitions]
        if len(set(answered)) < len(answered) or set(answered) - flight.cursors.keys():
            waiting.extend(flight.cursors.values())
            flight.connection.close()
            raise BrokerUnreachable(
                f"{flight.connection.where}: a response contains partitions that were not requested"
            )
        found: list[Fetched] = []
        trouble: tuple[KafkaEosError, Reaction] | None = None
        moved, first = [], next(iter(flight.cursors))
        left = dict(flight.cursors)
        for data in response.partitions:
            key = data.topic_id, data.partition
            cursor = left.pop(key)
            if data.error_code:
                react = reaction("Fetch", data.error_code)
                if react is Reaction.DATA_LOSS:
                    trouble = self._out_of_range(cursor), Reaction.REFRESH_METADATA
                elif react in RETRIABLE:
                    trouble = failure("Fetch", data.error_code, _subject(cursor)), react
                else:
                    raise failure("Fetch", data.error_code, _subject(cursor))
                waiting.append(cursor)
                continue
            if data.diverging is not None:
                raise _truncated(cursor, data.diverging)
            batches = _batches(cursor, data, is_first=key == first)
            if not batches:
                waiting.append(cursor)
                continue
            position, last = batches[-1]
            covered = last.next_offset - max(cursor.position, batches[0][1].base_offset)
            self._bytes_per_offset[cursor.partition] = (position + last.size) / max(covered, 1)
            cursor.position, cursor.topic_id = last.next_offset, data.topic_id
            cursor.epoch, cursor.doubt = last.partition_leader_epoch, None
            found.append(
                Fetched(
                    partition=cursor.partition,
                    buffer=data.records,
                    batches=batches,
                    aborted=data.aborted,
                    next_offset=cursor.position,
                    high_watermark=data.high_watermark,
                    last_stable_offset=data.last_stable_offset,
                )
            )
            if cursor.position < cursor.end:
                moved.append(cursor)
        waiting.extend(left.values())
        waiting.extend(moved)
        return found, trouble

    def _out_of_range(self, cursor: _Cursor) -> DataLoss:
        """The data loss if the leader is right. Raises it if that is certain: records were deleted, or the log is still
        too short after any outdated leader must have noticed that it is outdated.
        """
        first = earliest(self._cluster, [cursor.partition])[cursor.partition]
        end = latest(self._cluster, [cursor.partition], isolation=self._isolation)[cursor.partition]
        loss = DataLoss(
            f"{cursor.partition}: offsets from {cursor.position} to {cursor.end} were planned, "
            f"but the broker has {first} to {end}",
            action=_GO_ON,
        )
        cursor.doubt = cursor.doubt or self._cluster.budget(OUTDATED_LEADER_MS)
        if cursor.position < first or cursor.doubt.delay() is None:
            raise loss
        return loss


def _truncated(cursor: _Cursor, diverging: EpochEndOffset) -> DataLoss:
    return DataLoss(
        f"{cursor.partition}: the leader's log was truncated (unclean leader election?): records up to offset "
        f"{cursor.position} of leader epoch {cursor.epoch} were read, but it has epoch {diverging.epoch} only up "
        f"to {diverging.end_offset}; offsets from there to {cursor.end} are lost or replaced",
        action=_GO_ON,
    )


def _subject(cursor: _Cursor) -> Subject:
    return Subject(partition=cursor.partition, note=f" at offset {cursor.position}")


def _batches(cursor: _Cursor, data: PartitionData, *, is_first: bool) -> tuple[tuple[int, RecordBatchHeader], ...]:
    """The whole batches that overlap the range. Raises CorruptRecordBatch with the partition."""
    found: list[tuple[int, RecordBatchHeader]] = []
    behind = cursor.position  # no checksum covers a batch's offset
    try:
        for position, header in scan(data.records):
            if header.base_offset >= cursor.end and found:
                break
            if header.next_offset <= behind and not found:
                continue  # a broker may start earlier; the Java client skips that, too
            if header.base_offset < behind and found:
                raise CorruptRecordBatch(
                    f"found a batch with offsets {header.base_offset} to {header.next_offset - 1}, expected {behind}"
                )
            behind = header.next_offset
            found.append((position, header))
        if not found and data.records and is_first:
            # The first partition of a request gets at least one whole batch, however large (KIP-74).
            raise CorruptRecordBatch(f"{len(data.records)} bytes contain no complete record batch")
    except CorruptRecordBatch as error:
        raise CorruptRecordBatch(
            f"{cursor.partition}, fetched from offset {cursor.position}: {error.what}", action=error.action
        ) from None
    return tuple(found)


def _stuck(flight: _InFlight) -> DataLoss:
    what = ", ".join(f"{c.partition} from {c.position} to {c.end}" for c in flight.cursors.values())
    return DataLoss(
        f"{flight.connection.where} returned no data for {what} within delivery.timeout.ms",
        action="Either a transaction is still open before the end of the range, or the end of the log was lost.",
    )
