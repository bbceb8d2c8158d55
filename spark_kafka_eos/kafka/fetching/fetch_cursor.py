"""One range while it is read (`fetching.fetch_plan`), and the errors that say why reading cannot go on. Pure."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from spark_kafka_eos.kafka.errors import BrokerUnreachable, DataLoss, KafkaEosError
from spark_kafka_eos.kafka.fetching.fetch_steps import (
    EpochEndOffset,
    PartitionLeader,
    PartitionResult,
    ReadReplica,
    Refused,
)
from spark_kafka_eos.kafka.partitions import NO_END, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.backoff import Budget
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.error_codes import RETRIABLE, Reaction, failure, reaction
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader

_GO_ON = (
    "To continue with the remaining records, restart the query once with failOnDataLoss=false, then remove it: while "
    "it is set, every loss is ignored. Run a kafka-eos command again."
)


@dataclass(slots=True, kw_only=True)
class Cursor:
    """The part of a range that is still to be read: from `position` to `end`."""

    partition: TopicPartition
    position: int
    end: int
    topic_id: uuid.UUID | None  # as planned, or as first read: another id means that the topic was created again
    planned_epoch: int = -1  # of the leader when the range was planned: its records have no later one
    epoch: int = -1  # of the last record batch read
    leader: PartitionLeader | None = None  # None: to be looked up
    replica: int | None = None  # the follower to ask instead of the leader
    replica_until: float = 0.0
    held_until: float = -math.inf  # after an error
    is_outdated: bool = False  # cached metadata must not be used to look it up
    is_out_of_range: bool = False  # according to its leader
    is_peek: bool = False  # the next request only shows whether anything is left before the end
    end_doubted: Budget | None = None  # how long not to believe that the log ends before the position
    topic_doubted: Budget | None = None  # how long not to believe that the topic was created again


def retriable_failure(code: int, resource: ResourceRef | str) -> tuple[KafkaEosError, Reaction]:
    """Raises it if no retry mends it."""
    error, react = failure("Fetch", code, resource), reaction("Fetch", code)
    if react not in RETRIABLE:
        raise error
    return error, react


def unusable_follower(cursor: Cursor, outcome: PartitionResult) -> tuple[KafkaEosError, Reaction] | None:
    """What to back off for before the leader is asked instead; None for an empty answer."""
    match outcome:
        case Refused(error_code=code):
            answered = failure("Fetch", code, ResourceRef(partition=cursor.partition)).what
        case EpochEndOffset():
            answered = truncated(cursor, outcome).what
        case ReadReplica(node=node):
            answered = f"it names replica {node}"
        case _:
            return None
    unusable = BrokerUnreachable(
        f"{cursor.partition}: the follower that the leader prefers for this kafka.client.rack returned no records at "
        f"offset {cursor.position}: {answered}",
        action="Remove kafka.client.rack to read from the leader.",
    )
    return unusable, Reaction.RETRY_SAME


def no_leader(cursor: Cursor) -> tuple[KafkaEosError, Reaction]:
    return failure(
        "Metadata", ErrorCode.LEADER_NOT_AVAILABLE, ResourceRef(partition=cursor.partition)
    ), Reaction.REFRESH_METADATA


def outdated(cursor: Cursor, leader: PartitionLeader) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"{cursor.partition}: the brokers that can be reached know the leader of epoch {leader.leader_epoch}, but the "
        f"range was planned with that of epoch {cursor.planned_epoch}",
        action="Check whether these brokers are cut off from the cluster's controller.",
    )


def created_again(cursor: Cursor, leader: PartitionLeader) -> DataLoss:
    return DataLoss(
        f"topic {cursor.partition.topic!r} was deleted and created again while {cursor.partition} was read at offset "
        f"{cursor.position}: offsets up to {_end(cursor)} of topic id {cursor.topic_id} were not read, "
        f"the new topic id is {leader.topic_id}",
        action=_GO_ON,
    )


def out_of_range(cursor: Cursor, available: OffsetRange) -> DataLoss:
    return DataLoss(
        f"{cursor.partition}: offsets from {cursor.position} to {_end(cursor)} were planned, "
        f"but the broker has {available.start} to {available.end}",
        action=_GO_ON,
    )


def truncated(cursor: Cursor, diverging: EpochEndOffset) -> DataLoss:
    return DataLoss(
        f"{cursor.partition}: the leader's log was truncated (unclean leader election?): records up to offset "
        f"{cursor.position} of leader epoch {cursor.epoch} were read, but it has epoch {diverging.epoch} only up "
        f"to {diverging.end_offset}; offsets from there to {_end(cursor)} are lost or replaced",
        action=_GO_ON,
    )


def replaced(cursor: Cursor, other: RecordBatchHeader) -> DataLoss:
    return DataLoss(
        f"{cursor.partition}: the leader's log was truncated (unclean leader election?) since offsets up to "
        f"{_end(cursor)} were planned: those from {max(cursor.position, other.base_offset)} on are of leader epoch "
        f"{other.partition_leader_epoch}, but the end was that of epoch {cursor.planned_epoch}; what was planned there "
        "is lost or replaced",
        action=_GO_ON,
    )


def stuck(address: str, cursors: Iterable[Cursor]) -> DataLoss:
    return DataLoss(
        f"{address} returned no data for {_ranges(cursors)} within delivery.timeout.ms",
        action="If a transaction is still open before the end of the range (kafka-eos transactions list --open), "
        "nothing is lost: start the query again when it has ended. Else the end of the log was lost.",
    )


def throttled(address: str, cursors: Iterable[Cursor]) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"{address} throttled this client and returned no data for {_ranges(cursors)} within delivery.timeout.ms, not "
        "counting the throttle time",
        action="Increase the quota of this user or client id (consumer_byte_rate, request_percentage).",
    )


def _ranges(cursors: Iterable[Cursor]) -> str:
    return ", ".join(f"{cursor.partition} from {cursor.position} to {_end(cursor)}" for cursor in cursors)


def _end(cursor: Cursor) -> str:
    return "the end" if cursor.end == NO_END else str(cursor.end)
