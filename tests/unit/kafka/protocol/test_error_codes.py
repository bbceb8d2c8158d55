"""What each API does about an error code, and which error it becomes."""

from __future__ import annotations

import pickle

import kafka.errors

from spark_kafka_eos.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerError,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    CorruptRecordBatch,
    DataLoss,
    InvalidRow,
    ProducerFenced,
    TransactionAborted,
    UnknownTopic,
)
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.error_codes import RETRIABLE, Reaction, failure, name_of, passes, reaction
from spark_kafka_eos.kafka.protocol.versions import RANGES

CODES = range(-3, 140)  # those of Kafka are -1 to 133
# What each code asks for, whatever the API; every other code is FATAL.
REACTIONS = {
    Reaction.NONE: "NONE",
    Reaction.RETRY_SAME: """
        REQUEST_TIMED_OUT NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS NOT_ENOUGH_REPLICAS
        NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_CONTROLLER OFFSET_NOT_AVAILABLE THROTTLING_QUOTA_EXCEEDED""",
    Reaction.RETRY_SOON: "CONCURRENT_TRANSACTIONS UNSTABLE_OFFSET_COMMIT",
    Reaction.REFRESH_METADATA: """
        UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER BROKER_NOT_AVAILABLE
        REPLICA_NOT_AVAILABLE KAFKA_STORAGE_ERROR LISTENER_NOT_FOUND FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH
        UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID""",
    Reaction.FIND_COORDINATOR: "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR",
    Reaction.ABORT: """
        OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING
        UNKNOWN_PRODUCER_ID TRANSACTION_ABORTABLE""",
    Reaction.FENCED: "INVALID_PRODUCER_EPOCH PRODUCER_FENCED",
    Reaction.INVALID_ROW: "MESSAGE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_TIMESTAMP INVALID_RECORD",
    Reaction.DATA_LOSS: "OFFSET_OUT_OF_RANGE",
    Reaction.CORRUPT: "CORRUPT_MESSAGE",
    Reaction.UNKNOWN_TOPIC: "INVALID_TOPIC_EXCEPTION",
    Reaction.UNAUTHORIZED: """
        TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED""",
    Reaction.UNAUTHENTICATED: "UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE SASL_AUTHENTICATION_FAILED",
}
# What differs for one API.
OVERRIDES = {
    ("Produce", "CORRUPT_MESSAGE"): Reaction.RETRY_SAME,
    ("Produce", "COORDINATOR_NOT_AVAILABLE"): Reaction.RETRY_SAME,
    ("Produce", "NOT_COORDINATOR"): Reaction.RETRY_SAME,
    ("Produce", "NOT_ENOUGH_REPLICAS"): Reaction.RETRY_SOON,
    ("Produce", "INVALID_PRODUCER_EPOCH"): Reaction.ABORT,
    ("EndTxn", "UNKNOWN_SERVER_ERROR"): Reaction.LEDGER_DECIDES,
    ("EndTxn", "INVALID_TXN_STATE"): Reaction.LEDGER_DECIDES,
    ("Fetch", "UNKNOWN_SERVER_ERROR"): Reaction.RETRY_SAME,
    ("Fetch", "FETCH_SESSION_ID_NOT_FOUND"): Reaction.RETRY_SAME,
    ("Fetch", "INVALID_FETCH_SESSION_EPOCH"): Reaction.RETRY_SAME,
    ("Fetch", "FETCH_SESSION_TOPIC_ID_ERROR"): Reaction.REFRESH_METADATA,
    ("OffsetFetch", "GROUP_ID_NOT_FOUND"): Reaction.NONE,
    ("TxnOffsetCommit", "REQUEST_TIMED_OUT"): Reaction.FIND_COORDINATOR,
}
# The error when no retry is left; of every other reaction it is BrokerError.
ERRORS = {
    Reaction.ABORT: TransactionAborted,
    Reaction.FENCED: ProducerFenced,
    Reaction.LEDGER_DECIDES: CommitOutcomeUnknown,
    Reaction.INVALID_ROW: InvalidRow,
    Reaction.DATA_LOSS: DataLoss,
    Reaction.CORRUPT: CorruptRecordBatch,
    Reaction.UNKNOWN_TOPIC: UnknownTopic,
    Reaction.UNAUTHORIZED: AuthorizationFailed,
    Reaction.UNAUTHENTICATED: AuthenticationFailed,
}
# kafka-python's names where they are older than Kafka's.
OLDER = {
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NO_ERROR": "NONE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}


def test_a_code_has_the_name_that_kafka_python_gives_it():
    for code in range(-1, 128):  # it knows no later ones
        name = kafka.errors.for_code(code).message
        assert name_of(code) == OLDER.get(name, name)
    assert name_of(133) == "SHARE_SESSION_LIMIT_REACHED"  # Kafka 4.3's last
    assert [name_of(code) for code in (-2, 134, 9999)] == [
        *("UNKNOWN_ERROR_-2", "UNKNOWN_ERROR_134", "UNKNOWN_ERROR_9999")
    ]


def test_each_code_has_one_reaction():
    found = {name_of(code): reaction("AnyApi", code) for code in CODES}
    expected = {name: wanted for wanted, names in REACTIONS.items() for name in names.split()}
    assert found == dict.fromkeys(found, Reaction.FATAL) | expected


def test_only_what_is_listed_differs_for_an_api():
    assert {
        (api, name_of(code)): reaction(api, code)
        for api in RANGES
        for code in CODES
        if reaction(api, code) is not reaction("AnyApi", code)
    } == OVERRIDES


def test_each_reaction_ends_in_one_error_that_says_what_was_answered():
    for api in ("AnyApi", *RANGES):
        for code in set(CODES) - {0}:
            raised = failure(api, code, "orders-3")
            expected = UnknownTopic if code == 3 else ERRORS.get(reaction(api, code), BrokerError)
            assert type(raised) is expected, (api, name_of(code))
            assert f"{api} answered {name_of(code)} ({code}) for orders-3" in str(raised)


def test_no_error_asks_for_nothing():
    assert reaction("Produce", 0) is Reaction.NONE
    assert name_of(0) == "NONE"


def test_only_errors_that_pass_by_themselves_are_tried_again():
    assert {code for code in range(-1, 134) if reaction("AnyApi", code) in RETRIABLE} == {
        3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 72, 74, 75, 78, 88, 89, 100, 103,
    }  # fmt: skip


def test_a_missing_acl_names_the_kind_of_resource():
    for code, kind in ((29, "on the topic"), (30, "on the group"), (31, ""), (53, "on the transactional id")):
        error = failure("Produce", code, "orders-3")
        assert kind in error.action
        assert error.committed == "nothing"


def test_a_group_with_other_members_says_so():
    said = "Another client is a member of this consumer group"
    found = {code for code in CODES if code and said in str(failure("TxnOffsetCommit", code, "group 'g'"))}
    assert found == {22, 25, 27, 82, 110, 113}


def test_a_group_of_another_type_is_not_said_to_have_members():
    said = str(failure("TxnOffsetCommit", 69, "group 'g'"))
    assert "share group" in said and "kafka.group.id" in said and "member" not in said


def test_what_passes_is_what_a_retry_may_mend():
    passing = {code for code in CODES if code and passes(failure("OffsetCommit", code, "group 'g'"))}
    # A topic that is unknown may come into being. INVALID_TOPIC_EXCEPTION (17) becomes the same error.
    assert passing == {code for code in CODES if reaction("AnyApi", code) in RETRIABLE} | {17}
    assert passes(BrokerUnreachable("no answer"))


def test_errors_survive_pickling():
    for code in range(-1, 134):
        error = failure("EndTxn", code, "transactional id 'a'")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)


def test_an_error_has_its_code_as_a_number_that_older_releases_can_unpickle():
    error = failure("EndTxn", ErrorCode.INVALID_REQUEST, "transactional id 'a'")
    assert isinstance(error, BrokerError) and type(error.code) is int
    assert b"ErrorCode" not in pickle.dumps(error)
