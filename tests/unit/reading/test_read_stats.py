"""What a task's reading takes, from record batches to figures."""

from __future__ import annotations

import numpy as np
import pytest

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.wire.header_table import header_table
from spark_kafka_eos.kafka.wire.record_batch import HEADER, scan
from spark_kafka_eos.reading.read_stats import Tally

T0 = TopicPartition("t", 0)


def header(first, records, *, span=None, control=False):
    """A batch of `records` over `span` offsets (more than records where it was compacted), 100 bytes long."""
    return HEADER.pack(
        first, 88, 0, 2, 0, 0x30 if control else 0x10, (span or records) - 1, 0, 0, 1, 0, 0, records
    ) + bytes(100 - HEADER.size)


def counted(start, end, *parts):
    tally = Tally([OffsetRange(partition=T0, start=start, end=end)])
    for headers, shown in parts:
        buffer = b"".join(headers)
        tally.count(T0, header_table(buffer, scan(buffer)), np.array(shown))
    [found] = tally.ranges
    assert (found.partition, found.start, found.end) == (T0, start, end)
    return found.bytes, found.aborted


def test_all_record_batches_weigh_and_only_data_that_is_not_shown_was_aborted():
    first = [header(0, 10), header(10, 5), header(15, 1, control=True)], [True, False, False]
    second = [header(16, 4)], [False]
    assert counted(0, 20, first, second) == (400, 9)


@pytest.mark.parametrize(("start", "end", "aborted"), [(0, 30, 10), (13, 30, 7), (0, 12, 2), (13, 15, 2), (20, 30, 0)])
def test_only_the_part_of_a_batch_inside_the_range_counts(start, end, aborted):
    assert counted(start, end, ([header(10, 10)], [False])) == (100, aborted)


def test_a_compacted_batch_counts_the_records_that_are_left():
    assert counted(0, 100, ([header(0, 3, span=50)], [False])) == (100, 3)


def test_a_range_without_a_result_is_reported_nevertheless():
    assert counted(5, 9) == (0, 0)
