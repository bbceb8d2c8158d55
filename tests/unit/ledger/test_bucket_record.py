"""What a bucket's record says of where its partitions are read on."""

from __future__ import annotations

import json
import uuid

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.bucket_record import BucketRecord, decode, encode, latest
from spark_kafka_eos.ledger.entry_format import NotAnEntry

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = {"t": uuid.UUID(int=1)}


def test_a_record_says_after_which_leader_epochs_its_partitions_are_read_on() -> None:
    record = BucketRecord(serial=3, offsets={T0: 10, T1: 7}, topic_ids=IDS, epochs={T0: 4})
    assert decode(encode(record)) == record


def test_a_record_need_not_have_epochs() -> None:
    value = encode(BucketRecord(serial=3, offsets={T0: 10}, topic_ids=IDS))
    assert json.loads(value).keys() == {"v", "serial", "offsets", "topics"}
    assert decode(value).epochs == {}


def test_a_record_that_does_not_say_what_has_started_its_bucket_is_none() -> None:
    with pytest.raises(NotAnEntry, match="a field is missing"):
        decode(b'{"v":4,"offsets":{},"topics":{}}')


def test_a_partition_that_has_moved_to_an_offset_of_unknown_epoch_keeps_no_earlier_one() -> None:
    record = BucketRecord(serial=3, offsets={T0: 10, T1: 7}, topic_ids=IDS, epochs={T0: 4, T1: 4})
    moved = record.moved({T0: 12}, {})
    assert (moved.offsets, moved.epochs) == ({T0: 12, T1: 7}, {T1: 4})


def test_of_each_partition_the_later_record_counts_whichever_has_read_more() -> None:
    one = BucketRecord(serial=3, offsets={T0: 10, T1: 7}, topic_ids={}, epochs={T0: 4, T1: 2})
    other = BucketRecord(serial=4, offsets={T0: 9}, topic_ids={})
    found = latest([one, other])
    assert (found.offsets, found.epochs) == ({T0: 9, T1: 7}, {T1: 2})
