"""`pushDownFilters` on a real broker: less is read, and never fewer rows are found, however a frame is used."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

from tests.producing import KEEP

pytestmark = [pytest.mark.spark, pytest.mark.broker]

CONFIGURATION = "spark.sql.python.filterPushdown.enabled"
PARTITIONS, RECORDS, MINUTE = 3, 100, 60_000
BEGIN = 1_750_000_000_000  # 2025-06-15 11:06:40 in New York, the session's zone
NOON = "timestamp'2025-06-15 12:06:40'"  # record 60


@pytest.fixture
def filled(bootstrap, topic):
    """A topic with a record a minute in each of its partitions."""
    name = topic("filtered", partitions=PARTITIONS, config=KEEP)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for partition in range(PARTITIONS):
        for number in range(RECORDS):
            producer.produce(name, b"%d" % number, partition=partition, timestamp=BEGIN + number * MINUTE)
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def load(spark, bootstrap, filled):
    """`load(**options)`: a batch frame over that topic, in a session that pushes filters down."""
    spark.conf.set(CONFIGURATION, "true")

    def run(**options):
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": filled} | options
        return spark.read.format("kafka-eos").options(**given).load()

    yield run
    spark.conf.unset(CONFIGURATION)


@pytest.fixture
def frame(load):
    return load(pushDownFilters="true", maxTimestampDelay="10m").where("offset >= 0")


def found(frame):
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def read(frame):
    """How many rows the scan of the frame's plan gave to Spark."""
    selected = frame.select("partition")
    selected.collect()
    [scan] = [selected._jdf.queryExecution().executedPlan().collectLeaves().apply(0)]
    return scan.metrics().apply("numOutputRows").value()


@pytest.mark.parametrize(
    ("condition", "rows_read"),
    [
        ("partition = 1", 100),
        ("partition in (0, 2)", 200),
        ("partition = 1 and offset between 10 and 19", 10),
        ("offset = 7", 3),
        (f"timestamp >= {NOON}", 3 * 40),
        (f"timestamp > {NOON} - interval 10 minutes and timestamp <= {NOON}", 3 * 20),
        (f"timestamp = {NOON} and partition = 2", 11),
        ("timestamp < timestamp'2020-01-01'", 0),
        ("partition = 1 or offset = 5", 300),
        (f"not (timestamp < {NOON}) and cast(value as string) = '61'", 3 * 40),
    ],
)
def test_filters_read_less_and_find_the_same(load, condition, rows_read):
    def fresh():
        return load(pushDownFilters="true", maxTimestampDelay="10m").where("offset >= 0").where(condition)

    assert found(fresh()) == found(load().where(condition))
    assert read(fresh()) == rows_read


def test_one_frame_with_several_filters_at_once_finds_all_rows(frame):
    either = frame.where("partition = 0").unionAll(frame.where("partition = 1 and offset < 10"))
    assert len(found(either)) == 110
    one, other = frame.where("partition = 0").alias("a"), frame.where("partition = 1").alias("b")
    assert one.join(other, F.col("a.offset") == F.col("b.offset")).count() == 100


def test_one_frame_with_one_filter_after_the_other_finds_all_rows(frame):
    narrow = frame.where("partition = 2 and offset < 5")
    narrow.explain()
    assert len(found(frame.where("partition = 1"))) == 100
    assert len(found(narrow)) == 5
    assert len(found(frame)) == 300


def test_a_frame_that_is_used_without_a_filter_is_refused(load):
    with pytest.raises(Exception, match=r"pushDownFilters.*where\('offset >= 0'\)"):
        load(pushDownFilters="true").count()


def test_without_sparks_own_setting_the_error_names_it(spark, load):
    spark.conf.unset(CONFIGURATION)
    with pytest.raises(Exception, match=CONFIGURATION):
        load(pushDownFilters="true").where("offset >= 0").count()
