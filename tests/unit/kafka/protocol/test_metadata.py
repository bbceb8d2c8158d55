"""Which of two descriptions of a topic is right."""

from __future__ import annotations

import uuid

import pytest

from spark_kafka_eos.kafka.protocol.metadata import PartitionDescription, TopicDescription, newest


def described(*leaders, topic_id=1):
    """A topic whose partitions have these (leader, epoch)."""
    partitions = {
        number: PartitionDescription(leader=leader, leader_epoch=epoch)
        for number, (leader, epoch) in enumerate(leaders)
    }
    return TopicDescription(name="orders", id=uuid.UUID(int=topic_id), partitions=partitions)


@pytest.mark.parametrize(
    ("before", "found", "right"),
    [
        (None, described((1, 5)), described((1, 5))),
        (described((1, 5)), described((2, 6)), described((2, 6))),
        (described((2, 6)), described((1, 5)), described((2, 6))),
        (described((1, 5)), described((-1, 5)), described((-1, 5))),
        (described((2, 6), (1, 3)), described((1, 5), (3, 4)), described((2, 6), (3, 4))),
        (described((1, 5), (2, 5)), described((1, 5)), described((1, 5), (2, 5))),
        (described((1, 5)), described((1, 5), (2, 0)), described((1, 5), (2, 0))),
        (described((1, 5), (2, 5)), described((3, 0), topic_id=2), described((3, 0), topic_id=2)),
    ],
    ids=[
        "the first one",
        "a later leader",
        "an outdated broker's word on the leader",
        "no leader in the same epoch",
        "each partition for itself",
        "an outdated broker's word on the partitions",
        "a new partition",
        "a topic created again",
    ],
)
def test_of_two_descriptions_each_partition_has_its_newest(before, found, right):
    assert newest(before, found) == right
