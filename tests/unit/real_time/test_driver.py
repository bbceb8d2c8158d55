"""The driver of a query in real time on the model of Kafka: whose the query is, and where it goes on."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lab.simulation.chance import Seeded
from lab.simulation.conditions import Conditions
from lab.simulation.transactions import LeavesOut
from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import KafkaEosError, LedgerRefused, ProducerFenced, TransactionAborted
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator, stored_in
from spark_kafka_eos.kafka.protocol.transactions import add_offsets, add_partitions, end_transaction
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC
from spark_kafka_eos.kafka.wire import single
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import BatchCounts
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import WriteKind, sink_options
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.cycle import BucketTransactions
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.transaction.buckets import Buckets
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.model_kafka import KafkaModel

OPTIONS = sink_options(
    {"kafka.bootstrap.servers": "node-0:9092", "kafka.transactional.id": "copy", "topic": "out"},
    WriteKind.FOREACH_BATCH,
)
SOURCE = [TopicPartition("in", 0), TopicPartition("in", 1)]
BUCKETS = ["copy.bucket-0", "copy.bucket-1"]


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

    def commits(self, offset: int) -> None:
        """As its tasks do, in their transactions."""
        at = OffsetAndMetadata(offset=offset, metadata="")
        GroupCoordinator(self.cluster, OPTIONS.group_id).commit_offsets(dict.fromkeys(SOURCE, at))


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


@contextlib.contextmanager
def _left_out(kafka: _Kafka) -> Iterator[None]:
    """Transactions that end meanwhile get no marker where the source's group is stored."""
    at = TopicPartition(OFFSETS_TOPIC, stored_in(OPTIONS.group_id, 50))
    kafka.leaves_out = lambda joined: at if at in joined else None
    yield
    del kafka.leaves_out


def _commits_as_a_task(run: Run, buckets: Sequence[Bucket], offset: int) -> None:
    """What the tasks of these buckets commit in transactions."""
    for bucket in buckets:
        identity = bucket.identity
        add_offsets(run.cluster, identity, OPTIONS.group_id)
        at = OffsetAndMetadata(offset=offset, metadata=source_mark(OPTIONS.transactional_id))
        offsets = {part.partition: at for part in bucket.ranges}
        group = GroupCoordinator(run.cluster, OPTIONS.group_id)
        group.commit_in_transaction(identity, offsets, transaction_version=identity.transaction_version)
        end_transaction(run.cluster, identity, commit=True)


def _micro_batch(kafka: _Kafka, number: int, start: int, end: int, query_id: str = "query") -> None:
    micro = Run(kafka, f"run of micro-batch {number}", query_id)
    transaction = SharedTransaction(OPTIONS, micro.cluster, decide_micro_batch(OPTIONS), clock=kafka.clock)
    batch = micro.batch(number, start, end)
    transaction.begin(batch)
    transaction.append(lambda _: Appended(partitions=0, records=0, bytes=0))
    transaction.commit(replace(batch), written=BatchCounts(records=0, bytes=0, milliseconds=0))


def _epochs(kafka: _Kafka) -> list[int]:
    return [kafka.transactions.coordinators[name].epoch for name in BUCKETS]


def test_a_driver_that_has_lost_the_query_takes_no_bucket_to_end_its_tasks(kafka: _Kafka) -> None:
    late, live = Run(kafka, "run 1"), Run(kafka, "run 2")
    late.start()
    live.start()
    epochs = _epochs(kafka)
    with pytest.raises(ProducerFenced):
        late.start(1)
    with pytest.raises(ProducerFenced, match="takes no bucket"):
        late.driver.end()
    assert _epochs(kafka) == epochs


def test_a_driver_whose_commit_showed_that_it_has_lost_the_query_takes_no_bucket_either(kafka: _Kafka) -> None:
    late, live = Run(kafka, "run 1"), Run(kafka, "run 2")
    late.start()
    kafka.before("TxnOffsetCommit", live.start)
    with pytest.raises(KafkaEosError):
        late.start(1)
    epochs = _epochs(kafka)
    with contextlib.suppress(ProducerFenced):
        late.driver.end()
    assert _epochs(kafka) == epochs


def test_a_driver_that_has_the_query_ends_its_tasks_by_taking_their_buckets(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    run.start()
    epochs = _epochs(kafka)
    run.driver.end()
    assert [after > before for before, after in zip(epochs, _epochs(kafka), strict=True)] == [True, True]


def test_a_start_waits_for_the_markers_of_the_querys_own_last_transaction() -> None:
    """In the newer protocol, the driver goes on without InitProducerId, which would wait for them."""
    kafka = _kafka(2, offsets_marker_s=20.0)
    run = Run(kafka, "run 1")
    run.start()
    assert run.start(1) == dict.fromkeys(SOURCE, 0)


def test_offsets_that_an_outdated_coordinator_answers_with_are_not_where_it_goes_on(kafka: _Kafka) -> None:
    last = Run(kafka, "run 1")
    last.start()
    last.commits(5)
    answers = 0

    def outdated(request, answer):
        nonlocal answers
        names = [topic.name for topic in request.topics or ()]
        if names != ["in"] or answers:
            return answer()
        answers += 1
        return kafka.outdated(request, Seeded(0))

    kafka.meets["OffsetFetch"] = outdated
    assert last.start(1) == dict.fromkeys(SOURCE, 5)
    assert answers == 1


def test_a_query_with_a_new_checkpoint_goes_on_in_real_time_where_micro_batches_ended(kafka: _Kafka) -> None:
    _micro_batch(kafka, 0, 0, 3, "old query")
    assert Run(kafka, "run 2", "new query").start() == dict.fromkeys(SOURCE, 3)


@pytest.mark.parametrize("restarted", [False, True], ids=["the same driver", "another driver"])
def test_where_buckets_began_counts_if_these_offsets_lack_their_marker(kafka: _Kafka, restarted: bool) -> None:
    run = Run(kafka, "run 1")
    with _left_out(kafka):
        run.start()
    assert kafka.open() != []
    assert (Run(kafka, "run 2") if restarted else run).start(1) == dict.fromkeys(SOURCE, 0)
    assert kafka.open() == []


def test_where_micro_batches_ended_counts_if_these_offsets_lack_their_marker(kafka: _Kafka) -> None:
    _micro_batch(kafka, 0, 0, 3)
    with _left_out(kafka):
        _micro_batch(kafka, 1, 3, 5)
    assert Run(kafka, "run 2").start(2) == dict.fromkeys(SOURCE, 5)


def test_it_counts_too_if_the_driver_died_after_it_had_ended_them(kafka: _Kafka) -> None:
    _micro_batch(kafka, 0, 0, 3)
    with _left_out(kafka):
        _micro_batch(kafka, 1, 3, 5)
    dead = Run(kafka, "run 2")
    dead.transaction.begin(replace(dead.batch(2, 5, 5), buckets=2))
    dead.transaction.abort_source_offsets()
    assert kafka.open() == []
    assert Run(kafka, "run 3").start(2) == dict.fromkeys(SOURCE, 5)


def test_offsets_that_an_operator_has_set_back_count(kafka: _Kafka) -> None:
    _micro_batch(kafka, 0, 0, 3)
    run = Run(kafka, "run 2")
    run.commits(1)
    assert run.start(1) == dict.fromkeys(SOURCE, 1)


def test_offsets_that_a_bucket_has_committed_get_their_marker(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 2)
    with _left_out(kafka):
        _commits_as_a_task(run, buckets, 7)
    assert kafka.group(OPTIONS.group_id).offsets[SOURCE[0]][0] == 0
    assert Run(kafka, "run 2").start(1) == dict.fromkeys(SOURCE, 7)
    assert kafka.open() == []


def test_micro_batches_that_start_before_it_are_refused_and_give_it_its_marker(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 2)
    with _left_out(kafka):
        _commits_as_a_task(run, buckets, 7)
    with pytest.raises(LedgerRefused, match=r"in-0 at 0 \(committed 7\)"):
        _micro_batch(kafka, 0, 0, 9, "new query")
    assert kafka.open() == []
    _micro_batch(kafka, 0, 7, 9, "new query")
    assert kafka.group(OPTIONS.group_id).offsets[SOURCE[0]][0] == 9


def test_without_the_right_to_see_whose_offsets_are_pending_nothing_is_written(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 2)
    with _left_out(kafka):
        _commits_as_a_task(run, buckets, 7)
    kafka.meets["DescribeProducers"] = lambda request, answer: _not_allowed(request, answer())
    with pytest.raises(LedgerRefused, match="cannot see whose they are") as refused:
        Run(kafka, "run 2").start(1)
    assert "copy.bucket-0 (producer 2): committed, copy.bucket-1 (producer 3): committed" in refused.value.what
    assert "transactions hanging --topic __consumer_offsets" in refused.value.action
    for producer_id in (2, 3):
        kafka.end_at(TopicPartition(OFFSETS_TOPIC, stored_in(OPTIONS.group_id, 50)), producer_id, commit=True)
    assert Run(kafka, "run 3").start(1) == dict.fromkeys(SOURCE, 7)


def test_a_bucket_that_was_taken_before_its_offsets_were_ended_is_refused_with_what_ends_them(
    kafka: _Kafka,
) -> None:
    run = Run(kafka, "run 1")
    buckets = run.driver.start(run.batch(), 2)
    with _left_out(kafka):
        _commits_as_a_task(run, buckets, 7)
    dead = Buckets(run.cluster, OPTIONS)
    dead.take(range(2))
    for _ in buckets:
        with pytest.raises(LedgerRefused, match="whether they were committed is unknown") as refused:
            Run(kafka, "run 2").start(1)
        command = re.search(r"abort --topic (\S+) --partition (\d+) --start-offset (\d+)", refused.value.action)
        assert command is not None
        at = TopicPartition(command[1], int(command[2]))
        producer_id = kafka.open_at(at, int(command[3]))
        assert producer_id is not None
        kafka.end_at(at, producer_id, commit=True)
    assert Run(kafka, "run 3").start(1) == dict.fromkeys(SOURCE, 7)


def _not_allowed(request: Any, answer: Any) -> Any:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.error_code = 29 if topic.name == OFFSETS_TOPIC else partition.error_code
    return answer


def test_what_a_bucket_has_aborted_is_ended_again_if_that_marker_is_left_out_too(kafka: _Kafka) -> None:
    run = Run(kafka, "run 1")
    bucket, _ = run.driver.start(run.batch(), 2)
    out = TopicPartition("out", 0)
    _appends(run, bucket, out)
    missing = [out, out, None]
    kafka.leaves_out = lambda joined: missing.pop(0) if out in joined else None
    Run(kafka, "run 2").start(1)
    assert (kafka.open(), missing) == ([], [])


def _appends(run: Run, bucket: Bucket, at: TopicPartition) -> None:
    """One record, in a transaction that stays open."""
    add_partitions(run.cluster, bucket.identity, [at])
    batch = single.encode_record(b"key", b"value", 0)
    producer_id, epoch = bucket.identity.producer
    stamp(batch, producer_id=producer_id, epoch=epoch, base_sequence=0, transactional=True)
    version = bucket.identity.transaction_version
    with Appender(run.cluster, bucket.identity, transaction_version=version, reserved=None) as appender:
        appender.append(at, batch, records=1, base_sequence=0)
        appender.flush()


def test_a_late_driver_does_not_take_the_abort_of_what_hangs_for_its_own_timeout(kafka: _Kafka) -> None:
    late = Run(kafka, "run 1")
    with _left_out(kafka):
        late.start()
    errors: list[KafkaEosError] = []

    def meanwhile(request: Any, answer: Callable[[], Any]) -> Any:
        del kafka.meets["EndTxn"]
        ended = answer()
        try:
            late.start(1)
        except KafkaEosError as error:
            errors.append(error)
        return ended

    kafka.meets["EndTxn"] = meanwhile
    Run(kafka, "run 2").start(1)
    assert [type(error) for error in errors] == [ProducerFenced]


def test_another_query_goes_on_where_buckets_began_if_these_offsets_lack_their_marker(kafka: _Kafka) -> None:
    with _left_out(kafka):
        Run(kafka, "run 1", "old query").start()
    assert Run(kafka, "run 2", "new query").start() == dict.fromkeys(SOURCE, 0)
    assert kafka.open() == []


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
    settings = EncodeSettings(topic="out", targets={"out": Target(partitions=1)}, ledger_topic=OPTIONS.ledger_topic)
    encoder = BlockEncoder(settings, 0, lambda _: Target(partitions=1), lambda: 0)
    task = BucketTransactions(
        run.cluster, bucket.identity, encoder, group_id=OPTIONS.group_id, mark="", ledger_topic=OPTIONS.ledger_topic
    )
    rows = pa.RecordBatch.from_pydict({"key": [b"key"], "value": [b"value"]})
    kafka.leaves_out = lambda joined: out if out in joined else None
    task.commit([rows], {SOURCE[0]: 1})
    assert kafka.transactions.coordinators[BUCKETS[0]].epoch == 0
    with pytest.raises(TransactionAborted, match="out-0 has not got the marker"):
        task.commit([rows], {SOURCE[0]: 2})
