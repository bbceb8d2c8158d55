"""Handling of broker error codes: one table from (API, code) to a reaction, and from a reaction to an error.

The reactions are those of the Java client's TransactionManager and Sender. One is added because processes share an
epoch: a process that appends cannot know why its epoch ended, so it stops and the transaction coordinator decides.
Codes and names: Kafka's protocol guide, "Error Codes" (org.apache.kafka.common.protocol.Errors, 4.3).
"""

from __future__ import annotations

from enum import Enum, auto

from spark_kafka_eos.errors import (
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
from spark_kafka_eos.protocol.acl_hints import Subject, missing

UNSTABLE_OFFSET_COMMIT = 88


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

_REACTIONS = {
    0: Reaction.NONE,
    1: Reaction.DATA_LOSS,  # OFFSET_OUT_OF_RANGE
    2: Reaction.CORRUPT,  # CORRUPT_MESSAGE
    3: Reaction.REFRESH_METADATA,  # UNKNOWN_TOPIC_OR_PARTITION: this broker may not know it yet
    5: Reaction.REFRESH_METADATA,  # LEADER_NOT_AVAILABLE
    6: Reaction.REFRESH_METADATA,  # NOT_LEADER_OR_FOLLOWER
    7: Reaction.RETRY_SAME,  # REQUEST_TIMED_OUT
    8: Reaction.REFRESH_METADATA,  # BROKER_NOT_AVAILABLE
    9: Reaction.REFRESH_METADATA,  # REPLICA_NOT_AVAILABLE
    10: Reaction.INVALID_ROW,  # MESSAGE_TOO_LARGE
    13: Reaction.RETRY_SAME,  # NETWORK_EXCEPTION
    14: Reaction.RETRY_SAME,  # COORDINATOR_LOAD_IN_PROGRESS
    15: Reaction.FIND_COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: Reaction.FIND_COORDINATOR,  # NOT_COORDINATOR
    17: Reaction.UNKNOWN_TOPIC,  # INVALID_TOPIC_EXCEPTION
    18: Reaction.INVALID_ROW,  # RECORD_LIST_TOO_LARGE
    19: Reaction.RETRY_SAME,  # NOT_ENOUGH_REPLICAS
    20: Reaction.RETRY_SAME,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    29: Reaction.UNAUTHORIZED,  # TOPIC_AUTHORIZATION_FAILED
    30: Reaction.UNAUTHORIZED,  # GROUP_AUTHORIZATION_FAILED
    31: Reaction.UNAUTHORIZED,  # CLUSTER_AUTHORIZATION_FAILED
    32: Reaction.INVALID_ROW,  # INVALID_TIMESTAMP
    33: Reaction.UNAUTHENTICATED,  # UNSUPPORTED_SASL_MECHANISM
    34: Reaction.UNAUTHENTICATED,  # ILLEGAL_SASL_STATE
    45: Reaction.ABORT,  # OUT_OF_ORDER_SEQUENCE_NUMBER
    46: Reaction.ABORT,  # DUPLICATE_SEQUENCE_NUMBER, unless it answers our own resend: see `appending.send_plan`
    41: Reaction.RETRY_SAME,  # NOT_CONTROLLER: it has just moved
    47: Reaction.FENCED,  # INVALID_PRODUCER_EPOCH
    48: Reaction.ABORT,  # INVALID_TXN_STATE
    49: Reaction.ABORT,  # INVALID_PRODUCER_ID_MAPPING
    51: Reaction.RETRY_SOON,  # CONCURRENT_TRANSACTIONS: the markers of the previous one are still being written
    53: Reaction.UNAUTHORIZED,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    56: Reaction.REFRESH_METADATA,  # KAFKA_STORAGE_ERROR
    58: Reaction.UNAUTHENTICATED,  # SASL_AUTHENTICATION_FAILED
    59: Reaction.ABORT,  # UNKNOWN_PRODUCER_ID
    72: Reaction.REFRESH_METADATA,  # LISTENER_NOT_FOUND
    74: Reaction.REFRESH_METADATA,  # FENCED_LEADER_EPOCH
    75: Reaction.REFRESH_METADATA,  # UNKNOWN_LEADER_EPOCH
    78: Reaction.RETRY_SAME,  # OFFSET_NOT_AVAILABLE: a new leader has not caught up with its own high watermark
    87: Reaction.INVALID_ROW,  # INVALID_RECORD
    UNSTABLE_OFFSET_COMMIT: Reaction.RETRY_SOON,  # must never be taken as "no offset"
    89: Reaction.RETRY_SAME,  # THROTTLING_QUOTA_EXCEEDED
    90: Reaction.FENCED,  # PRODUCER_FENCED
    100: Reaction.REFRESH_METADATA,  # UNKNOWN_TOPIC_ID
    103: Reaction.REFRESH_METADATA,  # INCONSISTENT_TOPIC_ID
    120: Reaction.ABORT,  # TRANSACTION_ABORTABLE
}

_BY_API = {
    ("Produce", 2): Reaction.RETRY_SAME,  # corrupted in transit
    # The broker adds the partition to the transaction for us (KIP-890), and it is the one that must find the
    # coordinator.
    ("Produce", 15): Reaction.RETRY_SAME,
    ("Produce", 16): Reaction.RETRY_SAME,
    ("Produce", 19): Reaction.RETRY_SOON,  # also: the partition is still being added to the transaction
    (
        "Produce",
        47,
    ): Reaction.ABORT,  # ended by a timeout, by our driver or by a newer producer: the coordinator knows
    ("EndTxn", -1): Reaction.LEDGER_DECIDES,
    ("EndTxn", 48): Reaction.LEDGER_DECIDES,
    # Java's consumer retries these, too.
    ("Fetch", -1): Reaction.RETRY_SAME,
    # Errors of fetch sessions (KIP-227), which this package does not use.
    ("Fetch", 70): Reaction.RETRY_SAME,
    ("Fetch", 71): Reaction.RETRY_SAME,
    ("Fetch", 106): Reaction.REFRESH_METADATA,
    ("OffsetFetch", 69): Reaction.NONE,  # GROUP_ID_NOT_FOUND: a group without offsets
    ("TxnOffsetCommit", 7): Reaction.FIND_COORDINATOR,
}

_NAMES = """
    UNKNOWN_SERVER_ERROR NONE OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION INVALID_FETCH_SIZE
    LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE
    MESSAGE_TOO_LARGE STALE_CONTROLLER_EPOCH OFFSET_METADATA_TOO_LARGE NETWORK_EXCEPTION
    COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR INVALID_TOPIC_EXCEPTION
    RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS
    ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT
    REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED
    CLUSTER_AUTHORIZATION_FAILED INVALID_TIMESTAMP UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE UNSUPPORTED_VERSION
    TOPIC_ALREADY_EXISTS INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG
    NOT_CONTROLLER INVALID_REQUEST UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION OUT_OF_ORDER_SEQUENCE_NUMBER
    DUPLICATE_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING
    INVALID_TRANSACTION_TIMEOUT CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED SECURITY_DISABLED OPERATION_NOT_ATTEMPTED KAFKA_STORAGE_ERROR
    LOG_DIR_NOT_FOUND SASL_AUTHENTICATION_FAILED UNKNOWN_PRODUCER_ID REASSIGNMENT_IN_PROGRESS
    DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED
    INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP GROUP_ID_NOT_FOUND FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH
    LISTENER_NOT_FOUND TOPIC_DELETION_DISABLED FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH UNSUPPORTED_COMPRESSION_TYPE
    STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED PREFERRED_LEADER_NOT_AVAILABLE GROUP_MAX_SIZE_REACHED
    FENCED_INSTANCE_ID ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS
    GROUP_SUBSCRIBED_TO_TOPIC INVALID_RECORD UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED PRODUCER_FENCED
    RESOURCE_NOT_FOUND DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION
    FEATURE_UPDATE_FAILED PRINCIPAL_DESERIALIZATION_FAILURE SNAPSHOT_NOT_FOUND POSITION_OUT_OF_RANGE
    UNKNOWN_TOPIC_ID DUPLICATE_BROKER_REGISTRATION BROKER_ID_NOT_REGISTERED INCONSISTENT_TOPIC_ID
    INCONSISTENT_CLUSTER_ID TRANSACTIONAL_ID_NOT_FOUND FETCH_SESSION_TOPIC_ID_ERROR INELIGIBLE_REPLICA
    NEW_LEADER_ELECTED OFFSET_MOVED_TO_TIERED_STORAGE FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID
    UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID
    UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE INVALID_REGISTRATION TRANSACTION_ABORTABLE INVALID_RECORD_STATE
    SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER
    VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION REBOOTSTRAP_REQUIRED STREAMS_INVALID_TOPOLOGY
    STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED SHARE_SESSION_LIMIT_REACHED
""".split()  # noqa: SIM905 - from code -1 on

_GROUP_TAKEN = frozenset({22, 25, 27, 82, 110, 113})

_ACTIONS = {
    10: "Send smaller records, or increase the topic's max.message.bytes.",
    12: "The metadata of a committed offset exceeds the broker's offset.metadata.max.bytes.",
    32: "The topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms limit a record's timestamp.",
    43: "The topic has a message.format.version before 0.11.0, without room for producer ids and transactions "
    "(KIP-98): set it to 0.11.0 or later, then restart the query.",
    50: "Reduce kafka.transaction.timeout.ms, or increase the broker's transaction.max.timeout.ms.",
    69: "The group of this name is not a consumer group, but one of another type, such as a share group (KIP-932). Set "
    "a different kafka.group.id for this query.",
    88: "An open transaction is about to commit offsets of this group. If its query no longer runs, start with "
    "startingOffsets=committed and sink.kafka.transactional.id: the ledger is then read instead of the group.",
    87: "A compacted topic does not accept records without a key.",
    **dict.fromkeys(
        _GROUP_TAKEN,
        "Another client is a member of this consumer group; set a different kafka.group.id for this query.",
    ),
}


_ACTIONS_BY_API = {
    # What a broker answers whose topic has an old message format, if the record batch is part of a transaction.
    ("Produce", -1): "The broker's log has the cause. It may be a topic with a message.format.version before 0.11.0: "
    "set it to 0.11.0 or later, then restart the query.",
    ("TxnOffsetCommit", 43): "It is __consumer_offsets that has a message.format.version before 0.11.0: set it to "
    "0.11.0 or later, then restart the query.",
}


def reaction(api: str, code: int) -> Reaction:
    """What to do when `api` ("Produce", "EndTxn", …) fails with `code`; FATAL for unknown codes."""
    return _BY_API.get((api, code)) or _REACTIONS.get(code, Reaction.FATAL)


def name_of(code: int) -> str:
    """Kafka's name of an error code."""
    return _NAMES[code + 1] if -1 <= code < len(_NAMES) - 1 else f"UNKNOWN_ERROR_{code}"


def passes(error: KafkaEosError) -> bool:
    """Whether `error`, raised after all retries failed, is transient."""
    if isinstance(error, BrokerError):
        return reaction(error.api, error.code) in RETRIABLE
    return isinstance(error, (BrokerUnreachable, UnknownTopic))


def failure(api: str, code: int, subject: Subject | str) -> KafkaEosError:
    """The exception for `code` after the last retry; `subject` names the topic, partition, group or
    transactional.id.
    """
    name, context = name_of(code), str(subject)
    said = f"{api} answered {name} ({code}) for {context}"
    match reaction(api, code):
        case Reaction.ABORT:
            return TransactionAborted(said)
        case Reaction.FENCED:
            return ProducerFenced(
                said,
                action="This driver has ended: do not start it again while the other one runs, because a start takes "
                "the transactional.id from it. If two queries have this id, give each its own. `kafka-eos query show` "
                "with the id shows the owner.",
            )
        case Reaction.LEDGER_DECIDES:
            return CommitOutcomeUnknown(said)
        case Reaction.INVALID_ROW:
            return InvalidRow(said, action=_ACTIONS.get(code, ""))
        case Reaction.DATA_LOSS:
            return DataLoss(said)
        case Reaction.CORRUPT:
            return CorruptRecordBatch(said)
        case Reaction.UNKNOWN_TOPIC:
            return UnknownTopic(said)
        case Reaction.REFRESH_METADATA if code == 3:
            return UnknownTopic(said, action="Create the topic, correct its name, or grant Describe on it.")
        case Reaction.UNAUTHORIZED:
            return AuthorizationFailed(api, code, name, context, action=missing(api, code, subject))
        case Reaction.UNAUTHENTICATED:
            return AuthenticationFailed(said)
        case _:
            action = _ACTIONS_BY_API.get((api, code)) or _ACTIONS.get(code, "")
            return BrokerError(api, code, name, context, action=action)
