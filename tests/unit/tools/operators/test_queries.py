"""Ledger topics that nobody named are looked for in so many groups, whoever made these; and whether a transaction has a
batch that an abort would lose is known, or an error.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import cast

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import AuthorizationFailed, BrokerUnreachable, LedgerRefused, ToolFailed
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.transactions import end_transaction, init_producer_id
from spark_kafka_eos.ledger.bucket_record import BucketRecord, encode
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.entry_format import encode_record
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.options.sink import bucket_id
from spark_kafka_eos.source_offset import Origin
from spark_kafka_eos.tools.cli import query, top
from spark_kafka_eos.tools.operators import cluster_watch, queries
from spark_kafka_eos.tools.operators.cluster_metrics import LEDGER_BATCH, MISSING
from spark_kafka_eos.tools.operators.cluster_watch import ClusterWatch
from spark_kafka_eos.tools.operators.ending import OwnedTransaction
from spark_kafka_eos.tools.operators.queries import QueryReader, committed_in, taking_part
from spark_kafka_eos.tools.operators.status import SourceLag
from spark_kafka_eos.tools.operators.survey import Survey
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, reads
from tests.model_kafka import CLIENT, KafkaModel, refused

GROUP_NOT_ALLOWED, TOPIC_NOT_ALLOWED = 30, 29
INPUTS = ("in", "other")
UNREADABLE = [("OffsetFetch", GROUP_NOT_ALLOWED), ("ListOffsets", TOPIC_NOT_ALLOWED)]


@pytest.mark.parametrize(("others", "left"), [(0, 0), (100, 0), (101, 1), (150, 50)])
def test_at_most_so_many_groups_are_asked_and_the_rest_is_counted(monkeypatch, others, left):
    """Also while a transaction is open in a group: who waited for its end would wait for whoever opened it."""
    asked = []

    class Group:
        def __init__(self, _, name):
            self.name = name

        def fetch_all(self, *, require_stable):
            assert not require_stable
            asked.append(self.name)
            return {}

    names = ["a group", *(f"id-{number}.ledger" for number in range(others))]
    monkeypatch.setattr(queries, "group_ids", lambda _: (names, {}))
    monkeypatch.setattr(queries, "GroupCoordinator", Group)
    monkeypatch.setattr(queries, "_sees_every_group", lambda _: True)
    reader = QueryReader(cast("Cluster", None), ledger_topics=[])
    monkeypatch.setattr(reader, "_ledgers", {})
    assert reader.find() == left
    assert asked == names[1:101]
    assert reader.find(most=None) == 0


def commit(kafka, numbers, *, ledger, sources=(), **more):
    """A query commits these batches, with its ledger in this topic; the report of the last one."""
    given = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id", "topic": "out"}
    options = sink_options(given | {"ledgerTopic": ledger} | more)
    driver = SharedTransaction(options, kafka.cluster(), decide_micro_batch(options), clock=kafka.clock)
    for number in numbers:
        batch = MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}", sources=sources)
        report = commit_batch(
            driver, batch, lambda _: Appended(partitions=0, records=0, bytes=0), max_attempts=1, choice=BY_DRIVER
        )
    return report


@pytest.mark.parametrize(
    ("trouble", "asks"),
    [(AuthorizationFailed("OffsetFetch", GROUP_NOT_ALLOWED, "", ""), 3), (BrokerUnreachable("no answer"), 1)],
    ids=["may not be read", "has a silent coordinator, which is waited for once"],
)
def test_the_group_of_a_query_that_is_seen_without_it_is_none_that_was_not_looked_into(monkeypatch, trouble, asks):
    kafka = KafkaModel(topics={"out": 1})
    for number in range(3):
        commit(kafka, (0,), ledger="kafka-eos-ledger", **{"kafka.transactional.id": f"id-{number}"})
    asked = []

    def fetch_all(group, *, require_stable):
        asked.append(group.group_id)
        raise trouble

    monkeypatch.setattr(GroupCoordinator, "fetch_all", fetch_all)
    monkeypatch.setattr(queries, "group_ids", lambda _: ([*kafka.groups], {}))
    reader = QueryReader(kafka.cluster())
    assert reader.find() == 0
    assert asked[1:] == [f"id-{number}.ledger" for number in range(asks)], "the first one shows if groups are hidden"
    monkeypatch.setattr(queries, "group_ids", lambda _: (["id-0.ledger", "other.ledger"], {}))
    assert reader.find() == 1, "only the ledger of the other one may be in a topic that is not known"


@pytest.fixture(params=["kafka-eos-ledger", "own"])
def committed(request, monkeypatch):
    """A cluster with a query whose ledger is in this topic, and the report of its last batch."""
    kafka = KafkaModel(topics={"out": 1})
    report = commit(kafka, (0, 1), ledger=request.param)
    monkeypatch.setattr(queries, "group_ids", lambda _: ([*kafka.groups], {}))  # a request that the model does not know
    return kafka, report


@pytest.mark.parametrize("name", ["id", None], ids=["by the id", "though no coordinator knows the id any more"])
def test_the_batch_that_was_committed_in_a_transaction_is_found(committed, name):
    kafka, last = committed
    entry = committed_in(kafka.cluster(), name, last.producer_id, last.epoch)
    assert isinstance(entry, LedgerEntry) and entry.batch_id == 1
    named = () if name else ["kafka-eos-ledger"]
    for producer_id, epoch in ((last.producer_id, last.epoch + 1), (last.producer_id + 1, last.epoch)):
        assert committed_in(kafka.cluster(), name, producer_id, epoch, ledger_topics=named) is None


@pytest.mark.parametrize("name", ["id", None], ids=["by the id", "though no coordinator knows the id any more"])
def test_what_was_committed_is_not_taken_for_uncommitted_where_no_pointer_leads_to_the_ledger(monkeypatch, name):
    """Pointers expire, and nothing else leads to a ledger topic of a query's own."""
    kafka = KafkaModel(topics={"out": 1})
    last = commit(kafka, (0, 1), ledger="own")
    kafka.groups.clear()
    monkeypatch.setattr(queries, "group_ids", lambda _: ([], {}))
    with pytest.raises(ToolFailed, match="is not known. Nothing was changed. .* --ledger-topic"):
        committed_in(kafka.cluster(), name, last.producer_id, last.epoch)
    with pytest.raises(ToolFailed, match="there is no topic 'ovn', .* is not known"):
        committed_in(kafka.cluster(), name, last.producer_id, last.epoch, ledger_topics=["ovn"])
    entry = committed_in(kafka.cluster(), name, last.producer_id, last.epoch, ledger_topics=["own"])
    assert isinstance(entry, LedgerEntry) and entry.batch_id == 1
    assert committed_in(kafka.cluster(), name, last.producer_id, last.epoch + 1, ledger_topics=["own"]) is None


@pytest.mark.parametrize("name", ["id", None], ids=["by the id", "though no coordinator knows the id any more"])
def test_what_was_committed_in_a_ledger_that_moved_is_found_though_no_pointer_leads_there(monkeypatch, name):
    kafka = KafkaModel(topics={"out": 1})
    commit(kafka, (0,), ledger="kafka-eos-ledger")
    commit(kafka, (1,), ledger="own")
    last = commit(kafka, (2, 3), ledger="third")
    kafka.groups.clear()
    monkeypatch.setattr(queries, "group_ids", lambda _: ([], {}))
    entry = committed_in(kafka.cluster(), name, last.producer_id, last.epoch)
    assert isinstance(entry, LedgerEntry) and entry.batch_id == 3
    kafka.topics.delete("third")
    for named in ((), ["own"]):
        with pytest.raises(ToolFailed, match="is not known. Nothing was changed"):
            committed_in(kafka.cluster(), "id", last.producer_id, last.epoch, ledger_topics=named)


def test_a_query_whose_record_is_gone_is_not_taken_for_one_that_committed_nothing():
    kafka = KafkaModel(topics={"out": 1})
    last = commit(kafka, (0, 1), ledger="own")
    kafka.partitions[TopicPartition("own", 0)].truncate(0)
    with pytest.raises(ToolFailed, match="has no record, but its group has a pointer: .* is not known"):
        committed_in(kafka.cluster(), "id", last.producer_id, last.epoch, ledger_topics=["kafka-eos-ledger"])


@pytest.mark.parametrize(
    ("topics", "at"),
    [
        (["kafka-eos-ledger", "own"], "own"),
        (["own", "kafka-eos-ledger"], "kafka-eos-ledger"),
        (["kafka-eos-ledger", "own", "kafka-eos-ledger"], "kafka-eos-ledger"),
    ],
    ids=["away", "home", "there and back"],
)
def test_a_query_whose_ledger_has_moved_is_shown_as_the_new_one_says(monkeypatch, topics, at):
    kafka = KafkaModel(topics={"out": 1})
    for number, topic in enumerate(topics):
        commit(kafka, [number], ledger=topic)
    monkeypatch.setattr(queries, "group_ids", lambda _: ([*kafka.groups], {}))
    alone, every = QueryReader(kafka.cluster(), only="id", keep=20), QueryReader(kafka.cluster())
    every.find()
    for reader in (alone, every):
        (status,) = reader.read(lag=False, owners=False)
        assert (status.ledger_topic, status.entry and status.entry.batch_id) == (at, len(topics) - 1)
        record = reader.copies("id").record
        assert isinstance(record, LedgerEntry) and record.batch_id == len(topics) - 1


@pytest.mark.parametrize("ledgers", [None, ["own", "kafka-eos-ledger"]], ids=["found", "named"])
def test_of_two_ledgers_of_an_id_the_one_with_the_last_commit_counts(monkeypatch, ledgers):
    """The pointer expired, and an operator said that the batch is to be written: nothing leads from the old ledger."""
    kafka = KafkaModel(topics={"out": 1})
    commit(kafka, (0, 1), ledger="kafka-eos-ledger")
    kafka.groups.clear()
    with pytest.raises(LedgerRefused) as refusal:
        commit(kafka, (2,), ledger="own")
    (word,) = re.findall(r"resolve='(write:[^']*)'", str(refusal.value))
    kafka.world.now += 7 * 86_400
    commit(kafka, (2,), ledger="own", resolve=word)
    monkeypatch.setattr(queries, "group_ids", lambda _: ([*kafka.groups], {}))
    for only in ("id", None):
        reader = QueryReader(kafka.cluster(), only=only, ledger_topics=ledgers)
        assert reader.find() == 0
        (status,) = reader.read(lag=False, owners=False)
        assert (status.ledger_topic, status.entry and status.entry.batch_id) == ("own", 2)
        assert reader.copies("id").agreement == "Record and pointer say the same."


def test_what_is_open_in_one_ledger_is_shown_beside_what_another_one_has():
    kafka = KafkaModel(topics={"out": 1, "own": 1})
    commit(kafka, (0,), ledger="kafka-eos-ledger")
    cluster = kafka.cluster()
    producer = init_producer_id(cluster, "id", 10_000)
    entry = LedgerEntry(query_id="query", batch_id=1, digest="", serial=2)
    LedgerTopic(cluster, "own", "id").append_entry(producer, encode_record(entry), timestamp_ms=0)
    (status,) = QueryReader(kafka.cluster(), ledger_topics=["kafka-eos-ledger", "own"]).read(lag=False, owners=False)
    assert status.entry and status.entry.batch_id == 0
    assert status.pending and status.pending.entry == entry


def test_who_names_the_topic_that_a_ledger_has_left_is_told_the_new_one(monkeypatch):
    kafka = KafkaModel(topics={"out": 1})
    for number, topic in enumerate(["kafka-eos-ledger", "own"]):
        commit(kafka, [number], ledger=topic)
    monkeypatch.setattr(query, "Cluster", lambda _: kafka.cluster())
    named = ["--bootstrap-servers", "b:1", "--ledger-topic", "kafka-eos-ledger"]
    with pytest.raises(ToolFailed, match="the ledger of 'id' is in topic 'own' since commit 2"):
        CliRunner().invoke(query.query, ["history", "id", *named], catch_exceptions=False)


def test_a_source_cluster_that_is_down_hides_nothing_of_what_the_others_know(monkeypatch):
    kafka, down, at = KafkaModel(topics={"out": 1, "in": 1}), KafkaModel(), TopicPartition("in", 0)
    commit(kafka, [0], ledger="kafka-eos-ledger", sources=reads({at: 0}, {at: 0}))
    source = down.cluster(CLIENT.answering_within(1_000))
    monkeypatch.setattr(source, "cluster_id", refusing)
    reader = QueryReader(kafka.cluster(), sources=[source])
    (status,) = reader.read(times=True)
    assert (status.unread, status.unknown) == (0, [])
    there = replace(status, sources=(SourceLag(cluster="B", offsets={at: 0}),))
    (status,) = reader._with_lag([there], times=True)
    assert status.unknown == ["it is on another cluster, B; no broker answers"]


@pytest.mark.parametrize(
    ("with_ids", "ends", "why"),
    [
        (True, 0, "topic in was created again, and the committed offsets are those of the one before"),
        (False, 7, "in-0 ends at 0, before the committed offset: the topic was created again, or has lost records"),
    ],
    ids=["by its id", "by its end, where no id is recorded"],
)
def test_the_lag_of_a_source_that_was_created_again_is_not_known(with_ids, ends, why):
    """The query's next start stops with DataLoss, so nothing says that it has read all."""
    kafka, at, other = KafkaModel(topics={"out": 1, "in": 1, "other": 1}), *(TopicPartition(n, 0) for n in INPUTS)
    cluster = kafka.cluster()
    cluster.look_up(INPUTS)
    ids = {name: cluster.topic(name).id for name in INPUTS} if with_ids else {}
    origin = Origin(cluster=cluster.cluster_id(), topic_ids=ids)
    read = SourceRange(start={at: 0, other: 0}, end={at: ends, other: 0}, origin=origin)
    commit(kafka, [0], ledger="kafka-eos-ledger", sources=(read,))
    reader = QueryReader(cluster)
    (status,) = reader.read(times=True)
    assert (status.unread, status.unknown) == ((0, []) if with_ids else (None, [why]))
    kafka.topics.delete("in")
    kafka.topics.create("in", 1)
    (status,) = reader.read(times=True)
    assert (status.unread, status.lost, status.unknown) == (None, None, [why])
    assert [tp for source in status.sources if source for tp in source.partitions] == [other]


def refusing():
    raise BrokerUnreachable("no broker answers")


@pytest.mark.parametrize("ledger", ["kafka-eos-ledger", "own"])
@pytest.mark.parametrize("before", [(), (0,)], ids=["the first batch", "a later one"])
def test_a_table_that_takes_part_is_seen_though_no_pointer_leads_to_the_ledger_yet(ledger, before):
    kafka = KafkaModel(topics={"out": 1, "kafka-eos-ledger": 1, "own": 1})
    if before:
        commit(kafka, before, ledger=ledger)
    cluster = kafka.cluster()
    producer = init_producer_id(cluster, "id", 10_000)
    entry = LedgerEntry(query_id="query", batch_id=1, digest="", serial=2, table=7)
    LedgerTopic(cluster, ledger, "id").append_entry(producer, encode_record(entry), timestamp_ms=0)
    send_pointer(cluster, producer, ledger)
    decision = OwnedTransaction(kafka.cluster(), "id", fence_owner=True).judge()
    assert not decision.abort and "a table takes part in it, which may have batch 1" in decision.reason


def send_pointer(cluster, producer, ledger):
    """As the sink does after the record: a table has no batch before."""
    pointer = {TopicPartition(ledger, 0): OffsetAndMetadata(offset=1)}
    GroupCoordinator(cluster, "id.ledger").commit_in_transaction(producer, pointer, transaction_version=2)


def test_a_ledger_that_no_pointer_leads_to_yet_and_that_may_not_be_read_is_not_taken_for_one_without_a_table():
    kafka = KafkaModel(topics={"own": 1})
    cluster = kafka.cluster()
    producer = init_producer_id(cluster, "id", 10_000)
    LedgerTopic(cluster, "own", "id").append_entry(producer, b"an entry", timestamp_ms=0)
    send_pointer(cluster, producer, "own")
    kafka.meets["ListOffsets"] = refused(TOPIC_NOT_ALLOWED)
    with pytest.raises(AuthorizationFailed, match="own"):
        OwnedTransaction(kafka.cluster(), "id", fence_owner=True).judge()


def test_of_the_topics_that_a_transaction_writes_only_one_that_may_be_its_ledger_is_read():
    """Others may have much behind the open transaction, no leader, or be none of this principal's business."""
    kafka = KafkaModel(topics={"out": 1, "own": 1})
    cluster = kafka.cluster()
    producer = init_producer_id(cluster, "id", 10_000)
    LedgerTopic(cluster, "out", "a key").append_entry(producer, b"a record", timestamp_ms=0)
    kafka.meets["ListOffsets"] = lambda request, answer: (
        refused(TOPIC_NOT_ALLOWED)(request, answer) if request.topics[0].name == "out" else answer()
    )
    assert OwnedTransaction(kafka.cluster(), "id", fence_owner=True).judge().abort, "no query has this id"
    entry = LedgerEntry(query_id="query", batch_id=1, digest="", serial=1, table=7)
    LedgerTopic(cluster, "own", "id").append_entry(producer, encode_record(entry), timestamp_ms=0)
    send_pointer(cluster, producer, "own")
    assert not OwnedTransaction(kafka.cluster(), "id", fence_owner=True).judge().abort


def test_that_nothing_was_committed_is_not_known_while_the_pointer_of_the_first_batch_lacks_its_marker():
    kafka = KafkaModel(topics={"out": 1, "own": 1})
    cluster = kafka.cluster()
    producer = init_producer_id(cluster, "id", 10_000)
    with pytest.raises(ToolFailed, match="no ledger that could be found has a record of 'id'"):
        committed_in(kafka.cluster(), "id", producer.producer_id, producer.epoch)
    named = ["kafka-eos-ledger"]
    assert committed_in(kafka.cluster(), "id", producer.producer_id, producer.epoch, ledger_topics=named) is None
    send_pointer(cluster, producer, "own")
    with pytest.raises(ToolFailed, match="pointer .* lacks its marker"):
        committed_in(kafka.cluster(), "id", producer.producer_id, producer.epoch)


@pytest.mark.parametrize("name", ["id", None], ids=["by the id", "though no coordinator knows the id any more"])
def test_the_pointer_counts_where_the_record_lacks_its_marker_too(monkeypatch, name):
    places: list[TopicPartition] = []
    kafka = KafkaModel(topics={"out": 1}, leaves_out=lambda joined: next((tp for tp in places if tp in joined), None))
    commit(kafka, (0,), ledger="own")
    places.append(TopicPartition("own", 0))
    last = commit(kafka, (1,), ledger="own")
    monkeypatch.setattr(queries, "group_ids", lambda _: ([*kafka.groups], {}))
    (status,) = QueryReader(kafka.cluster(), ledger_topics=["own"]).read(lag=False, owners=False)
    assert status.pending, "the premise"
    entry = committed_in(kafka.cluster(), name, last.producer_id, last.epoch, ledger_topics=["own"])
    assert isinstance(entry, LedgerEntry) and entry.batch_id == 1


@pytest.mark.parametrize("ended", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("known", [True, False], ids=["by the id", "though no coordinator knows the id any more"])
def test_what_a_bucket_of_a_query_in_real_time_committed_is_found(committed, known, ended):
    kafka, _ = committed
    cluster, name = kafka.cluster(), bucket_id("id", 0)
    (ledger,) = cluster.existing(["kafka-eos-ledger", "own"], patience_ms=0)
    producer = init_producer_id(cluster, name, 10_000)
    record = BucketRecord(serial=1, offsets={TopicPartition("in", 0): 7}, topic_ids={})
    LedgerTopic(cluster, ledger, name).append_entry(producer, encode(record), timestamp_ms=0)
    end_transaction(cluster, producer, commit=ended)
    found = committed_in(
        kafka.cluster(), name if known else None, producer.producer_id, producer.epoch, ledger_topics=[ledger]
    )
    assert found == (record if ended else None)


def test_what_was_committed_is_found_though_this_release_cannot_read_its_entry(committed):
    kafka, _ = committed
    cluster = kafka.cluster()
    (ledger,) = cluster.existing(["kafka-eos-ledger", "own"], patience_ms=0)
    producer = init_producer_id(cluster, "id", 10_000)
    LedgerTopic(cluster, ledger, "id").append_entry(producer, b'{"v": 99}', timestamp_ms=0)
    end_transaction(cluster, producer, commit=True)
    found = committed_in(kafka.cluster(), "id", producer.producer_id, producer.epoch)
    assert isinstance(found, UnreadableEntry)


@pytest.mark.parametrize(
    ("denied", "listed"),
    [(True, True), (True, False), (False, True)],
    ids=["a group may not be read", "groups are left out of the list", "a broker is silent"],
)
def test_where_ledgers_could_not_be_looked_for_it_is_not_known_that_nothing_was_committed(
    committed, monkeypatch, denied, listed
):
    kafka, last = committed
    if denied:
        kafka.meets["OffsetFetch"] = refused(GROUP_NOT_ALLOWED)
    silent = {} if denied else {2: "no answer"}
    monkeypatch.setattr(queries, "group_ids", lambda _: ([*kafka.groups] if listed else [], silent))
    with pytest.raises(ToolFailed, match="not every group .* could be looked into"):
        committed_in(kafka.cluster(), None, last.producer_id + 1, 0)


def test_that_nothing_was_committed_is_not_known_while_a_group_may_lead_to_a_second_ledger_of_a_known_id(committed):
    kafka, last = committed
    kafka.meets["OffsetFetch"] = lambda request, answer: (
        refused(GROUP_NOT_ALLOWED)(request, answer) if request.group_id == "id.ledger" else answer()
    )
    with pytest.raises(ToolFailed, match="not every group .* could be looked into"):
        committed_in(kafka.cluster(), None, last.producer_id + 1, 0)


@pytest.mark.parametrize(("api", "code"), UNREADABLE, ids=["the group that leads to it", "its topic"])
def test_a_ledger_that_may_not_be_read_is_not_taken_for_empty(committed, api, code):
    kafka, last = committed
    facts = describe.transaction(kafka.cluster(), "id", now_ms=0)
    assert isinstance(facts, TransactionFacts)
    kafka.meets[api] = refused(code)
    with pytest.raises(AuthorizationFailed):
        committed_in(kafka.cluster(), "id", last.producer_id, last.epoch + 1)
    with pytest.raises(AuthorizationFailed):
        taking_part(kafka.cluster(), replace(facts, state="Ongoing"))


def test_a_list_of_queries_is_shown_though_a_broker_is_silent_and_says_what_it_may_lack(committed, monkeypatch):
    kafka, _ = committed
    monkeypatch.setattr(queries, "group_ids", lambda _: ([*kafka.groups], {2: "no answer"}))
    monkeypatch.setattr(query, "Cluster", lambda _: kafka.cluster())
    said = "Broker 2 did not answer, so its groups are unknown: no answer."
    for flags, where in ([], "stdout"), (["--json"], "stderr"):
        done = CliRunner().invoke(query.query, ["list", "--bootstrap-servers", "b:1", *flags])
        assert (done.exit_code, said in getattr(done, where), "id" in done.stdout) == (3, True, True), done.output
    assert [each["transactional_id"] for each in json.loads(done.stdout)] == ["id"]


def test_a_list_of_queries_is_not_said_to_be_all_if_groups_may_be_left_out(committed, monkeypatch):
    """ListGroups leaves out what this principal may not describe, without an error."""
    kafka, _ = committed
    kafka.meets["OffsetFetch"] = lambda request, answer: (
        answer() if request.group_id == "id.ledger" else refused(GROUP_NOT_ALLOWED)(request, answer)
    )
    monkeypatch.setattr(query, "Cluster", lambda _: kafka.cluster())
    said = "Groups may be missing: this principal may not describe every one"
    for flags, where in ([], "stdout"), (["--json"], "stderr"):
        done = CliRunner().invoke(query.query, ["list", "--bootstrap-servers", "b:1", *flags])
        assert (done.exit_code, said in getattr(done, where), "id" in done.stdout) == (3, True, True), done.output


def test_a_ledger_topic_that_is_named_and_does_not_exist_is_said(committed, monkeypatch):
    kafka, _ = committed
    monkeypatch.setattr(query, "Cluster", lambda _: kafka.cluster())
    (there,) = kafka.cluster().existing(["kafka-eos-ledger", "own"], patience_ms=0)
    said = "there is no topic typo"
    for flags, where in ([], "stdout"), (["--json"], "stderr"):
        named = ["--bootstrap-servers", "b:1", "--ledger-topic", there, "--ledger-topic", "typo"]
        done = CliRunner().invoke(query.query, ["list", *named, *flags])
        assert (done.exit_code, said in getattr(done, where), "id" in done.stdout) == (3, True, True), done.output
    monkeypatch.setattr(top, "survey", lambda *_, **__: Survey(taken_ms=0))
    (remark,) = top.Look(kafka.cluster(), topics=None, ledger_topics=[there, "typo"])().remarks
    assert said in remark


def test_a_query_whose_ledger_has_moved_is_seen_though_its_pointer_has_expired(monkeypatch):
    kafka = KafkaModel(topics={"out": 1})
    for number, topic in enumerate(["kafka-eos-ledger", "own"]):
        commit(kafka, [number], ledger=topic)
    kafka.groups.clear()
    monkeypatch.setattr(queries, "group_ids", lambda _: ([], {}))
    monkeypatch.setattr(query, "Cluster", lambda _: kafka.cluster())
    monkeypatch.setattr(cluster_watch, "survey", lambda *_, **__: Survey(taken_ms=0))
    where = ["list", "--bootstrap-servers", "b:1"]
    for named in ([], ["--ledger-topic", "kafka-eos-ledger"]):
        done = CliRunner().invoke(query.query, [*where, *named])
        assert (done.exit_code, "Ledger topics besides kafka-eos-ledger: own." in done.output) == (0, True), done.output
    shown = CliRunner().invoke(query.query, ["history", "id", *where[1:]])
    assert (shown.exit_code, "There is" in shown.output) == (0, False), shown.output
    for topics in (None, ["kafka-eos-ledger"]):
        assert ClusterWatch(kafka.cluster(), ledger_topics=topics).look().values(LEDGER_BATCH) == {("id",): 1}
    kafka.topics.delete("own")
    done = CliRunner().invoke(query.query, where)
    said = "Not looked into: there is no topic own, or this principal may not describe it."
    assert (done.exit_code, said in done.output) == (3, True), done.output
    assert ClusterWatch(kafka.cluster(), ledger_topics=None).look().values(MISSING) == {(): 1}


def test_json_says_beside_it_why_there_is_no_query(monkeypatch):
    monkeypatch.setattr(queries, "group_ids", lambda _: ([], {}))
    monkeypatch.setattr(query, "Cluster", lambda _: KafkaModel().cluster())
    done = CliRunner().invoke(query.query, ["list", "--bootstrap-servers", "b:1", "--json"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])
    assert done.stderr == "No query has committed to this cluster: there is no topic kafka-eos-ledger.\n"


def test_the_live_screen_begins_without_the_right_to_read_a_ledger_and_though_a_broker_is_silent(
    committed, monkeypatch
):
    kafka, _ = committed
    monkeypatch.setattr(queries, "group_ids", lambda _: ([*kafka.groups], {2: "no answer"}))
    monkeypatch.setattr(top, "survey", lambda *_, **__: Survey(taken_ms=0))
    monkeypatch.setattr(top, "partitions_of", lambda *_: [])
    picture = top.Look(kafka.cluster(), topics=None, ledger_topics=None)()
    assert picture.remarks == ("Broker 2 did not answer, so its groups are unknown: no answer.",)
    kafka.meets["ListOffsets"] = refused(TOPIC_NOT_ALLOWED)
    (remark,) = top.Look(kafka.cluster(), topics=None, ledger_topics=None)().remarks
    assert remark.startswith("no queries: ")
