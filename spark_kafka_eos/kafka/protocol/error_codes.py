"""Handling of broker error codes: one table from (API, code) to a reaction, and from a reaction to an error. Pure.

The reactions are those of the Java client's TransactionManager and Sender. One is added because processes share an
epoch: a process that appends cannot know why its epoch ended, so it stops and the transaction coordinator decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from spark_kafka_eos.kafka.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerError,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    CorruptRecordBatch,
    DataLoss,
    InvalidRow,
    KafkaEosError,
    ProducerFenced,
    TransactionAborted,
    UnknownTopic,
)
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef, missing
from spark_kafka_eos.kafka.protocol.codes import ErrorCode


class Reaction(Enum):
    """What the sender of a request does next."""

    NONE = auto()  # it succeeded
    RETRY_SAME = auto()  # back off, then send the same bytes to the same broker
    RETRY_SOON = auto()  # the same after a few milliseconds: the broker is about to finish something
    REFRESH_METADATA = auto()  # back off, find the leader again, then send the same bytes
    FIND_COORDINATOR = auto()  # back off, find the coordinator again, then send the same request
    ABORT = auto()  # abort, get a new epoch, write the whole batch again
    FENCED = auto()  # a newer producer exists: stop
    LEDGER_DECIDES = auto()  # the transaction has already ended, with an unknown outcome
    INVALID_ROW = auto()  # a record that the broker will never accept
    DATA_LOSS = auto()  # the requested offsets are gone
    CORRUPT = auto()  # the broker cannot read its own log
    UNKNOWN_TOPIC = auto()  # no topic can have this name
    UNAUTHORIZED = auto()  # an ACL is missing
    UNAUTHENTICATED = auto()  # the credentials were refused
    FATAL = auto()  # anything else: not retriable


RETRIABLE = frozenset({Reaction.RETRY_SAME, Reaction.RETRY_SOON, Reaction.REFRESH_METADATA, Reaction.FIND_COORDINATOR})

_REACTIONS: Mapping[int, Reaction] = {
    ErrorCode.NONE: Reaction.NONE,
    ErrorCode.OFFSET_OUT_OF_RANGE: Reaction.DATA_LOSS,
    ErrorCode.CORRUPT_MESSAGE: Reaction.CORRUPT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.REFRESH_METADATA,  # this broker may not know it yet
    ErrorCode.LEADER_NOT_AVAILABLE: Reaction.REFRESH_METADATA,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Reaction.REFRESH_METADATA,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.RETRY_SAME,
    ErrorCode.BROKER_NOT_AVAILABLE: Reaction.REFRESH_METADATA,
    ErrorCode.REPLICA_NOT_AVAILABLE: Reaction.REFRESH_METADATA,
    ErrorCode.MESSAGE_TOO_LARGE: Reaction.INVALID_ROW,
    ErrorCode.NETWORK_EXCEPTION: Reaction.RETRY_SAME,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY_SAME,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Reaction.UNKNOWN_TOPIC,
    ErrorCode.RECORD_LIST_TOO_LARGE: Reaction.INVALID_ROW,
    ErrorCode.NOT_ENOUGH_REPLICAS: Reaction.RETRY_SAME,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Reaction.RETRY_SAME,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.UNAUTHORIZED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.UNAUTHORIZED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reaction.UNAUTHORIZED,
    ErrorCode.INVALID_TIMESTAMP: Reaction.INVALID_ROW,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: Reaction.UNAUTHENTICATED,
    ErrorCode.ILLEGAL_SASL_STATE: Reaction.UNAUTHENTICATED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Reaction.ABORT,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Reaction.ABORT,  # unless it answers our own resend: see `producing.send_plan`
    ErrorCode.NOT_CONTROLLER: Reaction.RETRY_SAME,  # it has just moved
    ErrorCode.INVALID_PRODUCER_EPOCH: Reaction.FENCED,
    ErrorCode.INVALID_TXN_STATE: Reaction.ABORT,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Reaction.ABORT,
    ErrorCode.CONCURRENT_TRANSACTIONS: Reaction.RETRY_SOON,  # the markers of the previous one are still being written
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.UNAUTHORIZED,
    ErrorCode.KAFKA_STORAGE_ERROR: Reaction.REFRESH_METADATA,
    ErrorCode.SASL_AUTHENTICATION_FAILED: Reaction.UNAUTHENTICATED,
    ErrorCode.UNKNOWN_PRODUCER_ID: Reaction.ABORT,
    ErrorCode.LISTENER_NOT_FOUND: Reaction.REFRESH_METADATA,
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.REFRESH_METADATA,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Reaction.REFRESH_METADATA,
    ErrorCode.OFFSET_NOT_AVAILABLE: Reaction.RETRY_SAME,  # a new leader has not caught up with its own high watermark
    ErrorCode.INVALID_RECORD: Reaction.INVALID_ROW,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY_SOON,  # must never be taken as "no offset"
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reaction.RETRY_SAME,
    ErrorCode.PRODUCER_FENCED: Reaction.FENCED,
    ErrorCode.UNKNOWN_TOPIC_ID: Reaction.REFRESH_METADATA,
    ErrorCode.INCONSISTENT_TOPIC_ID: Reaction.REFRESH_METADATA,
    ErrorCode.TRANSACTION_ABORTABLE: Reaction.ABORT,
}

_BY_API: Mapping[tuple[str, int], Reaction] = {
    ("Produce", ErrorCode.CORRUPT_MESSAGE): Reaction.RETRY_SAME,  # corrupted in transit
    # The broker adds the partition to the transaction for us (KIP-890), and it is the one that must find the
    # coordinator.
    ("Produce", ErrorCode.COORDINATOR_NOT_AVAILABLE): Reaction.RETRY_SAME,
    ("Produce", ErrorCode.NOT_COORDINATOR): Reaction.RETRY_SAME,
    # Also: the partition is still being added to the transaction.
    ("Produce", ErrorCode.NOT_ENOUGH_REPLICAS): Reaction.RETRY_SOON,
    # Ended by a timeout, by our driver or by a newer producer: the coordinator knows.
    ("Produce", ErrorCode.INVALID_PRODUCER_EPOCH): Reaction.ABORT,
    ("EndTxn", ErrorCode.UNKNOWN_SERVER_ERROR): Reaction.LEDGER_DECIDES,
    ("EndTxn", ErrorCode.INVALID_TXN_STATE): Reaction.LEDGER_DECIDES,
    # Java's consumer retries these, too.
    ("Fetch", ErrorCode.UNKNOWN_SERVER_ERROR): Reaction.RETRY_SAME,
    # Errors of fetch sessions (KIP-227), which this package does not use.
    ("Fetch", ErrorCode.FETCH_SESSION_ID_NOT_FOUND): Reaction.RETRY_SAME,
    ("Fetch", ErrorCode.INVALID_FETCH_SESSION_EPOCH): Reaction.RETRY_SAME,
    ("Fetch", ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR): Reaction.REFRESH_METADATA,
    ("OffsetFetch", ErrorCode.GROUP_ID_NOT_FOUND): Reaction.NONE,  # a group without offsets
    ("TxnOffsetCommit", ErrorCode.REQUEST_TIMED_OUT): Reaction.FIND_COORDINATOR,
}

_ACTIONS: Mapping[int, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "Send smaller records, or increase the topic's max.message.bytes.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "The metadata of a committed offset exceeds the broker's offset.metadata.max.bytes."
    ),
    ErrorCode.INVALID_TIMESTAMP: (
        "The topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms limit a record's timestamp."
    ),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "The topic has a message.format.version before 0.11.0, without room for producer ids and transactions "
        "(KIP-98): set it to 0.11.0 or later, then restart the query."
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "Reduce kafka.transaction.timeout.ms, or increase the broker's transaction.max.timeout.ms."
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "The group of this name is not a consumer group, but one of another type, such as a share group (KIP-932). Set "
        "a different kafka.group.id for this query."
    ),
    ErrorCode.INVALID_RECORD: "A compacted topic does not accept records without a key.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (
        "An open transaction is about to commit offsets of this group. If its query no longer runs, start with "
        "startingOffsets=committed and sink.kafka.transactional.id: the ledger is then read instead of the group."
    ),
    **dict.fromkeys(
        (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.STALE_MEMBER_EPOCH,
        ),
        "Another client is a member of this consumer group; set a different kafka.group.id for this query.",
    ),
}


_ACTIONS_BY_API: Mapping[tuple[str, int], str] = {
    # What a broker answers whose topic has an old message format, if the record batch is part of a transaction.
    ("Produce", ErrorCode.UNKNOWN_SERVER_ERROR): (
        "The broker's log has the cause. It may be a topic with a message.format.version before 0.11.0: "
        "set it to 0.11.0 or later, then restart the query."
    ),
    ("TxnOffsetCommit", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT): (
        "It is __consumer_offsets that has a message.format.version before 0.11.0: set it to 0.11.0 or later, then "
        "restart the query."
    ),
}


def reaction(api: str, code: int) -> Reaction:
    """What to do when `api` ("Produce", "EndTxn", …) fails with `code`; FATAL for unknown codes."""
    return _BY_API.get((api, code)) or _REACTIONS.get(code, Reaction.FATAL)


def name_of(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"UNKNOWN_ERROR_{code}"


def passes(error: KafkaEosError) -> bool:
    """Whether `error`, raised after all retries failed, is transient."""
    if isinstance(error, BrokerError):
        return reaction(error.api, error.code) in RETRIABLE
    return isinstance(error, (BrokerUnreachable, UnknownTopic))


def failure(api: str, code: int, resource: ResourceRef | str) -> KafkaEosError:
    """The exception for `code` after the last retry; `resource` names the topic, partition, group or
    transactional.id.
    """
    name, context = name_of(code), str(resource)
    message = f"{api} answered {name} ({code}) for {context}"
    match reaction(api, code):
        case Reaction.ABORT:
            return TransactionAborted(message)
        case Reaction.FENCED:
            return ProducerFenced(
                message,
                action="This driver has ended: do not start it again while the other one runs, because a start takes "
                "the transactional.id from it. If two queries have this id, give each its own. `kafka-eos query show` "
                "with the id shows the owner.",
            )
        case Reaction.LEDGER_DECIDES:
            return CommitOutcomeUnknown(message)
        case Reaction.INVALID_ROW:
            return InvalidRow(message, action=_ACTIONS.get(code, ""))
        case Reaction.DATA_LOSS:
            return DataLoss(message)
        case Reaction.CORRUPT:
            return CorruptRecordBatch(message)
        case Reaction.UNKNOWN_TOPIC:
            return UnknownTopic(message)
        case Reaction.REFRESH_METADATA if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return UnknownTopic(message, action="Create the topic, correct its name, or grant Describe on it.")
        case Reaction.UNAUTHORIZED:
            return AuthorizationFailed(api, code, name, context, action=missing(api, code, resource))
        case Reaction.UNAUTHENTICATED:
            return AuthenticationFailed(message)
        case _:
            action = _ACTIONS_BY_API.get((api, code)) or _ACTIONS.get(code, "")
            return BrokerError(api, code, name, context, action=action)
