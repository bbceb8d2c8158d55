"""A source on one cluster (A), the sink on another (B): its progress is in B's ledger and nowhere else on B."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from spark_kafka_eos.errors import LedgerRefused, UnknownTopic
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol import cluster as cluster_module
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.entry import SourceProgress
from spark_kafka_eos.ledger.progress import committed_by, last_entry
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import source_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.options.source import SinkLedger
from spark_kafka_eos.reading.group_offsets import ConsumedOffsets
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.testing.read_offsets import group_offsets
from tests.broker.conftest import options_of
from tests.copying import SLOTS, Copy
from tests.producing import produce
from tests.reading import await_stable, librdkafkas

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
RECORDS = 60  # in each of the source's two partitions


class Pair:
    """A topic of two partitions on A, an output on B, and drivers that copy the one to the other."""

    def __init__(self, a, b, at_a, at_b):
        number = next(numbers)
        self.a, self.b, self.at_a, self.at_b = a, b, at_a, at_b
        self.source, self.target = f"elsewhere-in-{number}", f"elsewhere-out-{number}"
        self.id = f"id-{self.target}"
        a.create_topic(self.source, SLOTS)
        b.create_topic(self.target, SLOTS)
        fill(a, self.source, "A", RECORDS)
        self.sink = SinkLedger(client=at_b.options, transactional_id=self.id, topic=LEDGER_TOPIC)

    def driver(self, query="query", *, clusters=None, kind=Copy):
        """One whose `sourceClusters` are `clusters`, by default A; "" leaves the option out."""
        clusters = self.at_a.cluster_id() if clusters is None else clusters
        named = {"sourceClusters": clusters} if clusters else {}
        copy = kind(self.b.bootstrap, self.at_b, self.source, self.target, query=query, origin=self.at_a, options=named)
        copy.write_as = lambda rows, batch: rows
        return copy

    def places(self, at):
        """The source's partitions at one offset."""
        return {TopicPartition(self.source, number): at for number in range(SLOTS)}

    def output(self):
        """What librdkafka sees of the output: how often each value is there."""
        await_stable(self.b.bootstrap, self.target)
        return Counter((row[5] or b"").decode() for row in librdkafkas(self.b.bootstrap, self.target, SLOTS))

    def entry(self):
        return last_entry(self.at_b, LEDGER_TOPIC, self.id)

    def in_group(self, kafka):
        """What the query's group has of the source's topic on that broker."""
        return group_offsets(kafka.bootstrap, self.id, self.source)


def fill(kafka, topic, name, count):
    for partition in range(SLOTS):
        values = [f"{name}-{partition}-{offset}".encode() for offset in range(count)]
        produce(kafka.bootstrap, topic, values, partition=partition)


def once(name, start, end):
    """Each value of both partitions from `start` to `end`, once."""
    return Counter(f"{name}-{partition}-{offset}" for partition in range(SLOTS) for offset in range(start, end))


@pytest.fixture(params=[("elsewhere", "kafka"), ("kafka", "elsewhere")], ids=["TV2", "TV1"])
def pair(request, monkeypatch):
    """The sink's protocol names the test."""
    monkeypatch.setattr(cluster_module, "UNKNOWN_TOPIC_PATIENCE_MS", 500)
    a, b = (request.getfixturevalue(name) for name in request.param)
    with Cluster(options_of(a.bootstrap)) as at_a, Cluster(options_of(b.bootstrap)) as at_b:
        assert at_a.cluster_id() and at_a.cluster_id() != at_b.cluster_id()
        yield Pair(a, b, at_a, at_b)


def test_records_and_progress_are_committed_on_the_sinks_cluster_in_one_transaction(pair):
    driver = pair.driver()
    driver.run(0, 0, 20)
    driver.run(1, 20, 40)
    assert pair.output() == once("A", 0, 40)
    entry = pair.entry()
    assert (entry.query_id, entry.batch_id, entry.serial) == ("query", 1, 2)
    assert entry.sources == (
        SourceProgress(cluster=pair.at_a.cluster_id(), offsets=pair.places(40), start=pair.places(20)),
    )
    assert committed_by(pair.sink, pair.at_a.cluster_id()) == pair.places(40)
    assert committed_by(pair.sink, pair.at_b.cluster_id()) == {}


def test_a_failed_batch_leaves_neither_progress_nor_records(pair):
    driver = pair.driver()
    driver.run(0, 0, 20)

    def die_once(stage):
        stage.run()
        raise RuntimeError("the driver dies before it commits")

    driver.spark = die_once
    with pytest.raises(RuntimeError, match="the driver dies"):
        driver.run(1, 20, 40)
    assert committed_by(pair.sink, pair.at_a.cluster_id()) == pair.places(20)
    successor = pair.driver()
    assert successor.run(1, 20, 40).outcome == "committed"
    await_stable(pair.b.bootstrap, pair.target)
    assert pair.output() == once("A", 0, 40)


def test_a_batch_that_is_committed_is_skipped_by_the_next_driver(pair):
    pair.driver().run(0, 0, 20)
    assert pair.driver().run(0, 0, 20).outcome == "skipped"
    assert pair.output() == once("A", 0, 20)


def test_a_topic_of_the_same_name_on_the_sinks_cluster_gets_nothing_into_the_group(pair):
    pair.b.create_topic(pair.source, SLOTS)
    fill(pair.b, pair.source, "B", 7)
    driver = pair.driver()
    driver.run(0, 0, 20)
    assert pair.in_group(pair.b) == {}
    assert pair.in_group(pair.a) == {}
    assert pair.output() == once("A", 0, 20), "of A's topic, not of B's"
    # A query without an entry would take the group's word; nothing of A is in it.
    assert committed_by(pair.sink, pair.at_a.cluster_id()) == pair.places(20)


def test_a_lost_checkpoint_continues_exactly_where_the_ledger_says(pair):
    pair.driver().run(0, 0, 20)
    given = {
        "kafka.bootstrap.servers": pair.a.bootstrap,
        "subscribe": pair.source,
        "startingOffsets": "committed",
        "sink.kafka.bootstrap.servers": pair.b.bootstrap,
        "sink.kafka.transactional.id": pair.id,
    }
    with OffsetPlanner(source_options(given, streaming=True)) as positions:
        start = positions.starting()
    assert start == pair.places(20)
    successor = pair.driver(query="successor")
    assert successor.run(0, 20, 20).outcome == "committed", "Spark's batch 0 only pins the start"
    successor.run(1, 20, RECORDS)
    assert pair.output() == once("A", 0, RECORDS)


@pytest.mark.parametrize("start", [0, 19, 21])
def test_a_new_query_that_starts_anywhere_else_is_refused(pair, start):
    pair.driver().run(0, 0, 20)
    with pytest.raises(LedgerRefused, match="does not start where it ended") as refused:
        pair.driver(query="successor").run(0, start, 40)
    assert refused.value.committed == "nothing"
    assert f"{pair.source}-0 at {start} (committed 20)" in str(refused.value)
    assert "sink.kafka.bootstrap.servers" in str(refused.value)
    assert pair.output() == once("A", 0, 20)


def test_without_the_topic_on_the_sinks_cluster_the_error_names_source_clusters(pair):
    with pytest.raises(UnknownTopic, match="sourceClusters") as unknown:
        pair.driver(clusters="").run(0, 0, 20)
    assert unknown.value.committed == "nothing" and pair.source in str(unknown.value)
    assert pair.output() == Counter()
    # The same checkpoint, with the option that was missing.
    pair.driver().run(0, 0, 20)
    assert pair.output() == once("A", 0, 20)


@pytest.mark.parametrize("now", ["", "another-cluster"])
def test_a_checkpoint_whose_source_is_another_cluster_now_is_refused(pair, now):
    pair.b.create_topic(pair.source, SLOTS)
    pair.driver().run(0, 0, 20)
    with pytest.raises(LedgerRefused, match="sources now read another cluster") as refused:
        pair.driver(clusters=now).run(1, 20, 40)
    assert pair.at_a.cluster_id() in str(refused.value)
    assert pair.output() == once("A", 0, 20)
    assert pair.in_group(pair.b) == {}


def test_a_lost_checkpoint_of_another_clusters_topic_of_that_name_is_refused(pair):
    """At the very offsets at which the topic of the same name stands on the other cluster."""
    pair.b.create_topic(pair.source, SLOTS)
    pair.driver().run(0, 0, 20)
    with pytest.raises(LedgerRefused, match="no committed offsets of its partitions are known"):
        pair.driver(query="successor", clusters="").run(0, 20, 40)
    assert pair.output() == once("A", 0, 20)


def test_a_source_that_is_taken_for_one_of_the_sinks_cluster_is_written_once_whatever_its_topic_there_has(pair):
    pair.b.create_topic(pair.source, SLOTS)
    fill(pair.b, pair.source, "B", RECORDS)
    driver = pair.driver(clusters="")
    driver.run(0, 0, 20)
    driver.run(1, 20, 30)
    assert pair.driver(clusters="").run(1, 20, 30).outcome == "skipped"
    assert pair.output() == once("A", 0, 30)
    assert pair.in_group(pair.b) == dict.fromkeys(range(SLOTS), 30), "which is not where B's topic was read"
    with pytest.raises(LedgerRefused, match="does not start where it ended"):
        pair.driver(query="successor", clusters="").run(0, 20, 40)
    pair.driver(query="successor", clusters="").run(0, 30, RECORDS)
    assert pair.output() == once("A", 0, RECORDS)


def test_the_sources_group_on_its_own_cluster_follows_for_lag_tools(pair):
    pair.driver().run(0, 0, 20)
    given = {"kafka.bootstrap.servers": pair.a.bootstrap, "subscribe": pair.source, "kafka.group.id": pair.id}
    consumed = ConsumedOffsets(source_options({**given, "commitOffsets": "true"}, streaming=True))
    consumed.done({pair.source: {str(number): 20 for number in range(SLOTS)}})
    consumed.close()
    assert pair.in_group(pair.a) == dict.fromkeys(range(SLOTS), 20)
    assert pair.in_group(pair.b) == {}


# -- two sources, of two clusters


class TwoSources(Copy):
    """Reads the topic `source` of A and the one of the same name on the sink's own cluster."""

    def tasks(self, batch):
        for cluster, source in zip((self.origin, self.cluster), batch.sources, strict=True):
            for tp, start in sorted(source.start.items()):
                yield cluster, OffsetRange(partition=tp, start=start, end=source.end[tp])

    def batch(self, number, of_a, of_b):
        """The batch that takes these (start, end) of the two topics."""
        a, b = (SourceRange(start=self.at(each[0]), end=self.at(each[1])) for each in (of_a, of_b))
        return MicroBatch(query_id=self.query, batch_id=number, digest=f"{of_a} {of_b}", sources=(a, b))

    def at(self, offset):
        return {TopicPartition(self.source, number): offset for number in range(SLOTS)}


@pytest.fixture
def both(pair):
    """`pair` with a topic of the source's name on B, and `driver(query)` for both sources."""
    pair.b.create_topic(pair.source, SLOTS)
    fill(pair.b, pair.source, "B", RECORDS)
    named = f"{pair.at_a.cluster_id()},"
    return pair, lambda query: pair.driver(query=query, clusters=named, kind=TwoSources)


def test_progress_of_topics_of_one_name_on_two_clusters_is_kept_apart_and_both_continue(both):
    pair, driver = both
    first = driver("query")
    first.run(0, (0, 20), (0, 50))
    first.run(1, (20, 30), (50, 55))
    assert committed_by(pair.sink, pair.at_a.cluster_id()) == pair.places(30)
    assert committed_by(pair.sink, pair.at_b.cluster_id()) == pair.places(55)
    assert pair.in_group(pair.b) == dict.fromkeys(range(SLOTS), 55), "what is of B, as ever"
    assert pair.in_group(pair.a) == {}
    driver("successor").run(0, (30, RECORDS), (55, RECORDS))
    assert pair.output() == once("A", 0, RECORDS) + once("B", 0, RECORDS)


@pytest.mark.parametrize(("of_a", "of_b"), [((55, 60), (30, 60)), ((30, 60), (30, 60)), ((29, 60), (55, 60))])
def test_a_new_query_that_takes_one_clusters_offsets_for_the_others_is_refused(both, of_a, of_b):
    pair, driver = both
    driver("query").run(0, (0, 30), (0, 55))
    with pytest.raises(LedgerRefused, match="does not start where it ended"):
        driver("successor").run(0, of_a, of_b)
    assert pair.output() == once("A", 0, 30) + once("B", 0, 55)
