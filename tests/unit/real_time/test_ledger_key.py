"""`ledgerKey` of a query in real time, on the model of Kafka."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lab.simulation.conditions import Conditions
from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.transactions import add_offsets, end_transaction, init_producer_id
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.decide import decide_micro_batch, signer_of
from spark_kafka_eos.ledger.entry import BatchCounts
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import SinkOptions, WriteKind, sink_options
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.cycle import BucketTransactions
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.model_kafka import KafkaModel
from tests.unit.real_time.test_driver import OPTIONS, SOURCE

GIVEN = {"kafka.bootstrap.servers": "node-0:9092", "kafka.transactional.id": "copy", "topic": "out"}
OLD, NEW = "the-old-key-16-chars", "the-new-key-16-chars"
UNSIGNED = "it is not signed with ledgerKey"


def options(*keys: str) -> SinkOptions:
    given = GIVEN | ({"ledgerKey": ",".join(keys)} if keys else {})
    return sink_options(given, WriteKind.FOREACH_BATCH)


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def kafka(request: pytest.FixtureRequest) -> KafkaModel:
    return KafkaModel(
        request.param, {"in": len(SOURCE), "out": 1, OPTIONS.ledger_topic: 1}, conditions=Conditions(real_time=True)
    )


def start(kafka: KafkaModel, number: int, sink: SinkOptions, query_id: str = "query") -> list[Bucket]:
    """The buckets of long batch `number`, in a new process."""
    cluster = kafka.cluster(sink.client)
    transaction = SharedTransaction(sink, cluster, decide_in_real_time(sink), clock=kafka.clock)
    driver = RealTimeDriver(sink, cluster, transaction, fail_on_data_loss=True)
    source = SourceRange(start=dict.fromkeys(SOURCE, 0), end=dict.fromkeys(SOURCE, 0))
    batch = MicroBatch(query_id=query_id, batch_id=number, digest=str(number), sources=(source,), run_id=str(number))
    return driver.start(batch, 2)


def commit(kafka: KafkaModel, bucket: Bucket, sink: SinkOptions, offset: int) -> None:
    """What the bucket's task commits: nothing but offsets."""
    settings = EncodeSettings(topic="out", targets={"out": Target(partitions=1)}, ledger_topic=sink.ledger_topic)
    task = BucketTransactions(
        kafka.cluster(sink.client),
        bucket.identity,
        BlockEncoder(settings, bucket.number, lambda _: Target(partitions=1), lambda: 0),
        began=BucketRecord(
            serial=bucket.serial, offsets={at.partition: at.start for at in bucket.ranges}, topic_ids={}
        ),
        group_id=sink.group_id,
        mark=source_mark(sink.transactional_id),
        ledger_topic=sink.ledger_topic,
        signer=signer_of(sink).of(bucket.identity.transactional_id),
    )
    task.commit([], {at.partition: offset for at in bucket.ranges})


def micro_batch(kafka: KafkaModel, end: int, sink: SinkOptions) -> None:
    """The first batch of a new query, from 0 to `end`."""
    transaction = SharedTransaction(sink, kafka.cluster(sink.client), decide_micro_batch(sink), clock=kafka.clock)
    source = SourceRange(start=dict.fromkeys(SOURCE, 0), end=dict.fromkeys(SOURCE, end))
    batch = MicroBatch(query_id="new query", batch_id=0, digest="0123456789", sources=(source,), run_id="micro-batches")
    transaction.begin(batch)
    transaction.append(lambda _: Appended(partitions=0, records=0, bytes=0))
    transaction.commit(batch, written=BatchCounts(records=0, bytes=0, milliseconds=0))


def micro_batch_by_word(kafka: KafkaModel, end: int, sink: SinkOptions) -> None:
    with pytest.raises(LedgerRefused) as refused:
        micro_batch(kafka, end, sink)
    (word,) = re.findall(r"resolve='(write:unreadable[^']*)'", str(refused.value))
    micro_batch(kafka, end, replace(sink, resolve=word))


def epochs(kafka: KafkaModel, buckets: list[Bucket]) -> list[int]:
    return [kafka.transactions.coordinators[bucket.identity.transactional_id].epoch for bucket in buckets]


def overwrite_the_ledger(kafka: KafkaModel) -> None:
    """With what says neither a serial nor how many buckets there are."""
    cluster, at = kafka.cluster(), TopicPartition(OPTIONS.ledger_topic, 0)
    producer = init_producer_id(cluster, "copy", 10_000)
    LedgerTopic(cluster, at.topic, "copy").append_entry(producer, b"junk", timestamp_ms=0)
    add_offsets(cluster, producer, OPTIONS.ledger_group)
    GroupCoordinator(cluster, OPTIONS.ledger_group).commit_in_transaction(
        producer,
        {at: OffsetAndMetadata(offset=0, metadata="junk")},
        transaction_version=producer.transaction_version,
    )
    end_transaction(cluster, producer, commit=True)


def starts(buckets: list[Bucket]) -> set[int]:
    return {at.start for bucket in buckets for at in bucket.ranges}


def test_the_old_key_is_needed_until_each_bucket_has_written_with_the_new_one(kafka: KafkaModel) -> None:
    for bucket in start(kafka, 0, options(OLD)):
        commit(kafka, bucket, options(OLD), 10)
    both = options(NEW, OLD)
    busy, idle = start(kafka, 1, both)
    commit(kafka, busy, both, 20)
    with pytest.raises(LedgerRefused, match=f"{idle.identity.transactional_id}'.*{UNSIGNED}") as refused:
        start(kafka, 2, options(NEW))
    assert "set it to what it was, with the new key before it" in str(refused.value)
    busy, idle = start(kafka, 3, both)
    assert starts([busy]) == {20} and starts([idle]) == {10}
    commit(kafka, idle, both, 15)
    commit(kafka, busy, both, 25)
    assert starts(start(kafka, 4, options(NEW))) == {15, 25}


def test_a_key_that_is_turned_on_is_refused_and_the_query_runs_on_without_it(kafka: KafkaModel) -> None:
    for bucket in start(kafka, 0, options()):
        commit(kafka, bucket, options(), 10)
    with pytest.raises(LedgerRefused, match=UNSIGNED) as refused:
        start(kafka, 1, options(NEW))
    assert "resolve=" not in str(refused.value)
    assert starts(start(kafka, 2, options())) == {10}


def test_after_a_word_on_an_entry_with_another_key_its_buckets_are_fenced_and_their_records_old(
    kafka: KafkaModel,
) -> None:
    for number in range(3):
        buckets = start(kafka, number, options(OLD))
    for bucket in buckets:
        commit(kafka, bucket, options(OLD), 700)
    before = epochs(kafka, buckets)
    micro_batch_by_word(kafka, 300, options(NEW))
    assert epochs(kafka, buckets) == [epoch + 1 for epoch in before]
    assert starts(start(kafka, 1, options(NEW, OLD), "new query")) == {300}


def test_after_a_word_on_an_entry_that_says_nothing_its_buckets_are_fenced_and_their_records_refused(
    kafka: KafkaModel,
) -> None:
    for number in range(3):
        buckets = start(kafka, number, options())
    for bucket in buckets:
        commit(kafka, bucket, options(), 700)
    before = epochs(kafka, buckets)
    overwrite_the_ledger(kafka)
    micro_batch_by_word(kafka, 300, options())
    assert epochs(kafka, buckets) == [epoch + 1 for epoch in before]
    known = "bucket 0 is of a run in real time that commit 3 began, but the ledger's last commit is number 1"
    with pytest.raises(LedgerRefused, match=known) as refused:
        start(kafka, 1, options(), "new query")
    assert "go on under another kafka.transactional.id" in str(refused.value)
