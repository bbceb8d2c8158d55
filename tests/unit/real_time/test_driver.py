"""The driver of a query in real time on the model of Kafka: whose the query is, and where it goes on."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lab.simulation.conditions import Conditions
from lab.simulation.transactions import LeavesOut
from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import (
    BrokerUnreachable,
    DataLoss,
    KafkaEosError,
    LedgerRefused,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator, stored_in
from spark_kafka_eos.kafka.protocol.transactions import add_offsets, add_partitions, end_transaction, init_producer_id
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC
from spark_kafka_eos.kafka.wire import single
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.ledger import bucket_reader
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import BatchCounts
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.ledger.topic import read_end
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import WriteKind, sink_options
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.cycle import BucketTransactions
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.source_offset import Origin
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.model_kafka import KafkaModel
from tests.model_kafka import refused as refused_with

OPTIONS = sink_options(
    {"kafka.bootstrap.servers": "node-0:9092", "kafka.transactional.id": "copy", "topic": "out"},
    WriteKind.FOREACH_BATCH,
)
SOURCE = [TopicPartition("in", 0), TopicPartition("in", 1)]
BUCKETS = ["copy.bucket-0", "copy.bucket-1"]
LEDGER = TopicPartition(OPTIONS.ledger_topic, 0)
CONCURRENT_TRANSACTIONS = 51
NOT_LEADER_OR_FOLLOWER = 6


class _Kafka(KafkaModel):
    """Brokers that leave out the markers in the partitions that `leaves_out` names."""

    leaves_out: LeavesOut = staticmethod(lambda _joined: None)


class Run:
    """One run of the query, as `spark.real_time` has it."""

    def __init__(self, kafka: _Kafka, run_id: str, query_id: str = "query") -> None:
        self.run_id, self.query_id = run_id, query_id
        self.cluster = kafka.cluster(OPTIONS.client)
        self.transaction = SharedTransaction(OPTIONS, self.cluster, decide_in_real_time(OPTIONS), clock=kafka.clock)
        self.driver = RealTimeDriver(OPTIONS, self.cluster, self.transaction, fail_on_data_loss=True)

    def batch(self, number: int = 0, start: int = 0, end: int = 0) -> MicroBatch:
        source = SourceRange(start=dict.fromkeys(SOURCE, start), end=dict.fromkeys(SOURCE, end))
        return MicroBatch(
            query_id=self.query_id, batch_id=number, digest=f"digest {number}", sources=(source,), run_id=self.run_id
        )

    def start(self, number: int = 0) -> dict[TopicPartition, int]:
        """Where the buckets are read on."""
        buckets = self.driver.start(self.batch(number), 2)
        return {at.partition: at.start for bucket in buckets for at in bucket.ranges}


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def kafka(request: pytest.FixtureRequest) -> _Kafka:
    return _kafka(request.param)


def _kafka(version: int, offsets_marker_s: float = 0.0) -> _Kafka:
    """`offsets_marker_s`: how long the markers of groups take; the others are there at once."""

    def later(why: str, action: Callable[[], None]) -> None:
        if offsets_marker_s and OFFSETS_TOPIC in why:
            model.world.after(offsets_marker_s, why, action)
        else:
            action()

    model = _Kafka(
        version,
        {"in": len(SOURCE), "out": 1, OPTIONS.ledger_topic: 1},
        later=later,
        leaves_out=lambda joined: model.leaves_out(joined),  # noqa: PLW0108 - a test sets it later
        conditions=Conditions(left_out=True, real_time=True),
    )
    return model


_OFFSETS = TopicPartition(OFFSETS_TOPIC, stored_in(OPTIONS.group_id, 50))


@contextlib.contextmanager
def _left_out(kafka: _Kafka, at: TopicPartition = _OFFSETS) -> Iterator[None]:
    """Transactions that end meanwhile get no marker there, by default where the source's group is stored."""
    kafka.leaves_out = lambda joined: at if at in joined else None
    yield
    del kafka.leaves_out


def _task(run: Run, bucket: Bucket) -> BucketTransactions:
    settings = EncodeSettings(topic="out", targets={"out": Target(partitions=1)}, ledger_topic=OPTIONS.ledger_topic)
    began = BucketRecord(
        serial=bucket.serial,
        offsets={at.partition: at.start for at in bucket.ranges},
        topic_ids={},
        epochs={at.partition: at.last_epoch for at in bucket.ranges if at.last_epoch >= 0},
    )
    return BucketTransactions(
        run.cluster,
        bucket.identity,
        BlockEncoder(settings, bucket.number, lambda _: Target(partitions=1), lambda: 0),
        began=began,
        group_id=OPTIONS.group_id,
        mark=source_mark(OPTIONS.transactional_id),
        ledger_topic=OPTIONS.ledger_topic,
        sequences=bucket.sequences,
    )


def _commits(run: Run, buckets: Sequence[Bucket], offset: int, *, copied: bool = False) -> None:
    """What the tasks of these buckets commit: nothing but offsets."""
    for bucket in buckets:
        task = _task(run, bucket)
        task.commit([], {part.partition: offset for part in bucket.ranges})
        if copied:
            task.copy_offsets()


def _ended(run: Run, buckets: Sequence[Bucket], offset: int) -> list[Bucket]:
    """These buckets after tasks that have committed this offset, as they report them."""
    ended = []
    for bucket in buckets:
        task = _task(run, bucket)
        task.commit([], {part.partition: offset for part in bucket.ranges})
        task.copy_offsets()
        ranges = tuple(replace(at, start=offset) for at in bucket.ranges)
        ended.append(replace(bucket, identity=task.identity, ranges=ranges, sequences=task.sequences))
    return ended


def _set_offsets(run: Run, offset: int) -> None:
    """As `kafka-consumer-groups --reset-offsets` does."""
    at = OffsetAndMetadata(offset=offset, metadata="")
    GroupCoordinator(run.cluster, OPTIONS.group_id).commit_offsets(dict.fromkeys(SOURCE, at))


def _micro_batch(
    kafka: _Kafka,
    number: int,
    start: int,
    end: int,
    query_id: str = "query",
    *,
    take_over: str | None = None,
    partitions: Sequence[TopicPartition] = SOURCE,
) -> None:
    micro, options = Run(kafka, f"run of micro-batch {number}", query_id), replace(OPTIONS, take_over_query=take_over)
    transaction = SharedTransaction(options, micro.cluster, decide_micro_batch(options), clock=kafka.clock)
    source = SourceRange(start=dict.fromkeys(partitions, start), end=dict.fromkeys(partitions, end))
    batch = replace(micro.batch(number), sources=(source,))
    transaction.begin(batch)
    transaction.append(lambda _: Appended(partitions=0, records=0, bytes=0))
    transaction.commit(batch, written=BatchCounts(records=0, bytes=0, milliseconds=0))


def _epochs(kafka: _Kafka) -> list[int]:
    return [kafka.transactions.coordinators[name].epoch for name in BUCKETS]


def _truncated_to(end: int) -> Callable[[Any, Callable[[], Any]], Any]:
    def meet(request: Any, _answer: Callable[[], Any]) -> Any:
        (topic,) = request.topics
        parts = [
            SimpleNamespace(partition=part.partition, error_code=0, leader_epoch=part.leader_epoch, end_offset=end)
            for part in topic.partitions
        ]
        return SimpleNamespace(topics=[SimpleNamespace(topic=topic.topic, partitions=parts)])

    return meet


def test_a_log_that_was_truncated_after_its_records_were_read_is_data_loss_or_read_from_there(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    bucket, _ = run.driver.start(run.batch(), 2)
    at = bucket.ranges[0].partition
    _task(run, bucket).commit([], {at: 100}, {at: 0})
    kafka.meets["OffsetForLeaderEpoch"] = _truncated_to(100)
    following = Run(kafka, "run 2")
    ranges = {each.partition: each for each in following.driver.start(following.batch(1), 2)[0].ranges}
    assert (ranges[at].start, ranges[at].last_epoch) == (100, 0), "the leader compares it, too"
    kafka.meets["OffsetForLeaderEpoch"] = _truncated_to(90)
    with pytest.raises(DataLoss, match=f"{at}: the query is at offset 100, but the log was truncated to 90"):
        Run(kafka, "run 3").start(2)
    assert _tolerant(kafka, "run 4").start(2)[at] == 90


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
def test_one_start_without_fail_on_data_loss_is_enough_after_a_log_was_truncated(kafka: _Kafka, stopped: bool) -> None:
    """Also if nothing has come since."""
    run = Run(kafka, "run 1")
    bucket, _ = run.driver.start(run.batch(), 2)
    at = bucket.ranges[0].partition
    _task(run, bucket).commit([], {at: 100}, {at: 0})
    kafka.meets["OffsetForLeaderEpoch"] = _truncated_to(90)
    tolerant = _tolerant(kafka, "run 2")
    assert tolerant.start(1)[at] == 90
    if stopped:
        tolerant.driver.end(tolerant.batch(1))
    assert Run(kafka, "run 3").start(2)[at] == 90


def test_a_bucket_that_is_started_again_after_a_log_was_truncated_goes_on_from_there(kafka: _Kafka) -> None:
    """While the other one runs on, whose records still count."""
    run = _tolerant(kafka, "run 1")
    bucket, other = run.driver.start(run.batch(), 2)
    at, where_other = bucket.ranges[0].partition, other.ranges[0].partition
    running = _task(run, other)
    running.commit([], {where_other: 50}, {where_other: 0})
    _task(run, bucket).commit([], {at: 100}, {at: 0})
    kafka.meets["OffsetForLeaderEpoch"] = _truncated_to(90)
    (again,) = run.driver.start(run.batch(), 2, [bucket.number])
    assert again.ranges[0].start == 90
    running.commit([], {where_other: 60}, {where_other: 0})
    assert Run(kafka, "run 2").start(1) == {at: 90, where_other: 60}


def test_the_records_of_buckets_that_are_no_longer_there_do_not_count_again(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    (bucket,) = (bucket for bucket in run.driver.start(run.batch(), 2) if bucket.number == 1)
    at = bucket.ranges[0].partition
    _task(run, bucket).commit([], {at: 100}, {at: 0})
    kafka.meets["OffsetForLeaderEpoch"] = _truncated_to(90)
    one = _tolerant(kafka, "run 2")
    (of_all,) = one.driver.start(one.batch(1), 1)
    assert {each.partition: each.start for each in of_all.ranges}[at] == 90
    _task(one, of_all).commit([], {at: 95}, {at: 5})
    kafka.meets["OffsetForLeaderEpoch"] = _truncated_to(1000)
    assert Run(kafka, "run 3").start(2)[at] == 95


def test_where_buckets_begin_is_known_with_its_leader_epoch_before_they_commit(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    bucket, _ = run.driver.start(run.batch(), 2)
    at = bucket.ranges[0].partition
    _task(run, bucket).commit([], {at: 100}, {at: 3})
    kafka.meets["OffsetForLeaderEpoch"] = _truncated_to(100)
    Run(kafka, "run 2").start(1)
    kafka.meets["OffsetForLeaderEpoch"] = _truncated_to(90)
    with pytest.raises(DataLoss, match=f"{at}: the query is at offset 100, but the log was truncated to 90"):
        Run(kafka, "run 3").start(2)


def test_the_ledgers_last_entry_has_the_leader_epochs_of_what_buckets_have_read(kafka: _Kafka) -> None:
    """And not those of when the long micro-batch was planned: a source that starts there compares them."""
    run = Run(kafka, "run 1")
    topic_id = run.cluster.topic("in").id
    assert topic_id is not None
    batch = _of_topic(run, 0, topic_id)
    (source,) = batch.sources
    assert source is not None
    assert source.origin is not None
    planned = replace(source, origin=replace(source.origin, leader_epochs=dict.fromkeys(SOURCE, 1)))
    bucket, other = run.driver.start(replace(batch, sources=(planned,)), 2)
    at, where_other = bucket.ranges[0].partition, other.ranges[0].partition
    _task(run, bucket).commit([], {at: 100}, {at: 3})
    entry = last_entry(run.cluster, OPTIONS.ledger_topic, OPTIONS.transactional_id)
    assert entry is not None
    (ended,) = entry.sources or ()
    assert ended is not None
    assert ended.origin is not None
    assert (ended.offsets, ended.origin.leader_epochs) == ({at: 100, where_other: 0}, {at: 3})


def _tolerant(kafka: _Kafka, run_id: str) -> Run:
    run = Run(kafka, run_id)
    run.driver = RealTimeDriver(OPTIONS, run.cluster, run.transaction, fail_on_data_loss=False)
    return run


def test_a_driver_that_has_lost_the_query_takes_no_bucket_to_end_its_tasks(kafka: _Kafka) -> None:
    late, live = Run(kafka, "run 1"), Run(kafka, "run 2")
    late.start()
    live.start()
    epochs = _epochs(kafka)
    with pytest.raises(ProducerFenced):
        late.start(1)
    with pytest.raises(ProducerFenced, match="takes no bucket"):
        late.driver.end(late.batch(1))
    assert _epochs(kafka) == epochs


def test_a_driver_whose_commit_showed_that_it_has_lost_the_query_takes_no_bucket_either(kafka: _Kafka) -> None:
    late, live = Run(kafka, "run 1"), Run(kafka, "run 2")
    late.start()
    kafka.before("TxnOffsetCommit", live.start)
    with pytest.raises(KafkaEosError):
        late.start(1)
    epochs = _epochs(kafka)
    with contextlib.suppress(ProducerFenced):
        late.driver.end(late.batch(1))
    assert _epochs(kafka) == epochs


@pytest.mark.parametrize("count", [1, 2])
def test_a_driver_that_is_overtaken_between_two_attempts_starts_no_bucket_again(kafka: _Kafka, count: int) -> None:
    """It would read partitions that another bucket of the other driver has, if that has another number of them."""
    late, live = Run(kafka, "run 1"), Run(kafka, "run 2")
    late.driver.start(late.batch(), 2)
    taken = list[Bucket]()

    def unanswered(request: Any, answer: Callable[[], Any]) -> Any:
        if request.transactional_id != OPTIONS.transactional_id:
            return answer()
        kafka.meets["InitProducerId"] = overtaken
        return None

    def overtaken(request: Any, answer: Callable[[], Any]) -> Any:
        if request.transactional_id == OPTIONS.transactional_id:
            del kafka.meets["InitProducerId"], kafka.meets["EndTxn"]
            taken.extend(live.driver.start(live.batch(1), count))
        return answer()

    kafka.meets["EndTxn"] = unanswered
    with pytest.raises(ProducerFenced) as fenced:
        late.driver.start(late.batch(), 2, [1])
    epochs = _epochs(kafka)
    with pytest.raises(ProducerFenced, match="takes no bucket"):
        late.driver.end(late.batch())
    assert _epochs(kafka) == epochs
    _commits(live, taken, 5)
    if kafka.version == 1:  # whoever held no epoch by then could not know before it had the id
        assert "the tasks of the other one go on unharmed" in fenced.value.action
        with pytest.raises(ProducerFenced):
            live.start(2)
    else:
        live.start(2)
    assert Run(kafka, "run 3").start(2) == dict.fromkeys(SOURCE, 5)


def test_a_driver_that_has_the_query_ends_its_tasks_by_taking_their_buckets(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    run.start()
    epochs = _epochs(kafka)
    run.driver.end(run.batch())
    assert [after > before for before, after in zip(epochs, _epochs(kafka), strict=True)] == [True, True]


def test_the_next_batch_of_a_run_goes_on_in_the_epochs_in_which_the_tasks_have_ended(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    ended = _ended(run, run.driver.start(run.batch(), 2), 5)
    run.driver.ended(run.batch(), ended)
    epochs = _epochs(kafka)
    following = run.driver.start(run.batch(1), 2)
    assert [bucket.identity for bucket in following] == [bucket.identity for bucket in ended]
    assert {at.partition: at.start for bucket in following for at in bucket.ranges} == dict.fromkeys(SOURCE, 5)
    assert _epochs(kafka) == epochs
    _ended(run, following, 7)
    assert Run(kafka, "run 2").start(2) == dict.fromkeys(SOURCE, 7)
    assert last_entry(run.cluster, OPTIONS.ledger_topic, OPTIONS.transactional_id).batch_id == 2  # type: ignore[union-attr]


def test_a_batch_that_reads_to_an_end_goes_on_up_to_there(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    run.driver.ended(run.batch(), _ended(run, run.driver.start(run.batch(), 2), 5))
    following = run.driver.start(run.batch(1, end=9), 2, to_end=True)
    assert [(at.start, at.end) for bucket in following for at in bucket.ranges] == [(5, 9), (5, 9)]


@pytest.mark.parametrize("number", [1, 2], ids=["the next batch", "one after a batch that failed"])
def test_only_the_next_batch_of_the_same_run_goes_on_in_the_same_epochs(kafka: _Kafka, number: int) -> None:
    run = Run(kafka, "run 1")
    ended = _ended(run, run.driver.start(run.batch(), 2), 5)
    run.driver.ended(run.batch(), ended)
    if number == 1:
        run.run_id = "run 2"
    else:
        run.start(1)
    epochs = _epochs(kafka)
    assert run.start(number) == dict.fromkeys(SOURCE, 5)
    assert all(after > before for before, after in zip(epochs, _epochs(kafka), strict=True))


def test_buckets_that_have_ended_are_taken_if_their_number_or_their_partitions_change(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    first = run.batch()
    one = replace(first, sources=(SourceRange(start={SOURCE[0]: 0}, end={SOURCE[0]: 0}),))
    run.driver.ended(one, _ended(run, run.driver.start(one, 1), 5))
    (epoch,) = (kafka.transactions.coordinators[BUCKETS[0]].epoch,)
    both = replace(run.batch(1), sources=(SourceRange(start={SOURCE[0]: 5}, end=dict.fromkeys(SOURCE, 9)),))
    (bucket,) = run.driver.start(both, 1)
    assert {at.partition: at.start for at in bucket.ranges} == {SOURCE[0]: 5, SOURCE[1]: 0}
    assert bucket.identity.epoch > epoch
    run.driver.ended(both, _ended(run, [bucket], 7))
    assert run.start(2) == dict.fromkeys(SOURCE, 7)
    assert kafka.transactions.coordinators[BUCKETS[1]].epoch >= 0


def test_a_driver_that_was_overtaken_between_two_batches_starts_no_task(kafka: _Kafka) -> None:
    late, live = Run(kafka, "run 1"), Run(kafka, "run 2")
    late.driver.ended(late.batch(), _ended(late, late.driver.start(late.batch(), 2), 5))
    assert live.start() == dict.fromkeys(SOURCE, 5)
    epochs = _epochs(kafka)
    with pytest.raises(ProducerFenced):
        late.start(1)
    assert _epochs(kafka) == epochs


def test_buckets_are_taken_after_a_transaction_of_the_query_failed(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    run.driver.ended(run.batch(), _ended(run, run.driver.start(run.batch(), 2), 5))
    epochs = _epochs(kafka)
    kafka.before("TxnOffsetCommit", lambda: _raises(TransactionAborted("a coordinator was restarted")))
    assert run.start(1) == dict.fromkeys(SOURCE, 5)
    assert all(after > before for before, after in zip(epochs, _epochs(kafka), strict=True))


def _raises(error: Exception) -> None:
    raise error


def test_a_driver_that_ends_its_tasks_copies_to_the_group_where_they_have_ended(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    _commits(run, run.driver.start(run.batch(), 2), 5)
    assert not kafka.group(OPTIONS.group_id).offsets
    run.driver.end(run.batch())
    assert [kafka.group(OPTIONS.group_id).offsets[tp][0] for tp in SOURCE] == [5, 5]


def test_a_start_leaves_the_group_to_its_tasks(kafka: _Kafka) -> None:
    """A late copy of its request could set back what they have committed there since (TV1)."""
    run = Run(kafka, "run 1")
    _commits(run, run.driver.start(run.batch(), 2), 5, copied=True)
    kafka.group(OPTIONS.group_id).offsets.clear()
    assert Run(kafka, "run 2").start(1) == dict.fromkeys(SOURCE, 5)
    assert not kafka.group(OPTIONS.group_id).offsets


def test_a_driver_that_is_overtaken_while_it_ends_its_tasks_leaves_the_group_alone(kafka: _Kafka) -> None:
    late = Run(kafka, "run 1")
    late.start()
    kafka.before("InitProducerId", lambda: _micro_batch(kafka, 0, 0, 5, "new query"))
    with pytest.raises(ProducerFenced):
        late.driver.end(late.batch())
    assert [kafka.group(OPTIONS.group_id).offsets[tp][0] for tp in SOURCE] == [5, 5]


def test_a_driver_whose_start_failed_with_fewer_buckets_does_not_set_the_group_back(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    _commits(run, run.driver.start(run.batch(), 2), 7, copied=True)
    fewer = Run(kafka, "run 2")
    kafka.before("Produce", lambda: _raises(LedgerRefused("a topic was deleted")))
    with pytest.raises(LedgerRefused):
        fewer.driver.start(fewer.batch(1), 1)
    with contextlib.suppress(KafkaEosError):
        fewer.driver.end(fewer.batch(1))
    assert [kafka.group(OPTIONS.group_id).offsets[tp][0] for tp in SOURCE] == [7, 7]


def test_buckets_that_a_driver_has_ended_by_taking_them_are_not_gone_on_with(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    run.driver.ended(run.batch(), _ended(run, run.driver.start(run.batch(), 2), 5))
    run.driver.end(run.batch())
    epochs = _epochs(kafka)
    assert run.start(1) == dict.fromkeys(SOURCE, 5)
    assert all(after > before for before, after in zip(epochs, _epochs(kafka), strict=True))


@pytest.mark.parametrize("runs", ["another run", "the same run"])
def test_a_partition_that_is_left_out_and_read_again_goes_on_where_it_ended(kafka: _Kafka, runs: str) -> None:
    run = Run(kafka, "run 1")
    _commits(run, run.driver.start(run.batch(), 1), 7, copied=True)
    kafka.group(OPTIONS.group_id).offsets.clear()
    for number, end in ((1, 9), (2, 10), (3, 11)):  # the last record of the bucket has forgotten the other one
        run = Run(kafka, f"run {number}") if runs == "another run" else run
        only = replace(run.batch(number), sources=(SourceRange(start={SOURCE[0]: 7}, end={SOURCE[0]: 7}),))
        _commits(run, run.driver.start(only, 1), end)
    again = SourceRange(start={SOURCE[0]: 11}, end=dict.fromkeys(SOURCE, 0))
    run = Run(kafka, "run 4") if runs == "another run" else run
    (bucket,) = run.driver.start(replace(run.batch(4), sources=(again,)), 1)
    assert {at.partition: at.start for at in bucket.ranges} == {SOURCE[0]: 11, SOURCE[1]: 7}


def test_micro_batches_that_read_again_from_an_earlier_offset_are_gone_on_from_in_real_time(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1", "old query")
    _commits(run, run.driver.start(run.batch(), 2), 700, copied=True)
    run.driver.end(run.batch())
    _micro_batch(kafka, 0, 0, 100, "new query", take_over="old query")
    _micro_batch(kafka, 1, 100, 200, "new query")
    following = Run(kafka, "run 2", "new query")
    assert following.start(2) == dict.fromkeys(SOURCE, 200)
    _commits(following, following.driver.start(following.batch(3), 2), 300)
    assert Run(kafka, "run 3", "new query").start(4) == dict.fromkeys(SOURCE, 300)


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("count", [1, 2])
def test_a_partition_that_micro_batches_leave_out_goes_on_in_real_time_where_its_bucket_ended(
    kafka: _Kafka, count: int, batches: int
) -> None:
    """And not where the group's copy is, which may be late."""
    run = Run(kafka, "run 1", "old query")
    _commits(run, run.driver.start(run.batch(), 2), 5, copied=True)
    _commits(run, run.driver.start(run.batch(1), 2), 7)
    for number in range(batches):
        _micro_batch(kafka, number, 7 + number, 8 + number, "new query", partitions=SOURCE[:1])
    again = SourceRange(start={SOURCE[0]: 7 + batches}, end=dict.fromkeys(SOURCE, 9))
    following = Run(kafka, "run 2", "new query")
    buckets = following.driver.start(replace(following.batch(batches), sources=(again,)), count)
    starts = {at.partition: at.start for bucket in buckets for at in bucket.ranges}
    assert starts == {SOURCE[0]: 7 + batches, SOURCE[1]: 7}


def test_a_partition_that_was_left_out_is_not_known_without_the_ledgers_record(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1", "old query")
    _commits(run, run.driver.start(run.batch(), 1), 7, copied=True)
    _micro_batch(kafka, 0, 7, 8, "new query", partitions=SOURCE[:1])
    kafka.partitions[LEDGER].delete_before(kafka.partitions[LEDGER].end_offset)
    with pytest.raises(LedgerRefused, match="where the buckets of 'copy' have read to is not known"):
        Run(kafka, "run 2", "new query").start(1)


def _of_topic(run: Run, number: int, topic_id: uuid.UUID, partitions: Sequence[TopicPartition] = SOURCE) -> MicroBatch:
    """A batch that was planned when the source's topic had this id."""
    origin = Origin(cluster=run.cluster.cluster_id(), topic_ids={"in": topic_id})
    source = SourceRange(start={}, end=dict.fromkeys(partitions, 0), origin=origin, start_origin=origin)
    return replace(run.batch(number), sources=(source,))


def test_buckets_are_not_gone_on_with_for_a_topic_that_was_created_again(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    before = run.cluster.topic("in").id
    assert before is not None
    first = _of_topic(run, 0, before)
    run.driver.ended(first, ended := _ended(run, run.driver.start(first, 2), 5))
    identities = [bucket.identity for bucket in ended]
    same = run.driver.start(_of_topic(run, 1, before), 2)
    run.driver.ended(first, ended := _ended(run, same, 7))
    assert [bucket.identity for bucket in same] == identities
    other = run.driver.start(_of_topic(run, 2, uuid.uuid4()), 2)
    assert all(new.identity.epoch > old.identity.epoch for old, new in zip(ended, other, strict=True)), "it looks first"


def test_offsets_are_not_copied_while_the_transaction_before_lacks_a_marker(kafka: _Kafka) -> None:
    """With the next transaction, its coordinator forgets how that one ended."""
    run = Run(kafka, "run 1")
    bucket = run.driver.start(run.batch(), 2)[0]
    task = _task(run, bucket)
    ledger = TopicPartition(OPTIONS.ledger_topic, 0)
    kafka.leaves_out = lambda joined: ledger if ledger in joined else None
    task.commit([], {part.partition: 5 for part in bucket.ranges})
    del kafka.leaves_out
    with pytest.raises(TransactionAborted, match="has not got the marker"):
        task.copy_offsets()
    assert not kafka.group(OPTIONS.group_id).offsets
    assert run.start() == dict.fromkeys(SOURCE, 0) | {part.partition: 5 for part in bucket.ranges}


def test_the_ledgers_last_entry_has_where_the_buckets_have_ended(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 2)
    _commits(run, buckets[:1], 5)
    entry = last_entry(run.cluster, OPTIONS.ledger_topic, OPTIONS.transactional_id)
    assert entry is not None
    (source,) = entry.sources or ()
    assert source is not None
    assert source.offsets == dict.fromkeys(SOURCE, 0) | {part.partition: 5 for part in buckets[0].ranges}


def test_the_ledgers_last_entry_is_not_final_while_a_bucket_has_a_transaction_open(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    bucket, _ = run.driver.start(run.batch(), 2)
    _appends(run, bucket, LEDGER, key=bucket.identity.transactional_id.encode())
    with pytest.raises(BrokerUnreachable, match="still open, so its ledger entry is not final"):
        last_entry(run.cluster, OPTIONS.ledger_topic, OPTIONS.transactional_id)


def test_a_start_waits_for_the_markers_of_the_querys_own_last_transaction() -> None:
    """In the newer protocol, the driver goes on without InitProducerId, which would wait for them."""
    kafka = _kafka(2, offsets_marker_s=20.0)
    run = Run(kafka, "run 1")
    run.start()
    assert run.start(1) == dict.fromkeys(SOURCE, 0)


@pytest.mark.parametrize("after", ["real time", "micro-batches"])
def test_where_buckets_ended_is_what_the_ledger_says_and_not_a_coordinator_that_has_not_loaded_all(
    kafka: _Kafka, after: str
) -> None:
    """Kafka 4 serves such a group's old offsets, and takes new ones meanwhile."""
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 2)
    _commits(run, buckets, 3, copied=True)
    old = {tp: kafka.group(OPTIONS.group_id).offsets[tp] for tp in SOURCE}
    _commits(run, run.driver.start(run.batch(1), 2), 7, copied=True)

    def half_loaded(request: Any, answer: Callable[[], Any]) -> Any:
        answered = answer()
        for topic in answered.topics:
            for partition in topic.partitions:
                at = TopicPartition(topic.name, partition.partition_index)
                if at in old:
                    partition.committed_offset, partition.metadata = old[at]
        return answered

    kafka.meets["OffsetFetch"] = half_loaded
    if after == "real time":
        assert Run(kafka, "run 2").start(2) == dict.fromkeys(SOURCE, 7)
        return
    with pytest.raises(LedgerRefused, match=r"in-0 at 3 \(committed 7\)"):
        _micro_batch(kafka, 0, 3, 9, "new query")
    _micro_batch(kafka, 0, 7, 9, "new query")


def test_a_start_reads_the_ledger_again_if_its_leader_was_outdated(kafka: _Kafka) -> None:
    """It answers with an old end until it has a successor, and accepts nothing."""
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 2)
    before = kafka.partitions[LEDGER].end_offset
    _commits(run, buckets, 5)
    paused = True

    def outdated(request: Any, answer: Callable[[], Any]) -> Any:
        answered = answer()
        for topic in answered.topics if paused else ():
            for partition in topic.partitions:
                partition.offset = min(partition.offset, before) if topic.name == LEDGER.topic else partition.offset
        return answered

    def succeeded(request: Any, answer: Callable[[], Any]) -> Any:
        nonlocal paused
        paused = False
        return answer()

    kafka.meets |= {"ListOffsets": outdated, "Produce": succeeded}
    assert Run(kafka, "run 2").start(1) == dict.fromkeys(SOURCE, 5)
    assert not paused


def test_a_bucket_that_had_nothing_to_read_for_long_goes_on_where_it_was(
    kafka: _Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_reader, "_SPANS", (2, 4, sys.maxsize))
    run = Run(kafka, "run 1")
    idle, busy = run.driver.start(run.batch(), 2)
    _commits(run, [idle], 5)
    task = _task(run, busy)
    for offset in range(1, 10):
        task.commit([], {part.partition: offset for part in busy.ranges})
    ends = {part.partition: at for bucket, at in ((idle, 5), (busy, 9)) for part in bucket.ranges}
    assert Run(kafka, "run 2").start(1) == ends


def test_a_bucket_without_partitions_does_not_have_a_start_read_the_whole_ledger(
    kafka: _Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans: list[int] = []
    monkeypatch.setattr(bucket_reader, "_SPANS", (4, sys.maxsize))

    def noted(cluster: Cluster, at: TopicPartition, span: int) -> Any:
        spans.append(span)
        return read_end(cluster, at, span)

    monkeypatch.setattr(bucket_reader, "read_end", noted)
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 3)
    assert len(buckets) == len(SOURCE)
    for offset in range(1, 10):
        _commits(run, run.driver.start(run.batch(offset), 3), offset)
    spans.clear()
    assert {at.start for bucket in run.driver.start(run.batch(10), 3) for at in bucket.ranges} == {9}
    assert set(spans) == {4}


def test_offsets_that_somebody_has_set_in_the_group_do_not_count(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    _commits(run, run.driver.start(run.batch(), 2), 5)
    _set_offsets(run, 1)
    assert Run(kafka, "run 2").start(1) == dict.fromkeys(SOURCE, 5)


def test_a_query_goes_on_although_the_group_has_lost_its_offsets(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    _commits(run, run.driver.start(run.batch(), 2), 5)
    kafka.group(OPTIONS.group_id).offsets.clear()
    assert Run(kafka, "run 2").start(1) == dict.fromkeys(SOURCE, 5)


def test_a_record_that_somebody_else_has_written_for_a_bucket_is_refused(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    run.start()
    forged = single.encode_record(BUCKETS[0].encode(), b"{}", 0)
    with Appender(run.cluster, None, reserved=None) as appender:
        appender.append(LEDGER, forged, records=1, base_sequence=-1)
        appender.flush()
    with pytest.raises(LedgerRefused, match="was not written in a transaction"):
        Run(kafka, "run 2").start(1)


def test_a_query_with_a_new_checkpoint_goes_on_in_real_time_where_micro_batches_ended(kafka: _Kafka) -> None:
    _micro_batch(kafka, 0, 0, 3, "old query")
    assert Run(kafka, "run 2", "new query").start() == dict.fromkeys(SOURCE, 3)


def test_a_new_checkpoint_does_not_pass_over_an_incomplete_micro_batch_in_real_time(kafka: _Kafka) -> None:
    _micro_batch(kafka, 0, 0, 3, "old query")
    micro = Run(kafka, "run of a second call", "old query")
    decide = decide_micro_batch(OPTIONS)
    SharedTransaction(OPTIONS, micro.cluster, decide, clock=kafka.clock).note_incomplete(micro.batch(0, 0, 3))
    with pytest.raises(LedgerRefused, match="(?s)old query, which is incomplete .*takeOverQuery=old query"):
        Run(kafka, "run 2", "new query").start()


@pytest.mark.parametrize("restarted", [False, True], ids=["the same driver", "another driver"])
def test_where_buckets_began_counts_if_its_copy_lacks_its_marker(kafka: _Kafka, restarted: bool) -> None:
    run = Run(kafka, "run 1")
    with _left_out(kafka):
        for bucket in run.driver.start(run.batch(), 2):
            _task(run, bucket).copy_offsets()
    assert kafka.open() != []
    assert (Run(kafka, "run 2") if restarted else run).start(1) == dict.fromkeys(SOURCE, 0)


def test_a_first_start_goes_on_after_one_that_was_aborted_and_lacks_that_marker(kafka: _Kafka) -> None:
    dead = Run(kafka, "run 1")
    dead.transaction.begin(replace(dead.batch(), buckets=2))
    identity, at = dead.transaction.identity, OffsetAndMetadata(offset=0, metadata="")
    add_offsets(dead.cluster, identity, OPTIONS.group_id)
    group = GroupCoordinator(dead.cluster, OPTIONS.group_id)
    group.commit_in_transaction(identity, dict.fromkeys(SOURCE, at), transaction_version=identity.transaction_version)
    with _left_out(kafka):
        end_transaction(dead.cluster, identity, commit=False)
    assert kafka.open() != []
    assert Run(kafka, "run 2").start() == dict.fromkeys(SOURCE, 0)
    assert kafka.open() == []


def test_where_micro_batches_ended_counts_if_these_offsets_lack_their_marker(kafka: _Kafka) -> None:
    _micro_batch(kafka, 0, 0, 3)
    with _left_out(kafka):
        _micro_batch(kafka, 1, 3, 5)
    assert Run(kafka, "run 2").start(2) == dict.fromkeys(SOURCE, 5)


def test_the_tasks_end_what_was_copied_before_and_lacks_its_marker(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    with _left_out(kafka):
        _commits(run, run.driver.start(run.batch(), 2), 7, copied=True)
    assert kafka.open() != []
    successor = Run(kafka, "run 2")
    for bucket in successor.driver.start(successor.batch(1), 2):
        assert {at.start for at in bucket.ranges} == {7}
        assert _task(successor, bucket).copy_offsets()
    assert [kafka.group(OPTIONS.group_id).offsets[tp][0] for tp in SOURCE] == [7, 7]
    assert kafka.open() == []


def test_a_driver_that_is_overtaken_before_its_proof_leaves_the_group_alone(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    with _left_out(kafka):
        _commits(run, run.driver.start(run.batch(), 2), 7, copied=True)
    before = kafka.open()
    assert before != []
    late, winner = Run(kafka, "run 2"), kafka.cluster(OPTIONS.client)
    kafka.before("Produce", lambda: init_producer_id(winner, OPTIONS.transactional_id, 60_000))
    with pytest.raises(ProducerFenced):
        late.start(1)
    assert set(before) <= set(kafka.open())


def test_micro_batches_that_start_before_it_are_refused(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 2)
    with _left_out(kafka):
        _commits(run, buckets, 7)
    with pytest.raises(LedgerRefused, match=r"in-0 at 0 \(committed 7\)"):
        _micro_batch(kafka, 0, 0, 9, "new query")
    _micro_batch(kafka, 0, 7, 9, "new query")
    assert kafka.group(OPTIONS.group_id).offsets[SOURCE[0]][0] == 9


def test_what_a_bucket_has_committed_gets_the_ledgers_marker_from_the_next_start(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 2)
    kafka.leaves_out = lambda joined: LEDGER if LEDGER in joined else None
    _commits(run, buckets, 7)
    del kafka.leaves_out
    assert Run(kafka, "run 2").start(1) == dict.fromkeys(SOURCE, 7)
    assert kafka.open() == []


def test_without_the_right_to_write_it_the_query_is_refused_with_what_writes_it(kafka: _Kafka) -> None:
    run, out = Run(kafka, "run 1"), TopicPartition("out", 0)
    bucket, _ = run.driver.start(run.batch(), 2)
    kafka.leaves_out = lambda joined: out if out in joined else None
    rows = pa.RecordBatch.from_pydict({"key": [b"key"], "value": [b"value"]})
    _task(run, bucket).commit([rows], {SOURCE[0]: 1})
    del kafka.leaves_out
    kafka.meets["WriteTxnMarkers"] = _not_authorized
    for _ in range(2):  # the second one no longer knows whether it was committed
        with pytest.raises(LedgerRefused) as refused:
            Run(kafka, "run 2").start(1)
        assert "kafka-eos transactions abort --topic out --partition 0 --start-offset 0" in refused.value.action
    at = TopicPartition("out", 0)
    producer_id = kafka.open_at(at, 0)
    assert producer_id is not None
    kafka.end_at(at, producer_id, commit=True)
    assert Run(kafka, "run 3").start(1)[SOURCE[0]] == 1


def _not_authorized(request: Any, _answer: Callable[[], Any]) -> Any:
    """To write a marker."""
    markers = [
        SimpleNamespace(
            producer_id=marker.producer_id,
            topics=[
                SimpleNamespace(
                    name=topic.name,
                    partitions=[SimpleNamespace(partition_index=n, error_code=31) for n in topic.partition_indexes],
                )
                for topic in marker.topics
            ],
        )
        for marker in request.markers
    ]
    return SimpleNamespace(markers=markers)


def test_what_a_bucket_has_aborted_is_ended_again_if_that_marker_is_left_out_too(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    bucket, _ = run.driver.start(run.batch(), 2)
    out = TopicPartition("out", 0)
    _appends(run, bucket, out)
    missing = [out, out, None]
    kafka.leaves_out = lambda joined: missing.pop(0) if out in joined else None
    Run(kafka, "run 2").start(1)
    assert (kafka.open(), missing) == ([], [])


@pytest.mark.parametrize("waits", [True, False], ids=["the coordinator says to wait", "the commit is over"])
def test_what_a_task_that_still_lives_commits_before_its_bucket_is_taken_is_not_taken_for_aborted(
    kafka: _Kafka, waits: bool
) -> None:
    run, out = Run(kafka, "run 1"), TopicPartition("out", 0)
    bucket, _ = run.driver.start(run.batch(), 2)
    _appends(run, bucket, out)
    kafka.leaves_out = lambda joined: out if out in joined else None

    def commit_first(request: Any, answer: Callable[[], Any]) -> Any:
        if request.transactional_id != bucket.identity.transactional_id:
            return answer()
        del kafka.meets["InitProducerId"]
        end_transaction(run.cluster, bucket.identity, commit=True)
        return refused_with(CONCURRENT_TRANSACTIONS)(request, answer) if waits else answer()

    kafka.meets["InitProducerId"] = commit_first
    if waits:
        Run(kafka, "run 2").start(1)
    else:
        with pytest.raises(LedgerRefused, match="ended before its coordinator was asked how"):
            Run(kafka, "run 2").start(1)
        producer_id = kafka.open_at(out, 0)
        assert producer_id is not None
        kafka.end_at(out, producer_id, commit=True)
    assert [entry.content for entry in kafka.partitions[out].committed()] == [(b"value",)]


@pytest.mark.parametrize("of", ["the task", "another driver"])
def test_what_begins_after_the_coordinator_was_asked_and_is_aborted_does_not_become_visible(
    kafka: _Kafka, of: str
) -> None:
    """The transaction of which the coordinator told was committed."""
    run, live, out = Run(kafka, "run 1"), Run(kafka, "run 3"), TopicPartition("out", 0)
    bucket, _ = run.driver.start(run.batch(), 2)
    task = _task(run, bucket)
    task.commit([], {part.partition: 5 for part in bucket.ranges})

    def abort_another_first(request: Any, answer: Callable[[], Any]) -> Any:
        if request.transactional_id != bucket.identity.transactional_id:
            return answer()
        del kafka.meets["InitProducerId"]
        is_own = of == "the task"
        began = replace(bucket, identity=task.identity) if is_own else live.driver.start(live.batch(1), 2)[0]
        _appends(run if is_own else live, began, out)
        with _left_out(kafka, out):
            kafka.transactions.coordinators[BUCKETS[0]].time_out()
        return answer()

    kafka.meets["InitProducerId"] = abort_another_first
    with pytest.raises(LedgerRefused, match="ended before its coordinator was asked how"):
        Run(kafka, "run 2").start(1)
    assert kafka.partitions[out].committed() == []


def _commits_without_marker(kafka: _Kafka, run: Run, out: TopicPartition) -> None:
    """The first bucket commits a record, and its marker is left out of `out`."""
    bucket, _ = run.driver.start(run.batch(), 2)
    rows = pa.RecordBatch.from_pydict({"key": [b"key"], "value": [b"value"]})
    with _left_out(kafka, out):
        _task(run, bucket).commit([rows], {part.partition: 5 for part in bucket.ranges})


def test_a_stop_leaves_it_known_how_a_transaction_ended_while_a_partition_has_no_leader(kafka: _Kafka) -> None:
    """Without a leader nobody can say whether the partition has the marker."""
    run, out = Run(kafka, "run 1"), TopicPartition("out", 0)
    _commits_without_marker(kafka, run, out)
    kafka.meets["Metadata"] = _without_leader(out.topic)
    run.cluster.refresh([out.topic])
    with pytest.raises(KafkaEosError, match="out"):
        run.driver.end(run.batch())
    del kafka.meets["Metadata"]
    assert Run(kafka, "run 2").start(1)[SOURCE[0]] == 5
    assert [entry.content for entry in kafka.partitions[out].committed()] == [(b"value",)]


def test_a_driver_that_has_taken_a_bucket_still_knows_how_its_last_transaction_ended(kafka: _Kafka) -> None:
    """If the partition loses its leader just when the bucket is taken."""
    run, out = Run(kafka, "run 1"), TopicPartition("out", 0)
    _commits_without_marker(kafka, run, out)
    kafka.meets["DescribeProducers"] = refused_with(NOT_LEADER_OR_FOLLOWER)
    for _ in range(2):
        with pytest.raises(KafkaEosError, match="DescribeProducers"):
            run.driver.end(run.batch())
    del kafka.meets["DescribeProducers"]
    assert run.start(1)[SOURCE[0]] == 5
    assert [entry.content for entry in kafka.partitions[out].committed()] == [(b"value",)]


def _without_leader(name: str) -> Callable[[Any, Callable[[], Any]], Any]:
    def meet(_request: Any, answer: Callable[[], Any]) -> Any:
        answered = answer()
        for topic in answered.topics:
            for partition in topic.partitions if topic.name == name else ():
                partition.leader_id = -1
        return answered

    return meet


def test_a_late_driver_does_not_take_the_transaction_of_the_live_ones_task_for_one_that_hangs(kafka: _Kafka) -> None:
    first, out = Run(kafka, "run 1"), TopicPartition("out", 0)
    _commits(first, first.driver.start(first.batch(), 2), 5)
    late, live = Run(kafka, "run 2"), Run(kafka, "run 3")
    taken = list[Bucket]()

    def overtake() -> None:
        taken.extend(live.driver.start(live.batch(1), 2))
        _appends(live, taken[0], out)

    def takes_the_buckets(request: Any, answer: Callable[[], Any]) -> Any:
        if request.transactional_id == BUCKETS[-1]:
            del kafka.meets["InitProducerId"]
            kafka.before("DescribeProducers", overtake)
        return answer()

    kafka.meets["InitProducerId"] = takes_the_buckets
    with pytest.raises(ProducerFenced):
        late.start(1)
    assert kafka.open() != []
    end_transaction(live.cluster, taken[0].identity, commit=False)
    assert [entry.content for entry in kafka.partitions[out].committed()] == []


def _appends(run: Run, bucket: Bucket, at: TopicPartition, key: bytes = b"key") -> None:
    """One record, in a transaction that stays open."""
    add_partitions(run.cluster, bucket.identity, [at])
    batch = single.encode_record(key, b"value", 0)
    producer_id, epoch = bucket.identity.producer
    stamp(batch, producer_id=producer_id, epoch=epoch, base_sequence=0, transactional=True)
    version = bucket.identity.transaction_version
    with Appender(run.cluster, bucket.identity, transaction_version=version, reserved=None) as appender:
        appender.append(at, batch, records=1, base_sequence=0)
        appender.flush()


def test_another_query_goes_on_where_buckets_began_if_these_offsets_lack_their_marker(kafka: _Kafka) -> None:
    with _left_out(kafka):
        Run(kafka, "run 1", "old query").start()
    assert Run(kafka, "run 2", "new query").start() == dict.fromkeys(SOURCE, 0)


def test_what_a_bucket_has_committed_in_its_last_epoch_gets_its_marker_from_the_driver_that_started_it(
    kafka: _Kafka,
) -> None:
    run, out = Run(kafka, "run 1"), TopicPartition("out", 0)
    kafka.leaves_out = lambda joined: out if out in joined else None
    bucket, _ = run.driver.start(run.batch(), 2)
    _appends(run, bucket, out)
    end_transaction(run.cluster, bucket.identity, commit=True)
    coordinator = kafka.transactions.coordinators[BUCKETS[0]]
    coordinator.producer_id, coordinator.epoch = 99, 0  # as after the last epoch
    run.driver.start(run.batch(1), 2)
    assert kafka.open() == []
    assert [entry.content for entry in kafka.partitions[out].committed()] == [(b"value",)]


def test_after_its_last_epoch_a_task_still_awaits_the_markers_of_the_one_before() -> None:
    kafka, out = _kafka(2), TopicPartition("out", 0)
    run = Run(kafka, "run 1")
    run.start()
    kafka.transactions.coordinators[BUCKETS[0]].epoch = 32_765
    bucket, _ = run.driver.start(run.batch(1), 2)
    task = _task(run, bucket)
    rows = pa.RecordBatch.from_pydict({"key": [b"key"], "value": [b"value"]})
    kafka.leaves_out = lambda joined: out if out in joined else None
    task.commit([rows], {SOURCE[0]: 1})
    assert kafka.transactions.coordinators[BUCKETS[0]].epoch == 0
    with pytest.raises(TransactionAborted, match="out-0 has not got the marker"):
        task.commit([rows], {SOURCE[0]: 2})
