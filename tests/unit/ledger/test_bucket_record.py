"""What a bucket's record says of where its partitions are read on."""

from __future__ import annotations

import json
import uuid

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.bucket_record import BucketRecord, decode, encode, latest

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = {"t": uuid.UUID(int=1)}


def test_a_record_says_after_which_leader_epochs_its_partitions_are_read_on() -> None:
    record = BucketRecord(offsets={T0: 10, T1: 7}, topic_ids=IDS, epochs={T0: 4})
    assert decode(encode(record)) == record


def test_a_record_without_epochs_is_as_earlier_ones_were() -> None:
    value = encode(BucketRecord(offsets={T0: 10}, topic_ids=IDS))
    assert json.loads(value).keys() == {"v", "offsets", "topics"}
    assert decode(value).epochs == {}


def test_a_partition_that_has_moved_to_an_offset_of_unknown_epoch_keeps_no_earlier_one() -> None:
    record = BucketRecord(offsets={T0: 10, T1: 7}, topic_ids=IDS, epochs={T0: 4, T1: 4})
    moved = record.moved({T0: 12}, {})
    assert (moved.offsets, moved.epochs) == ({T0: 12, T1: 7}, {T1: 4})


def test_the_record_that_has_read_the_most_of_a_partition_counts_and_the_one_that_knows_its_epoch() -> None:
    one = BucketRecord(offsets={T0: 10, T1: 7}, topic_ids={}, epochs={T0: 4, T1: 2})
    other = BucketRecord(offsets={T0: 12, T1: 7}, topic_ids={})
    for records in ([one, other], [other, one]):
        found = latest(records)
        assert (found.offsets, found.epochs) == ({T0: 12, T1: 7}, {T1: 2})
