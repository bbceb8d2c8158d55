"""Buckets: which partitions are committed together, and which tasks have them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.real_time.buckets import bucket_of, by_bucket, by_task

PARTITIONS = st.sets(st.builds(TopicPartition, st.sampled_from(["orders", "payments", "refunds"]), st.integers(0, 99)))


@given(PARTITIONS, st.integers(1, 20))
def test_each_partition_is_in_one_bucket_whatever_other_partitions_there_are(
    partitions: set[TopicPartition], count: int
) -> None:
    buckets = by_bucket(partitions, count)
    assert sorted(tp for members in buckets.values() for tp in members) == sorted(partitions)
    for number, members in buckets.items():
        assert 0 <= number < count
        for tp in members:
            assert by_bucket([tp], count) == {number: [tp]}


@given(st.integers(1, 20), st.integers(1, 10))
def test_the_partitions_of_a_topic_are_spread_evenly(count: int, times: int) -> None:
    sizes = Counter(bucket_of(TopicPartition("orders", number), count) for number in range(count * times))
    assert set(sizes.values()) == {times}


def test_the_bucket_of_a_partition_never_changes_between_releases() -> None:
    assert [bucket_of(TopicPartition("orders", number), 4) for number in range(5)] == [2, 3, 0, 1, 2]
    assert bucket_of(TopicPartition("payments", 0), 4) == 2


@given(st.integers(0, 40), st.integers(1, 12))
def test_tasks_have_all_buckets_and_differ_by_one_at_most(count: int, tasks: int) -> None:
    groups = by_task(range(count), tasks)
    assert sorted(number for group in groups for number in group) == list(range(count))
    assert len(groups) == min(count, tasks)
    assert not groups or max(map(len, groups)) - min(map(len, groups)) <= 1
