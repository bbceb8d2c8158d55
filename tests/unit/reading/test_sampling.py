"""How far a number of bytes reaches, on the model of Kafka: which samples are taken, and what is made of them."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.reading import sampling
from spark_kafka_eos.reading.sampling import ends_by_weight
from tests.model_kafka import KafkaModel

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
RECEIVED = 1_700_000_000_123


class Log:
    """One partition: record batches of ten records each, of values of the given sizes."""

    def __init__(self, *sizes):
        self.batches = [
            bytes(encode(pa.nulls(10, pa.binary()), pa.array([b"v" * size] * 10, pa.binary()), RECEIVED))
            for size in sizes
        ]

    def weight(self, end):
        """Of the offsets before `end`, in bytes."""
        return sum(len(batch) * min(max(end - 10 * number, 0), 10) / 10 for number, batch in enumerate(self.batches))


def weigh(limit, *logs, start=0):
    """Where each log's batch from `start` on ends, and the offsets that were looked at."""
    kafka = KafkaModel(2, {"t": len(logs)}, nodes=1)
    for tp, log in zip(kafka.partitions, logs, strict=True):
        for batch in log.batches:
            kafka.partitions[tp].append_plain((None,) * 10, batch=batch)
    ranges = [OffsetRange(partition=tp, start=start, end=log.end_offset) for tp, log in kafka.partitions.items()]
    ends = ends_by_weight(kafka.cluster(), limit, ranges, "read_committed")
    asked = [
        {TopicPartition("t", wanted.partition): wanted.fetch_offset for wanted in request.topics[0].partitions}
        for request in kafka.sent("Fetch")
    ]
    return ends, asked


def test_records_of_one_size_are_weighed_to_the_byte():
    log = Log(*[1_000] * 200)
    ends, _ = weigh(500_000, log)
    assert log.weight(ends[A]) <= 500_000 < log.weight(ends[A] + 1)


def test_what_one_look_shows_needs_no_other():
    ends, asked = weigh(1_000_000, Log(100, 100, 100), Log(10))
    assert ends == {A: 30, B: 10}
    assert asked == [{A: 0, B: 0}]


def test_records_that_grow_a_hundredfold_are_met_before_they_are_planned():
    log, ends, sizes = Log(*[100] * 50, *[10_000] * 150), [0], []
    while ends[-1] < 2_000:
        end, asked = weigh(1_000_000, log, start=ends[-1])
        assert len(asked) <= 5
        ends.append(end[A])
        sizes.append(log.weight(ends[-1]) - log.weight(ends[-2]))
    assert max(sizes) <= 2_000_000, "half of the truth at worst"
    assert len(sizes) <= 25, "and that costs few batches more than 16"


def test_large_records_at_the_start_make_a_small_batch_and_the_next_is_right():
    ends, _ = weigh(1_000_000, Log(*[10_000] * 5, *[100] * 195))
    assert 90 <= ends[A] <= 110


def test_partitions_of_different_records_advance_alike():
    small, large = Log(*[100] * 100), Log(*[10_000] * 100)
    ends, _ = weigh(1_000_000, small, large)
    assert abs(ends[A] - ends[B]) <= 1
    assert 0.9e6 < small.weight(ends[A]) + large.weight(ends[B]) <= 1e6


def test_a_range_of_which_compaction_left_nothing_weighs_nothing(monkeypatch):
    """A fetch returns nothing of a range if the log goes on behind it."""

    class Compacted(Fetcher):
        def fetch(self, ranges):
            return (part for part in super().fetch(ranges) if part.partition != B)

    monkeypatch.setattr(sampling, "Fetcher", Compacted)
    assert weigh(1_200, Log(100, 100), Log(100))[0] == {A: 10, B: 10}
    kafka = KafkaModel(2, {"t": 2}, nodes=1)
    for tp in (A, B):
        kafka.partitions[tp].append_plain((None,) * 10, batch=Log(100).batches[0])
    ranges = [OffsetRange(partition=tp, start=0, end=10) for tp in (A, B)]
    assert sampling.bytes_per_offset(kafka.cluster(), ranges, "read_committed")[B] == 0


def test_nothing_to_read_asks_nothing():
    kafka = KafkaModel()
    assert ends_by_weight(kafka.cluster(), 1, [], "read_committed") == {}
    assert kafka.requests == []


def test_what_the_samples_hold_are_whole_record_batches():
    assert [header.record_count for header in scan(Log(5, 5).batches[0])] == [10]
