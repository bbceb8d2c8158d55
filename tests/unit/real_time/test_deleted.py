"""Source topics that are deleted, or created again, where a query in real time starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spark_kafka_eos.errors import ConfigurationError, DataLoss, LedgerRefused
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.source_offset import Origin
from tests.unit.real_time.test_driver import SOURCE, Run, _commits, _Kafka, _kafka, _tolerant

OTHER = [TopicPartition("other", 0)]
ALL = [*SOURCE, *OTHER]


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def kafka(request: pytest.FixtureRequest) -> _Kafka:
    model = _kafka(request.param)
    model.topics.create("other", 1)
    return model


def _planned(run: Run, number: int, partitions: Sequence[TopicPartition] = ALL, *, cluster: str = "") -> MicroBatch:
    """A batch that is planned now, of topics that are there."""
    names = {tp.topic for tp in partitions}
    run.cluster.look_up(names)
    ids = {name: topic_id for name in names if (topic_id := run.cluster.topic(name).id)}
    origin = Origin(cluster=cluster or run.cluster.cluster_id(), topic_ids=ids)
    offsets = dict.fromkeys(partitions, 0)
    source = SourceRange(start=offsets, end=offsets, origin=origin, start_origin=origin)
    return replace(run.batch(number), sources=(source,))


def _started(run: Run, batch: MicroBatch) -> dict[TopicPartition, int]:
    run.driver.check(batch)
    return {at.partition: at.start for bucket in run.driver.start(batch, 2) for at in bucket.ranges}


def _began(kafka: _Kafka, partitions: Sequence[TopicPartition] = ALL) -> MicroBatch:
    """The first batch of a query, which has committed up to offset 5, and has not ended."""
    run = Run(kafka, "run 1")
    batch = _planned(run, 0, partitions)
    _commits(run, run.driver.start(batch, 2), 5, copied=True)
    return batch


def test_a_topic_that_was_deleted_is_data_loss_and_left_out_where_it_may_be_lost(kafka: _Kafka) -> None:
    batch = _began(kafka)
    kafka.topics.delete("other")
    with pytest.raises(DataLoss, match="topic 'other' was deleted, and batch 0 was planned before that") as loss:
        _started(Run(kafka, "run 2"), batch)
    assert "restart once with failOnDataLoss=false" in loss.value.action
    tolerant = _tolerant(kafka, "run 3")
    assert _started(tolerant, batch) == dict.fromkeys(SOURCE, 5)
    tolerant.driver.end(batch)
    assert _started(Run(kafka, "run 4"), _planned(Run(kafka, "run 4"), 1, SOURCE)) == dict.fromkeys(SOURCE, 5)


def test_a_bucket_that_is_started_again_is_without_the_deleted_topic_too(kafka: _Kafka) -> None:
    batch = _began(kafka)
    kafka.topics.delete("other")
    tolerant = _tolerant(kafka, "run 2")
    _started(tolerant, batch)
    for number in (0, 1):
        again = tolerant.driver.start(batch, 2, [number])
        assert {at.partition.topic for bucket in again for at in bucket.ranges} == {"in"}


def test_a_query_that_loses_its_only_topic_has_nothing_to_read(kafka: _Kafka) -> None:
    batch = _began(kafka, OTHER)
    kafka.topics.delete("other")
    tolerant = _tolerant(kafka, "run 2")
    assert _started(tolerant, batch) == {}
    tolerant.driver.end(batch)
    following = _planned(tolerant, 1, SOURCE)
    new = replace(following, sources=tuple(source and replace(source, start={}) for source in following.sources))
    assert _started(tolerant, new) == dict.fromkeys(SOURCE, 0)


@pytest.mark.parametrize("tolerant", [False, True])
def test_a_topic_that_was_created_again_is_data_loss_which_names_the_ways_out(kafka: _Kafka, tolerant: bool) -> None:
    batch = _began(kafka)
    kafka.topics.delete("other")
    kafka.topics.create("other", 1)
    for number in (2, 3):
        with pytest.raises(DataLoss, match="topic 'other' was deleted and created again: its id was") as loss:
            _started(_tolerant(kafka, f"run {number}") if tolerant else Run(kafka, f"run {number}"), batch)
        assert "leave the topic out of the source's options" in loss.value.action
    new = Run(kafka, "run 4", "new query")
    assert _started(new, _planned(new, 0, SOURCE)) == dict.fromkeys(SOURCE, 5), "with a new checkpoint"
    with pytest.raises(LedgerRefused, match="'other' was created again"):
        _started(Run(kafka, "run 5", "new query"), _planned(new, 1))


def test_a_source_on_another_cluster_is_not_taken_for_one_whose_topics_were_deleted(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    elsewhere = _planned(run, 0, cluster="another")
    kafka.topics.delete("other")
    with pytest.raises(ConfigurationError, match="on another cluster"):
        run.driver.check(elsewhere)
