"""What a task's reading takes, from record batches to figures."""

from __future__ import annotations

import pytest

from spark_kafka_eos.core.fetch_steps import Fetched
from spark_kafka_eos.model import OffsetRange, RecordBatchHeader, TopicPartition
from spark_kafka_eos.reading.read_stats import Tally

T0 = TopicPartition("t", 0)


def header(first, records, *, span=None, control=False):
    """A batch of `records` over `span` offsets (more than records where it was compacted), 100 bytes long."""
    return RecordBatchHeader(
        position=100 * first,
        base_offset=first,
        batch_length=88,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0x30 if control else 0x10,
        last_offset_delta=(span or records) - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        record_count=records,
    )


def fetched(*headers):
    return Fetched(
        partition=T0,
        buffer=memoryview(b""),
        batches=headers,
        aborted=(),
        next_offset=headers[-1].next_offset,
        high_watermark=0,
        last_stable_offset=0,
    )


def counted(start, end, *parts):
    tally = Tally([OffsetRange(partition=T0, start=start, end=end)])
    for headers, shown in parts:
        tally.count(fetched(*headers), [one for one, is_shown in zip(headers, shown, strict=True) if is_shown])
    [found] = tally.ranges
    assert (found.partition, found.start, found.end) == (T0, start, end)
    return found.bytes, found.aborted


def test_all_record_batches_weigh_and_only_data_that_is_not_shown_was_aborted():
    first = [header(0, 10), header(10, 5), header(15, 1, control=True)], [True, False, False]
    second = [header(16, 4)], [False]
    assert counted(0, 20, first, second) == (400, 9)


@pytest.mark.parametrize(("start", "end", "aborted"), [(0, 30, 10), (13, 30, 7), (0, 12, 2), (13, 15, 2), (20, 30, 0)])
def test_of_a_batch_that_reaches_out_of_the_range_only_what_is_inside_counts(start, end, aborted):
    assert counted(start, end, ([header(10, 10)], [False])) == (100, aborted)


def test_a_compacted_batch_counts_the_records_that_are_left():
    assert counted(0, 100, ([header(0, 3, span=50)], [False])) == (100, 3)


def test_a_range_without_a_result_is_reported_nevertheless():
    assert counted(5, 9) == (0, 0)
