"""The verdict on the next batch, found out by a process that owns nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.ledger.decide import batch_write, decide_batch_write, decide_micro_batch
from spark_kafka_eos.ledger.diagnosis import diagnose
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.ledger.verdicts import Skip, Write
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import reads
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


OPTIONS = sink_options(GIVEN | {"topic": "out"})
SOURCE = TopicPartition("in", 0)


def in_real_time(kafka, options=OPTIONS):
    return SharedTransaction(options, kafka.cluster(), decide_in_real_time(options), clock=kafka.clock)


def long_batch(number, query_id="q"):
    digest = f"d{number}"
    return MicroBatch(query_id=query_id, batch_id=number, digest=digest, sources=reads({SOURCE: 5}, {SOURCE: 9}))


def run_in_real_time(kafka, batch):
    transaction = in_real_time(kafka)
    transaction.begin(replace(batch, buckets=1))
    transaction.appending()
    transaction.commit(replace(batch, buckets=1))


def test_of_a_query_that_runs_in_real_time_it_says_what_its_driver_does(kafka):
    kafka.topics.create("in", 1)
    run_in_real_time(kafka, long_batch(0))
    found = diagnose(kafka.cluster(), OPTIONS, lambda: (long_batch(1), True))
    assert found.in_real_time and found.batch == long_batch(1)
    assert found.verdict == in_real_time(kafka).begin(replace(long_batch(1), buckets=1))


def test_another_query_is_taken_for_one_of_micro_batches_unless_it_is_said_to_run_in_real_time(kafka):
    kafka.topics.create("in", 1)
    run_in_real_time(kafka, long_batch(0))
    new = replace(long_batch(0, "new"), sources=reads({SOURCE: 0}, {SOURCE: 9}))
    micro_batch = diagnose(kafka.cluster(), OPTIONS, lambda: (new, True))
    assert not micro_batch.in_real_time
    assert isinstance(micro_batch.verdict, Refuse) and "does not start where it ended" in micro_batch.verdict.reason
    found = diagnose(kafka.cluster(), OPTIONS, lambda: (new, True), in_real_time=True)
    assert found.in_real_time and isinstance(found.verdict, Write)


def test_the_command_that_a_refusal_in_real_time_names_says_that_it_is_one(kafka):
    kafka.topics.create("in", 1)
    kafka.group(OPTIONS.group_id).offsets[SOURCE] = 5, source_mark("other")
    with pytest.raises(LedgerRefused, match="`kafka-eos query resolve id [^`]* --real-time` shows both sides") as error:
        in_real_time(kafka).begin(replace(long_batch(0), buckets=1))
    found = diagnose(kafka.cluster(), OPTIONS, lambda: (long_batch(0), True), in_real_time=True)
    assert isinstance(found.verdict, Refuse)
    assert [*found.verdict.choices] == ["take-group:other"] and found.verdict.reason in str(error.value)


def micro_batch(number):
    offsets = {"start": {SOURCE: 10 * number}, "end": {SOURCE: 10 * number + 10}}
    return MicroBatch(query_id="q", batch_id=number, digest=f"d{number}", sources=reads(**offsets))


def run_micro_batch(kafka, number):
    transaction = SharedTransaction(OPTIONS, kafka.cluster(), decide_micro_batch(OPTIONS), clock=kafka.clock)
    transaction.begin(micro_batch(number))
    transaction.appending()
    transaction.commit(micro_batch(number))


def test_a_live_query_that_commits_during_the_look_is_not_refused(kafka):
    """By the ledger of before and the checkpoint of after its batch, the next one would not follow."""
    kafka.topics.create("in", 1)
    for number in (0, 1):
        run_micro_batch(kafka, number)
    commits = [2, 3]

    def planned():
        if commits:
            run_micro_batch(kafka, commits.pop(0))
        return micro_batch(4 - len(commits)), True

    found = diagnose(kafka.cluster(), OPTIONS, planned)
    assert isinstance(found.verdict, Write), found.verdict
    assert found.batch == micro_batch(4)


def test_a_refusal_that_stays_the_same_is_looked_at_twice_and_said(kafka):
    kafka.topics.create("in", 1)
    run_micro_batch(kafka, 0)
    looks = []

    def planned():
        looks.append(1)
        return micro_batch(3), True

    assert isinstance(diagnose(kafka.cluster(), OPTIONS, planned).verdict, Refuse)
    assert len(looks) == 2
