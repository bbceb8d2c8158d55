"""How far a number of bytes reaches, on logs in memory: which samples are taken, and what is made of them."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.model import OffsetRange, TopicPartition
from spark_kafka_eos.reading import sampling
from spark_kafka_eos.reading.sampling import ends_by_weight
from spark_kafka_eos.wire.encode import encode
from spark_kafka_eos.wire.record_batch import scan

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
CLUSTER = cast(Cluster, None)  # only handed on to the Fetcher
RECEIVED = 1_700_000_000_123


class Log:
    """One partition: record batches of ten records each, of values of the given sizes."""

    def __init__(self, *sizes):
        self.batches = []
        for number, size in enumerate(sizes):
            batch = encode(pa.nulls(10, pa.binary()), pa.array([b"v" * size] * 10, pa.binary()), RECEIVED)
            batch[:8] = (10 * number).to_bytes(8, "big")
            self.batches.append(bytes(batch))

    def weight(self, end):
        """Of the offsets before `end`, in bytes."""
        return sum(len(batch) * min(max(end - 10 * number, 0), 10) / 10 for number, batch in enumerate(self.batches))


class Fetcher:
    """Gives of each range's partition the batch that holds its first offset, and those after that fit as well."""

    def __init__(self, logs):
        self.logs = logs
        self.asked = []

    def __call__(self, cluster, *, isolation_level, max_partition_fetch_bytes):
        self.most = max_partition_fetch_bytes
        return self

    def fetch(self, ranges):
        self.asked.append({one.partition: one.start for one in ranges})
        for one in ranges:
            batches = self.logs[one.partition].batches[one.start // 10 :]
            buffer = b"".join(batches)[: max(self.most, len(batches[0]))]
            yield type("Part", (), {"partition": one.partition, "buffer": memoryview(buffer)})


@pytest.fixture
def weigh(monkeypatch):
    """`weigh(limit, *logs)`: where each log's batch from `start` on ends, and the offsets that were looked at."""

    def run(limit, *logs, start=0):
        fetcher = Fetcher({TopicPartition("t", number): log for number, log in enumerate(logs)})
        monkeypatch.setattr(sampling, "Fetcher", fetcher)
        ranges = [OffsetRange(partition=tp, start=start, end=10 * len(log.batches)) for tp, log in fetcher.logs.items()]
        return ends_by_weight(CLUSTER, limit, ranges, "read_committed"), fetcher.asked

    return run


def test_records_of_one_size_are_weighed_to_the_byte(weigh):
    log = Log(*[1_000] * 200)
    ends, _ = weigh(500_000, log)
    assert log.weight(ends[A]) <= 500_000 < log.weight(ends[A] + 1)


def test_what_one_look_shows_needs_no_other(weigh):
    ends, asked = weigh(1_000_000, Log(100, 100, 100), Log(10))
    assert ends == {A: 30, B: 10}
    assert asked == [{A: 0, B: 0}]


def test_records_that_grow_a_hundredfold_are_met_before_they_are_planned(weigh):
    log, ends, sizes = Log(*[100] * 50, *[10_000] * 150), [0], []
    while ends[-1] < 2_000:
        end, asked = weigh(1_000_000, log, start=ends[-1])
        assert len(asked) <= 5
        ends.append(end[A])
        sizes.append(log.weight(ends[-1]) - log.weight(ends[-2]))
    assert max(sizes) <= 2_000_000, "half of the truth at worst"
    assert len(sizes) <= 25, "and that costs few batches more than 16"


def test_large_records_at_the_start_make_a_small_batch_and_the_next_is_right(weigh):
    ends, _ = weigh(1_000_000, Log(*[10_000] * 5, *[100] * 195))
    assert 90 <= ends[A] <= 110


def test_partitions_of_different_records_advance_alike(weigh):
    small, large = Log(*[100] * 100), Log(*[10_000] * 100)
    ends, _ = weigh(1_000_000, small, large)
    assert abs(ends[A] - ends[B]) <= 1
    assert 0.9e6 < small.weight(ends[A]) + large.weight(ends[B]) <= 1e6


def test_nothing_to_read_asks_nothing(monkeypatch):
    monkeypatch.setattr(sampling, "Fetcher", Fetcher({}))
    assert ends_by_weight(CLUSTER, 1, [], "read_committed") == {}


def test_what_the_samples_hold_are_whole_record_batches():
    assert [header.record_count for header in scan(Log(5, 5).batches[0])] == [10]
