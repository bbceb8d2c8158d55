"""The verdict on the next batch, found out by a process that owns nothing."""

from __future__ import annotations

import pytest

from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.ledger.decide import batch_write, decide_batch_write
from spark_kafka_eos.ledger.diagnosis import diagnose
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.verdicts import Skip, Write
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.model_kafka import KafkaModel

GIVEN = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id"}
BATCH = MicroBatch(query_id="q", batch_id=0, digest="d", sources=())


@pytest.fixture
def kafka():
    return KafkaModel(2, {"out": 1})


def changes(kafka):
    return [api for api, _ in kafka.requests if api in ("InitProducerId", "CreateTopics", "Produce", "EndTxn")]


@pytest.mark.parametrize("known", [True, False])
def test_it_says_whether_spark_has_planned_the_batch_and_changes_nothing(kafka, known):
    found = diagnose(kafka.cluster(), sink_options(GIVEN | {"topic": "out"}), lambda: (BATCH, known))
    assert (found.entry, found.owner, found.batch, found.planned) == (None, None, BATCH, known)
    assert isinstance(found.verdict, Write)
    assert changes(kafka) == []


def test_without_a_batch_there_is_no_verdict(kafka):
    found = diagnose(kafka.cluster(), sink_options(GIVEN | {"topic": "out"}), lambda: (None, False))
    assert (found.batch, found.planned, found.verdict) == (None, False, None)


@pytest.mark.parametrize(
    ("more", "destination", "planned"),
    [({"topic": "out"}, "out", True), ({"outputTopics": "out"}, "out", True), ({}, "*", False)],
)
def test_of_a_batch_write_the_destination_is_known_unless_its_rows_name_the_topics(kafka, more, destination, planned):
    options = sink_options(GIVEN | {"txnAppId": "app", "txnVersion": "3"} | more)
    found = diagnose(kafka.cluster(), options, lambda: (None, False))
    assert found.batch == batch_write("app", 3, destination=destination)
    assert found.planned is planned
    assert isinstance(found.verdict, Write)


def test_a_batch_write_that_is_committed_is_found_with_its_owner(kafka):
    options = sink_options(GIVEN | {"topic": "out", "txnAppId": "app", "txnVersion": "3"})
    transaction = SharedTransaction(options, kafka.cluster(), decide_batch_write(options))
    write = batch_write("app", 3, destination="out")
    transaction.begin(write)
    transaction.appending()
    transaction.commit(write)
    before = len(changes(kafka))
    found = diagnose(kafka.cluster(), options, lambda: (None, False))
    assert isinstance(found.entry, LedgerEntry)
    cluster = kafka.cluster()
    cluster.look_up(["out"])
    assert found.entry.writes == {f"out@{cluster.topic('out').id}": "3"}
    assert isinstance(found.owner, TransactionFacts)
    assert isinstance(found.verdict, Skip)
    assert len(changes(kafka)) == before
