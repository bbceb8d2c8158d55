"""A commit in doubt, against a coordinator and groups in memory: what became of it, what is said if nobody knows."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spark_kafka_eos.broker.ledger_topic import LastRecord
from spark_kafka_eos.core import ledger
from spark_kafka_eos.core.preflight import TransactionFacts
from spark_kafka_eos.errors import (
    AuthorizationFailed,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    ConfigurationError,
    LedgerRefused,
    ProducerFenced,
    TransactionAborted,
    UnknownTopic,
)
from spark_kafka_eos.model import (
    Ack,
    LedgerEntry,
    MicroBatch,
    OffsetAndMetadata,
    ProducerIdentity,
    SourceProgress,
    SourceRange,
    TopicPartition,
)
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.writing.brokers import Brokers
from spark_kafka_eos.writing.commit import Appended, commit_batch
from spark_kafka_eos.writing.transaction import SharedTransaction, decide_micro_batch

OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id", "topic": "out"})
SOURCE = TopicPartition("in", 0)
OUTPUT = TopicPartition("out", 0)
LEDGER = OPTIONS.ledger_group, TopicPartition(OPTIONS.ledger_topic, 0)
VERIFICATION = "transaction.partition.verification.enable"
RECORD = "record"  # its place among what is open and committed
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
        self.end_offset = 0  # of the ledger's partition
        self.stale = None  # what its leader says that was paused
        self.state = None  # what the coordinator says of the transactional.id, where it is not what it did last
        self.said = None
        self.fenced = []  # what each fence spanned, and its epoch
        self.added = set()
        self.unknown_topics = set()
        self.settings = {VERIFICATION: "false"}

    def meet(self, request):
        if request in self.answers:
            raise self.answers[request]

    def cluster_id(self):
        return "here"

    def topic(self, name):
        return SimpleNamespace(partitions={0: None})

    def refresh(self, names):
        if gone := self.unknown_topics & set(names):
            raise UnknownTopic(f"{gone} does not exist")

    def transaction(self, *_, **__):
        self.meet("DescribeTransactions")
        if self.said is None:
            return None
        state, epoch = self.state or (self.said, self.epoch)
        return TransactionFacts(state=state, producer_id=1, epoch=epoch, timeout_ms=60_000, age_ms=None)


class Coordinator:
    def __init__(self, kafka, transactional_id, timeout_ms):
        self.kafka, self.transaction_version = kafka, kafka.version

    def _identity(self):
        version = self.kafka.version
        return ProducerIdentity(
            transactional_id="id", producer_id=1, epoch=self.kafka.epoch, transaction_version=version
        )

    def init_producer_id(self, held):
        self.kafka.held.append(held)
        self.kafka.meet("InitProducerId")
        if held is None and self.kafka.added:
            self.kafka.fenced.append((self.kafka.epoch, self.kafka.added))
        self.kafka.added = set()
        self.kafka.open.clear()
        self.kafka.epoch += 1
        self.kafka.said = "Empty"
        return self._identity()

    def add_partitions(self, identity, partitions):
        self.kafka.added |= set(partitions)

    def add_offsets(self, identity, group_id):
        self.kafka.added.add(group_id)

    def end(self, identity, *, commit):
        if commit:
            self.kafka.meet("EndTxn")
        self.kafka.said = "CompleteCommit" if commit else "CompleteAbort"
        self.kafka.added = set()
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
                self.kafka.committed[RECORD] = self.kafka.overtaken_by
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

    def fetch_all(self, *, require_stable=True):
        self.kafka.ledger_reads += self.group_id == OPTIONS.ledger_group
        self.kafka.meet("OffsetFetch")
        told = self.kafka.committed if self.kafka.outdated is None else self.kafka.outdated
        return {place[1]: at for place, at in told.items() if place[0] == self.group_id}

    def commit_in_transaction(self, identity, offsets, *, transaction_version):
        self.kafka.meet("TxnOffsetCommit")
        if gone := self.kafka.unknown_topics & {tp.topic for tp in offsets}:
            raise UnknownTopic(f"TxnOffsetCommit answered UNKNOWN_TOPIC_OR_PARTITION (3) for {gone}")
        self.kafka.outdated = None  # only the real coordinator can append
        self.kafka.open |= {(self.group_id, tp): at for tp, at in offsets.items()}


class Ledger:
    def __init__(self, kafka, topic, transactional_id):
        self.kafka, self.at = kafka, TopicPartition(topic, 0)

    def ensure(self):
        pass

    def read(self, since):
        self.kafka.meet("Fetch")
        value = (self.kafka.committed if self.kafka.stale is None else self.kafka.stale).get(RECORD)
        return LastRecord(value=value, position=self.kafka.end_offset)

    def follows(self, position, acknowledged):
        return self.kafka.stale is None or self.kafka.stale.get(RECORD) == self.kafka.committed.get(RECORD)

    @contextmanager
    def append(self, coordinator, identity, value, *, timestamp_ms):
        coordinator.add_partitions(identity, [self.at])
        self.kafka.open[RECORD] = value
        self.kafka.end_offset += 2  # and the marker
        ack = Ack(partition=self.at, base_sequence=0, records=1, bytes=1, base_offset=self.kafka.end_offset - 2)
        yield SimpleNamespace(acknowledged=lambda: ack)


def owner(kafka, options=OPTIONS, *, ledger=True, **more):
    """A transaction of `options` that has `kafka` for its brokers."""
    models: dict[str, Any] = {"coordinator": Coordinator, "group": Group, "ledger_topic": Ledger}
    brokers = Brokers(**models, transaction=Kafka.transaction, coordinator_settings=lambda *_: kafka.settings)
    decide = decide_micro_batch(options) if ledger else None
    return SharedTransaction(options, kafka, decide, brokers=brokers, **more)


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def kafka(request):
    return Kafka(request.param)


@pytest.fixture
def transaction(kafka):
    return owner(kafka)


def batch(number):
    return MicroBatch(
        query_id="query", batch_id=number, digest=f"digest {number}", start={SOURCE: number}, end={SOURCE: number + 1}
    )


def run(transaction, number, max_tries=2):
    """The whole micro-batch `number`."""
    return commit_batch(
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
    assert ["according to the ledger, the batch is not committed" in why for why in report.redone] == [True]
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
    kafka.overtaken_by = ledger.encode_record(
        LedgerEntry(query_id="query", batch_id=3, digest="digest 3", serial=4, sources=())
    )
    with pytest.raises(LedgerRefused, match="a newer driver replaced this one") as refused:
        run(transaction, 0)
    assert refused.value.committed == "unknown"


def test_what_an_outdated_coordinator_says_of_the_ledger_does_not_make_a_batch_be_committed_twice(kafka, transaction):
    run(transaction, 0)
    before = dict(kafka.committed)
    run(transaction, 1)
    kafka.outdated = before
    report = run(owner(kafka), 1)
    assert report.outcome == "skipped"
    assert report.redone == ()  # the record, of another broker, told that the pointer is behind
    assert (kafka.commits, source_offset(kafka)) == (2, 2)


def test_nor_does_it_when_a_commit_is_in_doubt(kafka, transaction):
    run(transaction, 0)
    kafka.loses, kafka.outdated_later = "response", dict(kafka.committed)
    report = run(transaction, 1, max_tries=3)
    assert (report.outcome, report.redone) == ("committed", ())
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
        commit_batch(
            owner(kafka),
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
    transaction = owner(kafka, clock=lambda: now)
    transaction.begin(batch(0))
    transaction.appending()
    now += seconds
    kafka.answers[request_] = ProducerFenced("a newer owner", action="Stop one of the two.")
    with pytest.raises(ProducerFenced) as fenced:
        transaction.commit(batch(0))
    assert fenced.value.committed == ("nothing" if request_ == "TxnOffsetCommit" else "unknown")
    assert ("kafka.transaction.timeout.ms (60000)" in str(fenced.value)) is hinted
    assert "Stop one of the two." in str(fenced.value)


def test_nor_do_an_outdated_coordinator_and_an_outdated_leader_together(kafka, transaction):
    run(transaction, 0)
    before = dict(kafka.committed)
    run(transaction, 1)
    restarted = owner(kafka)
    kafka.outdated = kafka.stale = before
    restarted.begin(batch(1))
    restarted.appending()
    with pytest.raises(TransactionAborted, match="outdated"):
        restarted.commit(batch(1))
    assert kafka.commits == 2


def test_an_outdated_leader_alone_is_noticed_where_the_groups_offsets_have_expired(kafka, transaction):
    run(transaction, 0)
    before = dict(kafka.committed)
    run(transaction, 1)
    for group in [place for place in kafka.committed if place != RECORD]:
        del kafka.committed[group]
    restarted = owner(kafka)
    kafka.stale = before
    restarted.begin(batch(1))
    restarted.appending()
    with pytest.raises(TransactionAborted, match="later entry than its leader answered"):
        restarted.commit(batch(1))
    assert kafka.commits == 2


def test_an_entry_of_an_earlier_release_is_gone_on_from_wherever_it_was_kept(kafka, transaction):
    metadata = '{"v":1,"query":"query","batch":6,"digest":"digest 6"}'
    kafka.committed[OPTIONS.ledger_group, TopicPartition("any", 0)] = OffsetAndMetadata(offset=7, metadata=metadata)
    assert run(transaction, 7).outcome == "committed"
    found = ledger.decode_record(kafka.committed[RECORD])
    assert (found.batch_id, found.serial) == (7, 1)
    again = owner(kafka)
    assert run(again, 7).outcome == "skipped"


def test_a_ledger_whose_groups_expired_still_tells(kafka, transaction):
    run(transaction, 0)
    kafka.committed = {RECORD: kafka.committed[RECORD]}
    again = owner(kafka)
    assert run(again, 0).outcome == "skipped"
    assert run(again, 1).outcome == "committed"


# -- the fence


EVERYWHERE = {OUTPUT, TopicPartition(OPTIONS.ledger_topic, 0), OPTIONS.ledger_group, OPTIONS.group_id}


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_an_abort_shuts_the_epoch_out_of_every_partition_that_it_may_have_been_in(kafka, transaction):
    transaction.begin(batch(0))
    transaction.appending()
    given_up = transaction.identity.epoch
    transaction.abort()
    assert kafka.fenced == [(given_up, EVERYWHERE)]
    assert transaction.identity.epoch > given_up


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
@pytest.mark.parametrize("left", ["CompleteAbort", "CompleteCommit", "Empty", "Ongoing", "PrepareAbort", "Dead"])
def test_a_newcomer_shuts_out_what_an_earlier_owner_may_have_left_on_its_way(kafka, transaction, left):
    kafka.said = left
    transaction.begin(batch(0))
    assert kafka.fenced == [(0, EVERYWHERE)]


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_for_an_id_that_nobody_has_used_there_is_nothing_to_shut_out(kafka, transaction):
    transaction.begin(batch(0))
    assert kafka.fenced == []


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_nothing_is_added_under_the_epoch_that_shut_out_a_producer_ids_last_one(kafka, transaction):
    kafka.said, kafka.state = "CompleteAbort", ("CompleteAbort", 32_767)
    transaction.begin(batch(0))
    assert kafka.fenced == []


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_an_owner_that_was_overtaken_disturbs_nobody_by_its_abort(kafka, transaction):
    transaction.begin(batch(0))
    transaction.appending()
    kafka.state = "Ongoing", transaction.identity.epoch + 1
    held = list(kafka.held)
    with pytest.raises(ProducerFenced, match="now belongs to producer 1, epoch 2"):
        transaction.abort()
    assert (kafka.fenced, kafka.held) == ([], held)


@pytest.mark.parametrize(("kafka", "setting"), [(2, "false"), (1, "true")], indirect=["kafka"], ids=["TV2", "verified"])
def test_where_brokers_keep_stragglers_out_by_themselves_nothing_is_fenced(kafka, setting):
    kafka.settings = {VERIFICATION: setting}
    transaction = owner(kafka)
    kafka.said = "Ongoing"
    transaction.begin(batch(0))
    transaction.appending()
    transaction.abort()
    assert kafka.fenced == []


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
@pytest.mark.parametrize(("left", "goes_on"), [("CompleteCommit", True), ("CompleteAbort", False), ("Empty", False)])
def test_where_no_topic_is_named_nobody_knows_what_to_shut_out_and_the_batch_is_refused(kafka, left, goes_on):
    options = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id"})
    transaction = owner(kafka, options)
    kafka.said = left
    if goes_on:
        transaction.begin(batch(0))
    else:
        with pytest.raises(ConfigurationError, match="List all output topics in outputTopics"):
            transaction.begin(batch(0))


# -- who fenced whom


def timed_out(kafka, request_):
    now = 0.0
    transaction = owner(kafka, clock=lambda: now)

    def write(identity):
        nonlocal now
        if not kafka.answers and not transaction.milliseconds:
            now += 61
            kafka.answers[request_] = FENCED
            kafka.state = "CompleteAbort", identity.epoch + 1
        else:
            kafka.answers.clear()
        return Appended(partitions=1, records=1, bytes=1)

    return commit_batch(transaction, batch(0), write, max_tries=3, append_mode="driver")


@pytest.mark.parametrize("request_", ["TxnOffsetCommit"])
def test_a_transaction_that_only_its_timeout_ended_is_written_again(kafka, request_):
    report = timed_out(kafka, request_)
    assert report.outcome == "committed"
    assert ["aborted the transaction after kafka.transaction.timeout.ms" in why for why in report.redone] == [True]
    assert kafka.commits == 1


def test_a_commit_that_came_after_the_timeout_is_settled_by_the_ledger(kafka):
    report = timed_out(kafka, "EndTxn")
    assert report.outcome == "committed"
    assert ["according to the ledger, the batch is not committed" in why for why in report.redone] == [True]
    assert kafka.commits == 1


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_a_zombie_whose_commit_is_in_doubt_does_not_take_the_id_from_its_living_successor(kafka, transaction):
    transaction.begin(batch(0))
    transaction.appending()
    kafka.loses, kafka.state = "request", ("Ongoing", transaction.identity.epoch + 1)
    held = list(kafka.held)
    with pytest.raises(ProducerFenced, match="now belongs to producer 1, epoch 2") as fenced:
        transaction.commit(batch(0))
    assert fenced.value.committed == "unknown"
    assert kafka.held == held
    with pytest.raises(ProducerFenced):
        transaction.begin(batch(0))


# -- whose offsets


def sourced(number, *sources):
    ranges = tuple(source and SourceRange(start={source: number}, end={source: number + 1}) for source in sources)
    return replace(batch(number), digest=f"digest-{number}", start={}, end={}, sources=ranges)


def settled(options, kafka, one):
    return commit_batch(
        owner(kafka, options),
        one,
        lambda identity: Appended(partitions=1, records=1, bytes=1),
        max_tries=2,
        append_mode="driver",
    )


def test_offsets_of_another_cluster_go_to_the_ledger_and_not_to_the_group(kafka):
    options = replace(OPTIONS, source_clusters=("there", ""))
    settled(options, kafka, sourced(0, SOURCE, TopicPartition("own", 3)))
    assert {place[1] for place in kafka.committed if place[0] == OPTIONS.group_id} == {TopicPartition("own", 3)}
    found = ledger.decode_record(kafka.committed[RECORD])
    assert found.sources == (
        SourceProgress(cluster="there", offsets={SOURCE: 1}),
        SourceProgress(cluster="here", offsets={TopicPartition("own", 3): 1}),
    )


def test_as_many_clusters_must_be_named_as_there_are_sources(kafka):
    options = replace(OPTIONS, source_clusters=("there", "elsewhere"))
    with pytest.raises(ConfigurationError, match="lists 2 clusters, but the query has 3 sources"):
        settled(options, kafka, sourced(0, SOURCE, SOURCE, None))


def test_a_checkpoint_whose_source_is_another_cluster_now_is_refused(kafka):
    settled(OPTIONS, kafka, sourced(0, SOURCE))
    with pytest.raises(
        LedgerRefused, match="the offsets are of cluster there, but the committed ones are of cluster here"
    ):
        settled(replace(OPTIONS, source_clusters=("there",)), kafka, sourced(1, SOURCE))


def test_a_source_topic_that_is_gone_is_an_error_that_names_both_reasons(kafka):
    kafka.unknown_topics = {"in"}
    with pytest.raises(UnknownTopic, match="sourceClusters.*failOnDataLoss=false") as error:
        settled(OPTIONS, kafka, sourced(0, SOURCE))
    assert error.value.committed == "nothing"


def test_a_source_topic_that_is_gone_is_left_out_where_the_user_says_so(kafka):
    kafka.unknown_topics = {"in"}
    options = replace(OPTIONS, fail_on_data_loss=False)
    assert settled(options, kafka, sourced(0, SOURCE, TopicPartition("left", 0))).outcome == "committed"
    assert {place[1].topic for place in kafka.committed if place[0] == OPTIONS.group_id} == {"left"}


def test_a_new_sink_does_not_resume_at_the_offsets_of_another_sinks_transactions(kafka):
    mark = ledger.source_mark("other")
    kafka.committed[OPTIONS.group_id, SOURCE] = OffsetAndMetadata(offset=5000, metadata=mark)
    with pytest.raises(LedgerRefused, match="committed by the transactions of 'other'.*resolve='take-group:other'"):
        settled(OPTIONS, kafka, sourced(0, SOURCE))
    assert settled(replace(OPTIONS, resolve="take-group:other"), kafka, sourced(0, SOURCE)).outcome == "committed"


def test_where_nothing_was_written_and_no_ledger_is_kept_there_is_nothing_to_end(kafka):
    kafka.answers["EndTxn"] = CommitOutcomeUnknown("EndTxn answered INVALID_TXN_STATE (48)")
    report = commit_batch(
        owner(kafka, ledger=False),
        replace(batch(0), start={}, end={}),
        lambda identity: Appended(partitions=0, records=0, bytes=0),
        max_tries=2,
        append_mode="driver",
    )
    assert (report.outcome, report.records) == ("committed", 0)


def test_an_operators_word_settles_one_refusal_and_no_other(kafka, caplog):
    with pytest.raises(LedgerRefused, match="resolve='write:none/query.7.digest") as refused:
        settled(OPTIONS, kafka, sourced(7, SOURCE))
    (word,) = re.findall(r"resolve='(write:\S+)'", str(refused.value))
    assert settled(replace(OPTIONS, resolve=word), kafka, sourced(7, SOURCE)).outcome == "committed"
    assert f"resolve={word} resolves this refusal" in caplog.text
    with pytest.raises(LedgerRefused):
        settled(replace(OPTIONS, resolve=word), kafka, sourced(9, SOURCE))


def test_a_batch_that_was_noted_as_incomplete_is_neither_skipped_nor_gone_on_from(kafka, transaction):
    run(transaction, 0)
    transaction.note_incomplete(batch(0))
    for number in (0, 1):
        restarted = owner(kafka)
        with pytest.raises(LedgerRefused, match="batch 0 is incomplete: the writer's first call was committed"):
            run(restarted, number)
    assert source_offset(kafka) == 1
