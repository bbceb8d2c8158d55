"""Ranges of a real broker's topics as Arrow batches: what is visible, and what a range's bounds mean."""

from __future__ import annotations

import time

import pytest

from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from tests.conftest import topic_factory
from tests.producing import KEEP, end_transaction, produce, transact
from tests.reading import await_stable, table

pytestmark = pytest.mark.broker


@pytest.fixture
def bootstrap(either_kafka):
    return either_kafka.bootstrap


@pytest.fixture
def topic(either_kafka):
    return topic_factory(either_kafka)


@pytest.fixture
def rows(bootstrap):
    """`rows(topic, **options)`: all rows of a batch read, as a table."""

    return lambda topic, **given: table(bootstrap, topic, **given)


def numbers(table):
    return [int(value) for value in table["value"].to_pylist()]


def values(*bounds):
    return [str(number).encode() for number in range(*bounds)]


def test_aborted_and_open_transactions_and_their_markers_are_invisible(bootstrap, topic, rows):
    name = topic("mixed")
    transact(bootstrap, name, values(0, 10), "commit")  # 0-9, marker 10
    transact(bootstrap, name, values(100, 110), "abort")  # 11-20, marker 21
    produce(bootstrap, name, values(10, 15))  # 22-26
    transact(bootstrap, name, values(15, 20), "commit")  # 27-31, marker 32
    still_open = transact(bootstrap, name, values(200, 205), "leave open")  # 33-37
    produce(bootstrap, name, values(300, 305))  # 38-42, after the last stable offset
    table = rows(name)
    assert numbers(table) == list(range(20))
    assert table["offset"].to_pylist() == [*range(10), *range(22, 32)]
    everything = rows(name, **{"kafka.isolation.level": "read_uncommitted"})
    assert numbers(everything) == [*range(10), *range(100, 110), *range(10, 20), *range(200, 205), *range(300, 305)]
    end_transaction(still_open, bootstrap, name, "abort")
    assert numbers(rows(name)) == [*range(20), *range(300, 305)]


def test_an_aborted_transaction_stays_invisible_wherever_the_read_starts(bootstrap, topic, rows):
    name = topic("aborted")
    transact(bootstrap, name, values(100, 110), "abort")  # 0-9, marker 10
    produce(bootstrap, name, values(0, 5))  # 11-15
    for start in range(14):
        seen = rows(name, startingOffsets=f'{{"{name}": {{"0": {start}}}}}')["offset"].to_pylist()
        assert seen == list(range(max(start, 11), 16)), start


def test_interleaved_transactions_of_several_producers_are_told_apart(bootstrap, topic, rows):
    name = topic("interleaved")
    first = transact(bootstrap, name, values(100, 105), "leave open")
    second = transact(bootstrap, name, values(0, 5), "leave open")
    for number in range(105, 110):
        first.produce(name, str(number).encode(), partition=0)
    assert first.flush(30) == 0
    end_transaction(second, bootstrap, name, "commit")
    end_transaction(first, bootstrap, name, "abort")
    transact(bootstrap, name, values(5, 10), "commit")
    assert numbers(rows(name)) == list(range(10))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(bootstrap, topic, rows, codec):
    name = topic(codec)
    produce(bootstrap, name, [b"value %d " % number * 20 for number in range(2_000)], compression=codec)
    assert rows(name)["value"].to_pylist() == [b"value %d " % number * 20 for number in range(2_000)]


def test_offsets_inside_record_batches_bound_the_rows(bootstrap, topic, rows):
    name = topic("bounds")
    produce(bootstrap, name, values(100))
    for start, end in [(0, 100), (3, 97), (50, 51), (99, 100), (40, 40)]:
        starts, ends = (f'{{"{name}": {{"0": {offset}}}}}' for offset in (start, end))
        assert numbers(rows(name, startingOffsets=starts, endingOffsets=ends)) == list(range(start, end))


def test_null_and_empty_keys_values_and_headers_are_told_apart(bootstrap, topic, rows):
    name = topic("nulls")
    produce(bootstrap, name, [None, b""], key=b"", headers=[("a", b"1"), ("a", None), ("b", b"")])
    produce(bootstrap, name, [b"v"])
    table = rows(name, includeHeaders="true")
    assert table["value"].to_pylist() == [None, b"", b"v"]
    assert table["key"].to_pylist() == [b"", b"", None]
    given = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}]
    assert table["headers"].to_pylist() == [given, given, None]


def test_log_append_time_is_told_from_the_producers(bootstrap, topic, rows):
    name = topic("appended", config={"message.timestamp.type": "LogAppendTime"})
    produce(bootstrap, name, [b"v"], timestamp=1_000_000_000_000)
    [row] = rows(name).to_pylist()
    assert row["timestampType"] == 1
    assert time.time() - row["timestamp"].timestamp() < 60


def test_a_range_without_visible_records_ends_at_once(bootstrap, topic, rows):
    name = topic("nothing")
    for _ in range(3):
        transact(bootstrap, name, values(10), "abort")
    began = time.monotonic()
    assert rows(name, **{"kafka.fetch.max.wait.ms": "20000"}).num_rows == 0
    assert time.monotonic() - began < 20


def test_records_larger_than_the_fetch_sizes_are_read(bootstrap, topic, rows):
    name = topic("large", partitions=2)
    for partition in range(2):
        produce(bootstrap, name, [bytes([partition, number]) * 100_000 for number in range(5)], partition=partition)
    table = rows(name, **{"kafka.fetch.max.bytes": "1000", "kafka.max.partition.fetch.bytes": "1000"})
    assert sorted(value[:2] for value in table["value"].to_pylist()) == [
        bytes([p, n]) for p in range(2) for n in range(5)
    ]


def test_the_last_offsets_of_each_partition_are_read(bootstrap, topic, rows):
    name = topic("last", partitions=3)
    produce(bootstrap, name, values(100))
    produce(bootstrap, name, values(3), partition=1)
    transact(bootstrap, name, values(10), "commit", partition=2)
    await_stable(bootstrap, name)
    found = rows(name, startingOffsets="latest-5")
    offsets = sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))
    # The transaction's marker is an offset, but no record.
    assert offsets == [*((0, at) for at in range(95, 100)), (1, 0), (1, 1), (1, 2), *((2, at) for at in range(6, 10))]


def test_a_topic_is_read_in_tasks_of_about_the_allowed_size(bootstrap, topic, rows):
    name = topic("sizes", partitions=3)
    for partition, records in enumerate((12_000, 6_000, 10)):
        produce(bootstrap, name, [b"%01000d" % number for number in range(records)], partition=partition)
    options = source_options(
        {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "maxBytesPerPartition": "2m"}, streaming=False
    )
    with OffsetPlanner(options) as positions:
        tasks = positions.batch_read()
    assert [one.partition.partition for [one] in tasks] == [0] * 6 + [1] * 3 + [2]
    assert sorted(numbers(rows(name, maxBytesPerPartition="2m"))) == sorted([*range(12_000), *range(6_000), *range(10)])


def test_partitions_without_a_start_of_their_own_are_read_from_the_earliest(bootstrap, topic, rows):
    name = topic("partly", partitions=2)
    for partition in range(2):
        produce(bootstrap, name, values(4), partition=partition)
    start = {"startingOffsets": f'{{"{name}": {{"1": 3}}}}', "startingOffsetsStrategy": "earliest"}
    assert sorted(rows(name, **start)["partition"].to_pylist()) == [0, 0, 0, 0, 1]


def test_a_start_by_time_is_the_first_record_from_then_on(bootstrap, topic, rows):
    name = topic("times", config=KEEP)
    for number in range(5):
        produce(bootstrap, name, [b"%d" % number], timestamp=1_700_000_000_000 + number * 1_000)
    assert numbers(rows(name, startingTimestamp="1700000001500")) == [2, 3, 4]
    assert numbers(rows(name, endingTimestamp="1700000002000")) == [0, 1]
