"""A commit in doubt, against a coordinator and groups in memory: what became of it, what is said if nobody knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.core import ledger
from spark_kafka_eos.eos import distributed as module
from spark_kafka_eos.eos.distributed import SharedTransaction, decide_micro_batch
from spark_kafka_eos.eos.settle import Appended, settle
from spark_kafka_eos.errors import (
    AuthorizationFailed,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    LedgerRefused,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.model import LedgerEntry, MicroBatch, ProducerIdentity, TopicPartition
from spark_kafka_eos.options import sink_options

OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id", "topic": "out"})
SOURCE = TopicPartition("in", 0)
LEDGER = OPTIONS.ledger_group, TopicPartition(OPTIONS.ledger_topic, 0)
UNREACHABLE = BrokerUnreachable("nobody answers")
UNAUTHORIZED = AuthorizationFailed("InitProducerId", 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "'id'")
FENCED = ProducerFenced("a newer owner")


class Kafka:
    """One transactional.id and its offsets; `loses` the end of a transaction before or after it is applied."""

    def __init__(self, version):
        self.version = version
        self.epoch = 0
        self.open = {}
        self.committed = {}
        self.loses = None
        self.answers = {}  # of a request: the error it meets
        self.afterwards = {}  # the same, once an end was lost
        self.overtaken_by = None  # a newer owner's ledger entry, committed meanwhile
        self.held = []  # the identities that InitProducerId was sent
        self.commits = 0
        self.outdated = None  # what a coordinator tells that was paused, until it has heard of its successor
        self.outdated_later = None  # the same, from when an end is lost
        self.ledger_reads = 0

    def meet(self, request):
        if request in self.answers:
            raise self.answers[request]


class Coordinator:
    def __init__(self, kafka, transactional_id, timeout_ms):
        self.kafka, self.transaction_version = kafka, kafka.version

    def _identity(self):
        return ProducerIdentity(transactional_id="id", producer_id=1, epoch=self.kafka.epoch)

    def init_producer_id(self, held):
        self.kafka.held.append(held)
        self.kafka.meet("InitProducerId")
        self.kafka.open.clear()
        self.kafka.epoch += 1
        return self._identity()

    def add_offsets(self, identity, group_id):
        pass

    def end(self, identity, *, commit):
        self.kafka.meet("EndTxn")
        loses, self.kafka.loses = self.kafka.loses, None
        if loses != "request":
            if commit:
                self.kafka.committed |= self.kafka.open
                self.kafka.commits += 1
            self.kafka.open.clear()
            self.kafka.epoch += self.kafka.version >= 2
        if loses:
            self.kafka.answers = self.kafka.afterwards
            self.kafka.outdated, self.kafka.outdated_later = self.kafka.outdated_later, None
            if self.kafka.overtaken_by is not None:
                self.kafka.committed[LEDGER] = self.kafka.overtaken_by
            raise CommitOutcomeUnknown("the commit was sent and not answered")
        return self._identity()


class Group:
    def __init__(self, kafka, group_id):
        self.kafka, self.group_id = kafka, group_id

    def fetch_offsets(self, partitions, *, require_stable):
        assert require_stable or self.kafka.open, "only of its own transaction one need not wait for the end"
        self.kafka.meet("OffsetFetch")
        self.kafka.ledger_reads += self.group_id == OPTIONS.ledger_group
        told = self.kafka.committed if self.kafka.outdated is None else self.kafka.outdated
        return {tp: told.get((self.group_id, tp)) for tp in partitions}

    def commit_in_transaction(self, identity, offsets, *, transaction_version):
        self.kafka.meet("TxnOffsetCommit")
        self.kafka.outdated = None  # only the real coordinator can append
        self.kafka.open |= {(self.group_id, tp): at for tp, at in offsets.items()}


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def kafka(request, monkeypatch):
    monkeypatch.setattr(module, "TransactionCoordinator", Coordinator)
    monkeypatch.setattr(module, "GroupCoordinator", Group)
    return Kafka(request.param)


@pytest.fixture
def transaction(kafka):
    return SharedTransaction(OPTIONS, kafka, decide_micro_batch(OPTIONS))


def batch(number):
    return MicroBatch(
        query_id="query", batch_id=number, digest=f"digest {number}", start={SOURCE: number}, end={SOURCE: number + 1}
    )


def run(transaction, number, max_tries=2):
    """The whole micro-batch `number`."""
    return settle(
        transaction,
        batch(number),
        lambda identity: Appended(partitions=1, records=1, bytes=1),
        max_tries=max_tries,
        append_mode="driver",
    )


def source_offset(kafka):
    return kafka.committed[OPTIONS.group_id, SOURCE].offset


def test_the_source_offsets_say_whose_transactions_commit_them(kafka, transaction):
    run(transaction, 0)
    assert ledger.marked_by(kafka.committed[OPTIONS.group_id, SOURCE]) == "id"


def test_an_applied_commit_is_found_in_the_ledger_and_the_next_batch_goes_on(kafka, transaction):
    kafka.loses = "response"
    report = run(transaction, 0)
    assert (report.outcome, report.redone) == ("committed", ())
    assert run(transaction, 1).outcome == "committed"
    assert source_offset(kafka) == 2


def test_a_commit_that_was_not_applied_is_written_again(kafka, transaction):
    kafka.loses = "request"
    report = run(transaction, 0)
    assert report.outcome == "committed"
    assert ["the ledger shows that it did not happen" in why for why in report.redone] == [True]
    assert run(transaction, 1).outcome == "committed"
    assert source_offset(kafka) == 2


def test_a_commit_that_was_not_applied_aborts_this_try(kafka, transaction):
    transaction.begin(batch(0))
    transaction.appending()
    kafka.loses = "request"
    with pytest.raises(TransactionAborted) as aborted:
        transaction.commit(batch(0))
    assert aborted.value.committed == "nothing"
    assert kafka.committed == {}


def test_tv1_settles_as_a_newcomer(kafka, transaction):
    # With the identity it held it would be fenced for its own open transaction.
    kafka.loses = "response"
    run(transaction, 0)
    assert [held is None for held in kafka.held] == [True, kafka.version < 2]


@pytest.mark.parametrize("loses", ["request", "response"])
@pytest.mark.parametrize(
    ("request_", "error"),
    [("InitProducerId", UNREACHABLE), ("InitProducerId", UNAUTHORIZED), ("OffsetFetch", UNREACHABLE)],
    ids=["nobody answers", "the right was withdrawn", "the ledger's coordinator is gone"],
)
def test_where_nobody_tells_the_outcome_is_unknown(kafka, transaction, loses, request_, error):
    kafka.loses, kafka.afterwards = loses, {request_: error}
    with pytest.raises(CommitOutcomeUnknown, match=f"batch 0.*not answered.*{error.what[:20]}") as unknown:
        run(transaction, 0)
    assert unknown.value.committed == "unknown"
    kafka.answers.clear()
    assert run(transaction, 0).outcome == ("skipped" if loses == "response" else "committed")
    assert source_offset(kafka) == 1


def test_an_owner_that_is_fenced_before_it_knows_says_so(kafka, transaction):
    kafka.loses, kafka.afterwards = "response", {"InitProducerId": FENCED}
    with pytest.raises(ProducerFenced) as fenced:
        run(transaction, 0)
    assert fenced.value.committed == "unknown"
    kafka.answers.clear()
    with pytest.raises(ProducerFenced):
        run(transaction, 1)


def test_an_owner_that_finds_a_later_batch_in_the_ledger_cannot_say_what_became_of_its_own(kafka, transaction):
    kafka.loses = "response"
    kafka.overtaken_by = ledger.encode(LedgerEntry(query_id="query", batch_id=3, digest="digest 3"))
    with pytest.raises(LedgerRefused, match="overtaken by a newer one") as refused:
        run(transaction, 0)
    assert refused.value.committed == "unknown"


def test_what_an_outdated_coordinator_says_of_the_ledger_does_not_make_a_batch_be_committed_twice(kafka, transaction):
    run(transaction, 0)
    before = dict(kafka.committed)
    run(transaction, 1)
    kafka.outdated = before
    report = run(SharedTransaction(OPTIONS, kafka, decide_micro_batch(OPTIONS)), 1)
    assert report.outcome == "skipped"
    assert ["stands at out-0@2 and not at out-0@1" in why for why in report.redone] == [True]
    assert (kafka.commits, source_offset(kafka)) == (2, 2)


def test_nor_does_it_when_a_commit_is_in_doubt(kafka, transaction):
    run(transaction, 0)
    kafka.loses, kafka.outdated_later = "response", dict(kafka.committed)
    report = run(transaction, 1, max_tries=3)
    assert report.outcome == "skipped"
    assert (kafka.commits, source_offset(kafka)) == (2, 2)


def test_nor_are_records_repeated_by_a_query_that_starts_where_an_outdated_coordinator_says_its_group_stands(
    kafka, transaction
):
    run(transaction, 0)
    before = {key: at for key, at in kafka.committed.items() if key[0] == OPTIONS.group_id}
    run(transaction, 1)
    kafka.outdated = kafka.committed | before
    restarted = replace(batch(0), query_id="with a new checkpoint", start={SOURCE: 1}, end={SOURCE: 2})
    with pytest.raises(LedgerRefused):
        settle(
            SharedTransaction(OPTIONS, kafka, decide_micro_batch(OPTIONS)),
            restarted,
            lambda identity: Appended(partitions=1, records=1, bytes=1),
            max_tries=2,
            append_mode="driver",
        )
    assert (kafka.commits, source_offset(kafka)) == (2, 2)


def test_the_ledger_is_asked_again_only_where_its_word_was_needed(kafka, transaction):
    for number in range(3):
        run(transaction, number)
    assert kafka.ledger_reads == (2 if kafka.version >= 2 else 6)


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])  # TV2 is not initialised for each batch
def test_an_owner_that_is_fenced_before_a_batch_says_nothing_of_it_was_committed_though_the_last_one_was(
    kafka, transaction
):
    run(transaction, 0)
    kafka.answers = {"InitProducerId": FENCED}
    with pytest.raises(ProducerFenced) as fenced:
        run(transaction, 1)
    assert fenced.value.committed == "nothing"


@pytest.mark.parametrize("request_", ["EndTxn", "TxnOffsetCommit"])
@pytest.mark.parametrize(("seconds", "hinted"), [(61, True), (59, False)])
def test_an_owner_that_is_fenced_after_the_transactions_timeout_is_told_that_this_may_be_why(
    kafka, seconds, hinted, request_
):
    now = 0.0
    transaction = SharedTransaction(OPTIONS, kafka, decide_micro_batch(OPTIONS), clock=lambda: now)
    transaction.begin(batch(0))
    transaction.appending()
    now += seconds
    kafka.answers[request_] = ProducerFenced("a newer owner", action="Stop one of the two.")
    with pytest.raises(ProducerFenced) as fenced:
        transaction.commit(batch(0))
    assert fenced.value.committed == ("nothing" if request_ == "TxnOffsetCommit" else "unknown")
    assert ("kafka.transaction.timeout.ms (60000)" in str(fenced.value)) is hinted
    assert "Stop one of the two." in str(fenced.value)
