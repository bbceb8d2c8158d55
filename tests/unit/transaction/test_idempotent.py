"""At-least-once: by which producer it appends, and which source offsets it commits to the group."""

import logging
import os
import time
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_kafka_eos.appending import formats
from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import (
    AttemptsExhausted,
    AuthorizationFailed,
    BrokerError,
    ConfigurationError,
    LedgerRefused,
    TransactionAborted,
    UnknownTopic,
)
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import PLAIN, ProducerIdentity
from spark_kafka_eos.kafka.producing import producer_ids
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import HEADER
from spark_kafka_eos.ledger.entry import BatchCounts
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.source_offset import Origin, SinkIdentity
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.idempotent import AtLeastOnceProducer
from tests.batches import BY_DRIVER, reads
from tests.model_kafka import KafkaModel, refused

IN = TopicPartition("in", 0)
BATCH = MicroBatch(query_id="q", batch_id=0, digest="", sources=reads({IN: 0}, {IN: 3}))
WRITTEN = BatchCounts(records=3, bytes=300, milliseconds=1)
UNKNOWN_TOPIC, CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_FOR_MESSAGE_FORMAT = 3, 31, 43
GIVEN = {"kafka.bootstrap.servers": "b:1", "deliveryGuarantee": "at-least-once", "kafka.group.id": "g"}


def writes(kafka: KafkaModel, idempotence: str | None = None, **options: str) -> AtLeastOnceProducer:
    degree = {} if idempotence is None else {"kafka.enable.idempotence": idempotence}
    return AtLeastOnceProducer(sink_options(GIVEN | degree | options), kafka.cluster())


def commit(kafka: KafkaModel, **options: str) -> None:
    writes(kafka, **options).commit(BATCH, written=WRITTEN)


def producer(writes: AtLeastOnceProducer) -> tuple[int, int]:
    """The producer id and epoch of a batch that `writes` begins."""
    writes.begin(BATCH)
    return writes.identity.producer_id, writes.identity.epoch


def written(writes: AtLeastOnceProducer) -> tuple[int, int]:
    """The producer id and epoch of a whole batch."""
    found = producer(writes)
    writes.commit(BATCH, written=WRITTEN)
    return found


class Formats(KafkaModel):
    """A cluster some of whose topics have a message format without room for producer ids."""

    def __init__(self, *old: str) -> None:
        super().__init__(2, {"old": 2, "new": 2})
        self.old = set(old)

    def _append(self, node, version, name, tp, batch):
        if code := self.topics.refusal(node, tp):
            return code, -1
        producer_id, epoch, base_sequence = HEADER.unpack_from(bytes(batch))[9:12]
        values = self._contents(tp, bytes(batch))
        if producer_id < 0:
            return 0, self.partitions[tp].append_plain(values)
        if tp.topic in self.old:
            return UNSUPPORTED_FOR_MESSAGE_FORMAT, -1
        return self.partitions[tp].append(producer_id, epoch, base_sequence, values)

    def log(self, topic: str) -> list[tuple[bytes, int]]:
        """The values in the partitions of the topic, in order, each with its producer id."""
        logs = [self.partitions[TopicPartition(topic, number)].log for number in range(2)]
        return [(value, entry.producer_id) for log in logs for entry in log for value in entry.content]


def write_to_both(writes: AtLeastOnceProducer, kafka: Formats, value: bytes, cluster=None) -> int:
    """A batch with three record batches for each partition; returns how many Produce requests it took."""

    def write(identity: ProducerIdentity) -> Appended:
        keys, stamped = pa.array([None], pa.binary()), int(time.time() * 1000)
        blocks = [
            (TopicPartition(topic, number), 1, encode(keys, pa.array([b"%s%d" % (value, part)]), stamped))
            for part in range(3)
            for topic in ("old", "new")
            for number in range(2)
        ]
        acks = append(cluster or kafka.cluster(writes._cluster.options), identity, blocks)
        return Appended(partitions=4, records=sum(ack.records for ack in acks), bytes=1)

    before = len(kafka.sent("Produce"))
    writes.begin(BATCH)
    assert writes.append(write).records == 12
    writes.commit(BATCH, written=WRITTEN)
    return len(kafka.sent("Produce")) - before


def of(*values: bytes) -> list[bytes]:
    """What two partitions have of these batches."""
    return [b"%s%d" % (value, part) for _ in range(2) for value in values for part in range(3)]


@pytest.fixture
def kafka() -> KafkaModel:
    return KafkaModel(2, {"in": 1})


@pytest.fixture(autouse=True)
def a_new_process(monkeypatch):
    """It has no producer ids, and knows no topic."""
    monkeypatch.setattr(producer_ids, "_idle", {})
    monkeypatch.setattr(formats, "_refused", {})


def test_those_of_the_sinks_own_cluster(kafka):
    commit(kafka)
    (request,) = kafka.sent("OffsetCommit")
    assert request.topics[0].partitions[0].committed_offset == 3


def test_none_if_the_source_is_on_another_cluster_which_may_have_a_topic_of_the_same_name(kafka):
    commit(kafka, sourceClusters="there")
    assert kafka.sent("OffsetCommit") == []


def test_a_late_driver_does_not_move_the_group_back(kafka):
    late = writes(kafka)
    late.commit(BATCH, written=WRITTEN)
    writes(kafka).commit(replace(BATCH, batch_id=2, sources=reads({IN: 6}, {IN: 9})), written=WRITTEN)
    late.commit(replace(BATCH, batch_id=1, sources=reads({IN: 3}, {IN: 6})), written=WRITTEN)
    assert kafka.group("g").offsets[IN][0] == 9


def test_none_of_a_source_that_says_itself_that_it_reads_another_cluster(kafka):
    here, there = (
        SourceRange(start={}, end={IN: at}, origin=Origin(cluster=name)) for at, name in ((3, "model"), (2, "there"))
    )
    writes(kafka).commit(replace(BATCH, sources=(there, here)), written=WRITTEN)
    (request,) = kafka.sent("OffsetCommit")
    assert request.topics[0].partitions[0].committed_offset == 3
    writes(kafka).commit(replace(BATCH, sources=(there,)), written=WRITTEN)
    assert len(kafka.sent("OffsetCommit")) == 1


def test_a_deleted_topic_fails_the_batch_unless_the_user_accepts_data_loss(kafka, caplog):
    kafka.meets["OffsetCommit"] = refused(UNKNOWN_TOPIC)
    with pytest.raises(UnknownTopic):
        commit(kafka)
    caplog.set_level(logging.WARNING, "spark_kafka_eos")
    commit(kafka, failOnDataLoss="false")
    assert "source offsets are not committed, because a topic no longer exists" in caplog.text


@pytest.mark.parametrize("degree", [None, "true", "required", "requested"])
def test_each_batch_has_the_next_epoch_of_the_same_producer_id(kafka, degree):
    own = writes(kafka, degree)
    (first, zero), second, third = written(own), written(own), written(writes(kafka, degree))
    assert (zero, second, third) == (0, (first, 1), (first, 2))
    assert len(kafka.sent("InitProducerId")) == 1


def test_each_attempt_has_an_epoch_of_its_own(kafka):
    epochs = []

    def fail(identity: ProducerIdentity) -> Appended:
        epochs.append((identity.producer_id, identity.epoch))
        raise TransactionAborted("a task ran twice")

    for _ in range(2):  # the second time as by a restarted query in the same process
        with pytest.raises(AttemptsExhausted):
            commit_batch(writes(kafka), BATCH, fail, max_attempts=2, choice=BY_DRIVER)
    assert epochs == [(epochs[0][0], epoch) for epoch in range(4)]


def test_two_that_write_at_the_same_time_have_different_producer_ids(kafka):
    one, other = writes(kafka), writes(kafka)
    (first, _), (second, _) = producer(one), producer(other)
    assert first != second
    one.abort()
    assert producer(one) == (first, 1)
    assert producer(writes(kafka))[0] not in (first, second), "both are in use"


def test_after_the_last_epoch_there_is_a_new_producer_id(kafka, monkeypatch):
    monkeypatch.setattr("spark_kafka_eos.kafka.producing.sequences.LAST_EPOCH", 1)
    own = writes(kafka)
    first, second, third = written(own), written(own), written(own)
    assert (first[0], first[1], second[1], third[1]) == (second[0], 0, 1, 0)
    assert third[0] != first[0]


def test_a_forked_process_has_none_of_its_parents_producer_ids(kafka, monkeypatch):
    parents = written(writes(kafka))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert written(writes(kafka))[0] != parents[0]


def test_another_clusters_producer_ids_are_not_used(kafka, monkeypatch):
    first = written(writes(kafka))
    own = writes(kafka)
    monkeypatch.setattr(own._cluster, "cluster_id", lambda: "another")
    assert written(own)[0] != first[0]


@pytest.mark.parametrize("degree", ["off", "false"])
def test_without_idempotence_no_producer_id_is_asked_for(kafka, degree):
    own = writes(kafka, degree)
    own.begin(BATCH)
    assert own.identity == PLAIN
    assert kafka.sent("InitProducerId") == []


def test_who_is_refused_a_producer_id_goes_on_without_one_if_it_was_only_requested(kafka, caplog):
    kafka.meets["InitProducerId"] = refused(CLUSTER_AUTHORIZATION_FAILED)
    own = writes(kafka, "requested")
    assert [written(own), written(own)] == [(PLAIN.producer_id, PLAIN.epoch)] * 2
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "without idempotence, because InitProducerId answered CLUSTER_AUTHORIZATION_FAILED (31)" in warning
    with pytest.raises(AuthorizationFailed):
        producer(writes(kafka, "required"))


def test_only_the_topic_of_an_old_format_is_written_without_a_producer_id_and_nothing_twice(caplog):
    kafka = Formats("old")
    write_to_both(writes(kafka, "requested"), kafka, b"a")
    assert [value for value, _ in kafka.log("old")] == [value for value, _ in kafka.log("new")] == of(b"a")
    assert {producer_id for _, producer_id in kafka.log("old")} == {-1}
    assert min(producer_id for _, producer_id in kafka.log("new")) >= 0
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert (
        "topic old is written without idempotence, because Produce answered UNSUPPORTED_FOR_MESSAGE_FORMAT" in warning
    )


def test_later_batches_do_not_ask_again_whoever_writes_them_and_a_format_that_was_raised_is_noticed():
    kafka = Formats("old")
    first = write_to_both(writes(kafka, "requested"), kafka, b"a")
    second = write_to_both(writes(kafka, "requested"), kafka, b"b")
    assert first > second
    kafka.old.clear()
    write_to_both(writes(kafka, "requested"), kafka, b"c")
    kafka.world.now += 301
    write_to_both(writes(kafka, "requested"), kafka, b"d")
    assert [value for value, _ in kafka.log("old")] == of(b"a", b"b", b"c", b"d")
    assert {value for value, producer_id in kafka.log("old") if producer_id >= 0} == {b"d0", b"d1", b"d2"}


def test_an_old_format_fails_the_batch_of_who_requires_idempotence():
    kafka = Formats("old")
    with pytest.raises(BrokerError, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
        write_to_both(writes(kafka, "required"), kafka, b"a")
    assert kafka.log("old") == []


def test_another_error_is_not_answered_by_writing_without_idempotence(kafka):
    def write(identity: ProducerIdentity) -> Appended:
        raise BrokerError("Produce", 87, "INVALID_RECORD", "in-0")

    own = writes(kafka, "requested")
    own.begin(BATCH)
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        own.append(write)


def test_an_error_while_records_are_sent_does_not_say_that_nothing_is_visible(kafka):
    def fail(identity: ProducerIdentity) -> Appended:
        raise TransactionAborted("a task ran twice")

    own = writes(kafka)
    with pytest.raises(AttemptsExhausted, match="a task ran twice") as raised:
        commit_batch(own, BATCH, fail, max_attempts=2, choice=BY_DRIVER)
    assert raised.value.committed == "acknowledged"
    assert "Without a transaction, records that brokers acknowledged are visible" in str(raised.value)


@pytest.mark.parametrize("degree", ["requested", "off", "false"])
def test_exactly_once_needs_idempotence(degree):
    given = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "topic": "out"}
    with pytest.raises(ConfigurationError, match=r"'kafka.enable.idempotence': exactly-once needs true or required"):
        sink_options(given | {"kafka.enable.idempotence": degree})


def test_a_first_batch_that_starts_where_a_sink_with_a_ledger_ended_is_refused_before_anything_is_sent():
    sinks = (SinkIdentity(transactional_id="copy", ledger_topic="kafka-eos-ledger", cluster="model"),)
    kafka = KafkaModel()
    with pytest.raises(LedgerRefused, match=r"'copy' has committed, but this sink keeps no ledger \(at-least-once\)"):
        writes(kafka).begin(replace(BATCH, sources=(SourceRange(start={IN: 0}, end={IN: 3}, sinks=sinks),)))
    assert producer(writes(kafka)) == producer(writes(KafkaModel())), "no producer id was taken"
