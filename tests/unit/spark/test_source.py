"""What the stream reader makes of Spark's calls, without Spark and without a broker."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from pyspark.sql.streaming import python_streaming_source_runner
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_kafka_eos.errors import BrokerUnreachable, ConfigurationError, DataLoss, UnknownTopic
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.options import source_options
from spark_kafka_eos.source_offset import UNRESOLVED
from spark_kafka_eos.spark.datasource import KafkaEosDataSource
from spark_kafka_eos.spark.plan_registry import digest_of, published
from spark_kafka_eos.spark.source import KafkaEosStreamReader, TaskRanges

START, END = {name: dict(offsets) for name, offsets in UNRESOLVED.items()}, {"t": {"0": 5}}


class OffsetPlanner:
    def __init__(self, options):
        pass

    def initial(self):
        return dict(START)

    def latest(self, start, *, limited):
        return END

    def batch(self, start, end):
        return []


@pytest.fixture
def done():
    """The ends that were confirmed, in order."""
    return []


@pytest.fixture
def reader_of(done):
    """`reader_of(positions)`: a reader of these."""

    class ConsumedOffsets:
        def __init__(self, options):
            pass

        def done(self, end):
            done.extend([] if end == UNRESOLVED else [end])

    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitOffsets": "true", "kafka.group.id": "g"}

    def build(positions, **more):
        doubles: Any = {"planner": positions, "consumed": ConsumedOffsets}
        return KafkaEosStreamReader(source_options(given | more), **doubles)

    return build


@pytest.fixture
def reader(reader_of):
    return reader_of(OffsetPlanner)


def test_a_new_querys_first_start_is_no_end_of_a_batch(done, reader):
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert done == []


def test_the_start_of_a_next_batch_is_the_end_of_one_that_is_done(done, reader):
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.latestOffset(END, ReadAllAvailable())
    assert done == [END]


def test_a_query_that_starts_again_confirms_what_was_done_before(done, reader):
    reader.latestOffset(END, ReadAllAvailable())
    assert done == [END]


def test_what_spark_commits_is_done(done, reader):
    reader.commit(END)
    assert done == [END]


def test_the_range_that_spark_has_tasks_for_is_noted_for_the_sink(reader, tmp_path, monkeypatch):
    (tmp_path / "blockmgr-1").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/blockmgr-1")
    reader.partitions(END, {"t": {"0": 9}})
    assert published() == [digest_of(END, {"t": {"0": 9}})]


def test_nothing_is_committed_unless_it_was_asked_for(done, reader_of):
    reader_of(OffsetPlanner, commitOffsets="false").commit(END)
    assert done == []


def test_what_the_source_raises_says_nothing_about_what_a_sink_has_committed(reader_of):
    class Lost(OffsetPlanner):
        def latest(self, *arguments, **given):
            raise DataLoss("orders-0 from 0 to 5 is gone", action="Set failOnDataLoss=false.")

        batch = latest

    reader = reader_of(Lost)
    for call in (lambda: reader.latestOffset(START, ReadAllAvailable()), lambda: reader.partitions(START, END)):
        with pytest.raises(DataLoss) as raised:
            call()
        said = "orders-0 from 0 to 5 is gone. Set failOnDataLoss=false. More: kafka-eos explain DataLoss"
        assert str(raised.value) == said
        assert raised.value.committed is None


def test_nor_does_what_led_to_it(reader_of):
    class Lost(OffsetPlanner):
        def latest(self, *arguments, **given):
            try:
                raise UnknownTopic("topic 'orders' does not exist")
            except UnknownTopic:
                raise DataLoss("orders-0 is gone")  # noqa: B904 - its context is in the traceback all the same

    with pytest.raises(DataLoss) as raised:
        reader_of(Lost).latestOffset(START, ReadAllAvailable())
    assert "Nothing was committed" not in "".join(traceback.format_exception(raised.value))


def test_nor_does_what_a_task_raises():
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.request.timeout.ms": "100"}
    reader = KafkaEosStreamReader(source_options(given | {"kafka.delivery.timeout.ms": "1000"}))
    wanted = OffsetRange(partition=TopicPartition("t", 0), start=0, end=5)
    with pytest.raises(BrokerUnreachable) as raised:
        list(reader.read(TaskRanges([wanted])))
    assert "committed" not in str(raised.value)


@pytest.mark.parametrize("given", [{}, {"subscribe": "t", "startingOffsets": "never"}])
def test_nor_does_what_a_wrong_option_raises(given):
    with pytest.raises(ConfigurationError) as raised:
        KafkaEosDataSource({"kafka.bootstrap.servers": "b:1"} | given).schema()
    assert "committed." not in str(raised.value)


def test_spark_calls_a_source_for_nothing_that_it_does_not_offer():
    """A new hook, such as one for metrics in the query's progress, makes this fail: then it should be used."""
    calls = {name for name in vars(python_streaming_source_runner) if name.endswith("_FUNC_ID")}
    assert calls <= {
        "INITIAL_OFFSET_FUNC_ID",
        "LATEST_OFFSET_FUNC_ID",
        "PARTITIONS_FUNC_ID",
        "COMMIT_FUNC_ID",
        "CHECK_SUPPORTED_FEATURES_ID",
        "PREPARE_FOR_TRIGGER_AVAILABLE_NOW_FUNC_ID",
        "LATEST_OFFSET_ADMISSION_CONTROL_FUNC_ID",
        "GET_DEFAULT_READ_LIMIT_FUNC_ID",
        "REPORT_LATEST_OFFSET_FUNC_ID",
    }
    assert calls, "they have other names now"
