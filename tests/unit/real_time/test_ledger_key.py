"""`ledgerKey` of a query in real time, on the model of Kafka."""

from __future__ import annotations

import pytest

from lab.simulation.conditions import Conditions
from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.decide import signer_of
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.source_mark import source_mark
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


def start(kafka: KafkaModel, number: int, sink: SinkOptions) -> list[Bucket]:
    """The buckets of long batch `number`, in a new process."""
    cluster = kafka.cluster(sink.client)
    transaction = SharedTransaction(sink, cluster, decide_in_real_time(sink), clock=kafka.clock)
    driver = RealTimeDriver(sink, cluster, transaction, fail_on_data_loss=True)
    source = SourceRange(start=dict.fromkeys(SOURCE, 0), end=dict.fromkeys(SOURCE, 0))
    batch = MicroBatch(query_id="query", batch_id=number, digest=str(number), sources=(source,), run_id=str(number))
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
