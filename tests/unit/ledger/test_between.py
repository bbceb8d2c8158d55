"""Between two offsets, only records that a read_committed reader sees count."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.ledger.between import has_records
from tests.model_kafka import KafkaModel

IN, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


@pytest.fixture
def kafka():
    """Offset 0 to 2: a batch of three records; 3 and 4: an aborted record with its marker; 5 and 6: a committed one."""
    kafka = KafkaModel(2, {"in": 2})
    plain = encode(pa.nulls(3, pa.binary()), pa.array([b"a", b"b", b"c"]), 0)
    kafka.partitions[IN].append_plain((b"a", b"b", b"c"), batch=bytes(plain))
    for producer, commit in ((1, False), (2, True)):
        batch = encode(pa.nulls(1, pa.binary()), pa.array([b"x"]), 0)
        stamp(batch, producer_id=producer, epoch=0, base_sequence=0, transactional=True)
        kafka.partitions[IN].append(producer, 0, 0, (b"x",), batch=bytes(batch))
        kafka.partitions[IN].mark(producer, 0, commit)
    return kafka


def found(kafka, *ranges):
    wanted = [OffsetRange(partition=tp, start=start, end=end) for tp, start, end in ranges]
    return has_records(kafka.cluster(), wanted)


@pytest.mark.parametrize(
    ("start", "end", "there"),
    [
        (0, 1, True),
        (1, 2, True),
        (2, 3, True),
        (3, 4, False),
        (3, 5, False),
        (4, 6, True),
        (5, 6, True),
        (6, 7, False),
        (2, 7, True),
        (0, 3, True),
    ],
)
def test_a_record_counts_wherever_in_its_batch_and_no_marker_or_aborted_record_does(kafka, start, end, there):
    assert found(kafka, (IN, start, end)) is there


def test_one_record_in_any_of_the_ranges_is_enough(kafka):
    assert not found(kafka, (IN, 3, 5), (IN._replace(partition=1), 0, 0))
    batch = encode(pa.nulls(1, pa.binary()), pa.array([b"y"]), 0)
    kafka.partitions[OTHER].append_plain((b"y",), batch=bytes(batch))
    assert found(kafka, (IN, 3, 5), (OTHER, 0, 1))


def test_what_is_not_there_any_more_may_have_been_a_record(kafka):
    kafka.partitions[IN].delete_before(5)
    assert found(kafka, (IN, 3, 5))
    kafka.topics.delete("in")
    assert found(kafka, (IN, 6, 7))


def compact(kafka, *offsets):
    log = kafka.partitions[IN]
    log.log = [entry for entry in log.log if entry.offset not in offsets]


def test_what_compaction_has_removed_may_have_been_a_record(kafka):
    for _ in range(3):
        kafka.partitions[IN].mark(2, 0, True)
    assert not found(kafka, (IN, 6, 10))
    compact(kafka, 0, 1, 2, 5, 8)
    assert found(kafka, (IN, 0, 5)), "the first ones"
    assert found(kafka, (IN, 5, 7)), "the first one"
    assert found(kafka, (IN, 7, 10)), "one in between"
    assert found(kafka, (IN, 7, 9)), "the last one"
    assert found(kafka, (IN, 8, 9)), "all"
    assert not found(kafka, (IN, 3, 5), (OTHER, 0, 0))
    assert not found(kafka, (IN, 6, 8))
    assert not found(kafka, (IN, 9, 10))
