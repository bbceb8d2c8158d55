"""What is committed for lag tools, and when: on the model of Kafka."""

from __future__ import annotations

import pytest

from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, ConfigurationError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.group_offsets import ConsumedOffsets
from spark_kafka_eos.source_offset import UNRESOLVED
from tests.model_kafka import KafkaModel, lost, refused

FIRST, SECOND = {"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7}}


class Kafka(KafkaModel):
    """The model, and the requests to it."""

    def __init__(self):
        super().__init__(2, {"t": 2})
        self.clients, self.clusters = [], []

    def connect(self, client):
        self.clients.append(client)
        self.clusters.append(self.cluster(client))
        return self.clusters[-1]

    @property
    def tries(self):
        """The offsets of each OffsetCommit."""
        return [
            {p.partition_index: p.committed_offset for topic in request.topics for p in topic.partitions}
            for request in self.sent("OffsetCommit")
        ]

    def offsets(self):
        return {tp.partition: offset for tp, (offset, _) in self.group("g").offsets.items()}


@pytest.fixture
def kafka():
    return Kafka()


@pytest.fixture
def consumed(kafka):
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitOffsets": "true", "kafka.group.id": "g"}
    return ConsumedOffsets(source_options(given), kafka.connect, kafka.clock)


def test_the_group_gets_exactly_the_ends_that_were_confirmed(kafka, consumed):
    consumed.done(FIRST)
    consumed.done(SECOND)
    assert (kafka.tries, kafka.offsets()) == ([{0: 5, 1: 7}, {0: 9, 1: 7}], {0: 9, 1: 7})


def test_an_end_that_is_committed_is_not_committed_again(kafka, consumed):
    for _ in range(3):
        consumed.done(FIRST)
    assert len(kafka.tries) == 1


def test_an_idle_querys_offsets_are_renewed_before_they_expire(kafka, consumed):
    for kafka.world.now in (0.0, 3_599.0, 3_601.0):
        consumed.done(FIRST)
    assert kafka.tries == [{0: 5, 1: 7}] * 2


def test_a_start_that_is_not_yet_known_is_no_end(kafka, consumed):
    consumed.done(UNRESOLVED)
    assert kafka.tries == []


@pytest.mark.parametrize("meets", [lost, refused(14), refused(3)], ids=["lost", "loading", "no such topic"])
def test_a_fault_that_may_pass_is_logged_and_the_next_batch_commits(kafka, consumed, meets, caplog):
    kafka.meets["OffsetCommit"] = meets
    consumed.done(FIRST)
    assert "cannot commit the offsets of group 'g' yet" in caplog.text
    kafka.meets.clear()
    consumed.done(SECOND)
    assert kafka.offsets() == {0: 9, 1: 7}


def test_an_idle_query_tries_again_after_a_while_and_not_at_every_trigger(kafka, consumed):
    kafka.meets["OffsetCommit"] = refused(14)
    consumed.done(FIRST)
    kafka.meets.clear()
    failed, tries = kafka.world.now, len(kafka.tries)
    for seconds in (1.0, 29.0, 31.0, 32.0):
        kafka.world.now = failed + seconds
        consumed.done(FIRST)
    assert len(kafka.tries) == tries + 1
    assert kafka.offsets() == {0: 5, 1: 7}


@pytest.mark.parametrize(("code", "error"), [(29, AuthorizationFailed), (30, AuthorizationFailed), (25, BrokerError)])
def test_what_no_retry_mends_stops_the_query(kafka, consumed, code, error):
    kafka.meets["OffsetCommit"] = refused(code)
    with pytest.raises(error):
        consumed.done(FIRST)


def test_a_group_that_the_sinks_transactions_commit_to_is_refused_untouched(kafka, consumed):
    kafka.group("g").offsets[TopicPartition("t", 1)] = 3, source_mark("orders")
    with pytest.raises(ConfigurationError, match=r"transactions of 'orders' commit to group 'g'.*kafka\.group\.id"):
        consumed.done(FIRST)
    assert kafka.tries == []


def test_a_late_driver_does_not_move_the_group_back_and_says_so_once(kafka, consumed, caplog):
    consumed.done(FIRST)
    kafka.group("g").offsets[TopicPartition("t", 0)] = 20, ""  # by the driver that has replaced it
    consumed.done({"t": {"0": 9, "1": 8}})
    assert kafka.offsets() == {0: 20, 1: 8}
    consumed.done({"t": {"0": 12, "1": 9}})
    assert kafka.offsets() == {0: 20, 1: 9}
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "somebody else has moved group 'g' on, to t-0 20, beyond the offsets of this query" in warning
    consumed.done({"t": {"0": 21, "1": 9}})
    assert kafka.offsets() == {0: 21, 1: 9}


def test_offsets_that_go_back_are_committed_where_nobody_else_has_moved_the_group(kafka, consumed):
    """As after a truncated log, or at the start with an older checkpoint."""
    kafka.group("g").offsets[TopicPartition("t", 1)] = 30, ""
    consumed.done(SECOND)
    assert kafka.offsets() == {0: 9, 1: 7}
    consumed.done(FIRST)
    assert kafka.offsets() == {0: 5, 1: 7}


def test_a_batch_waits_a_few_seconds_at_most(kafka, consumed):
    consumed.done(FIRST)
    [client] = kafka.clients
    assert (client.delivery_timeout_ms, client.request_timeout_ms, client.socket_connection_setup_timeout_ms) == (
        5_000,
        5_000,
        5_000,
    )


def test_closing_closes_the_connections_once(kafka, consumed):
    consumed.close()
    consumed.done(FIRST)
    consumed.close()
    consumed.close()
    assert [cluster._connections for cluster in kafka.clusters] == [{}]
