"""The driver of a query in real time on the model of Kafka: whose the query is, and where it goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from lab.simulation.chance import Seeded
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import KafkaEosError, ProducerFenced
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import BatchCounts
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import WriteKind, sink_options
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.model_kafka import KafkaModel

OPTIONS = sink_options(
    {"kafka.bootstrap.servers": "node-0:9092", "kafka.transactional.id": "copy", "topic": "out"},
    WriteKind.FOREACH_BATCH,
)
SOURCE = [TopicPartition("in", 0), TopicPartition("in", 1)]
BUCKETS = ["copy.bucket-0", "copy.bucket-1"]


class Run:
    """One run of the query, as `spark.real_time` has it."""

    def __init__(self, kafka: KafkaModel, run_id: str, query_id: str = "query") -> None:
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
def kafka(request: pytest.FixtureRequest) -> KafkaModel:
    return _kafka(request.param)


def _kafka(version: int, offsets_marker_s: float = 0.0) -> KafkaModel:
    """`offsets_marker_s`: how long the markers of groups take; the others are there at once."""

    def later(why: str, action: Callable[[], None]) -> None:
        if offsets_marker_s and OFFSETS_TOPIC in why:
            model.world.after(offsets_marker_s, why, action)
        else:
            action()

    model = KafkaModel(version, {"in": len(SOURCE), "out": 1, OPTIONS.ledger_topic: 1}, later=later)
    return model


def _epochs(kafka: KafkaModel) -> list[int]:
    return [kafka.transactions.coordinators[name].epoch for name in BUCKETS]


def test_a_driver_that_has_lost_the_query_takes_no_bucket_to_end_its_tasks(kafka: KafkaModel) -> None:
    late, live = Run(kafka, "run 1"), Run(kafka, "run 2")
    late.start()
    live.start()
    epochs = _epochs(kafka)
    with pytest.raises(ProducerFenced):
        late.start(1)
    with pytest.raises(ProducerFenced, match="takes no bucket"):
        late.driver.end()
    assert _epochs(kafka) == epochs


def test_a_driver_whose_commit_showed_that_it_has_lost_the_query_takes_no_bucket_either(kafka: KafkaModel) -> None:
    late, live = Run(kafka, "run 1"), Run(kafka, "run 2")
    late.start()
    kafka.before("TxnOffsetCommit", live.start)
    with pytest.raises(KafkaEosError):
        late.start(1)
    epochs = _epochs(kafka)
    with contextlib.suppress(ProducerFenced):
        late.driver.end()
    assert _epochs(kafka) == epochs


def test_a_driver_that_has_the_query_ends_its_tasks_by_taking_their_buckets(kafka: KafkaModel) -> None:
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


def test_offsets_that_an_outdated_coordinator_answers_with_are_not_where_it_goes_on(kafka: KafkaModel) -> None:
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


def test_a_query_with_a_new_checkpoint_goes_on_in_real_time_where_micro_batches_ended(kafka: KafkaModel) -> None:
    micro = Run(kafka, "run 1", "old query")
    transaction = SharedTransaction(OPTIONS, micro.cluster, decide_micro_batch(OPTIONS), clock=kafka.clock)
    batch = micro.batch(0, 0, 3)
    transaction.begin(batch)
    transaction.append(lambda _: Appended(partitions=0, records=0, bytes=0))
    transaction.commit(replace(batch), written=BatchCounts(records=0, bytes=0, milliseconds=0))
    assert Run(kafka, "run 2", "new query").start() == dict.fromkeys(SOURCE, 3)
