"""`spark.readStream.format("kafka-eos")` on a real broker: micro-batches, restarts, limits, moving topics."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter
from spark_kafka_eos.kafka.partitions import offsets_from_json
from spark_kafka_eos.source_offset import SourceOffset
from tests.producing import delete_records, produce, transact
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]


class Stream:
    """A query that is started again and again on one checkpoint; `batches` holds the values of each micro-batch run."""

    def __init__(self, spark, bootstrap, checkpoint, topic, **options):
        self._spark, self._checkpoint = spark, checkpoint
        self._options = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest"} | options
        if "subscribePattern" not in options:
            self._options["subscribe"] = topic
        self.batches = {}
        self.fail_in = None
        self.watch = None
        self.query = None

    def _process(self, frame, batch_id):
        if batch_id == self.fail_in:
            raise RuntimeError("the sink fails")
        if self.watch is not None:
            self.watch(frame, batch_id)
        self.batches[batch_id] = sorted(int(row.value) for row in frame.select("value").collect())

    def start(self, **trigger):
        frame = self._spark.readStream.format("kafka-eos").options(**self._options).load()
        self.query = (
            frame.writeStream.foreachBatch(self._process)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(**trigger or {"processingTime": "0 seconds"})
            .start()
        )
        return self.query

    def run(self):
        """Everything there is now; returns the values of this run's batches, in order."""
        self.batches = {}
        self.start(availableNow=True).awaitTermination()
        return [number for batch_id in sorted(self.batches) for number in self.batches[batch_id]]


@pytest.fixture
def stream(spark, bootstrap, tmp_path):
    """`stream(topic, **options)`: a Stream with a checkpoint of its own, stopped at the end."""
    made = []

    def build(topic, **options):
        made.append(Stream(spark, bootstrap, tmp_path / "checkpoint", topic, **options))
        return made[-1]

    yield build
    for one in made:
        if one.query is not None:
            one.query.stop()


def values(*bounds):
    return [str(number).encode() for number in range(*bounds)]


def test_available_now_reads_what_is_there_and_a_restart_only_what_is_new(bootstrap, topic, stream):
    name = topic("restart", partitions=2)
    produce(bootstrap, name, values(0, 10))
    produce(bootstrap, name, values(10, 20), partition=1)
    query = stream(name)
    assert sorted(query.run()) == list(range(20))
    assert query.run() == []
    produce(bootstrap, name, values(20, 25))
    assert query.run() == list(range(20, 25))


def test_progress_and_checkpoint_hold_the_built_in_sources_offsets(bootstrap, topic, stream, tmp_path):
    name = topic("offsets", partitions=2)
    produce(bootstrap, name, values(3))
    query = stream(name)
    query.run()
    produce(bootstrap, name, values(1))
    query.run()
    end = {name: {"0": 4, "1": 0}}
    [progress] = [p for p in query.query.recentProgress if p.numInputRows]
    assert progress.numInputRows == 1
    assert json.loads(progress.sources[0].latestOffset) == end
    assert offsets_from_json(progress.sources[0].startOffset) == offsets_from_json({name: {"0": 3, "1": 0}})
    for offsets in (progress.sources[0].startOffset, progress.sources[0].endOffset):
        origin = SourceOffset.from_json(json.loads(offsets)).origin
        assert origin is not None
        assert origin.topic_ids.keys() == {name}
    assert offsets_from_json(progress.sources[0].endOffset) == offsets_from_json(end)
    first, second = ((tmp_path / f"checkpoint/offsets/{batch}").read_text().splitlines()[-1] for batch in (0, 1))
    assert offsets_from_json(second) == offsets_from_json(end)
    assert SourceOffset.from_json(json.loads(second)).origin is not None
    assert offsets_from_json(first) == offsets_from_json({name: {"0": 3, "1": 0}})
    assert SourceOffset.from_json(json.loads(first)).start == offsets_from_json({name: {"0": 0, "1": 0}})


def test_max_offsets_per_trigger_bounds_each_batch(bootstrap, topic, stream):
    name = topic("limited", partitions=2)
    produce(bootstrap, name, values(0, 300))
    produce(bootstrap, name, values(300, 400), partition=1)
    query = stream(name, maxOffsetsPerTrigger="100")
    assert sorted(query.run()) == list(range(400))
    assert [len(batch) for batch in query.batches.values()] == [100, 100, 100, 100]


def test_max_bytes_per_trigger_bounds_each_batch_whatever_the_size_of_its_records(bootstrap, topic, stream):
    name = topic("weighed", partitions=2)
    produce(bootstrap, name, [b"%0100d" % number for number in range(1_000)])
    produce(bootstrap, name, [b"%01000d" % number for number in range(1_000, 1_200)], partition=1)
    query = stream(name, maxBytesPerTrigger="64k")
    assert sorted(query.run()) == list(range(1_200))
    sizes = [sum(100 if number < 1_000 else 1_000 for number in batch) for batch in query.batches.values()]
    assert max(sizes) <= 65_536
    assert len(sizes) == 5, sizes
    both = stream(name, maxBytesPerTrigger="64k", maxOffsetsPerTrigger="100")
    produce(bootstrap, name, values(150))
    both.run()
    assert [len(batch) for batch in both.batches.values()] == [100, 50]


def test_two_hundred_partitions_cost_a_few_tasks_a_batch(bootstrap, topic, stream):
    name = topic("wide-stream", partitions=200)
    query = stream(name)
    tasks = {}
    query.watch = lambda frame, batch_id: tasks.update({batch_id: frame.rdd.getNumPartitions()})
    for first in (0, 20):
        for number in range(first, first + 20):
            produce(bootstrap, name, [b"%d" % number], partition=10 * (number % 20))
        assert sorted(query.run()) == list(range(first, first + 20))
    assert len(tasks) == 2
    assert max(tasks.values()) <= (os.cpu_count() or 1)


def test_an_uncommitted_read_does_not_wait_for_transactions_to_end(bootstrap, topic, stream):
    name = topic("uncommitted")
    still_open = transact(bootstrap, name, values(0, 5), "leave open")
    query = stream(name, **{"kafka.isolation.level": "read_uncommitted"})
    assert query.run() == list(range(5))
    still_open.abort_transaction(30)
    transact(bootstrap, name, values(5, 10), "abort")
    assert query.run() == list(range(5, 10))


def test_an_open_transaction_holds_the_end_and_nothing_is_skipped(bootstrap, topic, stream):
    name = topic("held")
    transact(bootstrap, name, values(0, 5), "commit")
    still_open = transact(bootstrap, name, values(5, 10), "leave open")
    produce(bootstrap, name, values(10, 15))
    query = stream(name)
    assert query.run() == list(range(5))
    transact(bootstrap, name, values(100, 105), "abort")
    assert query.run() == []
    still_open.commit_transaction(30)
    assert query.run() == list(range(5, 15))


def test_a_running_query_picks_up_what_comes(bootstrap, topic, stream):
    name = topic("running")
    query = stream(name)
    running = query.start()
    for first in (0, 5, 10):
        produce(bootstrap, name, values(first, first + 5))
        running.processAllAvailable()
    assert [number for batch in query.batches.values() for number in batch] == list(range(15))


def test_a_running_query_waits_at_its_end_and_reads_nothing_past_it(bootstrap, topic, stream):
    name = topic("ended")
    query = stream(name, endingOffsets=f'{{"{name}": {{"0": 7}}}}')
    running = query.start()
    for first in (0, 5, 10):
        produce(bootstrap, name, values(first, first + 5))
        running.processAllAvailable()
    assert [number for batch in query.batches.values() for number in batch] == list(range(7))
    assert running.isActive


def test_a_query_from_the_latest_offsets_skips_what_was_there(bootstrap, topic, stream):
    name = topic("latest")
    produce(bootstrap, name, values(0, 5))
    query = stream(name, startingOffsets="latest")
    assert query.run() == []
    produce(bootstrap, name, values(5, 10))
    assert query.run() == list(range(5, 10))


def test_a_first_batch_that_fails_does_not_move_the_start(bootstrap, topic, stream):
    name = topic("first-batch")
    produce(bootstrap, name, values(0, 5))
    query = stream(name, startingOffsets="latest")
    query.fail_in = 0
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.run()
    produce(bootstrap, name, values(5, 10))
    query.fail_in = None
    assert query.run() == list(range(5, 10))


def test_a_first_batch_that_failed_starts_again_where_it_was_planned_to(bootstrap, topic, stream):
    name = topic("first-start")
    produce(bootstrap, name, values(0, 5))
    failing = stream(name)
    failing.fail_in = 0
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        failing.run()
    produce(bootstrap, name, values(5, 10))
    assert stream(name, startingOffsets="latest").run() == list(range(10))


def test_a_first_batch_that_failed_and_whose_start_was_deleted_since_is_data_loss(bootstrap, topic, stream):
    name = topic("first-lost")
    produce(bootstrap, name, values(0, 5))
    query = stream(name)
    query.fail_in = 0
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.run()
    delete_records(bootstrap, name, 3)
    query.fail_in = None
    with pytest.raises(
        StreamingQueryException, match=rf"DataLoss.*{name}-0: offsets from 0 to 5 .* the broker has 3 to 5"
    ):
        query.run()
    assert stream(name, failOnDataLoss="false").run() == [3, 4]


def test_a_first_batch_that_an_earlier_release_planned_is_read_from_the_start(bootstrap, topic, stream, tmp_path):
    name = topic("first-old")
    produce(bootstrap, name, values(0, 5))
    query = stream(name)
    query.fail_in = 0
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.run()
    planned = tmp_path / "checkpoint/offsets/0"
    *lines, _ = planned.read_text().split("\n")
    planned.write_text("\n".join([*lines, json.dumps({name: {"0": 5}})]))
    (planned.parent / ".0.crc").unlink()
    produce(bootstrap, name, values(5, 10))
    query.fail_in = None
    assert query.run() == list(range(10))
    assert query.batches[0] == list(range(5))


def test_trigger_once_reads_what_is_there_in_its_only_batch(bootstrap, topic, stream):
    name = topic("once")
    produce(bootstrap, name, values(0, 5))
    query = stream(name, startingTimestamp="0")
    query.start(once=True).awaitTermination()
    assert query.batches == {0: list(range(5))}


def test_a_batch_that_failed_is_read_again_with_the_same_rows(bootstrap, topic, stream):
    name = topic("again")
    produce(bootstrap, name, values(0, 5))
    query = stream(name)
    query.fail_in = 0
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.run()
    produce(bootstrap, name, values(5, 10))
    query.fail_in = None
    assert query.run() == list(range(10))
    assert query.batches == {0: [0, 1, 2, 3, 4], 1: [5, 6, 7, 8, 9]}


def test_a_query_starts_at_the_groups_offsets(bootstrap, topic, stream):
    name = topic("group", partitions=2)
    produce(bootstrap, name, values(0, 10))
    produce(bootstrap, name, values(10, 20), partition=1)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{name}-group"})
    consumer.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
    consumer.close()
    query = stream(name, startingOffsets="committed", **{"kafka.group.id": f"{name}-group"})
    assert sorted(query.run()) == [7, 8, 9, *range(10, 20)]


def test_a_new_topic_that_matches_is_read_from_its_beginning(bootstrap, topic, stream):
    first = topic("matched")
    produce(bootstrap, first, values(0, 5))
    query = stream(None, subscribePattern="matched-.*")
    assert query.run() == list(range(5))
    second = topic("matched")
    produce(bootstrap, second, values(5, 10))
    assert query.run() == list(range(5, 10))


def test_a_topic_that_was_created_again_fails_the_query_or_is_read_anew(kafka, bootstrap, topic, stream):
    name = topic("recreated")
    produce(bootstrap, name, values(0, 10))
    query = stream(name)
    query.run()
    kafka.delete_topic(name)
    kafka.create_topic(name)
    produce(bootstrap, name, values(10, 13))
    with pytest.raises(StreamingQueryException, match=f"DataLoss.*{name}-0"):
        query.run()
    tolerant = stream(name, failOnDataLoss="false")
    tolerant.run()
    produce(bootstrap, name, values(13, 15))
    assert tolerant.run() == [13, 14]


def test_a_running_query_fails_when_its_topic_is_created_again_with_more_records(kafka, bootstrap, topic, stream):
    name = topic("replaced")
    produce(bootstrap, name, values(0, 5))
    query = stream(name)
    running = query.start()
    running.processAllAvailable()
    kafka.delete_topic(name)
    kafka.create_topic(name)
    produce(bootstrap, name, values(100, 120))
    with pytest.raises(StreamingQueryException, match=f"DataLoss.*{name}-0 from 5 "):
        running.awaitTermination(60)
    assert [number for batch in query.batches.values() for number in batch] == list(range(5))


def test_a_query_steps_over_a_damaged_record_batch_once_it_is_deleted(kafka, bootstrap, topic, stream):
    """As docs/troubleshooting.md says, with the same checkpoint."""
    name, first = topic("damaged"), 1_000_000
    numbers = [range(first + 5 * part, first + 5 * part + 5) for part in range(5)]
    produce(bootstrap, name, [b"%d" % number for number in numbers[0]])
    assert stream(name).run() == [*numbers[0]]
    for part in numbers[1:4]:
        produce(bootstrap, name, [b"%d" % number for number in part])
    [log] = Path(kafka.directory).glob(f"node-1/data/{name}-0/*.log")
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(b"%d" % numbers[2][0]))
        file.write(b"X")
    for _ in range(2):
        with pytest.raises(
            StreamingQueryException, match=f"CorruptRecordBatch: {name}-0: record batch at offset 10 has"
        ):
            stream(name).run()
    delete_records(bootstrap, name, 15)
    with pytest.raises(StreamingQueryException, match="DataLoss"):
        stream(name).run()
    assert stream(name, failOnDataLoss="false").run() == [*numbers[3]]
    produce(bootstrap, name, [b"%d" % number for number in numbers[4]])
    assert stream(name).run() == [*numbers[4]]


@pytest.mark.parametrize("sink", ["foreachBatch", "format"])
def test_a_run_of_available_now_that_ended_in_a_batch_goes_on_with_partitions_that_were_added(
    spark, bootstrap, topic, tmp_path, sink
):
    source, target = topic(f"grown-{sink}", partitions=2), topic(f"grown-{sink}-copy")
    for partition in (0, 1):
        produce(bootstrap, source, values(100 * partition, 100 * partition + 15), partition=partition)
    broken = tmp_path / "broken"
    broken.touch()

    @F.udf("binary")
    def checked(value):
        if broken.exists() and int(value) % 100 == 7:  # in the second batch
            raise RuntimeError("the batch fails")
        return value

    def run():
        kafka = {"kafka.bootstrap.servers": bootstrap}
        options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
        rows = spark.readStream.format("kafka-eos").options(**kafka, **options).load()
        rows = rows.select(checked("value").alias("value"))
        sinks = kafka | {"kafka.transactional.id": target, "topic": target}
        stream = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        if sink == "format":
            stream = stream.format("kafka-eos").options(**sinks)
        else:
            stream = stream.foreachBatch(TransactionalWriter(sinks))
        stream.start().awaitTermination()

    with pytest.raises(StreamingQueryException):
        run()
    offsets = tmp_path / "checkpoint" / "offsets"
    plan = (offsets / "1").read_text()
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(source, 4)])[source].result(30)
    for partition in (2, 3):
        produce(bootstrap, source, values(100 * partition, 100 * partition + 5), partition=partition)
    broken.unlink()
    run()
    assert (offsets / "1").read_text() == plan
    written = [int(message.value() or b"") for message in read_committed(bootstrap, target)]
    assert sorted(written) == [*range(15), *range(100, 115), *range(200, 205), *range(300, 305)]
