"""One row per error code: what each API does about it, and which error it becomes."""

from __future__ import annotations

import pickle

import pytest

from spark_kafka_eos.core.error_codes import RETRIABLE, Reaction, failure, name_of, passes, reaction
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

# code, name, reaction, error when no retry is left
ROWS = [
    (-1, "UNKNOWN_SERVER_ERROR", Reaction.FATAL, BrokerError),
    (1, "OFFSET_OUT_OF_RANGE", Reaction.DATA_LOSS, DataLoss),
    (2, "CORRUPT_MESSAGE", Reaction.CORRUPT, CorruptRecordBatch),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", Reaction.REFRESH_METADATA, UnknownTopic),
    (4, "INVALID_FETCH_SIZE", Reaction.FATAL, BrokerError),
    (5, "LEADER_NOT_AVAILABLE", Reaction.REFRESH_METADATA, BrokerError),
    (6, "NOT_LEADER_OR_FOLLOWER", Reaction.REFRESH_METADATA, BrokerError),
    (7, "REQUEST_TIMED_OUT", Reaction.RETRY_SAME, BrokerError),
    (8, "BROKER_NOT_AVAILABLE", Reaction.REFRESH_METADATA, BrokerError),
    (9, "REPLICA_NOT_AVAILABLE", Reaction.REFRESH_METADATA, BrokerError),
    (10, "MESSAGE_TOO_LARGE", Reaction.INVALID_ROW, InvalidRow),
    (12, "OFFSET_METADATA_TOO_LARGE", Reaction.FATAL, BrokerError),
    (13, "NETWORK_EXCEPTION", Reaction.RETRY_SAME, BrokerError),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", Reaction.RETRY_SAME, BrokerError),
    (15, "COORDINATOR_NOT_AVAILABLE", Reaction.FIND_COORDINATOR, BrokerError),
    (16, "NOT_COORDINATOR", Reaction.FIND_COORDINATOR, BrokerError),
    (17, "INVALID_TOPIC_EXCEPTION", Reaction.UNKNOWN_TOPIC, UnknownTopic),
    (18, "RECORD_LIST_TOO_LARGE", Reaction.INVALID_ROW, InvalidRow),
    (19, "NOT_ENOUGH_REPLICAS", Reaction.RETRY_SAME, BrokerError),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Reaction.RETRY_SAME, BrokerError),
    (22, "ILLEGAL_GENERATION", Reaction.FATAL, BrokerError),
    (25, "UNKNOWN_MEMBER_ID", Reaction.FATAL, BrokerError),
    (29, "TOPIC_AUTHORIZATION_FAILED", Reaction.UNAUTHORIZED, AuthorizationFailed),
    (30, "GROUP_AUTHORIZATION_FAILED", Reaction.UNAUTHORIZED, AuthorizationFailed),
    (31, "CLUSTER_AUTHORIZATION_FAILED", Reaction.UNAUTHORIZED, AuthorizationFailed),
    (32, "INVALID_TIMESTAMP", Reaction.INVALID_ROW, InvalidRow),
    (33, "UNSUPPORTED_SASL_MECHANISM", Reaction.UNAUTHENTICATED, AuthenticationFailed),
    (34, "ILLEGAL_SASL_STATE", Reaction.UNAUTHENTICATED, AuthenticationFailed),
    (35, "UNSUPPORTED_VERSION", Reaction.FATAL, BrokerError),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", Reaction.FATAL, BrokerError),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", Reaction.ABORT, TransactionAborted),
    (46, "DUPLICATE_SEQUENCE_NUMBER", Reaction.ABORT, TransactionAborted),
    (47, "INVALID_PRODUCER_EPOCH", Reaction.FENCED, ProducerFenced),
    (48, "INVALID_TXN_STATE", Reaction.ABORT, TransactionAborted),
    (49, "INVALID_PRODUCER_ID_MAPPING", Reaction.ABORT, TransactionAborted),
    (50, "INVALID_TRANSACTION_TIMEOUT", Reaction.FATAL, BrokerError),
    (51, "CONCURRENT_TRANSACTIONS", Reaction.RETRY_SOON, BrokerError),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Reaction.UNAUTHORIZED, AuthorizationFailed),
    (56, "KAFKA_STORAGE_ERROR", Reaction.REFRESH_METADATA, BrokerError),
    (58, "SASL_AUTHENTICATION_FAILED", Reaction.UNAUTHENTICATED, AuthenticationFailed),
    (59, "UNKNOWN_PRODUCER_ID", Reaction.ABORT, TransactionAborted),
    (69, "GROUP_ID_NOT_FOUND", Reaction.FATAL, BrokerError),
    (72, "LISTENER_NOT_FOUND", Reaction.REFRESH_METADATA, BrokerError),
    (74, "FENCED_LEADER_EPOCH", Reaction.REFRESH_METADATA, BrokerError),
    (75, "UNKNOWN_LEADER_EPOCH", Reaction.REFRESH_METADATA, BrokerError),
    (78, "OFFSET_NOT_AVAILABLE", Reaction.RETRY_SAME, BrokerError),
    (82, "FENCED_INSTANCE_ID", Reaction.FATAL, BrokerError),
    (87, "INVALID_RECORD", Reaction.INVALID_ROW, InvalidRow),
    (88, "UNSTABLE_OFFSET_COMMIT", Reaction.RETRY_SOON, BrokerError),
    (89, "THROTTLING_QUOTA_EXCEEDED", Reaction.RETRY_SAME, BrokerError),
    (90, "PRODUCER_FENCED", Reaction.FENCED, ProducerFenced),
    (100, "UNKNOWN_TOPIC_ID", Reaction.REFRESH_METADATA, BrokerError),
    (103, "INCONSISTENT_TOPIC_ID", Reaction.REFRESH_METADATA, BrokerError),
    (113, "STALE_MEMBER_EPOCH", Reaction.FATAL, BrokerError),
    (120, "TRANSACTION_ABORTABLE", Reaction.ABORT, TransactionAborted),
    (133, "SHARE_SESSION_LIMIT_REACHED", Reaction.FATAL, BrokerError),
    (134, "UNKNOWN_ERROR_134", Reaction.FATAL, BrokerError),
    (9999, "UNKNOWN_ERROR_9999", Reaction.FATAL, BrokerError),
    (-2, "UNKNOWN_ERROR_-2", Reaction.FATAL, BrokerError),
]

# What differs from the rows above for one API.
OVERRIDES = [
    ("Produce", 2, Reaction.RETRY_SAME, BrokerError),
    ("Produce", 15, Reaction.RETRY_SAME, BrokerError),
    ("Produce", 16, Reaction.RETRY_SAME, BrokerError),
    ("Produce", 19, Reaction.RETRY_SOON, BrokerError),
    ("Produce", 47, Reaction.ABORT, TransactionAborted),
    ("EndTxn", -1, Reaction.LEDGER_DECIDES, CommitOutcomeUnknown),
    ("EndTxn", 48, Reaction.LEDGER_DECIDES, CommitOutcomeUnknown),
    ("Fetch", -1, Reaction.RETRY_SAME, BrokerError),
    ("Fetch", 70, Reaction.RETRY_SAME, BrokerError),
    ("Fetch", 71, Reaction.RETRY_SAME, BrokerError),
    ("Fetch", 106, Reaction.REFRESH_METADATA, BrokerError),
    ("TxnOffsetCommit", 7, Reaction.FIND_COORDINATOR, BrokerError),
]


@pytest.mark.parametrize(("code", "name", "expected", "error"), ROWS, ids=[row[1] for row in ROWS])
def test_each_code_has_one_reaction_and_one_error(code, name, expected, error):
    assert reaction("AnyApi", code) is expected
    assert name_of(code) == name
    raised = failure("AnyApi", code, "orders-3")
    assert type(raised) is error
    assert f"AnyApi answered {name} ({code}) for orders-3" in str(raised)


@pytest.mark.parametrize(("api", "code", "expected", "error"), OVERRIDES)
def test_an_api_may_react_differently(api, code, expected, error):
    assert reaction(api, code) is expected
    assert type(failure(api, code, "x")) is error
    assert expected is not reaction("AnyApi", code)


def test_no_error_asks_for_nothing():
    assert reaction("Produce", 0) is Reaction.NONE
    assert name_of(0) == "NONE"


def test_every_code_of_kafka_has_its_own_name():
    names = [name_of(code) for code in range(-1, 134)]
    assert len(set(names)) == len(names)


def test_only_errors_that_pass_by_themselves_are_tried_again():
    assert {code for code in range(-1, 134) if reaction("AnyApi", code) in RETRIABLE} == {
        3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 72, 74, 75, 78, 88, 89, 100, 103,
    }  # fmt: skip


@pytest.mark.parametrize(("code", "kind"), [(29, "topic"), (30, "group"), (31, "cluster"), (53, "transactional id")])
def test_a_missing_acl_names_the_kind_of_resource(code, kind):
    error = failure("Produce", code, "orders-3")
    assert isinstance(error, AuthorizationFailed)
    assert f"on the {kind}" in error.action or code == 31
    assert error.committed == "nothing"


def test_a_group_that_a_broker_does_not_know_has_no_offsets():
    assert reaction("OffsetFetch", 69) is Reaction.NONE


@pytest.mark.parametrize("code", [22, 25, 27, 69, 82, 110, 113])
def test_a_group_with_other_members_says_so(code):
    assert "Another client is a member of this consumer group" in str(failure("TxnOffsetCommit", code, "group 'g'"))


@pytest.mark.parametrize("code", [3, 7, 13, 14, 15, 16, 51])
def test_a_transient_error_may_pass(code):
    assert passes(failure("OffsetCommit", code, "group 'g'"))
    assert passes(BrokerUnreachable("no answer"))


@pytest.mark.parametrize("code", [12, 25, 29, 30, 58])
def test_what_no_retry_mends_does_not_pass(code):
    assert not passes(failure("OffsetCommit", code, "group 'g'"))


def test_errors_survive_pickling():
    for code in range(-1, 134):
        error = failure("EndTxn", code, "transactional id 'a'")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
