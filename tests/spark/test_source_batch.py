"""`spark.read.format("kafka-eos")` on a real broker: rows, tasks, time zones. Nothing registers the data source."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest
from chispa import assert_df_equality
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from spark_kafka_eos.spark.schema import source_schema
from tests.producing import KEEP, delete_records, produce, transact

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def load(spark, bootstrap):
    """`load(topic, **options)`: a batch frame over the topic."""

    def run(topic, **options):
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic} | options
        return spark.read.format("kafka-eos").options(**given).load()

    return run


def values(*bounds):
    return [str(number).encode() for number in range(*bounds)]


def numbers(frame):
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_rows_have_the_built_in_sources_columns(spark, bootstrap, topic, load):
    name = topic("columns", partitions=2, config=KEEP)
    produce(bootstrap, name, [b"a", None], key=b"k", timestamp=1_700_000_000_123)
    produce(bootstrap, name, [b"b"], partition=1, timestamp=1_700_000_000_123)
    at = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    expected = spark.createDataFrame(
        [
            (b"k", b"a", name, 0, 0, at, 0),
            (b"k", None, name, 0, 1, at, 0),
            (None, b"b", name, 1, 0, at, 0),
        ],
        source_schema(include_headers=False),
    )
    assert_df_equality(load(name).orderBy("partition", "offset"), expected)


def test_a_schema_chooses_the_columns_that_are_read(spark, bootstrap, topic):
    name = topic("chosen", partitions=2)
    produce(bootstrap, name, [b"a", None], key=b"k")
    produce(bootstrap, name, [b"b"], partition=1)
    chosen = spark.read.format("kafka-eos").schema("offset bigint, value binary")
    rows = chosen.option("kafka.bootstrap.servers", bootstrap).option("subscribe", name).load()
    assert rows.columns == ["offset", "value"]
    assert sorted(map(tuple, rows.where("value is not null").collect())) == [(0, b"a"), (0, b"b")]
    assert rows.count() == 3


def test_a_schema_may_say_not_null_of_what_every_record_has(spark, bootstrap, topic):
    name = topic("required")
    produce(bootstrap, name, [b"a", None])
    chosen = spark.read.format("kafka-eos").schema("offset bigint NOT NULL, value binary, topic string NOT NULL")
    rows = chosen.option("kafka.bootstrap.servers", bootstrap).option("subscribe", name).load()
    assert [(field.name, field.nullable) for field in rows.schema] == [
        ("offset", False),
        ("value", True),
        ("topic", False),
    ]
    assert sorted(map(tuple, rows.collect())) == [(0, b"a", name), (1, None, name)]


def test_timestamps_are_shown_in_the_sessions_time_zone(spark, bootstrap, topic, load):
    name = topic("zone", config=KEEP)
    produce(bootstrap, name, [b"v"], timestamp=1_700_000_000_123)
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    [row] = load(name).select(F.col("timestamp").cast("string").alias("shown")).collect()
    assert row.shown == "2023-11-14 17:13:20.123"


def test_headers_are_a_column_on_request(spark, bootstrap, topic, load):
    name = topic("headers")
    produce(bootstrap, name, [b"with"], headers=[("trace", b"1"), ("trace", None)])
    produce(bootstrap, name, [b"without"])
    expected = spark.createDataFrame(
        [(b"with", [("trace", b"1"), ("trace", None)]), (b"without", None)],
        "value binary, headers array<struct<key:string,value:binary>>",
    )
    assert_df_equality(load(name, includeHeaders="true").select("value", "headers").orderBy("offset"), expected)


def test_only_committed_records_are_seen_and_a_frame_stays_as_first_read(bootstrap, topic, load):
    name = topic("committed", partitions=2)
    transact(bootstrap, name, values(0, 10), "commit", partition=0)
    transact(bootstrap, name, values(100, 110), "abort", partition=0)
    still_open = transact(bootstrap, name, values(10, 20), "leave open", partition=1)
    frame = load(name)
    assert numbers(frame) == list(range(10))
    everything = load(name, **{"kafka.isolation.level": "read_uncommitted"})
    assert numbers(everything) == [*range(20), *range(100, 110)], "of open and of aborted transactions, too"
    still_open.commit_transaction(30)
    assert numbers(frame) == list(range(10))
    assert numbers(load(name)) == list(range(20))


def test_offsets_bound_a_read(bootstrap, topic, load):
    name = topic("bounds")
    produce(bootstrap, name, values(100))
    part = load(name, startingOffsets=f'{{"{name}": {{"0": 20}}}}', endingOffsets=f'{{"{name}": {{"0": 70}}}}')
    assert numbers(part) == list(range(20, 70))


def test_several_topics_are_read_by_name_pattern_and_partition(bootstrap, topic, load):
    one, other = topic("pat-tern", partitions=2), topic("pat-tern", partitions=2)
    for number, name in enumerate((one, other)):
        for partition in range(2):
            produce(bootstrap, name, [b"%d" % (2 * number + partition)], partition=partition)
    assert numbers(load(f"{one},{other}")) == [0, 1, 2, 3]
    assert numbers(load(None, subscribePattern="pat-tern-.*")) == [0, 1, 2, 3]
    assert numbers(load(None, assign=f'{{"{one}": [1], "{other}": [0]}}')) == [1, 2]


@pytest.fixture(scope="module")
def events(spark, bootstrap, topic):
    """Three batches of a hundred rows, one a second of 2020, which the sink writes now: so late are their markers."""
    name = topic("events", config=KEEP)
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": name, "kafka.transactional.id": name, "txnAppId": name}
    for number in range(3):
        seconds = F.timestamp_seconds(F.lit(YEAR_2020) + F.col("id"))
        rows = spark.range(100 * number, 100 * (number + 1), 1, 1).select(
            F.col("id").cast("string").alias("value"), seconds.alias("timestamp")
        )
        rows.write.format("kafka-eos").options(**sink, txnVersion=number).mode("append").save()
    return name


def test_a_frame_or_a_view_keeps_the_offsets_of_its_first_action_until_it_is_loaded_again(
    spark, bootstrap, topic, load
):
    name = topic("frozen")
    produce(bootstrap, name, values(0, 3))
    frame = load(name)
    frame.createOrReplaceTempView("frozen")
    assert spark.sql("SELECT * FROM frozen").count() == 3
    produce(bootstrap, name, values(3, 10))
    assert spark.sql("SELECT * FROM frozen").count() == 3
    assert load(name).count() == 10
    delete_records(bootstrap, name, 5)
    with pytest.raises(PySparkException, match=r"DataLoss.* planned at 20.* UTC, at the first action") as raised:
        frame.count()
    assert "load it again" in str(raised.value)
    assert load(name).count() == 5


YEAR_2020, YEAR_2021 = 1_577_836_800, 1_609_459_200  # seconds since 1970
BY_EVENT_TIME = {
    "up to a year": ({"endingTimestamp": YEAR_2021 * 1000}, range(300)),
    "a minute": (
        {"startingTimestamp": (YEAR_2020 + 120) * 1000, "endingTimestamp": (YEAR_2020 + 180) * 1000},
        range(120, 180),
    ),
    "from a time on": ({"startingTimestamp": (YEAR_2020 + 205) * 1000}, range(205, 300)),
    "up to a time": ({"endingTimestamp": (YEAR_2020 + 1) * 1000}, range(1)),
}


@pytest.mark.parametrize("bounds", BY_EVENT_TIME)
@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_bounds_by_time_are_those_of_records_whenever_their_transactions_ended(load, events, bounds, isolation_level):
    options, expected = BY_EVENT_TIME[bounds]
    assert numbers(load(events, **options, **{"kafka.isolation.level": isolation_level})) == list(expected)


def test_a_stream_ends_by_the_time_of_records_whenever_their_transactions_ended(spark, bootstrap, events, tmp_path):
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": events, "startingOffsets": "earliest"}
    options |= {"maxOffsetsPerTrigger": 70, "endingTimestamp": (YEAR_2020 + 250) * 1000}
    for run in range(2):
        frame = spark.readStream.format("kafka-eos").options(**options).load()
        query = frame.select("value").writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
        assert numbers(spark.read.parquet(str(tmp_path / "rows"))) == list(range(250)), f"start {run + 1}"


def test_without_a_record_of_the_time_the_end_is_the_latest_offset_and_the_start_is_refused(load, events):
    assert numbers(load(events, endingTimestamp=YEAR_2021 * 1000, startingTimestamp=0)) == list(range(300))
    with pytest.raises(AnalysisException, match="has no record with this timestamp or a later one"):
        load(events, startingTimestamp=YEAR_2021 * 1000).collect()


def test_a_topic_without_records_is_an_empty_frame(topic, load):
    frame = load(topic("empty", partitions=3))
    assert frame.count() == 0
    assert frame.columns[:2] == ["key", "value"]


def test_two_hundred_partitions_take_few_tasks(bootstrap, topic, load):
    name = topic("wide", partitions=200)
    for partition in range(0, 200, 10):
        produce(bootstrap, name, [b"%d" % partition], partition=partition)
    frame = load(name)
    assert numbers(frame) == list(range(0, 200, 10))
    assert frame.rdd.getNumPartitions() <= (os.cpu_count() or 1)


def test_min_partitions_cuts_large_ranges(bootstrap, topic, load):
    name = topic("cut")
    produce(bootstrap, name, values(1_000))
    frame = load(name, minPartitions="4")
    assert frame.select(F.spark_partition_id().alias("task")).distinct().count() == 4
    assert numbers(frame) == list(range(1_000))


def test_what_was_deleted_fails_the_read_or_is_left_out(bootstrap, topic, load):
    name = topic("deleted")
    produce(bootstrap, name, values(10))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [deleted] = admin.delete_records([TopicPartition(name, 0, 4)]).values()
    assert deleted.result(30).low_watermark == 4
    from_the_first = f'{{"{name}": {{"0": 0}}}}'
    assert numbers(load(name)) == list(range(4, 10))
    assert numbers(load(name, startingOffsets=from_the_first, failOnDataLoss="false")) == list(range(4, 10))
    with pytest.raises(Exception, match=f"{name}-0 from 0 to 4.*failOnDataLoss"):
        load(name, startingOffsets=from_the_first).count()


def test_a_task_that_wants_only_a_few_rows_leaves_the_connection_usable(bootstrap, topic, load):
    name = topic("limit", partitions=2)
    for partition in range(2):
        produce(bootstrap, name, [b"%07d" % number for number in range(100_000)], partition=partition)
    frame = load(name, **{"kafka.max.partition.fetch.bytes": "100000"})
    for _ in range(3):
        assert len(frame.limit(5).collect()) == 5
    assert frame.count() == 200_000
