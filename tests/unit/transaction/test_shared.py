"""A commit in doubt, against the model of Kafka: its outcome, and the error if the outcome is unknown."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from lab.simulation.chance import Seeded
from lab.simulation.conditions import Conditions
from lab.simulation.coordinator import Phase
from lab.simulation.refusals import refusal
from spark_kafka_eos.appending.append import append, topic_ids
from spark_kafka_eos.appending.append_task import append_attempt, judge
from spark_kafka_eos.appending.barrier import StageAttempts
from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import Appended, CommitReport
from spark_kafka_eos.errors import (
    AttemptsExhausted,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    ConfigurationError,
    IllegalTransactionState,
    LedgerRefused,
    OutputLost,
    ProducerFenced,
    StagingLost,
    TransactionAborted,
    UnknownTopic,
    must_not_restart,
)
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol.recorder import recording
from spark_kafka_eos.kafka.protocol.transactions import add_partitions
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import MOST_EARLIER_RUNS, SourceProgress
from spark_kafka_eos.ledger.source_mark import marked_by, source_mark
from spark_kafka_eos.micro_batch import READS_NOTHING, MicroBatch, SourceRange
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.owner import owner_of
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, appended_to, reads
from tests.coordinating import TransactionCoordinator
from tests.model_kafka import CLIENT, KafkaModel, lost, refused, unanswered

OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id", "topic": "out"})
PATIENCE = replace(CLIENT, request_timeout_ms=10_000, delivery_timeout_ms=10_000)  # less than a transaction's timeout
SOURCE = TopicPartition("in", 0)
OUTPUT = TopicPartition("out", 0)
LEDGER = TopicPartition(OPTIONS.ledger_topic, 0)
UNAUTHORIZED, UNKNOWN_TOPIC, INVALID_TXN_STATE = 53, 3, 48


class Last(Seeded):
    """An outdated coordinator has missed one commit."""

    def choose(self, what, options):
        return options[-1]


class Kafka(KafkaModel):
    """The model, where TV1's leaders verify nothing, and what happens to it here."""

    def __init__(self, version, *, verification=False, topics=("in", "out")):
        super().__init__(version, dict.fromkeys(topics, 1), conditions=Conditions(verification=verification))

    @property
    def commits(self):
        return sum(entry.commit is True for entry in self.partitions[LEDGER].log)

    def entry(self):
        """The ledger's last committed record."""
        (value,) = self.partitions[LEDGER].committed()[-1].content
        return entry_format.decode_record(value)

    def offsets(self, group_id=OPTIONS.group_id):
        return self.group(group_id).offsets

    def shut_out(self, epoch):
        """Where nothing is taken from this epoch any more."""
        logs = self.partitions | {name: group.partition for name, group in self.groups.items()}
        return {place for place, log in logs.items() if log.outdated(1, epoch)}

    def lose_commit(self, what: str, then: Callable[[], object] = lambda: None):
        """The next commit is lost, its request or its response, as often as it is sent; `then` happens meanwhile."""
        sender: list[tuple[int, int]] = []

        def meet(request, answer):
            now = request.producer_id, request.producer_epoch
            if not sender:
                sender.append(now)
                if what == "response":
                    answer()
                then()
            return None if sender == [now] else answer()

        self.meets["EndTxn"] = meet

    def outdate_coordinator(self, *groups):
        """Of these groups, or all, the last commit is unknown to a coordinator that was paused.

        Only the real coordinator can append, so it hears of that one then.
        """

        def meet(request, answer):
            told = self.outdated(request, Last(0)) if request.group_id in groups or not groups else None
            return answer() if told is None else told

        self.meets["OffsetFetch"] = meet
        self.before("TxnOffsetCommit", lambda: self.meets.pop("OffsetFetch"))

    def outdate_leader(self, log):
        """The leader of the ledger's partition was paused and has no more than `log`, until somebody appends."""

        def meet(request, answer):
            real, self.partitions[LEDGER] = self.partitions[LEDGER], log
            try:
                return answer()
            finally:
                self.partitions[LEDGER] = real

        self.meets["Fetch"] = self.meets["ListOffsets"] = meet
        self.before("Produce", lambda: (self.meets.pop("Fetch"), self.meets.pop("ListOffsets")))

    def describe_as(self, state):
        """What the coordinator says of the transactional.id."""

        def meet(request, answer):
            response = answer()
            response.transaction_states[0].transaction_state = state
            return response

        self.meets["DescribeTransactions"] = meet

    def refuse_unknown_topics(self):
        """As the real coordinators do it."""

        def meet(request, answer):
            known = all(TopicPartition(topic.name, 0) in self.partitions for topic in request.topics)
            return answer() if known else refusal("TxnOffsetCommit", request, UNKNOWN_TOPIC)

        self.meets["TxnOffsetCommit"] = meet

    def time_out(self):
        """The transaction lasts longer than its timeout."""
        self.world.now += 61
        self.transactions.coordinators["id"].time_out()


def owner(kafka, options=OPTIONS, *, keeps_ledger=True, client=PATIENCE, cluster=None):
    """A transaction of `options` on `kafka`, with these connections of its driver."""
    decide = decide_micro_batch(options) if keeps_ledger else None
    return SharedTransaction(options, cluster or kafka.cluster(client), decide, clock=kafka.clock)


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def kafka(request):
    return Kafka(request.param)


@pytest.fixture
def transaction(kafka):
    return owner(kafka)


def batch(number):
    return MicroBatch(
        query_id="query",
        batch_id=number,
        digest=f"digest {number}",
        sources=reads({SOURCE: number}, {SOURCE: number + 1}),
    )


def run(transaction, number, max_attempts=2):
    """The whole micro-batch `number`."""
    return commit_batch(
        transaction,
        batch(number),
        lambda identity: Appended(partitions=1, records=1, bytes=1),
        max_attempts=max_attempts,
        choice=BY_DRIVER,
    )


def test_observers_hear_of_every_batch_whatever_became_of_it(transaction):
    heard: list[CommitReport] = []

    def run(number, write, **options):
        commit_batch(
            transaction, batch(number), write, max_attempts=1, choice=BY_DRIVER, observe=heard.append, **options
        )

    def fail(_):
        raise UnknownTopic("no such topic")

    def abort(_):
        raise TransactionAborted("a task ran again")

    def write(_):
        return Appended(partitions=1, records=1, bytes=1)

    run(0, write)
    run(0, write)
    for number, way in ((5, write), (1, fail), (1, abort)):
        with pytest.raises((LedgerRefused, UnknownTopic, AttemptsExhausted)):
            run(number, way)
    assert [(report.outcome, report.error, report.redone) for report in heard] == [
        ("committed", "", ()),
        ("skipped", "", ()),
        ("refused", "LedgerRefused", ()),
        ("failed", "UnknownTopic", ()),
        ("failed", "AttemptsExhausted", ("a task ran again",)),
    ]
    assert [(report.records, report.bytes, report.partitions) for report in heard] == [(1, 1, 1), *[(0, 0, 0)] * 4]
    assert [phase.name for phase in heard[-1].trace.phases] == ["begin", "abort"]
    assert list(heard[0].milliseconds) == ["begin", "offsets", "end"]


def source_offset(kafka):
    return kafka.offsets()[SOURCE][0]


def test_the_source_offsets_say_whose_transactions_commit_them(kafka, transaction):
    run(transaction, 0)
    offset, metadata = kafka.offsets()[SOURCE]
    assert marked_by(OffsetAndMetadata(offset=offset, metadata=metadata)) == "id"


def test_an_applied_commit_is_found_in_the_ledger_and_the_next_batch_continues(kafka, transaction):
    kafka.lose_commit("response")
    report = run(transaction, 0)
    assert (report.outcome, report.redone) == ("committed", ())
    assert run(transaction, 1).outcome == "committed"
    assert source_offset(kafka) == 2


def test_a_commit_that_was_not_applied_is_written_again(kafka, transaction):
    kafka.lose_commit("request")
    report = run(transaction, 0)
    assert report.outcome == "committed"
    assert ["according to the ledger, the batch is not committed" in why for why in report.redone] == [True]
    assert run(transaction, 1).outcome == "committed"
    assert source_offset(kafka) == 2


def test_a_commit_that_was_not_applied_aborts_this_try(kafka, transaction):
    transaction.begin(batch(0))
    transaction.appending()
    kafka.lose_commit("request")
    with pytest.raises(TransactionAborted) as aborted:
        transaction.commit(batch(0))
    assert aborted.value.committed == "nothing"
    assert (kafka.commits, kafka.offsets()) == (0, {})


def test_tv1_settles_as_a_newcomer(kafka, transaction):
    # With the identity it held it would be fenced for its own open transaction.
    kafka.lose_commit("request")
    run(transaction, 0)
    assert (kafka.sent("InitProducerId")[-1].producer_id < 0) is (kafka.version < 2)


def test_a_commit_that_the_coordinator_shows_as_applied_needs_no_new_epoch(kafka, transaction):
    kafka.lose_commit("response")
    run(transaction, 0)
    assert len(kafka.sent("InitProducerId")) == 1


@pytest.mark.parametrize("loses", ["request", "response"])
@pytest.mark.parametrize(
    ("request_", "meets", "what"),
    [
        ("InitProducerId", lost, "no response"),
        ("InitProducerId", refused(UNAUTHORIZED), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        ("OffsetFetch", lost, "no response"),
    ],
    ids=["nobody answers", "the right was withdrawn", "the ledger's coordinator is gone"],
)
def test_if_the_ledger_cannot_be_read_the_outcome_is_unknown(kafka, transaction, loses, request_, meets, what):
    hidden = refused(UNAUTHORIZED)
    kafka.lose_commit(loses, then=lambda: kafka.meets.update({"DescribeTransactions": hidden, request_: meets}))
    with pytest.raises(CommitOutcomeUnknown, match=f"batch 0.*not answered.*{what}") as unknown:
        run(transaction, 0)
    assert unknown.value.committed == "unknown"
    kafka.meets.clear()
    assert run(transaction, 0).outcome == ("skipped" if loses == "response" else "committed")
    assert source_offset(kafka) == 1


def test_an_owner_that_is_fenced_before_it_knows_says_so(kafka, transaction):
    kafka.lose_commit("response", then=lambda: owner(kafka).begin(batch(1)))
    with pytest.raises(ProducerFenced) as fenced:
        run(transaction, 0)
    assert fenced.value.committed == "unknown"
    with pytest.raises(ProducerFenced):
        run(transaction, 1)


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_an_owner_that_finds_a_later_batch_in_the_ledger_cannot_say_what_became_of_its_own(kafka, transaction):
    def newer():
        """Whose takeover the older one is not told of."""
        kafka.meets["DescribeTransactions"] = refused(UNAUTHORIZED)
        another = owner(kafka)
        for number in range(1, 4):
            run(another, number)

    kafka.lose_commit("response", then=newer)
    with pytest.raises(LedgerRefused, match="a newer driver replaced this one") as refusal:
        run(transaction, 0)
    assert refusal.value.committed == "unknown"


def test_what_an_outdated_coordinator_says_of_the_ledger_does_not_make_a_batch_be_committed_twice(kafka, transaction):
    run(transaction, 0)
    run(transaction, 1)
    kafka.outdate_coordinator()
    report = run(owner(kafka), 1)
    assert report.outcome == "skipped"
    assert report.redone == ()  # the record, on another broker, showed that the pointer is older
    assert (kafka.commits, source_offset(kafka)) == (2, 2)


def test_nor_does_it_when_a_commit_is_in_doubt(kafka, transaction):
    run(transaction, 0)
    kafka.lose_commit("response", then=kafka.outdate_coordinator)
    report = run(transaction, 1, max_attempts=3)
    assert (report.outcome, report.redone) == ("committed", ())
    assert (kafka.commits, source_offset(kafka)) == (2, 2)


def test_nor_are_records_repeated_by_a_query_that_starts_where_an_outdated_coordinator_places_its_group(
    kafka, transaction
):
    run(transaction, 0)
    run(transaction, 1)
    kafka.outdate_coordinator(OPTIONS.group_id)
    restarted = replace(batch(0), query_id="with a new checkpoint", sources=reads({SOURCE: 1}, {SOURCE: 2}))
    with pytest.raises(LedgerRefused):
        commit_batch(
            owner(kafka),
            restarted,
            lambda identity: Appended(partitions=1, records=1, bytes=1),
            max_attempts=2,
            choice=BY_DRIVER,
        )
    assert (kafka.commits, source_offset(kafka)) == (2, 2)


def test_the_first_pointer_that_is_still_pending_costs_no_attempt(kafka, transaction):
    """Of all offsets, a broker leaves out one whose first commit is pending, instead of calling it unstable."""
    run(transaction, 0)

    def meet(request, answer):
        response = answer()
        if request.group_id == OPTIONS.ledger_group and request.topics is None:
            kafka.meets.pop("OffsetFetch")
            response.topics = []
        return response

    kafka.meets["OffsetFetch"] = meet
    assert run(owner(kafka), 1).redone == ()
    assert "OffsetFetch" not in kafka.meets


def test_the_ledger_is_asked_again_only_where_its_word_was_needed(kafka, transaction):
    for number in range(3):
        run(transaction, number)
    asked = [request for request in kafka.sent("OffsetFetch") if request.group_id == OPTIONS.ledger_group]
    assert len(asked) == 3  # a look, after InitProducerId as the id was new, and before EndTxn
    assert kafka.version < 2 or len(kafka.sent("InitProducerId")) == 1
    again = owner(kafka)
    run(again, 3)
    asked = [request for request in kafka.sent("OffsetFetch") if request.group_id == OPTIONS.ledger_group]
    # Its look counts, as the next epoch shows that nobody was in between. The fence (TV1) uses up an epoch.
    assert len(asked) == (5 if kafka.version >= 2 else 6)


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])  # TV2 is not initialised for each batch
def test_an_owner_that_is_fenced_before_a_batch_says_nothing_of_it_was_committed_though_the_last_one_was(
    kafka, transaction
):
    run(transaction, 0)
    owner(kafka).begin(batch(1))
    with pytest.raises(ProducerFenced) as fenced:
        run(transaction, 1)
    assert fenced.value.committed == "nothing"


@pytest.mark.parametrize("request_", ["EndTxn", "TxnOffsetCommit"])
@pytest.mark.parametrize(("seconds", "hinted"), [(61, True), (59, False)])
def test_an_owner_that_is_fenced_after_the_transactions_timeout_is_told_that_this_may_be_why(
    kafka, seconds, hinted, request_
):
    transaction = owner(kafka)
    transaction.begin(batch(0))
    transaction.appending()
    kafka.world.now += seconds
    kafka.before(request_, lambda: owner(kafka).begin(batch(0)))
    with pytest.raises(ProducerFenced) as fenced:
        transaction.commit(batch(0))
    assert fenced.value.committed == ("nothing" if request_ == "TxnOffsetCommit" else "unknown")
    assert ("kafka.transaction.timeout.ms (60000)" in str(fenced.value)) is hinted
    assert "do not start this one again while it runs" in str(fenced.value)
    assert "`kafka-eos query show id --bootstrap-servers" in str(fenced.value)


def expire(kafka):
    """The offsets of every group."""
    for name in kafka.groups:
        kafka.expire_group(name, retention_s=0)


def test_nor_do_an_outdated_coordinator_and_an_outdated_leader_together(kafka, transaction):
    run(transaction, 0)
    before = copy.deepcopy(kafka.partitions[LEDGER])
    run(transaction, 1)
    restarted = owner(kafka)
    kafka.outdate_coordinator()
    kafka.outdate_leader(before)
    restarted.begin(batch(1))
    restarted.appending()
    with pytest.raises(TransactionAborted, match="that broker was outdated"):
        restarted.commit(batch(1))
    assert kafka.commits == 2


def test_an_outdated_leader_alone_is_noticed_where_the_groups_offsets_have_expired(kafka, transaction):
    run(transaction, 0)
    before = copy.deepcopy(kafka.partitions[LEDGER])
    run(transaction, 1)
    expire(kafka)
    restarted = owner(kafka)
    kafka.outdate_leader(before)
    restarted.begin(batch(1))
    restarted.appending()
    with pytest.raises(TransactionAborted, match="later entry than its leader answered"):
        restarted.commit(batch(1))
    assert kafka.commits == 2


def test_an_entry_of_an_earlier_release_is_continued_from_wherever_it_was_kept(kafka, transaction):
    metadata = '{"v":1,"query":"query","batch":6,"digest":"digest 6"}'
    kafka.offsets(OPTIONS.ledger_group)[TopicPartition("any", 0)] = 7, metadata
    assert run(transaction, 7).outcome == "committed"
    entry = kafka.entry()
    assert (entry.batch_id, entry.serial) == (7, 1)
    again = owner(kafka)
    assert run(again, 7).outcome == "skipped"


def test_who_comes_back_to_an_entry_of_a_newer_release_writes_nothing(kafka, transaction, monkeypatch):
    """During a rolling upgrade. Nor does who starts again with this release."""
    run(transaction, 0)
    fields = entry_format._fields
    with monkeypatch.context() as newer:
        newer.setattr(entry_format, "_fields", lambda *entry: fields(*entry) | {"v": entry_format.IN_REAL_TIME + 1})
        run(owner(kafka), 1)
    with pytest.raises(ProducerFenced, match="Nothing was committed"):
        run(transaction, 1)
    for number in (1, 2):
        with pytest.raises(LedgerRefused, match="format version 5.*Nothing was committed"):
            run(owner(kafka), number)
    assert kafka.commits == 2


def test_a_commit_that_comes_after_a_restart_has_looked_is_found_before_anything_is_written(kafka, transaction):
    transaction.begin(batch(0))
    transaction.appending()
    kafka.before("InitProducerId", lambda: transaction.commit(batch(0)))
    assert run(owner(kafka), 0).outcome == "skipped"
    assert kafka.commits == 1


def test_a_ledger_whose_groups_expired_still_tells(kafka, transaction):
    run(transaction, 0)
    expire(kafka)
    again = owner(kafka)
    assert run(again, 0).outcome == "skipped"
    assert run(again, 1).outcome == "committed"


# -- the fence


EVERYWHERE = {OUTPUT, LEDGER, OPTIONS.ledger_group, OPTIONS.group_id}


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_an_abort_shuts_the_epoch_out_of_every_partition_that_it_may_have_been_in(kafka, transaction):
    transaction.begin(batch(0))
    transaction.appending()
    given_up = transaction.identity.epoch
    transaction.abort()
    assert kafka.shut_out(given_up) == EVERYWHERE
    assert transaction.identity.epoch > given_up


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
@pytest.mark.parametrize("left", ["CompleteAbort", "CompleteCommit", "Empty", "Ongoing", "Dead"])
def test_a_newcomer_shuts_out_what_an_earlier_owner_may_have_left_on_its_way(kafka, transaction, left):
    owner(kafka).begin(batch(0))
    kafka.describe_as(left)
    assert kafka.shut_out(0) == set()
    transaction.begin(batch(0))
    assert kafka.shut_out(0) == EVERYWHERE


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_an_abort_shuts_the_epoch_out_of_the_dead_letters_too(kafka):
    transaction = owner(kafka, replace(OPTIONS, topic="in", dead_letter_topic=OUTPUT.topic))
    transaction.begin(batch(0))
    transaction.appending()
    given_up = transaction.identity.epoch
    transaction.abort()
    assert kafka.shut_out(given_up) >= {SOURCE, OUTPUT}


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_for_an_unused_id_there_is_nothing_to_shut_out(kafka, transaction):
    transaction.begin(batch(0))
    assert kafka.sent("AddPartitionsToTxn") == []


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_nothing_is_added_under_the_epoch_that_shut_out_a_producer_ids_last_one(kafka, transaction):
    owner(kafka).begin(batch(0))
    coordinator = kafka.transactions.coordinators["id"]
    coordinator.phase, coordinator.epoch = Phase.COMPLETE_ABORT, 32_767
    transaction.begin(batch(0))
    assert kafka.sent("AddPartitionsToTxn") == []


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_an_owner_that_was_overtaken_disturbs_nobody_by_its_abort(kafka, transaction):
    transaction.begin(batch(0))
    transaction.appending()
    newer = owner(kafka)
    newer.begin(batch(0))
    newer.appending()
    with pytest.raises(ProducerFenced, match="now belongs to producer 1, epoch 2"):
        transaction.abort()
    newer.commit(batch(0))
    assert kafka.commits == 1


def test_an_owner_whose_staging_files_are_gone_because_it_was_overtaken_is_told_that_it_was(kafka, transaction):
    """The newer owner removes them. A supervisor must not restart the older one."""

    def write(_):
        owner(kafka).begin(batch(0))
        raise StagingLost("the driver cannot find the staging file")

    with pytest.raises(ProducerFenced) as raised:
        commit_batch(transaction, batch(0), write, max_attempts=2, choice=BY_DRIVER)
    assert must_not_restart(raised.value)


def test_an_owner_whose_staging_files_are_gone_for_another_reason_is_told_that(transaction):
    def write(_):
        raise StagingLost("the driver cannot find the staging file")

    with pytest.raises(StagingLost, match="cannot find"):
        commit_batch(transaction, batch(0), write, max_attempts=2, choice=BY_DRIVER)


@pytest.mark.parametrize(("version", "verification"), [(2, False), (1, True)], ids=["TV2", "verified"])
def test_where_brokers_keep_stragglers_out_by_themselves_nothing_is_fenced(version, verification):
    kafka = Kafka(version, verification=verification)
    owner(kafka).begin(batch(0))
    transaction = owner(kafka)
    transaction.begin(batch(0))
    transaction.appending()
    transaction.abort()
    assert kafka.sent("AddPartitionsToTxn") == []


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
@pytest.mark.parametrize(("left", "goes_on"), [("CompleteCommit", True), ("CompleteAbort", False), ("Empty", False)])
def test_without_named_topics_it_is_unknown_what_to_shut_out_and_the_batch_is_refused(kafka, left, goes_on):
    options = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id"})
    owner(kafka).begin(batch(0))
    kafka.describe_as(left)
    transaction = owner(kafka, options)
    if goes_on:
        transaction.begin(batch(0))
    else:
        with pytest.raises(ConfigurationError, match="List all output topics in outputTopics"):
            transaction.begin(batch(0))


# -- who fenced whom


def timed_out(kafka, request_):
    kafka.before(request_, kafka.time_out)
    return run(owner(kafka), 0, max_attempts=3)


def test_a_transaction_that_only_its_timeout_ended_is_written_again(kafka):
    report = timed_out(kafka, "TxnOffsetCommit")
    assert report.outcome == "committed"
    assert ["aborted the transaction after kafka.transaction.timeout.ms" in why for why in report.redone] == [True]
    assert kafka.commits == 1


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_who_took_the_id_after_the_timeout_is_not_disturbed_by_the_fence_of_the_one_that_timed_out(kafka, transaction):
    """The one that timed out has asked why, and then somebody takes the id before its fence."""
    newer, asked = owner(kafka), []

    def meet(_request, answer):
        asked.append("DescribeTransactions")
        if len(asked) == 2:
            del kafka.meets["DescribeTransactions"]
            newer.begin(batch(0))
            newer.appending()
        return answer()

    def time_out():
        kafka.time_out()
        kafka.meets["DescribeTransactions"] = meet

    kafka.before("TxnOffsetCommit", time_out)
    with pytest.raises(ProducerFenced, match="now belongs to producer 1, epoch 3"):
        run(transaction, 0, max_attempts=3)
    newer.commit(batch(0))
    assert kafka.commits == 1


TIMED_OUT = "the coordinator aborted the transaction after kafka.transaction.timeout.ms (60000): {} answered "
WHERE = {
    1: ("AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
    2: ("Produce", "TxnOffsetCommit", "EndTxn"),
}


def by_driver(cluster, identity, tp):
    topics = appended_to(cluster, tp)
    append(cluster, identity, [(tp, 1, record())], partitions=[tp])
    return Appended(partitions=1, records=1, bytes=1, topics=topics)


def by_executors(cluster, identity, tp, added=True):
    """As one append task, whose report the driver judges. The driver has `added` the partition."""
    if added:
        add_partitions(cluster, identity, [tp])
    blocks = [Block(partition=tp, task=0, number=0, records=1, data=record())]
    report = append_attempt(
        cluster,
        identity,
        blocks,
        stage_id=1,
        slot=0,
        attempt=0,
        batch_id=0,
        added=[tp] if added else (),
    )
    encoded = replace(report, encoded={tp: 1}, topic_ids=topic_ids(cluster, [tp]))
    once = StageAttempts(current_attempt=0, completed_tasks=1, failed_tasks=0, num_tasks=1)
    return judge([encoded], lambda _: {1: once})


def record():
    return encode(pa.array([None], pa.binary()), pa.array([b"v"]), 1_700_000_000_000)


@pytest.mark.parametrize("way", [by_driver, by_executors])
@pytest.mark.parametrize(
    ("kafka", "where"), [(version, api) for version in WHERE for api in WHERE[version]], indirect=["kafka"]
)
def test_a_pause_beyond_the_timeout_is_named_in_the_same_words_wherever_it_is_noticed(kafka, where, way):
    more, cluster, tried = TopicPartition("in", 0), kafka.cluster(PATIENCE), []

    def write(identity):
        tried.append(identity)
        way(cluster, identity, OUTPUT)
        if len(tried) == 1:
            kafka.before(where, kafka.time_out)
        way(cluster, identity, more)
        return Appended(partitions=2, records=2, bytes=2)

    report = commit_batch(owner(kafka, cluster=cluster), batch(0), write, max_attempts=2, choice=BY_DRIVER)
    assert report.outcome == "committed"
    (why,) = report.redone
    assert TIMED_OUT.format(where) in why
    assert kafka.commits == 1
    assert [len(kafka.partitions[tp].committed()) for tp in (OUTPUT, more)] == [1, 1]


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_where_only_tasks_added_partitions_who_lasted_too_long_ends_because_it_may_have_been_taken_over(kafka):
    """What a task is answered, the driver does not learn if the task fails."""
    tasks = kafka.cluster(PATIENCE)

    def write(identity):
        by_executors(tasks, identity, OUTPUT, added=False)
        kafka.time_out()
        by_executors(tasks, identity, SOURCE, added=False)

    with pytest.raises(ProducerFenced, match="This attempt took 61 s.*if no other query.*restart the query"):
        commit_batch(owner(kafka), batch(0), write, max_attempts=2, choice=BY_DRIVER)
    assert run(owner(kafka), 0).outcome == "committed"


class Aborting:
    """A driver that took the id and aborted an attempt of its own, and has no new epoch yet. Before KIP-890, that looks
    like what the coordinator leaves after the timeout of the owner before.
    """

    def __init__(self, kafka, number, run_id="newer"):
        cluster = kafka.cluster(PATIENCE)
        self._kafka, self._batch = kafka, of_run(number, run_id)
        self._owner = owner(kafka, cluster=cluster)
        self._owner.begin(self._batch)
        self._owner.append(lambda identity: by_driver(cluster, identity, OUTPUT))
        TransactionCoordinator(cluster, "id", 60_000).end(self._owner.identity, commit=False)
        self._taken = len(kafka.sent("InitProducerId"))

    def goes_on(self):
        """Nobody took the id from it meanwhile, so it commits."""
        assert len(self._kafka.sent("InitProducerId")) == self._taken
        commits = self._kafka.commits
        self._owner.abort()
        assert write_as(self._owner, self._batch.batch_id, self._batch.run_id).outcome == "committed"
        assert self._kafka.commits == commits + 1


@pytest.fixture
def verifying():
    return Kafka(1, verification=True)


@pytest.fixture
def connections(verifying):
    return verifying.cluster()  # longer than it waits for an answer


@pytest.fixture
def late(verifying, connections):
    """A driver that has begun a batch."""
    late = owner(verifying, cluster=connections)
    late.begin(batch(0))
    return late


def taken_before_the_second_end(kafka, number):
    """The first EndTxn is applied and not answered. Before it arrives again, a driver takes the id and aborts an
    attempt at batch `number`: that driver, once it has.
    """
    live: list[Aborting] = []

    def again(_request, answer):
        del kafka.meets["EndTxn"]
        live.append(Aborting(kafka, number))
        return answer()

    def first(_request, answer):
        answer()
        kafka.meets["EndTxn"] = again

    kafka.meets["EndTxn"] = first
    return live


def test_who_comes_back_before_its_first_request_takes_no_id_from_a_driver_that_aborts(verifying, connections, late):
    live = []

    def write(identity):
        verifying.world.now += 61
        live.append(Aborting(verifying, 0))
        by_driver(connections, identity, OUTPUT)

    with pytest.raises(ProducerFenced, match="This attempt took 61 s") as raised:
        commit_batch(late, batch(0), write, max_attempts=2, choice=BY_DRIVER)
    assert raised.value.committed == "nothing"
    live[0].goes_on()


def test_whose_abort_was_not_answered_takes_no_id_from_a_driver_that_aborts(verifying, connections, late):
    """Its own abort was applied, so it was not the coordinator that aborted."""
    late.append(lambda identity: by_driver(connections, identity, OUTPUT))
    verifying.world.now += 61
    live = taken_before_the_second_end(verifying, 0)
    with pytest.raises(ProducerFenced, match="This attempt took 91 s"):
        late.abort()
    live[0].goes_on()


def test_whose_commit_was_not_answered_takes_no_id_from_a_driver_that_aborts(verifying, connections, late):
    """Its commit was applied."""
    late.append(lambda identity: by_driver(connections, identity, OUTPUT))
    verifying.world.now += 61
    live = taken_before_the_second_end(verifying, 1)
    with pytest.raises(ProducerFenced, match="or the coordinator aborted a transaction of this one") as raised:
        late.commit(batch(0))
    assert raised.value.committed == "unknown"
    live[0].goes_on()


@pytest.mark.parametrize("holds", [False, True], ids=["sink", "writer"])
def test_who_comes_back_after_a_commit_takes_no_id_from_a_driver_that_aborts(verifying, holds):
    late = owner(verifying)
    write_as(late, 0, RUN)
    verifying.world.now += 61
    live = Aborting(verifying, 1)
    with pytest.raises(ProducerFenced, match="or the coordinator aborted a transaction of this one"):
        write_as(late if holds else owner(verifying), 1, RUN)
    live.goes_on()


def test_who_is_overtaken_before_its_timeout_is_not_told_that_it_may_have_been_the_coordinator(verifying):
    late = owner(verifying)
    write_as(late, 0, RUN)
    live = Aborting(verifying, 1)
    with pytest.raises(ProducerFenced, match="now belongs to") as raised:
        write_as(late, 1, RUN)
    assert "coordinator" not in str(raised.value)
    assert "start the query again" not in str(raised.value)
    live.goes_on()


def test_without_a_timeout_whoever_aborts_it_has_taken_over(kafka):
    kafka.before("TxnOffsetCommit", kafka.time_out)
    with pytest.raises(ProducerFenced, match="Nothing was committed"):
        run(owner(kafka, replace(OPTIONS, two_phase_commit=True)), 0)


def test_what_else_ends_an_attempt_is_not_taken_for_the_timeout_however_long_it_took(kafka):
    tried = []

    def write(identity):
        tried.append(identity)
        by_driver(kafka.cluster(PATIENCE), identity, OUTPUT)
        kafka.world.now += 61
        if len(tried) == 1:
            raise TransactionAborted("a task ran again")
        return Appended(partitions=1, records=1, bytes=1)

    report = commit_batch(owner(kafka), batch(0), write, max_attempts=2, choice=BY_DRIVER)
    assert report.redone == ("a task ran again",)


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_who_is_taken_over_between_the_last_look_and_the_fence_of_what_timed_out_says_so(kafka, transaction):
    newer = owner(kafka)

    def take(_request, answer):
        del kafka.meets["AddPartitionsToTxn"]
        newer.begin(batch(0))
        return answer()

    def time_out():
        kafka.time_out()
        kafka.meets["AddPartitionsToTxn"] = take

    kafka.before("TxnOffsetCommit", time_out)
    with pytest.raises(ProducerFenced, match="AddPartitionsToTxn answered PRODUCER_FENCED.*Nothing was committed"):
        run(transaction, 0, max_attempts=3)
    newer.appending()
    newer.commit(batch(0))
    assert kafka.commits == 1


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_who_is_fenced_while_it_adds_partitions_sends_nothing_more(kafka):
    kafka.meets["AddPartitionsToTxn"] = refused(90)
    with pytest.raises(ProducerFenced, match="AddPartitionsToTxn answered PRODUCER_FENCED"):
        commit_batch(
            owner(kafka),
            batch(0),
            lambda identity: by_driver(kafka.cluster(PATIENCE), identity, OUTPUT),
            max_attempts=2,
            choice=BY_DRIVER,
        )
    assert kafka.sent("EndTxn") == []


def test_a_commit_that_came_after_the_timeout_is_settled_by_the_ledger(kafka):
    report = timed_out(kafka, "EndTxn")
    assert report.outcome == "committed"
    assert ["according to the ledger, the batch is not committed" in why for why in report.redone] == [True]
    assert kafka.commits == 1


def test_when_no_broker_answers_a_commit_they_are_not_waited_for_any_longer_after_the_timeout(kafka):
    def waited(seconds):
        one = Kafka(kafka.version)
        transaction = owner(one)
        transaction.begin(batch(0))
        transaction.appending()
        one.world.now += seconds
        one.meets |= dict.fromkeys(("EndTxn", "DescribeTransactions", "InitProducerId"), lost)
        began = one.clock()
        with pytest.raises(CommitOutcomeUnknown, match="not answered"):
            transaction.commit(batch(0))
        return one.clock() - began

    assert waited(61) == pytest.approx(waited(0))


def test_an_unknown_commit_is_never_turned_into_an_abort(kafka):
    """KAFKA-17754: a late abort can end a later transaction."""
    transaction = owner(kafka)
    transaction.begin(batch(0))
    transaction.append(lambda identity: by_driver(transaction.cluster, identity, OUTPUT))
    kafka.meets |= dict.fromkeys(("EndTxn", "DescribeTransactions", "InitProducerId"), lost)
    with pytest.raises(CommitOutcomeUnknown, match="not answered"):
        transaction.commit(batch(0))
    with recording() as recorder:
        transaction.abort()
        with pytest.raises(IllegalTransactionState, match="a late abort can end a later transaction"):
            transaction.steps.abort()
    assert "EndTxn" not in str(recorder.trace())


def test_an_id_that_timed_out_and_was_forgotten_before_the_commit_costs_one_attempt(kafka):
    """FLINK-39072: a committer that can only commit the same transaction again does so for ever."""

    def forget():
        kafka.time_out()
        kafka.transactions.expire()

    kafka.before("EndTxn", forget)
    report = run(owner(kafka), 0, max_attempts=2)
    assert report.outcome == "committed"
    (why,) = report.redone
    assert "INVALID_PRODUCER_ID_MAPPING" in why
    assert (kafka.commits, source_offset(kafka)) == (1, 1)


def test_an_append_after_the_timeout_that_is_answered_with_the_wrong_error_costs_one_attempt(kafka):
    """KAFKA-19690: leaders without its fix answer INVALID_TXN_STATE, where the epoch is no longer the current one."""
    cluster, tried = kafka.cluster(PATIENCE), []

    def stall(request, answer):
        del kafka.meets["Produce"]
        kafka.time_out()
        return refused(INVALID_TXN_STATE)(request, answer)

    def write(identity):
        tried.append(identity)
        if len(tried) == 1:
            kafka.meets["Produce"] = stall
        by_driver(cluster, identity, OUTPUT)
        return Appended(partitions=1, records=1, bytes=1)

    report = commit_batch(owner(kafka, cluster=cluster), batch(0), write, max_attempts=2, choice=BY_DRIVER)
    assert report.outcome == "committed"
    (why,) = report.redone
    assert "INVALID_TXN_STATE" in why
    assert kafka.commits == 1
    assert len(kafka.partitions[OUTPUT].committed()) == 1


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])
def test_a_zombie_whose_commit_is_in_doubt_does_not_take_the_id_from_its_living_successor(kafka, transaction):
    transaction.begin(batch(0))
    transaction.appending()
    newer = owner(kafka)

    def take_over():
        newer.begin(batch(0))
        newer.appending()

    kafka.lose_commit("request", then=take_over)
    with pytest.raises(ProducerFenced, match="now belongs to producer 1, epoch 2") as fenced:
        transaction.commit(batch(0))
    assert fenced.value.committed == "unknown"
    with pytest.raises(ProducerFenced):
        transaction.begin(batch(0))
    newer.commit(batch(0))
    assert kafka.commits == 1


def test_a_commit_that_was_aborted_before_its_timeout_leaves_the_id_to_whoever_aborted_it(kafka, transaction):
    """The first InitProducerId of one that starts aborts the open transaction; only its next one takes the id."""
    transaction.begin(batch(0))
    transaction.appending()
    kafka.before("EndTxn", lambda: kafka.transactions.coordinators["id"].init(-1, -1, 60_000))
    with pytest.raises(ProducerFenced):
        transaction.commit(batch(0))
    assert len(kafka.sent("InitProducerId")) == 1, "which took the id at the beginning"
    newer = owner(kafka)
    newer.begin(batch(0))
    newer.appending()
    newer.commit(batch(0))
    assert kafka.commits == 1


# -- whose offsets


def sourced(number, *sources):
    ranges = tuple(source and SourceRange(start={source: number}, end={source: number + 1}) for source in sources)
    return replace(batch(number), digest=f"digest-{number}", sources=ranges)


def settled(options, kafka, one):
    return commit_batch(
        owner(kafka, options),
        one,
        lambda identity: Appended(partitions=1, records=1, bytes=1),
        max_attempts=2,
        choice=BY_DRIVER,
    )


def test_offsets_of_another_cluster_go_to_the_ledger_and_not_to_the_group(kafka):
    options = replace(OPTIONS, source_clusters=("there", ""))
    settled(options, kafka, sourced(0, SOURCE, TopicPartition("own", 3)))
    assert set(kafka.offsets()) == {TopicPartition("own", 3)}
    assert kafka.entry().sources == (
        SourceProgress(cluster="there", offsets={SOURCE: 1}, start={SOURCE: 0}),
        SourceProgress(
            cluster="model",
            offsets={TopicPartition("own", 3): 1},
            start={TopicPartition("own", 3): 0},
            origin=kafka.entry().sources[1].origin,
        ),
    )


def test_the_ledger_has_what_the_committed_attempt_wrote_and_how_long_its_steps_took(kafka, transaction):
    commit_batch(
        transaction,
        batch(0),
        lambda _: Appended(partitions=1, records=600, bytes=54_321, milliseconds={"encode": 1e6, "append": 5e5}),
        max_attempts=1,
        choice=BY_DRIVER,
    )
    written = kafka.entry().written
    assert (written.records, written.bytes) == (600, 54_321)
    assert 1_500_000 <= written.milliseconds < 1_600_000, "the encode stage of the sink ends before the commit begins"


def test_the_command_that_explains_a_refusal_is_named_by_it(kafka):
    with pytest.raises(LedgerRefused, match="`kafka-eos query resolve id --bootstrap-servers [^`]+` shows both sides"):
        settled(OPTIONS, kafka, sourced(7, SOURCE))


def test_a_refusal_counts_at_once_if_the_owner_is_still_the_same(kafka):
    settled(OPTIONS, kafka, sourced(0, SOURCE))
    asked = len(kafka.sent("DescribeTransactions"))
    with pytest.raises(LedgerRefused):
        settled(OPTIONS, kafka, sourced(7, SOURCE))
    assert len(kafka.sent("DescribeTransactions")) - asked == 2


def test_before_a_refusal_is_looked_at_again_because_the_owner_has_changed_more_and_more_time_passes(kafka):
    settled(OPTIONS, kafka, sourced(0, SOURCE))
    asked = []

    def meet(_request, answer):
        asked.append(kafka.clock())
        response = answer()
        response.transaction_states[0].producer_epoch += min(len(asked), 7)
        return response

    looking = owner(kafka)
    kafka.meets["DescribeTransactions"] = meet
    with pytest.raises(LedgerRefused):
        looking.begin(sourced(7, SOURCE))
    assert len(asked) == 8
    assert 0.2 < asked[-1] - asked[0] < 1


def test_answers_that_do_not_fit_are_no_reason_to_refuse_however_long_the_driver_was_paused_between_them(kafka):
    """The ledger had no entry yet, and then the group has the offsets that another driver committed with one."""

    def paused(request, answer):
        if request.group_id == OPTIONS.group_id:
            del kafka.meets["OffsetFetch"]
            settled(OPTIONS, kafka, sourced(0, SOURCE))
            kafka.world.now += 300
        return answer()

    kafka.meets["OffsetFetch"] = paused
    assert settled(OPTIONS, kafka, sourced(0, SOURCE)).outcome == "skipped"
    assert kafka.commits == 1


def test_as_many_clusters_must_be_named_as_there_are_sources(kafka):
    options = replace(OPTIONS, source_clusters=("there", "elsewhere"))
    with pytest.raises(ConfigurationError, match="lists 2 clusters, but the query has 3 sources"):
        settled(options, kafka, sourced(0, SOURCE, SOURCE, None))


def test_a_checkpoint_whose_source_is_another_cluster_now_is_refused(kafka):
    settled(OPTIONS, kafka, sourced(0, SOURCE))
    with pytest.raises(
        LedgerRefused, match="the offsets are of cluster there, but the committed ones are of cluster model"
    ):
        settled(replace(OPTIONS, source_clusters=("there",)), kafka, sourced(1, SOURCE))


@pytest.fixture
def without_source(kafka):
    """Without the topic of SOURCE."""
    kafka = Kafka(kafka.version, topics=["out", "left"])
    kafka.refuse_unknown_topics()
    return kafka


def test_a_source_topic_that_is_gone_is_an_error_that_names_both_reasons(without_source):
    with pytest.raises(UnknownTopic, match="sourceClusters.*failOnDataLoss=false") as error:
        settled(OPTIONS, without_source, sourced(0, SOURCE))
    assert error.value.committed == "nothing"


def test_a_source_topic_that_is_gone_is_left_out_where_the_user_says_so(without_source):
    options = replace(OPTIONS, fail_on_data_loss=False)
    assert settled(options, without_source, sourced(0, SOURCE, TopicPartition("left", 0))).outcome == "committed"
    assert {tp.topic for tp in without_source.offsets()} == {"left"}


def test_a_new_sink_does_not_resume_at_the_offsets_of_another_sinks_transactions(kafka, caplog):
    mark = source_mark("other")
    kafka.offsets()[SOURCE] = 5000, mark
    with pytest.raises(LedgerRefused, match="(?s)committed by the transactions of 'other'.*resolve='take-group:other'"):
        settled(OPTIONS, kafka, sourced(0, SOURCE))
    assert settled(replace(OPTIONS, resolve="take-group:other"), kafka, sourced(0, SOURCE)).outcome == "committed"
    assert "WARNING" in caplog.text and "resolve=take-group:other: the first batch under" in caplog.text


@pytest.mark.parametrize("resolve", ["take-group:another", "take-group:", "take-group:others", "write:other"])
def test_a_group_is_taken_only_from_the_sink_that_is_named(kafka, resolve):
    kafka.offsets()[SOURCE] = 5000, source_mark("other")
    with pytest.raises(LedgerRefused, match="resolve='take-group:other'"):
        settled(replace(OPTIONS, resolve=resolve), kafka, sourced(0, SOURCE))


def without_ledger(kafka, meanwhile=lambda: None):
    """A write without txnAppId of one record; `meanwhile` follows its first append."""
    transaction, appends = owner(kafka, keeps_ledger=False), []

    def write(identity):
        if identity.transaction_version < 2:
            add_partitions(transaction.cluster, identity, [OUTPUT])
        append(transaction.cluster, identity, [(OUTPUT, 1, encode(pa.nulls(1), pa.array([b"x"]), 0))])
        appends.append(identity)
        if len(appends) == 1:
            meanwhile()
        return Appended(partitions=1, records=1, bytes=1)

    one = replace(batch(0), sources=(READS_NOTHING,))
    return commit_batch(transaction, one, write, max_attempts=2, choice=BY_DRIVER)


@pytest.mark.parametrize("when", ["before the commit is sent", "as it arrives"])
def test_without_a_ledger_a_write_that_the_coordinator_is_known_to_have_aborted_is_written_again(kafka, when):
    if when == "as it arrives":
        kafka.before("EndTxn", kafka.time_out)
        report = without_ledger(kafka)
    else:
        report = without_ledger(kafka, kafka.time_out)
    assert report.outcome == "committed"
    (why,) = report.redone
    assert "the coordinator aborted the transaction after" in why
    assert values(kafka, "out") == [b"x"]


def test_without_a_ledger_a_commit_without_an_answer_that_the_coordinator_shows_as_aborted_is_written_again(kafka):
    kafka.lose_commit("request", kafka.time_out)
    if kafka.version == 1:  # another driver that took the id, and aborted a transaction of its own, leaves the same
        with pytest.raises(ProducerFenced) as fenced:
            without_ledger(kafka)
        assert fenced.value.committed == "unknown"
        return
    report = without_ledger(kafka)
    assert (report.outcome, len(report.redone)) == ("committed", 1)
    assert values(kafka, "out") == [b"x"]


def test_without_a_ledger_the_outcome_of_a_commit_in_doubt_stays_unknown_and_the_error_promises_no_ledger(kafka):
    kafka.lose_commit("request")
    with pytest.raises(CommitOutcomeUnknown, match="without txnAppId there is no ledger entry") as unknown:
        without_ledger(kafka)
    assert "the ledger settles" not in str(unknown.value)
    assert "a query, or a write with txnAppId, finds out" in str(unknown.value)
    assert values(kafka, "out") == []


def test_where_nothing_was_written_and_no_ledger_is_kept_there_is_nothing_to_end(kafka):
    report = commit_batch(
        owner(kafka, keeps_ledger=False),
        replace(batch(0), sources=(READS_NOTHING,)),
        lambda identity: Appended(partitions=0, records=0, bytes=0),
        max_attempts=2,
        choice=BY_DRIVER,
    )
    assert (report.outcome, report.records) == ("committed", 0)
    assert kafka.sent("EndTxn") == []


def test_an_operators_word_settles_one_refusal_and_no_other(kafka, caplog):
    with pytest.raises(LedgerRefused, match="resolve='write:none/query.7.digest") as refused:
        settled(OPTIONS, kafka, sourced(7, SOURCE))
    (word,) = re.findall(r"resolve='(write:\S+)'", str(refused.value))
    assert settled(replace(OPTIONS, resolve=word), kafka, sourced(7, SOURCE)).outcome == "committed"
    assert f"resolve={word} resolves this refusal" in caplog.text
    with pytest.raises(LedgerRefused):
        settled(replace(OPTIONS, resolve=word), kafka, sourced(9, SOURCE))


def test_where_two_words_are_needed_the_second_message_names_both(kafka, caplog):
    """As where an id is changed, and the explicit group and the checkpoint are kept."""
    kafka.offsets()[SOURCE] = 7, source_mark("other")
    value = None
    for kinds in (["take-group"], ["take-group", "write"]):
        with pytest.raises(LedgerRefused) as refused:
            settled(replace(OPTIONS, resolve=value), kafka, sourced(7, SOURCE))
        value = re.findall(r"resolve='([^']*)'", str(refused.value))[0]
        assert [word.split(":")[0] for word in value.split("; ")] == kinds
    assert settled(replace(OPTIONS, resolve=value), kafka, sourced(7, SOURCE)).outcome == "committed"
    assert f"resolve={value} resolves this refusal" in caplog.text
    assert settled(replace(OPTIONS, resolve=value), kafka, sourced(8, SOURCE)).outcome == "committed"


def test_a_query_that_takes_another_one_over_is_logged_as_a_warning(kafka, caplog):
    settled(OPTIONS, kafka, sourced(0, SOURCE))
    assert not caplog.records
    settled(replace(OPTIONS, take_over_query="query"), kafka, replace(sourced(0, SOURCE), query_id="another"))
    assert "takeOverQuery: this query starts where query ended" in caplog.text


@pytest.mark.parametrize("process", ["the same one", "another one"])
def test_a_batch_that_was_noted_as_incomplete_is_neither_skipped_nor_continued_from(kafka, transaction, process):
    run(transaction, 0)
    (transaction if process == "the same one" else owner(kafka)).note_incomplete(batch(0))
    for number in (0, 1):
        restarted = owner(kafka)
        with pytest.raises(LedgerRefused, match="batch 0 is incomplete: the writer's first call was committed"):
            run(restarted, number)
    assert source_offset(kafka) == 1


# -- somebody else in the ledger's group


def test_what_another_query_commits_to_a_group_with_the_ledgers_name_is_left_alone_and_named(kafka, caplog):
    settled(OPTIONS, kafka, sourced(0, SOURCE))
    other = replace(OPTIONS, transactional_id="id.ledger", group_id="id.ledger")
    theirs = replace(sourced(0, SOURCE), query_id="theirs", sources=reads({SOURCE: 0}, {SOURCE: 500}))
    settled(other, kafka, theirs)
    kafka.offsets("id.ledger")[TopicPartition("orders", 0)] = 7, ""
    before = dict(kafka.offsets("id.ledger"))
    assert before[SOURCE] == (500, source_mark("id.ledger"))
    caplog.clear()
    restarted = owner(kafka)
    assert [run(restarted, number).outcome for number in (1, 2)] == ["committed"] * 2
    assert {tp: at for tp, at in kafka.offsets("id.ledger").items() if at != before.get(tp)}.keys() == {LEDGER}
    (said,) = [text for text in caplog.messages if "somebody else" in text]
    assert "group id.ledger is the ledger's" in said
    assert "in-0 by transactional.id 'id.ledger', orders-0" in said
    theirs = replace(sourced(1, SOURCE), query_id="theirs", sources=reads({SOURCE: 500}, {SOURCE: 501}))
    assert settled(other, kafka, theirs).outcome == "committed"


# -- a driver that comes back late


RUN = "11111111-1111-1111-1111-111111111111"


@pytest.fixture(params=[(2, False), (1, False), (1, True)], ids=["TV2", "TV1", "TV1, verified"])
def brokers(request):
    version, verification = request.param
    return Kafka(version, verification=verification)


def of_run(number, run_id):
    return replace(batch(number), run_id=run_id)


def write_as(transaction, number, run_id):
    return commit_batch(
        transaction,
        of_run(number, run_id),
        lambda identity: Appended(partitions=1, records=1, bytes=1),
        max_attempts=2,
        choice=BY_DRIVER,
    )


def harmful(kafka):
    """The requests that can take the id from its owner, or touch its transaction."""
    return [api for api, _ in kafka.requests if api in ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn")]


@pytest.mark.parametrize("process", ["the same one", "one for each batch"])
@pytest.mark.parametrize("live", ["has begun", "appends", "has committed this batch", "has committed two batches"])
def test_a_driver_that_comes_back_late_ends_by_itself_and_the_live_one_does_not_notice(brokers, process, live):
    late = owner(brokers)
    write_as(late, 0, RUN)
    newer, number = owner(brokers), 1
    if live.startswith("has committed"):
        for number in range(1, 2 if "this" in live else 3):
            write_as(newer, number, "newer")
        number += 1
    newer.begin(of_run(number, "newer"))
    if live == "appends":
        newer.appending()
    before = harmful(brokers)
    driver = late if process == "the same one" else owner(brokers)
    if process == "one for each batch" and live == "has committed this batch":
        assert write_as(driver, 1, RUN).outcome == "skipped"
    else:
        with pytest.raises((ProducerFenced, LedgerRefused)) as ended:
            write_as(driver, 1, RUN)
        assert must_not_restart(ended.value)
        assert ended.value.committed == "nothing"
    assert harmful(brokers) == before
    if live != "appends":
        newer.appending()
    newer.commit(of_run(number, "newer"))
    assert brokers.entry().batch_id == number


@pytest.mark.parametrize("process", ["the same one", "one for each batch"])
def test_a_driver_that_comes_back_when_the_brokers_have_forgotten_the_id_writes_nothing_again(brokers, process):
    """KAFKA-18019: a producer that takes the forgotten id anew, and goes on where it was, repeats its successor's."""
    late, live = owner(brokers), owner(brokers)
    write_as(late, 0, RUN)
    for number in range(1, 3):
        write_as(live, number, "newer")
    brokers.transactions.expire()
    assert brokers.transactions.coordinators == {}
    before = harmful(brokers)
    driver = late if process == "the same one" else owner(brokers)
    with pytest.raises((ProducerFenced, LedgerRefused)) as ended:
        write_as(driver, 1, RUN)
    assert must_not_restart(ended.value)
    assert ended.value.committed == "nothing"
    assert brokers.commits == 3
    assert "InitProducerId" not in harmful(brokers)[len(before) :]
    assert write_as(live, 3, "newer").outcome == "committed"
    assert source_offset(brokers) == 4


@pytest.mark.parametrize("kafka", [1], indirect=True, ids=["TV1"])  # TV2 keeps its epoch from batch to batch
def test_a_driver_that_is_paused_before_it_takes_a_forgotten_id_again_sees_what_was_committed_meanwhile(
    kafka, transaction
):
    """It has looked whose the id is. The brokers have forgotten it when they answer, also who had it meanwhile."""

    def come_and_go():
        run(owner(kafka), 1)
        kafka.transactions.expire()

    run(transaction, 0)
    kafka.before("InitProducerId", come_and_go)
    assert run(transaction, 1).outcome == "skipped"
    assert (kafka.commits, source_offset(kafka)) == (2, 2)


@pytest.mark.parametrize("successors", [1, 3])
def test_a_late_driver_whose_batches_its_successors_committed_does_not_write_the_next_one(brokers, successors):
    write_as(owner(brokers), 0, RUN)
    for number in range(1, successors + 1):
        write_as(owner(brokers), number, f"successor {number}")
    assert brokers.entry().earlier_runs[-1] == RUN
    before = harmful(brokers)
    assert write_as(owner(brokers), successors, RUN).outcome == "skipped"
    with pytest.raises(ProducerFenced, match="another driver has taken over") as ended:
        write_as(owner(brokers), successors + 1, RUN)
    assert must_not_restart(ended.value)
    assert ended.value.committed == "nothing"
    assert harmful(brokers) == before


def test_a_run_that_starts_with_batches_that_another_one_committed_skips_them_and_goes_on(brokers):
    for number in range(3):
        write_as(owner(brokers), number, RUN)
    assert write_as(owner(brokers), 2, "restarted").outcome == "skipped"
    assert write_as(owner(brokers), 3, "restarted").outcome == "committed"


def test_an_entry_names_as_many_earlier_runs_as_may_take_over_during_a_pause(brokers):
    assert MOST_EARLIER_RUNS == 8
    for number in range(MOST_EARLIER_RUNS + 2):
        write_as(owner(brokers), number, f"run {number}")
    assert brokers.entry().earlier_runs == tuple(f"run {number}" for number in range(MOST_EARLIER_RUNS, 0, -1))


def patient_owner(kafka):
    """Its requests are sent again although the first answer is awaited in vain."""
    return owner(kafka, client=replace(PATIENCE, delivery_timeout_ms=100_000))


def losing(brokers, *, applied, then=lambda: None):
    """Let the next InitProducerId have no answer, and something happen before it is sent again."""

    def meet(_request, answer):
        del brokers.meets["InitProducerId"]
        if applied:
            answer()
        then()

    brokers.meets["InitProducerId"] = meet


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("earlier", [0, 2])
def test_an_unanswered_init_producer_id_is_sent_again_if_nobody_else_took_the_id(brokers, earlier, applied):
    for number in range(earlier):
        write_as(owner(brokers), number, "earlier")
    losing(brokers, applied=applied)
    assert write_as(patient_owner(brokers), earlier, RUN).outcome == "committed"


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("earlier", [0, 2])
def test_an_unanswered_init_producer_id_is_not_sent_again_if_another_driver_took_the_id_meanwhile(
    brokers, earlier, applied
):
    for number in range(earlier):
        write_as(owner(brokers), number, "earlier")
    live = owner(brokers)

    def take():
        live.begin(of_run(earlier, "live"))
        live.appending()
        coordinator = brokers.transactions.coordinators["id"]
        assert coordinator.add(coordinator.producer_id, coordinator.epoch, [OUTPUT]) == 0

    losing(brokers, applied=applied, then=take)
    with pytest.raises(ProducerFenced, match="now belongs to") as ended:
        write_as(patient_owner(brokers), earlier, RUN)
    assert ended.value.committed == "nothing"
    live.commit(of_run(earlier, "live"))
    assert brokers.entry().run_id == "live"


def timing_out(brokers, *, applied, then=lambda: None):
    """Let the next transaction last longer than its timeout, and the InitProducerId after it have no answer."""

    def time_out():
        brokers.time_out()
        losing(brokers, applied=applied, then=then)

    brokers.before("TxnOffsetCommit", time_out)


@pytest.mark.parametrize("applied", [True, False])
def test_who_timed_out_does_not_take_another_drivers_first_epoch_for_that_of_its_own_unanswered_request(
    brokers, applied
):
    """The other one took the id, and has appended nothing yet: so would the unanswered request leave it."""
    live = owner(brokers)
    timing_out(brokers, applied=applied, then=lambda: live.begin(of_run(0, "live")))
    with pytest.raises((ProducerFenced, CommitOutcomeUnknown)) as ended:  # behind the fence, it cannot be told
        write_as(patient_owner(brokers), 0, RUN)
    assert ended.value.committed == "nothing"
    live.appending()
    live.commit(of_run(0, "live"))
    assert brokers.entry().run_id == "live"


@pytest.mark.parametrize("applied", [True, False])
def test_who_timed_out_goes_on_after_an_unanswered_init_producer_id_if_nobody_else_took_the_id(brokers, applied):
    timing_out(brokers, applied=applied)
    report = write_as(patient_owner(brokers), 0, RUN)
    assert (report.outcome, len(report.redone)) == ("committed", 1)
    assert brokers.commits == 1


def test_an_abort_that_failed_after_the_timeout_is_tried_again_under_the_same_epoch(brokers):
    transaction = owner(brokers)
    timing_out(brokers, applied=False, then=lambda: brokers.meets.update(InitProducerId=lost))
    with pytest.raises(BrokerUnreachable):
        write_as(transaction, 0, RUN)
    brokers.meets.clear()
    transaction.abort()
    assert write_as(transaction, 0, RUN).outcome == "committed"
    assert brokers.commits == 1


def doubting(brokers, *, applied, then=lambda: None):
    """Let the next commit get lost, and the InitProducerId that settles it have no answer."""
    brokers.lose_commit("request", then=lambda: losing(brokers, applied=applied, then=then))


@pytest.mark.parametrize("brokers", [(1, False), (1, True)], indirect=True, ids=["TV1", "TV1, verified"])
def test_who_has_neither_of_two_answers_ends_rather_than_take_the_id_in_doubt(brokers):
    live = owner(brokers)
    doubting(brokers, applied=False, then=lambda: live.begin(of_run(0, "live")))
    with pytest.raises(CommitOutcomeUnknown, match="by this request, or by another driver.*Start the query again"):
        write_as(patient_owner(brokers), 0, RUN)
    live.appending()
    live.commit(of_run(0, "live"))
    assert brokers.entry().run_id == "live"


@pytest.mark.parametrize("applied", [True, False])
def test_who_has_neither_of_two_answers_goes_on_if_nobody_else_took_the_id(brokers, applied):
    """While the transaction is open, its first InitProducerId only aborts it."""
    doubting(brokers, applied=applied)
    assert write_as(patient_owner(brokers), 0, RUN).outcome == "committed"
    assert brokers.commits == 1


def test_a_run_goes_on_in_another_process_after_its_own_commit(brokers):
    for number in range(4):
        assert write_as(owner(brokers), number, RUN).redone == ()


def test_a_run_goes_on_in_another_process_although_the_brokers_have_forgotten_the_id(brokers):
    write_as(owner(brokers), 0, RUN)
    brokers.transactions.expire()
    assert write_as(owner(brokers), 1, RUN).outcome == "committed"


def test_a_run_goes_on_in_another_process_though_it_may_not_describe_the_id(brokers):
    brokers.meets["DescribeTransactions"] = refused(UNAUTHORIZED)
    for number in range(2):
        assert write_as(owner(brokers), number, RUN).outcome == "committed"


@pytest.mark.parametrize("brokers", [(1, False), (1, True)], indirect=True, ids=["TV1", "TV1, verified"])
@pytest.mark.parametrize("meets", [lost, unanswered])
def test_who_does_not_know_its_epoch_after_an_unanswered_init_producer_id_looks_before_it_goes_on(brokers, meets):
    """Its own InitProducerId is not taken for that of another driver."""
    transaction = owner(brokers)
    write_as(transaction, 0, RUN)
    brokers.meets["InitProducerId"] = meets
    with pytest.raises(BrokerUnreachable):
        write_as(transaction, 1, RUN)
    brokers.meets.clear()
    assert write_as(transaction, 1, RUN).outcome == "committed"


def test_a_run_goes_on_in_another_process_after_an_attempt_that_timed_out(brokers):
    brokers.before("TxnOffsetCommit", brokers.time_out)
    assert len(write_as(owner(brokers), 0, RUN).redone) == 1
    assert write_as(owner(brokers), 1, RUN).outcome == "committed"


@pytest.mark.parametrize("loses", ["request", "response"])
def test_a_run_goes_on_in_another_process_after_a_commit_in_doubt(brokers, loses):
    brokers.lose_commit(loses)
    assert write_as(owner(brokers), 0, RUN).outcome == "committed"
    assert write_as(owner(brokers), 1, RUN).outcome == "committed"


@pytest.mark.parametrize("verification", [False, True], ids=["TV1", "TV1, verified"])
def test_a_late_request_of_the_last_commit_that_opens_a_transaction_again_is_not_taken_for_another_owner(verification):
    kafka = Kafka(1, verification=verification)
    late = owner(kafka)
    write_as(late, 0, RUN)
    open_again(kafka)
    assert write_as(owner(kafka), 1, RUN).outcome == "committed"


def open_again(kafka):
    """A late request of the last commit arrives."""
    coordinator = kafka.transactions.coordinators["id"]
    assert coordinator.add(coordinator.producer_id, coordinator.epoch, [OUTPUT]) == 0


@pytest.mark.parametrize("holds", [False, True], ids=["sink", "writer"])
@pytest.mark.parametrize("verification", [False, True], ids=["TV1", "TV1, verified"])
def test_what_a_late_request_opened_and_the_coordinator_aborted_may_be_another_drivers_and_a_restart_goes_on(
    verification, holds
):
    kafka = Kafka(1, verification=verification)
    late = owner(kafka)
    write_as(late, 0, RUN)
    open_again(kafka)
    kafka.time_out()
    with pytest.raises(ProducerFenced, match="or the coordinator aborted a transaction of this one") as raised:
        write_as(late if holds else owner(kafka), 1, RUN)
    assert "If no other query uses this transactional.id, start the query again." in str(raised.value)
    assert write_as(owner(kafka), 1, "another run").outcome == "committed"


def test_a_restart_does_not_wait_for_the_open_transaction_that_a_dead_driver_left(brokers):
    dead = owner(brokers)
    write_as(dead, 0, RUN)
    dead.begin(of_run(1, RUN))
    dead.appending()
    began = brokers.clock()
    assert write_as(owner(brokers), 1, "another run").outcome == "committed"
    assert brokers.clock() - began < 1


def test_a_query_that_goes_on_after_its_own_failed_batch_is_no_late_driver(brokers):
    transaction = owner(brokers)
    write_as(transaction, 0, RUN)

    def fail(_):
        brokers.meets["EndTxn"] = lost
        raise UnknownTopic("no such topic")

    with pytest.raises(UnknownTopic):
        commit_batch(transaction, of_run(1, RUN), fail, max_attempts=1, choice=BY_DRIVER)
    del brokers.meets["EndTxn"]
    transaction.start_over()
    assert write_as(transaction, 1, RUN).outcome == "committed"


def test_who_was_fenced_stays_so_in_this_process(brokers):
    late = owner(brokers)
    write_as(late, 0, RUN)
    newer = owner(brokers)
    newer.begin(of_run(1, "newer"))
    newer.appending()
    with pytest.raises(ProducerFenced):
        write_as(owner(brokers), 1, RUN)
    late.start_over()
    with pytest.raises(ProducerFenced):
        write_as(late, 1, RUN)
    late.start_over()
    with pytest.raises(ProducerFenced):
        write_as(late, 1, RUN)
    newer.commit(of_run(1, "newer"))


@pytest.mark.parametrize("keeps_ledger", [True, False])
def test_a_batch_write_that_was_planned_before_another_one_took_the_id_ends_by_itself(brokers, keeps_ledger):
    planned = owner_of(brokers.cluster(), "id")
    newer = owner(brokers, keeps_ledger=keeps_ledger)
    newer.begin(batch(0))
    newer.appending()
    before = harmful(brokers)
    decide = decide_micro_batch(OPTIONS) if keeps_ledger else None
    late = SharedTransaction(OPTIONS, brokers.cluster(PATIENCE), decide, planned_under=planned)
    with pytest.raises(ProducerFenced, match="since this write was planned"):
        run(late, 0)
    assert harmful(brokers) == before
    newer.commit(batch(0))


def test_a_write_that_sees_the_id_change_hands_after_each_look_looks_again_before_it_takes_the_id():
    kafka = Kafka(1)  # where the fence sees it
    planned = owner_of(kafka.cluster(), "id")
    newer = owner(kafka, keeps_ledger=False)
    described = 0

    def changes(_request, answer):
        nonlocal described
        described += 1
        if described % 2 == 0 and described <= 10:
            del kafka.meets["DescribeTransactions"]
            newer.begin(batch(0)) if described == 10 else run(newer, 0)
            kafka.meets["DescribeTransactions"] = changes
        return answer()

    kafka.meets["DescribeTransactions"] = changes
    late = SharedTransaction(OPTIONS, kafka.cluster(PATIENCE), None, planned_under=planned)
    with pytest.raises(ProducerFenced, match="since this write was planned"):
        run(late, 0)
    newer.appending()
    newer.commit(batch(0))


def test_in_the_window_that_remains_the_last_one_wins_and_nothing_is_written_twice(brokers):
    """Both look, then both take."""
    write_as(owner(brokers), 0, RUN)
    one, other = owner(brokers), owner(brokers)
    brokers.before("InitProducerId", lambda: other.begin(of_run(1, "other")))
    one.begin(of_run(1, "one"))
    one.appending()
    other.appending()
    with pytest.raises(ProducerFenced):
        commit_or_abort(other, of_run(1, "other"))
    one.commit(of_run(1, "one"))
    assert (brokers.commits, brokers.entry().run_id) == (2, "one")


def commit_or_abort(transaction, batch):
    """As `commit_batch` does: in TV2, a partition's leader refuses the epoch, and the coordinator says why."""
    try:
        transaction.commit(batch)
    except TransactionAborted:
        transaction.abort()


# -- topics that are deleted while a batch is written


TWO = {"out": 1, "other": 1}


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def two_topics(request):
    return Kafka(request.param, topics=("in", *TWO), verification=True)


def write_two(transaction, number, *, max_attempts=2, options=OPTIONS):
    """Micro-batch `number`, a record in each of two topics."""
    places = [TopicPartition(name, 0) for name in TWO]
    cluster = transaction.cluster

    def write(identity):
        topics = appended_to(cluster, *places)
        append(cluster, identity, [(tp, 1, encode(pa.nulls(1), pa.array([b"%d" % number]), 0)) for tp in places])
        return Appended(partitions=2, records=2, bytes=2, topics=topics)

    return commit_batch(transaction, batch(number), write, max_attempts=max_attempts, choice=BY_DRIVER)


def create_again(kafka, name):
    kafka.topics.delete(name)
    kafka.topics.create(name, 1)


def outdated_after(kafka, api, name, topic_id):
    """After the next request of this API, a broker that was paused for long answers one look-up of the topic."""

    def answers(request, answer):
        response = answer()
        del kafka.meets["Metadata"]
        for topic in response.topics:
            if topic.name == name:
                topic.topic_id = topic_id
        return response

    kafka.before(api, lambda: kafka.meets.update(Metadata=answers))


@pytest.mark.parametrize("again", [False, True], ids=["after its commit", "before it is skipped"])
def test_a_broker_that_still_has_the_id_of_a_topic_deleted_long_ago_loses_no_batch(two_topics, again):
    cluster = two_topics.cluster(PATIENCE)
    cluster.look_up(["out"])
    past = cluster.topic("out").id
    create_again(two_topics, "out")
    transaction = owner(two_topics)
    write_two(transaction, 0)
    if again:  # the driver died before Spark knew of the commit
        transaction = owner(two_topics)
    outdated_after(two_topics, "DescribeTransactions" if again else "EndTxn", "out", past)
    assert write_two(transaction, 0 if again else 1).outcome == ("skipped" if again else "committed")
    assert values(two_topics, "out") == ([b"0"] if again else [b"0", b"1"])
    assert "Metadata" not in two_topics.meets, "it has answered"


def values(kafka, name):
    return [value for entry in kafka.partitions[TopicPartition(name, 0)].committed() for value in entry.content]


def test_a_topic_that_is_created_again_before_the_offsets_are_added_has_the_whole_batch(two_topics):
    transaction = owner(two_topics)
    two_topics.before("TxnOffsetCommit", lambda: create_again(two_topics, "out"))
    report = write_two(transaction, 0)
    (why,) = report.redone
    assert "topic 'out' was deleted" in why
    assert values(two_topics, "out") == values(two_topics, "other") == [b"0"]


def test_a_topic_that_is_created_again_before_the_commit_is_lost_aloud_and_nothing_is_repeated(two_topics):
    transaction = owner(two_topics)
    write_two(transaction, 0)
    two_topics.before("EndTxn", lambda: create_again(two_topics, "out"))
    with pytest.raises(OutputLost, match="batch 1 .*'out'.* lost are 1 records in 1 partitions of topic 'out'") as lost:
        write_two(transaction, 1)
    assert lost.value.committed == "part"
    assert (values(two_topics, "out"), values(two_topics, "other")) == ([], [b"0", b"1"])
    with pytest.raises(LedgerRefused, match="batch 1 is incomplete.*an output topic was deleted") as refused:
        write_two(owner(two_topics), 1)
    (word,) = re.findall(r"resolve='(skip:[^']+)'", str(refused.value))
    assert "write:" not in str(refused.value), "the other topic has its records"
    transaction = owner(two_topics, replace(OPTIONS, resolve=word))
    assert write_two(transaction, 1).outcome == "skipped"
    with pytest.raises(LedgerRefused, match="batch 1 is incomplete"):
        write_two(owner(two_topics), 2)
    for number in (2, 3):
        assert write_two(transaction, number).outcome == "committed", "with the same word, in the same run"
    assert values(two_topics, "out") == [b"2", b"3"]


def test_what_a_batch_lacks_is_not_forgotten_by_a_start_with_a_new_checkpoint(two_topics):
    write_two(owner(two_topics), 0)
    two_topics.before("EndTxn", lambda: create_again(two_topics, "out"))
    with pytest.raises(OutputLost, match="the next start is refused"):
        write_two(owner(two_topics), 1)

    def start(query_id, options=OPTIONS):
        first = replace(sourced(0, SOURCE), query_id=query_id, sources=reads({SOURCE: 2}, {SOURCE: 3}))
        return settled(options, two_topics, first)

    for query_id in ("the next", "the one after it"):
        with pytest.raises(
            LedgerRefused, match="(?s)query.*, which is incomplete .*'out'.*takeOverQuery=query"
        ) as refused:
            start(query_id)
        assert refused.value.committed == "nothing"
        assert two_topics.entry().incomplete
    assert start("the last", replace(OPTIONS, take_over_query="query")).outcome == "committed"
    assert not two_topics.entry().incomplete


def test_a_topic_that_is_deleted_for_good_before_the_commit_is_lost_aloud(two_topics):
    two_topics.before("EndTxn", lambda: two_topics.topics.delete("out"))
    with pytest.raises(OutputLost):
        write_two(owner(two_topics), 0)
    assert values(two_topics, "other") == [b"0"]


def test_the_ledgers_topic_that_is_created_again_before_the_commit_gets_the_entry_once_more(two_topics):
    transaction = owner(two_topics)
    write_two(transaction, 0)
    two_topics.before("EndTxn", lambda: create_again(two_topics, OPTIONS.ledger_topic))
    assert write_two(transaction, 1).outcome == "committed"
    assert two_topics.entry().batch_id == 1
    assert write_two(owner(two_topics), 1).outcome == "skipped"
    assert write_two(owner(two_topics), 2).outcome == "committed"
    assert values(two_topics, "out") == values(two_topics, "other") == [b"0", b"1", b"2"]


def test_a_batch_whose_entry_names_no_topic_ids_as_of_an_earlier_release_is_skipped_without_a_look(two_topics):
    def write_one(transaction):
        place = TopicPartition("out", 0)

        def write(identity):
            append(transaction.cluster, identity, [(place, 1, encode(pa.nulls(1), pa.array([b"0"]), 0))])
            return Appended(partitions=1, records=1, bytes=1)  # without topics

        return commit_batch(transaction, batch(0), write, max_attempts=1, choice=BY_DRIVER)

    write_one(owner(two_topics))
    create_again(two_topics, "out")
    assert write_one(owner(two_topics)).outcome == "skipped"
    assert values(two_topics, "out") == []


def test_whether_topics_are_still_there_after_the_commit_must_be_known(two_topics):
    two_topics.before("EndTxn", lambda: two_topics.meets.update(Metadata=lost))
    with pytest.raises(BrokerUnreachable, match="batch 0 was committed, but whether its topics") as unknown:
        write_two(owner(two_topics), 0)
    assert unknown.value.committed == "everything"


def test_the_age_of_a_transaction_counts_the_time_in_which_the_machine_was_suspended(monkeypatch):
    """time.monotonic does not, on Linux."""
    kafka = Kafka(2, topics=("in", *TWO), verification=True)
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    monkeypatch.setattr(time, "clock_gettime", lambda _: kafka.clock())
    transaction = SharedTransaction(OPTIONS, kafka.cluster(PATIENCE), decide_micro_batch(OPTIONS))
    kafka.before("TxnOffsetCommit", kafka.time_out)
    report = write_two(transaction, 0)
    assert (report.outcome, len(report.redone)) == ("committed", 1)
