"""Queries in real time, without Spark: buckets, their driver and their tasks on real brokers of both protocols."""

from __future__ import annotations

import functools
import itertools
import json
import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from rich.cells import cell_len
from typer.testing import CliRunner

from spark_kafka_eos.appending.encode_settings import encode_settings
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import (
    CommitOutcomeUnknown,
    ConfigurationError,
    DataLoss,
    LedgerRefused,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.describe import settled
from spark_kafka_eos.kafka.protocol.facts import ProducerState
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry
from spark_kafka_eos.ledger.progress import committed_by
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.ledger.verdicts import Write
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import WriteKind, sink_options, source_options
from spark_kafka_eos.real_time import cycle
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.real_time.task import RealTimeTask, run
from spark_kafka_eos.source_offset import Origin
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.cli.top import Look
from spark_kafka_eos.tools.cli.top_rows import QUERIES, query_rows
from spark_kafka_eos.tools.operators.queries import QueryReader
from spark_kafka_eos.transaction.hanging import HangingTransactions
from spark_kafka_eos.transaction.shared import SharedTransaction
from spark_kafka_eos.transaction.steps import described
from tests.broker.conftest import expire
from tests.pages import ROOT
from tests.producing import transact
from tests.waiting import until

pytestmark = pytest.mark.broker

FENCED = (ProducerFenced, TransactionAborted)  # which of them depends on the first request that meets the new epoch
numbers = itertools.count(1)
PARTITIONS = 3


class Query:
    """A query that copies a topic in real time, as one run of it sees it."""

    def __init__(self, kafka, source, target, *, run_id, query_id="query", name=None, group=None, ledger=None):
        self.source, self.target, self.run_id, self.query_id = source, target, run_id, query_id
        self.name = name or f"copy-{source}"
        servers = {"kafka.bootstrap.servers": kafka.bootstrap}
        self.options = sink_options(
            servers
            | {"kafka.transactional.id": self.name, "topic": target}
            | ({} if group is None else {"kafka.group.id": group})
            | ({} if ledger is None else {"ledgerTopic": ledger}),
            WriteKind.FOREACH_BATCH,
        )
        self.read = replace(source_options(servers | {"subscribe": source}, streaming=True), columns=("key", "value"))
        self.cluster = Cluster(self.options.client)
        self.transaction = SharedTransaction(self.options, self.cluster, decide_in_real_time(self.options))
        self.driver = RealTimeDriver(self.options, self.cluster, self.transaction, fail_on_data_loss=True)

    def batch(self, number=0, start=0, end=0):
        positions = [{TopicPartition(self.source, p): at for p in range(PARTITIONS)} for at in (start, end)]
        return MicroBatch(
            query_id=self.query_id,
            batch_id=number,
            digest=f"digest {number}",
            sources=(SourceRange(start=positions[0], end=positions[1]),),
            run_id=self.run_id,
        )

    def start(self, batch=None, count=2, numbers=None):
        return self.driver.start(batch or self.batch(), count, numbers)

    def task(self, buckets, seconds=0.0, commit_interval=None):
        return RealTimeTask(
            buckets=tuple(buckets),
            source=self.read,
            client=self.options.client,
            settings=encode_settings(self.options, self.target, self.cluster),
            group_id=self.options.group_id,
            mark=source_mark(self.options.transactional_id),
            seconds=seconds,
            commit_interval=commit_interval,
        )

    def copy(self, buckets, seconds=1.5):
        """What a task with these buckets reports; it runs for so long."""
        return self.in_background(buckets, seconds)()

    def in_background(self, buckets, seconds, commit_interval=None):
        """The same in a thread; call what is returned to wait for it."""
        task = self.task(buckets, seconds, commit_interval)
        pool = ThreadPoolExecutor(1)
        report = pool.submit(run, task, lambda read, settings: read)
        pool.shutdown(wait=False)
        return report.result

    def committed(self):
        group = GroupCoordinator(self.cluster, self.options.group_id)
        positions = group.fetch_offsets([TopicPartition(self.source, p) for p in range(PARTITIONS)])
        return sum(0 if at is None else at.offset for at in positions.values())


@pytest.fixture
def topics(either_kafka):
    number = next(numbers)
    return [either_kafka.create_topic(f"real-time-{name}-{number}", PARTITIONS) for name in ("in", "out")]


@pytest.fixture
def query(either_kafka, topics):
    """`query(run_id, …)`: a run of the query; its connections are closed at the end."""
    queries = []

    def new(run_id="run 1", **settings):
        queries.append(Query(either_kafka, *topics, run_id=run_id, **settings))
        return queries[-1]

    yield new
    for each in queries:
        each.cluster.close()


@pytest.fixture
def produce(either_kafka, topics):
    """`produce(first, count)`: records with the numbers from `first` on, over all partitions."""
    producer = Producer({"bootstrap.servers": either_kafka.bootstrap, "linger.ms": 0})

    def send(first, count):
        for number in range(first, first + count):
            producer.produce(topics[0], str(number).encode(), partition=number % PARTITIONS)
        producer.flush()

    return send


@pytest.fixture
def output(consumed, topics):
    """`output()`: the numbers in the output that a read_committed consumer sees, sorted."""
    return lambda: sorted(int(value) for p in range(PARTITIONS) for value in consumed(topics[1], p, "read_committed"))


def has_committed(copying, records):
    return copying.committed() == records


def test_what_is_produced_meanwhile_is_committed_once_with_its_offsets(query, produce, output):
    produce(0, 30)
    copying = query()
    buckets = copying.start()
    assert [bucket.number for bucket in buckets] == [0, 1]
    running = [copying.in_background([bucket], 5) for bucket in buckets]
    for first in range(30, 330, 100):
        produce(first, 100)
        until(functools.partial(has_committed, copying, first + 100))
    reports = [report() for report in running]
    assert [report.error for report in reports] == [None, None]
    assert output() == list(range(330))
    assert copying.committed() == 330
    assert sum(report.records for report in reports) == 330
    assert sum(report.transactions for report in reports) > 4, "and not all in one"
    assert all(report.latencies.quantile(0.5) is not None for report in reports)


def test_a_commit_interval_makes_fewer_and_larger_transactions(query, produce, output):
    copying = query()
    running = copying.in_background(copying.start(count=1), 3, commit_interval=0.5)
    for first in range(0, 300, 3):
        produce(first, 3)
    report = running()
    assert report.error is None
    assert 0 < report.transactions <= 3 / 0.5 + 1
    assert output() == list(range(300))


def test_a_task_goes_on_in_the_same_epochs_with_several_buckets(query, produce, output):
    copying = query()
    buckets = copying.start(count=3)
    for first in (0, 50, 100):
        produce(first, 50)
    report = copying.copy(buckets)
    assert report.error is None
    assert output() == list(range(150))


def test_the_next_batch_goes_on_where_the_last_one_ended(query, produce, output):
    copying = query()
    produce(0, 20)
    copying.copy(copying.start())
    produce(20, 20)
    copying.copy(copying.start(copying.batch(1), count=None))
    assert output() == list(range(40))
    entry = copying.transaction.steps.ledger.entry
    assert isinstance(entry, LedgerEntry)
    assert (entry.batch_id, entry.buckets) == (1, 2)
    (status,) = QueryReader(copying.cluster, only=copying.name).read()
    assert status.entry == entry
    (source,) = status.sources
    assert source is not None
    assert sum(source.offsets.values()) == 40, "as the group says, not the ledger"


def test_the_next_batch_of_a_run_goes_on_in_the_same_epochs(query, produce, output):
    copying = query()
    buckets = copying.start()
    for number in range(1, 4):
        produce(30 * number - 30, 30)
        report = copying.copy(buckets)
        assert (report.error, report.records) == (None, 30)
        copying.driver.ended(copying.batch(number - 1), report.ended)
        buckets = copying.start(copying.batch(number))
        assert [bucket.identity for bucket in buckets] == [bucket.identity for bucket in report.ended]
    assert output() == list(range(90))
    produce(90, 30)
    assert query("run 2").copy(query("run 2").start()).records == 30
    assert output() == list(range(120))


def test_the_next_batch_does_not_read_a_source_that_was_created_again_meanwhile(query, produce, topics, either_kafka):
    copying = query()
    produce(0, 30)
    report = copying.copy(copying.start())
    copying.driver.ended(copying.batch(), report.ended)
    either_kafka.delete_topic(topics[0])
    either_kafka.create_topic(topics[0], PARTITIONS)
    produce(30, 60)
    report = copying.copy(copying.start(copying.batch(1)))
    assert report.records_read == 0
    assert isinstance(report.error, DataLoss)
    assert "created again" in str(report.error)


def test_a_task_of_an_earlier_run_commits_nothing_once_the_next_run_has_begun(query, produce, output):
    produce(0, 20)
    late, live = query("run 1"), query("run 2")
    of_late = late.start()
    of_live = live.start(count=None)
    report = late.copy(of_late)
    assert isinstance(report.error, FENCED)
    assert output() == []
    assert live.copy(of_live).error is None, "and the late one did not disturb it"
    assert output() == list(range(20))


def test_a_late_driver_ends_without_taking_the_buckets_of_the_live_one(query, produce, output):
    late, live = query("run 1"), query("run 2")
    late.start()
    of_live = live.start(count=None)
    with pytest.raises(ProducerFenced):
        late.start(late.batch(1), count=None)
    with pytest.raises(ProducerFenced):
        late.driver.end(late.batch(1))
    produce(0, 20)
    assert live.copy(of_live).error is None
    assert output() == list(range(20))


def test_a_driver_that_is_overtaken_before_its_commit_starts_no_task(query, produce, monkeypatch):
    late, live = query("run 1"), query("run 2")
    late.start()
    produce(0, 20)
    positions = late.driver._positions

    def overtaken(*arguments):
        live.copy(live.start(count=None))
        return positions(*arguments)

    monkeypatch.setattr(late.driver, "_positions", overtaken)
    with pytest.raises(ProducerFenced):
        late.start(late.batch(1), count=None)
    assert live.committed() == 20, "what the live one has committed stays"


def test_a_bucket_is_started_again_while_the_others_run_on(query, produce, output):
    copying = query()
    first, second = copying.start()
    running = copying.in_background([second], 4)
    produce(0, 30)
    copying.copy([first])
    again = copying.start(numbers=[first.number])
    assert [bucket.number for bucket in again] == [first.number]
    produce(30, 30)
    assert copying.copy(again).error is None
    assert running().error is None
    assert output() == list(range(60))


def test_no_bucket_is_started_again_alone_once_the_query_may_be_anothers(query):
    copying = query()
    first, _ = copying.start()
    copying.transaction.start_over()
    copying.transaction = SharedTransaction(copying.options, copying.cluster, decide_in_real_time(copying.options))
    copying.driver._transaction = copying.transaction
    with pytest.raises(ProducerFenced, match="no longer knows"):
        copying.start(numbers=[first.number])


def test_buckets_of_another_number_leave_none_of_the_old_ones_alive(query, produce, output):
    copying = query()
    old = copying.start(count=3)
    new = copying.start(copying.batch(1), count=2)
    produce(0, 30)
    assert isinstance(copying.copy([old[2]]).error, FENCED)
    assert copying.copy(new).error is None
    assert output() == list(range(30))


def test_micro_batches_take_over_where_real_time_ended(query, produce, output):
    produce(0, 30)
    last = query("run 1")
    of_last = last.start()
    assert last.copy(of_last).error is None
    end = last.committed() // PARTITIONS
    micro = query("run 2", query_id="another")
    transaction = SharedTransaction(micro.options, micro.cluster, decide_micro_batch(micro.options))
    verdict = transaction.begin(replace(micro.batch(0, end, end), buckets=None))
    assert isinstance(verdict, Write)
    produce(30, 30)
    assert isinstance(last.copy(of_last).error, FENCED), "its buckets were taken"
    transaction.abort()
    assert output() == list(range(30))


@pytest.mark.parametrize("before", ["real time", "micro-batches"])
def test_another_query_goes_on_where_the_last_one_ended_also_with_a_partition_that_is_new(
    query, produce, output, topics, before
):
    produce(0, 30)
    last, new = query("run 1"), TopicPartition(topics[0], 2)
    whole = last.batch()
    without = {tp: 0 for tp in whole.end if tp != new}
    if before == "real time":
        last.copy(last.start(replace(whole, sources=(SourceRange(start=without, end=without),))))
    else:
        ended = dict.fromkeys(without, 10)
        batch = replace(whole, sources=(SourceRange(start=without, end=ended),), buckets=None)
        transaction = SharedTransaction(last.options, last.cluster, decide_micro_batch(last.options))
        transaction.begin(batch)
        transaction.append(lambda _: Appended(partitions=0, records=0, bytes=0))
        transaction.commit(batch, written=BatchCounts(records=0, bytes=0, milliseconds=0))
    copying = query("run 2", query_id="another")
    assert copying.copy(copying.start()).error is None
    assert output() == (list(range(30)) if before == "real time" else list(range(2, 30, 3)))


def test_micro_batches_of_a_query_in_real_time_are_refused(query, produce):
    produce(0, 30)
    last = query("run 1")
    last.copy(last.start())
    transaction = SharedTransaction(last.options, last.cluster, decide_micro_batch(last.options))
    with pytest.raises(LedgerRefused, match="real time"):
        transaction.begin(last.batch(1, 10, 10))


def test_another_query_with_the_id_is_refused_unless_all_that_it_reads_was_committed(query, topics, either_kafka):
    query("run 1").start()
    other = either_kafka.create_topic(f"{topics[0]}-other", PARTITIONS)
    stranger = Query(either_kafka, other, topics[1], run_id="run 2", query_id="another", name=f"copy-{topics[0]}")
    with stranger.cluster, pytest.raises(LedgerRefused):
        stranger.start()


def test_a_source_on_another_cluster_is_refused(query):
    copying = query()
    origin = Origin(cluster="another", topic_ids={copying.source: uuid.uuid4()})
    batch = copying.batch()
    elsewhere = replace(batch, sources=(replace(batch.sources[0], origin=origin),))
    with pytest.raises(ConfigurationError, match="another cluster"):
        copying.driver.check(elsewhere)
    copying.driver.check(batch)


def test_brokers_that_do_not_verify_transactions_are_refused(kafka35):
    topics = [kafka35.create_topic(name, PARTITIONS) for name in ("unverified-in", "unverified-out")]
    copying = Query(kafka35, *topics, run_id="run 1")
    with copying.cluster, pytest.raises(ConfigurationError, match="do not verify"):
        copying.driver.check(copying.batch())


def test_a_partition_that_is_new_in_a_batch_is_read_from_its_beginning(query, produce, output, topics):
    copying = query()
    produce(0, 30)
    whole, new = copying.batch(), TopicPartition(topics[0], 2)
    without = {tp: 0 for tp in whole.end if tp != new}
    copying.copy(copying.start(replace(whole, sources=(SourceRange(start=without, end=without),))))
    assert len(output()) == 20
    added = replace(copying.batch(1), sources=(SourceRange(start=without, end=whole.end),))
    copying.copy(copying.start(added, count=None))
    assert output() == list(range(30))


@pytest.mark.parametrize("request_name", ["EndTxn", "TxnOffsetCommit"])
def test_an_answer_that_is_lost_loses_and_repeats_nothing(either_kafka, topics, produce, output, request_name):
    """With the older protocol, where an epoch has many transactions, the request is not even sent again."""
    with Proxy(either_kafka.bootstrap) as proxy:
        copying = Query(proxy, *topics, run_id="run 1")
        with copying.cluster:
            buckets = copying.start()
            produce(0, 30)
            lost = proxy.add(f"{request_name}:1:cut-response")
            report = copying.copy(buckets)
            lost.wait()
            if copying.cluster.transaction_version() < 2:
                assert isinstance(report.error, TransactionAborted | CommitOutcomeUnknown)
                assert lost.seen == 1
                report = copying.copy(copying.start())
            assert report.error is None
    assert output() == list(range(30))


def test_nothing_is_appended_while_the_last_transaction_lacks_a_marker(query, produce, output, topics, monkeypatch):
    """As where Kafka 4.3 or 4.4 has left it out: the leader says that the bucket's transaction is open there."""
    copying = query()
    buckets = copying.start(count=1)
    at, identity = TopicPartition(topics[1], 0), buckets[0].identity
    open_there = ProducerState(partition=at, producer_id=identity.producer_id, epoch=identity.epoch, start_offset=0)
    monkeypatch.setattr(cycle, "_MARKERS_MS", 300)
    monkeypatch.setattr(HangingTransactions, "find_ahead", lambda *_: lambda: [open_there])
    running = copying.in_background(buckets, 4)
    produce(0, 30)
    while not output():
        time.sleep(0.05)
    produce(30, 30)
    report = running()
    assert isinstance(report.error, TransactionAborted)
    assert "has not got the marker" in str(report.error)
    assert report.transactions == 1
    assert len(output()) == report.records


def test_a_query_whose_offsets_have_expired_goes_on_where_the_ledger_says(query, produce, output, either_kafka):
    copying = query()
    produce(0, 30)
    copying.copy(copying.start())
    expire(either_kafka.bootstrap, copying.options.group_id)
    produce(30, 30)
    assert copying.copy(copying.start(copying.batch(1), count=None)).error is None
    assert output() == list(range(60))


def test_a_source_that_was_created_again_is_refused(query, produce, topics, either_kafka):
    copying = query()
    produce(0, 30)
    copying.copy(copying.start())
    either_kafka.delete_topic(topics[0])
    either_kafka.create_topic(topics[0], PARTITIONS)
    copying.cluster.refresh([topics[0]])
    with pytest.raises(LedgerRefused, match="was created again since"):
        copying.start(copying.batch(1), count=None)


@pytest.mark.parametrize("seen_by", ["the same driver", "another driver"])
def test_a_query_whose_ledger_was_created_again_is_refused(query, produce, output, either_kafka, seen_by):
    name = f"ledger-{uuid.uuid4().hex[:8]}"
    either_kafka.create_topic(name, 1)
    copying = query(ledger=name)
    produce(0, 30)
    copying.copy(copying.start())
    either_kafka.delete_topic(name)
    either_kafka.create_topic(name, 1)
    produce(30, 30)
    again = copying if seen_by == "the same driver" else query("run 2", ledger=name)
    with pytest.raises(LedgerRefused, match=r"was deleted since|the ledger topic was deleted"):
        again.start(again.batch(1))
    if seen_by == "the same driver":
        with pytest.raises(LedgerRefused, match="was deleted since"):
            again.start(numbers=[0])
    assert output() == list(range(30))


def test_a_transaction_that_a_dead_task_leaves_open_is_aborted_by_the_next_start(query, produce, output, monkeypatch):
    copying = query()
    buckets = copying.start()
    produce(0, 30)

    def dies(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(cycle, "end_transaction", dies)
        with pytest.raises(KeyboardInterrupt):
            copying.copy(buckets)
    started = time.monotonic()
    assert copying.copy(copying.start(numbers=[0, 1])).error is None
    assert time.monotonic() - started < 8, "and nobody waited for its timeout"
    assert output() == list(range(30))


# -- what operators see


@pytest.fixture
def command(either_kafka):
    """`command(*words)`: what `kafka-eos` prints in 80 columns, and its exit code."""

    def run(*words, code=0):
        done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*words, "--bootstrap-servers", either_kafka.bootstrap])
        assert done.exit_code == code, done.output
        return done.output

    return run


def test_operators_see_each_bucket_with_its_transaction_and_how_far_it_is_behind(
    query, produce, command, either_kafka, topics
):
    produce(0, 30)
    copying = query(group=f"group-of-{topics[0]}")
    assert copying.copy(copying.start()).error is None
    for number in (0, 1):  # the end of a transaction is acknowledged before its markers are written
        settled(copying.cluster, functools.partial(described, copying.cluster, f"{copying.name}.bucket-{number}"))
    produce(30, 12)
    holder = transact(either_kafka.bootstrap, topics[0], [b"1"] * 3, "leave open", partition=0)
    bucket = transact(
        either_kafka.bootstrap, topics[1], [b"1"], "leave open", transactional_id=f"{copying.name}.bucket-1"
    )
    try:
        seen = json.loads(command("query", "show", copying.name, "--json"))
        (listed,) = [
            each for each in json.loads(command("query", "list", "--json")) if each.get("group") == seen["group"]
        ]
        lag = json.loads(command("query", "lag", copying.name, "--json"))
        shown, lag_shown = (command("query", words, copying.name) for words in ("show", "lag"))
        row = next(line for line in command("query", "list").splitlines() if "buckets" in line)
        exported = command("exporter", "--once")
        picture = Look(copying.cluster, topics=[topics[1]], ledger_topics=None)()
        (top_row,) = (row for row in query_rows(picture) if row.key == copying.name)
    finally:
        holder.abort_transaction(30)
        bucket.abort_transaction(30)
    assert seen["group"] == copying.options.group_id
    assert [bucket["transactional_id"] for bucket in seen["buckets"]] == [f"{copying.name}.bucket-{n}" for n in (0, 1)]
    assert [bucket["owner"]["state"] for bucket in seen["buckets"]] == ["CompleteCommit", "Ongoing"]
    partitions = [[tp["partition"] for tp in bucket["partitions"]] for bucket in seen["buckets"]]
    assert sorted(map(len, partitions)) == [1, 2] and sorted(itertools.chain(*partitions)) == [0, 1, 2]
    assert [bucket["unread"] for bucket in seen["buckets"]] == [4 * len(numbers) for numbers in partitions]
    assert [bucket["held"] for bucket in seen["buckets"]] == [3 * (0 in numbers) for numbers in partitions]
    assert all(0 <= bucket["late_ms"] < 60_000 for bucket in seen["buckets"])
    assert (seen["unread"], seen["held"], listed["unread"], lag["unread"]) == (12, 3, 12, 12)
    assert [each["committed"] for each in lag["sources"][0]["partitions"]] == [10, 10, 10]
    assert [each["topic"] for each in seen["outputs"]] == [topics[1]], "where a bucket has a transaction open"
    assert max(map(cell_len, (shown + lag_shown).splitlines())) <= 80
    said = " ".join(shown.split())
    assert f"real time 2 buckets: {copying.name}.bucket-0 to .bucket-1" in said
    assert re.search(r"│ 1 │ \d+/\d+ │ Ongoing, ", said)
    assert "2 buckets" in row
    labels = rf'topic="{topics[0]}",transactional_id="{copying.name}"'
    assert f"kafka_eos_cluster_lag_offsets{{{labels}}} 12.0" in exported, exported
    assert f'kafka_eos_cluster_open_transaction_age_seconds{{transactional_id="{copying.name}.bucket-1"}}' in exported
    cells = dict(zip(QUERIES.names, top_row.cells, strict=True))
    assert (cells["unread"], cells["held"]) == ("12", "3")
    assert cells["transaction"].startswith("2 buckets, 1 open: Ongoing")
    assert len(re.findall(r"│ +[01] │ +10 │ +14 │", lag_shown)) == PARTITIONS, lag_shown


def test_a_query_is_shown_and_read_on_where_its_buckets_have_ended_also_if_the_group_has_no_offsets(
    query, produce, command, either_kafka
):
    produce(0, 30)
    copying = query()
    copying.copy(copying.start())
    expire(either_kafka.bootstrap, copying.options.group_id)
    seen = json.loads(command("query", "lag", copying.name, "--json"))
    assert [each["committed"] for each in seen["sources"][0]["partitions"]] == [10] * PARTITIONS
    assert seen["unread"] == 0
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "subscribe": copying.source}
    sink = source_options(given | {"sink.kafka.transactional.id": copying.name}).sink
    assert sink is not None
    ends = committed_by(sink, copying.cluster.cluster_id())
    assert ends == {TopicPartition(copying.source, n): 10 for n in range(PARTITIONS)}


def test_the_command_for_refusals_says_what_the_driver_does(query, produce, command, tmp_path):
    """Of a checkpoint in which the first batch is done and the second one is planned."""
    produce(0, 30)
    copying = query()
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": copying.query_id}))
    for number, end in ((0, 4), (1, 9)):
        offsets = json.dumps({copying.source: {f"{partition}": end for partition in range(PARTITIONS)}})
        (tmp_path / "offsets" / f"{number}").write_text(f'v1\n{{"batchTimestampMs":1}}\n{offsets}')
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    resolve = ["query", "resolve", copying.name, "--checkpoint-location", str(tmp_path)]
    refused = " ".join(command(*resolve, "--real-time", code=1).split())
    assert "In real time, the batch would be refused: the ledger has no entry" in refused
    assert "resolve='" in command(*resolve, code=1), "in micro-batches, a word settles it"
    copying.copy(copying.start())
    written = " ".join(command(*resolve).split())
    assert "In real time, the batch would be written: in real time, each partition goes on" in written
    assert json.loads(command(*resolve, "--json"))["real_time"] is True


def test_what_the_page_runs_works(query, produce, command):
    produce(0, 30)
    copying = query()
    copying.copy(copying.start())
    page = (ROOT / "docs" / "real-time.md").read_text()
    commands = re.findall(r"^kafka-eos (query .*) --bootstrap-servers localhost:9092$", page, re.MULTILINE)
    assert [text.split()[1] for text in commands] == ["show", "lag", "list"]
    for text in commands:
        assert "bucket" in command(*text.replace("bids-loud", copying.name).split())
