"""What the group's offsets count for where a query in real time starts: little, because others may have set them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from tests.unit.real_time.test_driver import (
    LEDGER,
    OPTIONS,
    SOURCE,
    Run,
    _commits,
    _Kafka,
    _kafka,
    _micro_batch,
    _set_offsets,
)


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def kafka(request: pytest.FixtureRequest) -> _Kafka:
    return _kafka(request.param)


def _delete_ledger(kafka: _Kafka) -> None:
    """With the pointer to it, which its topic takes along."""
    kafka.topics.delete(LEDGER.topic)
    for group in kafka.groups.values():
        for tp in [tp for tp in group.offsets if tp.topic == LEDGER.topic]:
            del group.offsets[tp]


def _forget_offsets(kafka: _Kafka) -> None:
    """As the group's coordinator does after `offsets.retention.minutes`."""
    kafka.group(OPTIONS.group_id).offsets.clear()


def _reads(run: Run, number: int, start: dict[TopicPartition, int], partitions: Sequence[TopicPartition]) -> MicroBatch:
    return replace(run.batch(number), sources=(SourceRange(start=start, end=dict.fromkeys(partitions, 101)),))


def _starts(run: Run, batch: MicroBatch) -> dict[TopicPartition, int]:
    return {at.partition: at.start for bucket in run.driver.start(batch, 1) for at in bucket.ranges}


def test_a_new_query_starts_where_its_source_says_and_not_where_a_consumer_has_left_the_group(kafka: _Kafka) -> None:
    _set_offsets(Run(kafka, "consumer"), 50)
    assert Run(kafka, "run 1").start() == dict.fromkeys(SOURCE, 0)
    assert Run(kafka, "run 2").start(1) == dict.fromkeys(SOURCE, 0)


def test_a_new_query_starts_at_a_consumers_offsets_if_its_source_does(kafka: _Kafka) -> None:
    _set_offsets(Run(kafka, "consumer"), 50)
    run = Run(kafka, "run 1")
    assert _starts(run, run.batch(start=50, end=90)) == dict.fromkeys(SOURCE, 50)


@pytest.mark.parametrize("in_real_time", [True, False])
def test_a_query_whose_ledger_was_deleted_is_refused_unless_it_starts_where_the_group_is(
    kafka: _Kafka, in_real_time: bool
) -> None:
    run = Run(kafka, "run 1", "old query")
    _commits(run, run.driver.start(run.batch(), 2), 5, copied=True)
    _commits(run, run.driver.start(run.batch(1), 2), 7)
    _delete_ledger(kafka)
    new = Run(kafka, "run 2", "new query")
    with pytest.raises(LedgerRefused, match=r"(?s)ledger has no entry, but.*in-0 at 0 \(committed 5\).*output") as why:
        new.start() if in_real_time else _micro_batch(kafka, 0, 0, 9, "new query")
    assert ("once in micro-batches" in why.value.action, "a second late" in why.value.action) == (in_real_time,) * 2
    assert _starts(new, new.batch(start=5, end=9)) == dict.fromkeys(SOURCE, 5)


def test_a_new_checkpoint_goes_on_in_real_time_where_micro_batches_ended_though_the_group_has_forgotten_it(
    kafka: _Kafka,
) -> None:
    _micro_batch(kafka, 0, 0, 3, "old query")
    _forget_offsets(kafka)
    assert Run(kafka, "run 2", "new query").start() == dict.fromkeys(SOURCE, 3)


@pytest.mark.parametrize("expired", [True, False])
def test_a_partition_that_only_micro_batches_have_read_is_left_out_and_read_again_where_these_have_ended(
    kafka: _Kafka, expired: bool
) -> None:
    _micro_batch(kafka, 0, 0, 100)
    for number in (1, 2):
        run = Run(kafka, f"run {number}")
        assert _starts(run, _reads(run, number, {SOURCE[0]: 100}, SOURCE[:1])) == {SOURCE[0]: 100}
    if expired:
        _forget_offsets(kafka)
    run = Run(kafka, "run 3")
    assert _starts(run, _reads(run, 3, {SOURCE[0]: 100}, SOURCE)) == dict.fromkeys(SOURCE, 100)


@pytest.mark.parametrize(("expired", "start"), [(False, 100), (True, 0)])
def test_a_partition_that_micro_batches_have_read_and_left_out_goes_on_at_the_groups_offset(
    kafka: _Kafka, expired: bool, start: int
) -> None:
    """The ledger's entry has only what its batch has read; once the offset has expired, the partition is a new one."""
    _micro_batch(kafka, 0, 0, 100, "old query")
    _micro_batch(kafka, 0, 100, 101, "new query", partitions=SOURCE[:1])
    if expired:
        _forget_offsets(kafka)
    run = Run(kafka, "run 1", "new query")
    assert _starts(run, _reads(run, 1, {SOURCE[0]: 101}, SOURCE)) == {SOURCE[0]: 101, SOURCE[1]: start}


def test_of_a_partition_that_is_new_in_a_query_a_consumers_offset_does_not_count(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    _starts(run, _reads(run, 0, {SOURCE[0]: 0}, SOURCE[:1]))
    _set_offsets(run, 50)
    again = Run(kafka, "run 2")
    assert _starts(again, _reads(again, 1, {SOURCE[0]: 0}, SOURCE)) == dict.fromkeys(SOURCE, 0)


def test_another_query_is_refused_for_a_partition_of_which_only_a_consumers_offset_is_known(kafka: _Kafka) -> None:
    _micro_batch(kafka, 0, 0, 100, "old query", partitions=SOURCE[1:])
    _forget_offsets(kafka)
    _set_offsets(Run(kafka, "consumer"), 50)
    with pytest.raises(LedgerRefused, match="no committed offset of in-0 is known"):
        Run(kafka, "run 1", "new query").start()


@pytest.mark.parametrize(("metadata", "start"), [("", 90), (source_mark("other"), None)])
def test_where_nothing_says_how_far_a_query_came_it_goes_on_where_an_operator_sets_the_group(
    kafka: _Kafka, metadata: str, start: int | None
) -> None:
    """As the refusal advises. The pointer, which is all that is left of the ledger, does not say it."""
    _micro_batch(kafka, 0, 0, 100)
    kafka.partitions[LEDGER].delete_before(kafka.partitions[LEDGER].end_offset)
    _forget_offsets(kafka)
    with pytest.raises(LedgerRefused, match="kafka-consumer-groups --reset-offsets"):
        Run(kafka, "run 1").start(1)
    at = OffsetAndMetadata(offset=90, metadata=metadata)
    group = GroupCoordinator(Run(kafka, "operator").cluster, OPTIONS.group_id)
    group.commit_offsets(dict.fromkeys(SOURCE, at))
    if start is None:
        with pytest.raises(LedgerRefused, match="kafka-consumer-groups --reset-offsets"):
            Run(kafka, "run 2").start(1)
    else:
        assert Run(kafka, "run 2").start(1) == dict.fromkeys(SOURCE, start)
