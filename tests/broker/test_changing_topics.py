"""Topics that change under a query: compacted, cut, deleted, created again, grown, damaged on the broker's disk."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions

from spark_kafka_eos.errors import CorruptRecordBatch, DataLoss
from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_from_json
from spark_kafka_eos.kafka.protocol import cluster as cluster_module
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.producing import delete_records, produce, transact
from tests.reading import await_stable, librdkafkas, ours

pytestmark = pytest.mark.broker

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "50",
    "delete.retention.ms": "0",
}
SLOW_WAITS = {"kafka.fetch.max.wait.ms": "30000"}  # longer than a busy machine needs: a wait shows
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def kafka(kafka_version):
    """A broker that compacts and deletes at once."""
    at_once = {
        "log.cleaner.backoff.ms": 50,
        "log.initial.task.delay.ms": 100,
        "log.retention.check.interval.ms": 100,
    }
    with EmbeddedKafka(kafka_version, config=at_once) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def bootstrap(kafka):
    return kafka.bootstrap


@pytest.fixture
def new_topic(kafka):
    return lambda partitions=1, config=None: kafka.create_topic(f"changing-{next(numbers)}", partitions, config)


def values(*bounds):
    return [b"%d" % number for number in range(*bounds)]


def options_of(bootstrap, topic, **given):
    return source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic} | given)


def await_that(condition, otherwise):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def alter(bootstrap, topic, settings):
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [altered] = admin.incremental_alter_configs([resource]).values()
    altered.result(30)


# Compaction


@pytest.fixture(scope="module")
def compacted(kafka):
    """A topic of which the cleaner has removed records, aborted ones and markers; nothing is written any more."""
    name = kafka.create_topic("compacted", 1, COMPACTED)
    for number in range(3):
        produce(kafka.bootstrap, name, values(10 * number, 10 * number + 10), key=b"same")
        transact(kafka.bootstrap, name, values(100, 103), "abort", key=b"same")
        transact(kafka.bootstrap, name, values(200, 203), "commit", key=b"%d" % number)

    def cleaned():
        # A segment is rolled by an append, and the active one is never cleaned.
        transact(kafka.bootstrap, name, [b"more"], "abort", key=b"same")
        produce(kafka.bootstrap, name, [b"more"], key=b"more")
        return [row[5] for row in librdkafkas(kafka.bootstrap, name)][:4] == [b"202", b"202", b"29", b"202"]

    await_that(cleaned, "the cleaner does not get at it")
    alter(kafka.bootstrap, name, {"cleanup.policy": "delete", "retention.ms": "-1"})  # and now it stops
    await_stable(kafka.bootstrap, name)
    await_that(lambda: ours(kafka.bootstrap, name) == librdkafkas(kafka.bootstrap, name), "they differ")
    return name


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_compacted_topic_is_read_as_librdkafka_reads_it(bootstrap, compacted, isolation_level):
    seen = ours(bootstrap, compacted, **{"kafka.isolation.level": isolation_level})
    assert seen == librdkafkas(bootstrap, compacted, isolation_level=isolation_level)
    assert len(seen) < 10 < seen[-1][2]


def test_a_range_may_begin_and_end_in_a_gap(bootstrap, compacted):
    whole = ours(bootstrap, compacted)
    end = whole[-1][2]
    for start, stop in itertools.product((0, 5, 15, 20), (16, 25, 40, end)):
        if start < stop:
            bounds = {
                "startingOffsets": f'{{"{compacted}": {{"0": {start}}}}}',
                "endingOffsets": f'{{"{compacted}": {{"0": {stop}}}}}',
            }
            began = time.monotonic()
            assert ours(bootstrap, compacted, **bounds, **SLOW_WAITS) == [
                row for row in whole if start <= row[2] < stop
            ]
            assert time.monotonic() - began < 20, "a range that ends in a gap ends at once"


# Markers only


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_range_of_nothing_but_markers_ends_at_once(bootstrap, new_topic, end):
    name = new_topic()
    transact(bootstrap, name, values(10), end)  # 0-9, marker 10
    transact(bootstrap, name, values(10), end)  # 11-20, marker 21
    await_stable(bootstrap, name)
    for marker in (10, 21):
        bounds = {
            "startingOffsets": f'{{"{name}": {{"0": {marker}}}}}',
            "endingOffsets": f'{{"{name}": {{"0": {marker + 1}}}}}',
        }
        began = time.monotonic()
        assert ours(bootstrap, name, **bounds, **SLOW_WAITS) == []
        assert time.monotonic() - began < 20


# Offsets that are gone


def lost(bootstrap, name, **given):
    """A read of `name` from offset 0 on, wherever it begins by now."""
    return ours(bootstrap, name, startingOffsets=f'{{"{name}": {{"0": 0}}}}', **given)


def test_records_deleted_by_request_are_data_loss_or_left_out(bootstrap, new_topic, caplog):
    name = new_topic()
    produce(bootstrap, name, values(20))
    delete_records(bootstrap, name, 13)
    with pytest.raises(DataLoss, match=rf"{name}-0 from 0 to 13 \(deleted by retention, or by request\)"):
        lost(bootstrap, name)
    assert [row[2] for row in lost(bootstrap, name, failOnDataLoss="false")] == list(range(13, 20))
    assert f"{name}-0 from 0 to 13" in caplog.text


def test_segments_deleted_by_retention_are_data_loss_or_left_out(bootstrap, new_topic, caplog):
    name = new_topic(config={"segment.bytes": 1 << 20})
    produce(bootstrap, name, [b"%07d" % number * 10_000 for number in range(60)])
    alter(bootstrap, name, {"retention.bytes": str(1 << 20)})  # all that is too much goes at once
    with Cluster(options_of(bootstrap, name).client) as cluster:
        first = 0

        def deleted():
            nonlocal first
            [first] = offsets.earliest(cluster, [TopicPartition(name, 0)]).values()
            return first > 0

        await_that(deleted, "retention does not get at it")
    with pytest.raises(DataLoss, match=f"{name}-0 from 0 to {first} "):
        lost(bootstrap, name)
    seen = lost(bootstrap, name, failOnDataLoss="false")
    assert [row[2] for row in seen] == list(range(first, 60))
    assert f"{name}-0 from 0 to {first}" in caplog.text
    assert seen == librdkafkas(bootstrap, name)


def planned(bootstrap, name, **given):
    """The tasks that read all of `name`, and their options."""
    options = options_of(bootstrap, name, startingOffsets="earliest", **given)
    with OffsetPlanner(options) as positions:
        return positions.tasks(positions.starting(), positions.ending()), options


def run(tasks, options):
    """Offsets of what the tasks read."""
    with Cluster(options.client) as cluster:
        return [
            offset for task in tasks for batch in read(task, options, cluster) for offset in batch["offset"].to_pylist()
        ]


def test_records_deleted_after_the_plan_are_data_loss_or_left_out(bootstrap, new_topic, caplog):
    name = new_topic()
    produce(bootstrap, name, values(20))
    strict, tolerant = (planned(bootstrap, name, failOnDataLoss=fails) for fails in ("true", "false"))
    delete_records(bootstrap, name, 13)
    with pytest.raises(DataLoss, match=f"{name}-0: offsets from 0 to 20 .* the broker has 13 to 20"):
        run(*strict)
    assert run(*tolerant) == list(range(13, 20))
    assert f"{name}-0 from 0 to 13" in caplog.text


# Topics deleted and created again


class Query:
    """A stream's offsets, driven as Spark drives them, with a clock of its own."""

    def __init__(self, bootstrap, name, **given):
        self.options = options_of(bootstrap, name, **{"startingOffsets": "earliest"} | given)
        self.seconds = 0.0
        self.positions = OffsetPlanner(self.options, clock=lambda: self.seconds)
        self.at = self.positions.initial()

    def batch(self):
        """The offsets that the next micro-batch reads."""
        self.seconds += 10
        start, self.at = self.at, self.positions.latest(self.at, limited=False)
        return run(self.positions.batch(start, self.at), self.options)

    def restart(self):
        self.positions.close()
        self.positions = OffsetPlanner(self.options, clock=lambda: self.seconds)


@pytest.fixture
def query(bootstrap):
    made = []

    def start(name, **given):
        made.append(Query(bootstrap, name, **given))
        return made[-1]

    yield start
    for one in made:
        one.positions.close()


def create_again(kafka, name, count):
    kafka.delete_topic(name)
    kafka.create_topic(name)
    produce(kafka.bootstrap, name, values(count))


@pytest.mark.parametrize("count", [3, 10, 25], ids=["fewer", "as many", "more"])
def test_a_running_query_notices_a_topic_created_again_whatever_it_holds(kafka, bootstrap, new_topic, query, count):
    name = new_topic()
    produce(bootstrap, name, values(10))
    strict, tolerant = query(name), query(name, failOnDataLoss="false")
    assert strict.batch() == tolerant.batch() == list(range(10))
    create_again(kafka, name, count)
    start = strict.at
    with pytest.raises(DataLoss, match=f"{name}-0 from 10 .*created again"):
        strict.batch()
    strict.restart()
    with pytest.raises(DataLoss, match=f"{name}-0 from 10 .*created again"):
        strict.positions.batch(start, strict.at)  # Spark runs the batch that it has written down again
    assert tolerant.batch() == []
    assert tolerant.batch() == list(range(count))


def test_after_a_restart_a_topic_created_again_is_noticed_where_it_ends_before(kafka, bootstrap, new_topic, query):
    name = new_topic()
    produce(bootstrap, name, values(10))
    one = query(name)
    assert one.batch() == list(range(10))
    create_again(kafka, name, 3)
    one.restart()
    with pytest.raises(DataLoss, match=f"{name}-0 from 10 .*created again"):
        one.batch()


def test_after_a_restart_a_topic_created_again_is_noticed_although_it_is_longer(kafka, bootstrap, new_topic, query):
    name = new_topic()
    produce(bootstrap, name, values(10))
    strict, tolerant = query(name), query(name, failOnDataLoss="false")
    assert strict.batch() == tolerant.batch() == list(range(10))
    create_again(kafka, name, 25)
    for one in (strict, tolerant):
        one.restart()
    with pytest.raises(DataLoss, match=f"{name}-0 from 10 .*10 offsets of the new topic come before 10"):
        strict.batch()
    assert tolerant.batch() == []
    assert tolerant.batch() == list(range(25))


def test_a_task_does_not_read_a_topic_created_again_after_the_plan(kafka, bootstrap, new_topic, caplog):
    name = new_topic()
    produce(bootstrap, name, values(10))
    strict, tolerant = (planned(bootstrap, name, failOnDataLoss=fails) for fails in ("true", "false"))
    create_again(kafka, name, 25)
    with pytest.raises(
        DataLoss, match=f"topic '{name}' was deleted and created again .*up to 10 of topic id .* were not read"
    ):
        run(*strict)
    assert run(*tolerant) == []
    assert f"{name}-0 from 0 to 10 (the partition is gone)" in caplog.text


def test_a_query_continues_without_a_deleted_topic_on_request_and_with_it_once_it_is_back(
    kafka, bootstrap, new_topic, query, caplog, monkeypatch
):
    name, other = new_topic(), new_topic()
    for each in (name, other):
        produce(bootstrap, each, values(10))
    strict, tolerant = (query(f"{name},{other}", failOnDataLoss=fails) for fails in ("true", "false"))
    assert strict.batch() == tolerant.batch() == [*range(10), *range(10)]
    kafka.delete_topic(name)
    produce(bootstrap, other, values(5))
    with pytest.raises(DataLoss, match=rf"{name}-0 from 10 \(the partition is gone\)"):
        strict.batch()
    assert tolerant.batch() == list(range(10, 15))
    assert f"{name}-0 from 10 (the partition is gone)" in caplog.text
    produce(bootstrap, other, values(3))
    monkeypatch.setattr(cluster_module, "UNKNOWN_TOPIC_PATIENCE_MS", 60_000)
    before = time.monotonic()
    assert tolerant.batch() == list(range(15, 18))
    assert time.monotonic() - before < 20, "the topic was waited for again"
    monkeypatch.undo()
    kafka.create_topic(name)
    produce(bootstrap, name, values(4))
    assert tolerant.batch() == list(range(4))


def test_available_now_continues_without_a_topic_that_was_deleted_while_the_query_was_away(
    kafka, bootstrap, new_topic, query
):
    name, other = new_topic(), new_topic()
    for each in (name, other):
        produce(bootstrap, each, values(10))
    tolerant = query(f"{name},{other}", failOnDataLoss="false")
    assert tolerant.batch() == [*range(10), *range(10)]
    kafka.delete_topic(name)
    produce(bootstrap, other, values(5))
    tolerant.restart()
    tolerant.positions.pin()
    assert tolerant.batch() == list(range(10, 15))


def test_a_topic_that_was_removed_and_is_selected_again_is_read_from_its_beginning(bootstrap, new_topic, query):
    name, other = new_topic(), new_topic()
    for each in (name, other):
        produce(bootstrap, each, values(3))
    both = query(f"{name},{other}")
    assert sorted(both.batch()) == [0, 0, 1, 1, 2, 2]
    without = query(other)
    without.at = both.at
    produce(bootstrap, other, values(2))
    assert without.batch() == [3, 4]
    again = query(f"{name},{other}")
    again.at = without.at
    assert again.batch() == [0, 1, 2]


def test_partitions_added_while_the_query_runs_are_read_from_their_beginning(bootstrap, new_topic, query):
    name = new_topic()
    produce(bootstrap, name, values(5))
    one = query(name)
    assert one.batch() == [0, 1, 2, 3, 4]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [grown] = admin.create_partitions([NewPartitions(name, 3)]).values()
    grown.result(30)
    await_that(lambda: len(admin.list_topics(name, 10).topics[name].partitions) == 3, "no new partitions")
    produce(bootstrap, name, values(3), partition=2)
    assert one.batch() == [0, 1, 2]
    assert offsets_from_json(one.at) == offsets_from_json({name: {"0": 5, "1": 0, "2": 3}})


# Checkpoints of a reader that did not wait for transactions


def test_a_start_past_an_open_transaction_waits_until_it_has_ended(bootstrap, new_topic, query):
    name = new_topic()
    produce(bootstrap, name, values(5))
    still_open = transact(bootstrap, name, values(5), "leave open")  # 5-9
    one = query(name)
    assert offsets_from_json(one.positions.latest(one.at, limited=False)) == {TopicPartition(name, 0): 5}
    one.at = {name: {"0": 8}}
    assert one.batch() == []
    assert one.at == {name: {"0": 8}}
    still_open.commit_transaction(30)
    await_stable(bootstrap, name)
    assert one.batch() == [8, 9]


def test_nothing_is_read_where_an_open_transaction_began_before_the_first_offset_until_it_has_ended(
    bootstrap, new_topic, query
):
    name = new_topic()
    still_open = transact(bootstrap, name, values(5), "leave open")  # 0-4
    produce(bootstrap, name, values(3))  # 5-7
    delete_records(bootstrap, name, 2)
    one = query(name)
    assert (one.batch(), one.batch()) == ([], [])
    still_open.commit_transaction(30)
    await_stable(bootstrap, name)
    assert one.batch() == [2, 3, 4, 5, 6, 7] == [row[2] for row in librdkafkas(bootstrap, name)]


@pytest.mark.parametrize("start", ["latest", "committed-or-latest"])
def test_latest_is_the_first_offset_where_an_open_transaction_began_before_it(bootstrap, new_topic, query, start):
    name = new_topic()
    still_open = transact(bootstrap, name, values(5), "leave open")  # 0-4
    delete_records(bootstrap, name, 2)
    one = query(name, startingOffsets=start, **{"kafka.group.id": name})
    with OffsetPlanner(options_of(bootstrap, name, startingOffsets="earliest")) as positions:
        assert (one.batch(), positions.batch_read()) == ([], [])
    still_open.commit_transaction(30)
    await_stable(bootstrap, name)
    assert one.batch() == [2, 3, 4] == [row[2] for row in librdkafkas(bootstrap, name)]


# Damage


def test_a_damaged_record_batch_is_named_by_topic_partition_and_offset(kafka, bootstrap, new_topic):
    name = new_topic()
    for number in range(3):
        produce(bootstrap, name, [b"batch-%d" % number] * 10)
    [log] = Path(kafka.directory).glob(f"node-1/data/{name}-0/*.log")
    with log.open("r+b") as file:
        at = log.read_bytes().index(b"batch-1")
        file.seek(at)
        file.write(b"B")
    with pytest.raises(CorruptRecordBatch, match=f"{name}-0: record batch at offset 10 has CRC .*, but its header has"):
        ours(bootstrap, name)
    assert len(ours(bootstrap, name, endingOffsets=f'{{"{name}": {{"0": 10}}}}')) == 10
    assert ours(bootstrap, name, **{"kafka.check.crcs": "false"})[10][5] == b"Batch-1"
