"""How far a number of bytes goes, against logs whose every record batch is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader
from spark_kafka_eos.reading.byte_limit import Sample, ends_within, look_further, sample

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def header(base_offset: int, offsets: int, size: int) -> RecordBatchHeader:
    return RecordBatchHeader(
        position=0,
        base_offset=base_offset,
        batch_length=size - 12,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=offsets - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=offsets,
    )


def covering(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=partition, start=start, end=end)


def flat(offset: int, each: float) -> Sample:
    return Sample(offset=offset, until=offset + 1, bytes_per_offset=each)


def test_a_sample_is_the_average_of_the_batches_read() -> None:
    found = sample(10, [header(10, 10, 1_000), header(20, 30, 7_000)])
    assert (found.offset, found.until, found.bytes_per_offset) == (10, 50, 200.0)


def test_a_batch_that_begins_before_the_range_weighs_as_a_whole() -> None:
    assert sample(15, [header(10, 10, 1_000)]).bytes_per_offset == 100.0


def test_offsets_that_compaction_left_empty_weigh_nothing() -> None:
    assert sample(10, [header(60, 50, 1_000)]).bytes_per_offset == 10.0


def test_what_fits_is_read_to_its_end() -> None:
    assert ends_within(1_000, [covering(A, 0, 100)], {A: [flat(0, 10.0)]}) == {A: 100}


def test_the_limit_is_shared_out_by_weight() -> None:
    ranges = [covering(A, 0, 1_000), covering(B, 50, 100)]
    assert ends_within(2_000, ranges, {A: [flat(0, 10.0)], B: [flat(50, 200.0)]}) == {A: 100, B: 55}


def test_a_share_smaller_than_a_record_is_one_record() -> None:
    ranges = [covering(A, 0, 10), covering(B, 7, 9)]
    assert ends_within(1, ranges, {A: [flat(0, 1e6)], B: [flat(7, 1e6)]}) == {A: 1, B: 8}


def test_offsets_between_two_samples_weigh_their_mean() -> None:
    samples = {A: [flat(0, 10.0), flat(100, 30.0)]}
    assert ends_within(1_000, [covering(A, 0, 200)], samples) == {A: 50}
    assert ends_within(2_300, [covering(A, 0, 200)], samples) == {A: 110}


def test_more_samples_are_taken_inside_of_what_the_first_does_not_show() -> None:
    first = Sample(offset=0, until=100, bytes_per_offset=1.0)
    assert look_further(covering(A, 0, 500), first) == [199, 299, 399, 499]
    assert look_further(covering(A, 0, 102), first) == [100, 101]
    assert look_further(covering(A, 0, 100), first) == []


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 500), st.integers(1, 10_000)), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 1_000_000),
)
def test_the_limit_is_kept_by_what_is_known_and_every_partition_advances(
    logs: list[list[tuple[int, int]]], limit: int
) -> None:
    ranges, samples, weigh = [], {}, {}
    for number, pieces in enumerate(logs):
        tp, offset, weights, found = TopicPartition("t", number), 7, [0.0] * 7, []
        for (length, each), (_, following) in zip(pieces, [*pieces[1:], pieces[-1]], strict=True):
            found.append(flat(offset, float(each)))
            weights += [(each + following) / 2] * length
            offset += length
        ranges.append(covering(tp, 7, offset))
        samples[tp], weigh[tp] = found, weights
    ends = ends_within(limit, ranges, samples)
    assert all(one.start < ends[one.partition] <= one.end for one in ranges)
    taken = sum(sum(weigh[one.partition][one.start : ends[one.partition]]) for one in ranges)
    assert taken <= limit + sum(weigh[one.partition][one.start] for one in ranges)
    if sum(sum(weights) for weights in weigh.values()) <= limit:
        assert all(ends[one.partition] == one.end for one in ranges)
