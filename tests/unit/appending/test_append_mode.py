"""`appendMode=auto`, case by case."""

from dataclasses import replace

import pytest

from spark_kafka_eos.appending.append_mode import (
    FEW_OFFSETS,
    SMALL_BYTES,
    Choice,
    SessionKind,
    append_tasks,
    choose,
    offsets,
)
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.micro_batch import MicroBatch
from tests.batches import reads

CLUSTER = SessionKind(classic=True, local=False, speculates=False)
ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


def batch(start, end):
    return MicroBatch(query_id="q", batch_id=3, digest="d", sources=reads(start, end))


SMALL, LARGE = batch({ONE: 100}, {ONE: 200}), batch({ONE: 100}, {ONE: 1_000_100})
UNKNOWN = batch({}, {})


@pytest.mark.parametrize("size", [SMALL, LARGE, UNKNOWN])
@pytest.mark.parametrize(
    ("session", "because"),
    [
        (replace(CLUSTER, local=True), "one process"),
        (replace(CLUSTER, speculates=True), "spark.speculation"),
        (SessionKind(classic=False, local=False, speculates=False), "Spark Connect"),
    ],
)
def test_where_only_the_driver_can_or_where_it_is_always_faster_the_size_does_not_matter(session, because, size):
    choice = choose("auto", session, size)
    assert (choice.mode, choice.small) == ("driver", False)
    assert because in choice.reason


def test_on_a_cluster_a_small_batch_goes_by_the_driver_and_a_large_one_by_the_executors():
    assert choose("auto", CLUSTER, SMALL) == Choice(
        mode="driver", reason="100 offsets result in about 100,000 bytes, at most 1,000,000", small=True
    )
    assert choose("auto", CLUSTER, LARGE) == Choice(
        mode="executors", reason="1,000,000 offsets result in about 1,000,000,000 bytes, more than 1,000,000", tasks=250
    )


@pytest.mark.parametrize(("bytes_per_offset", "mode"), [(SMALL_BYTES / 100, "driver"), (10_001, "executors")])
def test_what_an_offset_made_before_decides(bytes_per_offset, mode):
    assert choose("auto", CLUSTER, SMALL, bytes_per_offset).mode == mode


@pytest.mark.parametrize(
    ("cores", "output_partitions", "worth", "tasks"),
    [
        (100, 1_000, 250, 100),
        (100, 1_000, 3, 3),
        (100, 12, 250, 12),
        (100, 0, 3, 3),
        (100, 0, None, 100),
        (1, 0, None, 1),
    ],
)
def test_there_are_no_more_append_tasks_than_cores_output_partitions_or_what_the_batch_is_worth(
    cores, output_partitions, worth, tasks
):
    assert append_tasks(cores, output_partitions, worth) == tasks


@pytest.mark.parametrize(("bytes_per_offset", "tasks"), [(4, 1), (4.1, 2), (40, 10)])
def test_an_append_task_is_started_for_every_four_megabytes(bytes_per_offset, tasks):
    assert choose("auto", CLUSTER, LARGE, bytes_per_offset).tasks == tasks


@pytest.mark.parametrize("unknown", [UNKNOWN, batch(None, {ONE: 5})], ids=["no Kafka source", "no known start"])
def test_a_batch_of_unknown_size_goes_by_the_executors(unknown):
    choice = choose("auto", CLUSTER, unknown)
    assert (choice.mode, choice.tasks) == ("executors", None)
    assert "unknown" in choice.reason


def test_a_batch_without_new_offsets_is_small():
    assert choose("auto", CLUSTER, batch({ONE: 7}, {ONE: 7})).small


@pytest.mark.parametrize("asked", ["driver", "executors"])
def test_the_configured_mode_is_used(asked):
    assert choose(asked, CLUSTER, LARGE) == Choice(mode=asked, reason="as configured")


def test_offsets_are_summed_over_the_partitions_and_new_partitions_count_from_their_beginning():
    assert offsets(batch({ONE: 100}, {ONE: 150, OTHER: 7})) == 57


def test_a_topic_that_was_created_again_has_no_negative_offsets():
    assert offsets(batch({ONE: 100, OTHER: 0}, {ONE: 3, OTHER: 5})) == 5


@pytest.mark.parametrize("session", [CLUSTER, replace(CLUSTER, local=True), replace(CLUSTER, speculates=True)])
def test_a_batch_whose_size_was_measured_as_small_needs_no_encode_tasks(session):
    assert choose("auto", session, SMALL, SMALL_BYTES / 100).few
    assert not choose("auto", session, SMALL, SMALL_BYTES / 100 + 1).few
    assert not choose("auto", session, SMALL).few, "nothing was measured yet"
    assert not choose("auto", session, UNKNOWN, 1.0).few


def test_a_batch_without_new_offsets_in_which_windows_may_close_has_encode_tasks():
    assert not choose("auto", CLUSTER, batch({ONE: 7}, {ONE: 7}), 1.0).few


def test_many_offsets_have_encode_tasks_however_little_a_filter_let_through_before():
    assert choose("auto", CLUSTER, batch({ONE: 0}, {ONE: FEW_OFFSETS}), 0.001).few
    assert not choose("auto", CLUSTER, batch({ONE: 0}, {ONE: FEW_OFFSETS + 1}), 0.001).few


def test_append_tasks_as_configured_need_encode_tasks_and_so_does_spark_connect():
    assert choose("driver", CLUSTER, SMALL, 1.0).few
    assert not choose("executors", CLUSTER, SMALL, 1.0).few
    assert not choose("auto", replace(CLUSTER, classic=False), SMALL, 1.0).few
