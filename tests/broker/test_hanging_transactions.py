"""Markers that the coordinator leaves out, because a partition has no leader when the transaction ends (KAFKA-20734).

The broker that leads the partition is killed just before EndTxn. The coordinator calls the transaction complete, and
when the broker is back, the transaction is still open there. Without what `transaction.hanging` does, the next one
ends it: what was committed is lost, or what was aborted is there twice.
"""

from __future__ import annotations

import contextlib
import itertools

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import describe, transactions
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, open_in
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator, group_ids
from spark_kafka_eos.kafka.protocol.producers import producers
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.tools.cli.main import app as cli
from spark_kafka_eos.transaction import shared
from spark_kafka_eos.transaction.commit import commit_batch
from tests.batches import BY_DRIVER, appended_to
from tests.broker.conftest import batch_of
from tests.reading import await_stable, read_committed
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

numbers = itertools.count(1)
QUICKLY_FENCED = {"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500}
ONE_COPY = {"offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1}


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=pytest.mark.slow)], ids=["TV2", "TV1"])
def three(request, kafka_version):
    config = QUICKLY_FENCED | ONE_COPY
    with EmbeddedKafka(kafka_version, brokers=3, config=config, transaction_version=request.param) as kafka:
        yield kafka


class Query:
    """A query that writes each batch's value to both partitions of its output.

    There is one copy of each partition. `lost` is on its own broker, or where the coordinator is; so is the ledger's
    one, or on the broker of the groups.
    """

    def __init__(self, kafka, *, lost="own", ledger="coordinator"):
        self.kafka, number = kafka, next(numbers)
        self.id, self.output, self.ledger = (f"{name}-{number}" for name in ("id", "out", "ledger"))
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        self.options = sink_options(
            {
                "kafka.bootstrap.servers": kafka.bootstrap,
                "kafka.transactional.id": self.id,
                "kafka.request.timeout.ms": 5_000,
                "topic": self.output,
                "ledgerTopic": self.ledger,
            }
        )
        self.cluster = Cluster(self.options.client)
        self.lost = TopicPartition(self.output, 0)
        self.records = TopicPartition(self.ledger, 0)
        self.pointers = TopicPartition(OFFSETS_TOPIC, 0)
        self.here, groups = self._apart()
        (own,) = {*kafka.nodes} - {self.here, groups}
        nodes = {"coordinator": self.here, "groups": groups, "own": own}
        self._create(self.output, [nodes[lost], self.here])
        self._create(self.ledger, [nodes[ledger]], {"cleanup.policy": "compact"})

    def _apart(self):
        """The transactions' coordinator, and the broker of the groups: another one, so that it can be killed."""
        groups = self.cluster.coordinator("group", "any")
        if self.cluster.coordinator("transaction", self.id) == groups:
            self.kafka.restart(groups)  # the coordinator moves, and stays there
            until(lambda: self.leader(self.pointers) == groups)
            self.cluster.close()
            self.cluster = Cluster(self.options.client)
        here = self.cluster.coordinator("transaction", self.id)
        assert here != groups
        return here, groups

    def _create(self, name, nodes, config=None):
        topic = NewTopic(name, len(nodes), replica_assignment=[[node] for node in nodes], config=config or {})
        self._admin.create_topics([topic])[name].result()
        until(lambda: all(self.leader(TopicPartition(name, n)) >= 0 for n in range(len(nodes))))

    def driver(self):
        """A new one, as a restart makes it."""
        return shared.SharedTransaction(self.options, self.cluster, decide_micro_batch(self.options))

    def write(self, identity, value):
        """Append the value to both partitions."""
        places = [TopicPartition(self.output, number) for number in (0, 1)]
        topics = appended_to(self.cluster, *places)
        append(self.cluster, identity, [(tp, 1, batch_of(None, 0, [value])) for tp in places])
        return Appended(partitions=2, records=2, bytes=2 * len(value), topics=topics)

    def run(self, driver, number):
        """The whole micro-batch, whose value is its number."""
        value = b"%d" % number
        return commit_batch(
            driver, batch(number), lambda identity: self.write(identity, value), max_attempts=2, choice=BY_DRIVER
        ).outcome

    def dies_in(self, number):
        """A driver that is gone when its batch is half written."""
        driver = self.driver()
        driver.begin(batch(number))
        driver.append(lambda identity: self.write(identity, b"half of %d" % number))

    def leader(self, tp):
        topics = self._admin.list_topics(tp.topic, timeout=20).topics
        found = topics[tp.topic].partitions.get(tp.partition) if tp.topic in topics else None
        return -1 if found is None else found.leader

    def away(self, *places):
        """Kill the broker of these partitions, until they have no leader; the broker."""
        (node,) = {self.leader(tp) for tp in places}
        assert node != self.here, "the coordinator must go on"
        self.kafka.kill(node)
        until(lambda: all(self.leader(tp) < 0 for tp in places))
        return node

    def back(self, node):
        self.kafka.start(node)
        until(lambda: self.leader(self.lost) >= 0 and self.leader(self.pointers) >= 0)

    def run_without_markers(self, monkeypatch, number, *places, driver=None):
        """The batch, whose transaction ends while these partitions have no leader; they are back afterwards."""
        gone = []

        def failpoint(name, _batch_id=None):
            if name == "offsets committed":
                gone.append(self.away(*places))
            elif name == "ended":
                until(lambda: not self.facts().is_prepared)

        with monkeypatch.context() as patch:
            patch.setattr(shared, "failpoint", failpoint)
            outcome = self.run(driver or self.driver(), number)
        self.back(*gone)
        return outcome

    def facts(self):
        """What the coordinator says of the id."""
        found = describe.transaction(self.cluster, self.id, now_ms=0)
        assert isinstance(found, TransactionFacts)
        return found

    def open(self):
        """Where a transaction is open."""
        places = [TopicPartition(self.output, 0), TopicPartition(self.output, 1), self.records]
        return [tp for tp, remembered in producers(self.cluster, places).items() if open_in(remembered)]

    def abort(self, tp, start_offset, *flags, bootstrap=None):
        """`kafka-eos transactions abort` of what hangs there: exit code and output."""
        place = ["--topic", tp.topic, "--partition", tp.partition, "--start-offset", start_offset]
        where = ["--bootstrap-servers", bootstrap or self.kafka.bootstrap]
        done = CliRunner().invoke(cli, ["transactions", *map(str, ["abort", *place, *flags, "--yes", *where])])
        return done.exit_code, done.output

    def read(self):
        """The values of both partitions, as read_committed consumers see them."""
        await_stable(self.kafka.bootstrap, self.output)
        found = read_committed(self.kafka.bootstrap, self.output)
        return [[(m.value() or b"").decode() for m in found if m.partition() == number] for number in (0, 1)]


def batch(number):
    return MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}")


@pytest.fixture
def made(three):
    """`made(**where)`: a query."""
    with contextlib.ExitStack() as stack:

        def make(**where):
            query = Query(three, **where)
            stack.callback(query.cluster.close)
            return query

        yield make


def test_what_was_committed_is_not_lost_if_the_next_driver_dies(made, monkeypatch):
    query = made()
    assert query.run_without_markers(monkeypatch, 0, query.lost) == "committed"
    assert query.open() == [query.lost], "the premise: these brokers leave the marker out"
    code, refused = query.abort(query.lost, 0)
    assert (code, "batch 0 of query query was committed in it" in refused) == (1, True), refused
    with Proxy(query.kafka.bootstrap, ["OffsetFetch:*:error=GROUP_AUTHORIZATION_FAILED"]) as proxy:
        code, refused = query.abort(query.lost, 0, bootstrap=proxy.bootstrap)
    assert (code, "Grant Describe on group" in " ".join(refused.split())) == (3, True), refused
    assert query.open() == [query.lost]
    query.dies_in(1)
    assert query.run(query.driver(), 1) == "committed"
    assert query.read() == [["0", "1"]] * 2


def test_what_was_committed_without_a_ledger_is_not_aborted_where_its_marker_was_left_out(made):
    query = made()
    producer = transactions.init_producer_id(query.cluster, query.id, 60_000)
    query.write(producer, b"0")
    node = query.away(query.lost)
    transactions.end_transaction(query.cluster, producer, commit=True)
    until(lambda: not query.facts().is_prepared)
    query.back(node)
    assert query.open() == [query.lost], "the premise: these brokers leave the marker out"
    shown = CliRunner().invoke(cli, ["transactions", "hanging", "--bootstrap-servers", query.kafka.bootstrap])
    code, refused = query.abort(query.lost, 0)
    assert code == 1, refused
    if producer.transaction_version >= 2:
        assert "which this is, was committed" in " ".join(refused.split())
        assert f"--topic {query.output} --partition 0 --start-offset 0 --commit" in " ".join(shown.output.split())
    else:
        assert "with --commit if this is a part of the owner's last transaction" in " ".join(refused.split())
        transactions.init_producer_id(query.cluster, query.id, 60_000)
    assert query.open() == [query.lost]
    assert query.abort(query.lost, 0, "--commit")[0] == 0
    assert query.read() == [["0"]] * 2


@pytest.mark.slow
def test_a_driver_that_goes_on_writes_the_marker_too(made, monkeypatch):
    query = made()
    driver = query.driver()
    assert query.run_without_markers(monkeypatch, 0, query.lost, driver=driver) == "committed"
    assert query.open() == [query.lost]
    driver.begin(batch(1))
    assert query.open() == []
    driver.append(lambda identity: query.write(identity, b"half"))
    driver.abort()
    assert query.run(driver, 1) == "committed"
    assert query.read() == [["0", "1"]] * 2


def test_what_was_aborted_is_not_there_twice(made):
    query = made()
    driver = query.driver()
    driver.begin(batch(0))
    driver.append(lambda identity: query.write(identity, b"0"))
    node = query.away(query.lost)
    driver.abort()
    query.back(node)
    assert query.open() == [query.lost]
    assert query.run(driver, 0) == "committed"
    assert query.read() == [["0"]] * 2


@pytest.mark.slow
def test_what_a_dead_driver_left_is_not_there_twice(made):
    query = made()
    assert query.run(query.driver(), 0) == "committed"
    query.dies_in(1)
    node = query.away(query.lost)
    transactions.init_producer_id(query.cluster, query.id, 60_000)  # its successor dies, too
    query.back(node)
    assert query.open() == [query.lost]
    assert query.run(query.driver(), 1) == "committed"
    assert query.read() == [["0", "1"]] * 2


def test_a_query_goes_on_if_its_offsets_stay_pending(made, monkeypatch):
    query = made()
    assert query.run(query.driver(), 0) == "committed"
    assert query.run_without_markers(monkeypatch, 1, query.pointers) == "committed"
    assert query.run(query.driver(), 1) == "skipped"
    assert query.run(query.driver(), 2) == "committed"
    assert query.read() == [["0", "1", "2"]] * 2
    group = GroupCoordinator(query.cluster, query.options.ledger_group)
    assert group.fetch_all(patience_ms=0).keys() == {query.records}


@pytest.mark.slow
def test_the_ledgers_own_record_counts_without_its_marker(made, monkeypatch):
    query = made(lost="coordinator", ledger="own")
    assert query.run(query.driver(), 0) == "committed"
    assert query.run_without_markers(monkeypatch, 1, query.records) == "committed"
    assert query.open() == [query.records]
    (left,) = open_in(producers(query.cluster, [query.records])[query.records])
    code, refused = query.abort(query.records, left.start_offset)
    assert (code, "batch 1 of query query was committed in it" in refused) == (1, True), "by the pointer"
    query.dies_in(2)
    assert query.run(query.driver(), 1) == "skipped"
    assert query.run(query.driver(), 2) == "committed"
    assert query.read() == [["0", "1", "2"]] * 2
    until(lambda: query.open() == [])


@pytest.mark.slow
def test_without_the_markers_of_record_and_pointer_nothing_is_written(made, monkeypatch):
    """Then nobody knows whether the batch was committed."""
    query = made(lost="coordinator", ledger="groups")
    assert query.run(query.driver(), 0) == "committed"
    assert query.run_without_markers(monkeypatch, 1, query.records, query.pointers) == "committed"
    for _ in range(2):
        with pytest.raises(LedgerRefused, match="not known"):
            query.run(query.driver(), 1)
    (left,) = open_in(producers(query.cluster, [query.records])[query.records])
    code, done = query.abort(query.records, left.start_offset, "--commit")  # by somebody who has looked at the output
    assert (code, "Committed the transaction in" in done) == (0, True), done
    assert query.run(query.driver(), 1) == "skipped"
    assert query.run(query.driver(), 2) == "committed"
    assert query.read() == [["0", "1", "2"]] * 2


def test_the_groups_of_a_coordinator_that_is_down_are_not_left_out_without_a_word(made):
    """It is in no list of brokers, and groups have one copy here."""
    query = made()
    assert query.run(query.driver(), 0) == "committed"

    def listed():
        with Cluster(query.options.client) as fresh:
            return group_ids(fresh)

    names, silent = listed()
    assert (query.options.ledger_group in names, silent) == (True, {})
    node = query.away(query.pointers)
    reason = f"without it, partition 0 of {OFFSETS_TOPIC} has no leader"
    until(lambda: listed() == ([], {node: reason}))
    query.back(node)
    until(lambda: query.options.ledger_group in listed()[0])
