"""What is committed for lag tools, and when: against a group in memory."""

from __future__ import annotations

import pytest

from spark_kafka_eos.core.error_codes import failure
from spark_kafka_eos.core.ledger import source_mark
from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, BrokerUnreachable, ConfigurationError
from spark_kafka_eos.model import UNRESOLVED, OffsetAndMetadata, TopicPartition
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading import group_offsets as module
from spark_kafka_eos.reading.group_offsets import ConsumedOffsets

FIRST, SECOND = {"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7}}


class Group:
    """One group's offsets, the attempts to commit them, and their errors."""

    def __init__(self):
        self.offsets = {TopicPartition("t", number): None for number in range(2)}
        self.tries, self.errors = [], []
        self.clients = []
        self.closed = 0
        self.group_id = ""
        self.seconds = 0.0

    def __call__(self, cluster, group_id):
        self.group_id = group_id
        return self

    def connect(self, client):
        self.clients.append(client)
        return self

    def close(self):
        self.closed += 1

    def fetch_offsets(self, partitions):
        return {tp: self.offsets[tp] for tp in partitions}

    def commit_offsets(self, offsets):
        self.tries.append({tp.partition: committed.offset for tp, committed in offsets.items()})
        if self.errors:
            raise self.errors.pop(0)
        self.offsets |= offsets


@pytest.fixture
def group(monkeypatch):
    made = Group()
    monkeypatch.setattr(module, "GroupCoordinator", made)
    return made


@pytest.fixture
def consumed(group):
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitOffsets": "true", "kafka.group.id": "g"}
    return ConsumedOffsets(source_options(given), group.connect, lambda: group.seconds)


def test_the_group_gets_exactly_the_ends_that_were_confirmed(group, consumed):
    consumed.done(FIRST)
    consumed.done(SECOND)
    assert (group.group_id, group.tries) == ("g", [{0: 5, 1: 7}, {0: 9, 1: 7}])


def test_an_end_that_is_committed_is_not_committed_again(group, consumed):
    for _ in range(3):
        consumed.done(FIRST)
    assert len(group.tries) == 1


def test_an_idle_querys_offsets_are_renewed_before_they_expire(group, consumed):
    for group.seconds in (0.0, 3_599.0, 3_601.0):
        consumed.done(FIRST)
    assert group.tries == [{0: 5, 1: 7}] * 2


def test_a_start_that_is_not_yet_known_is_no_end(group, consumed):
    consumed.done(UNRESOLVED)
    assert group.tries == []


def test_nothing_is_sent_unless_it_was_asked_for(group):
    options = source_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "kafka.group.id": "g"})
    ConsumedOffsets(options, group.connect).done(FIRST)
    assert group.clients == []


@pytest.mark.parametrize("error", [BrokerUnreachable("gone"), failure("OffsetCommit", 14, "g"), failure("x", 3, "t")])
def test_a_fault_that_may_pass_is_logged_and_the_next_batch_commits(group, consumed, error, caplog):
    group.errors = [error]
    consumed.done(FIRST)
    assert "cannot commit the offsets of group 'g' yet" in caplog.text
    consumed.done(SECOND)
    assert group.tries[-1] == {0: 9, 1: 7}


def test_an_idle_query_tries_again_after_a_while_and_not_at_every_trigger(group, consumed):
    group.errors = [BrokerUnreachable("gone")]
    for group.seconds in (0.0, 1.0, 29.0, 31.0, 32.0):
        consumed.done(FIRST)
    assert len(group.tries) == 2
    assert group.offsets[TopicPartition("t", 0)] == OffsetAndMetadata(offset=5)


@pytest.mark.parametrize(("code", "error"), [(29, AuthorizationFailed), (30, AuthorizationFailed), (25, BrokerError)])
def test_what_no_retry_mends_stops_the_query(group, consumed, code, error):
    group.errors = [failure("OffsetCommit", code, "group 'g'")]
    with pytest.raises(error):
        consumed.done(FIRST)


def test_a_group_that_the_sinks_transactions_commit_to_is_refused_untouched(group, consumed):
    group.offsets[TopicPartition("t", 1)] = OffsetAndMetadata(offset=3, metadata=source_mark("orders"))
    with pytest.raises(ConfigurationError, match=r"transactions of 'orders' commit to group 'g'.*kafka\.group\.id"):
        consumed.done(FIRST)
    assert group.tries == []


def test_a_batch_waits_a_few_seconds_at_most(group, consumed):
    consumed.done(FIRST)
    [client] = group.clients
    assert (client.delivery_timeout_ms, client.request_timeout_ms, client.socket_connection_setup_timeout_ms) == (
        5_000,
        5_000,
        5_000,
    )


def test_closing_closes_the_connections_once(group, consumed):
    consumed.close()
    consumed.done(FIRST)
    consumed.close()
    consumed.close()
    assert group.closed == 1
