"""What appends late, with an epoch that was given up: invisible, in both protocols.

The barrier relies on this: it gives up an attempt only by a new epoch, whatever may still be on its way. From Kafka 3.6
on, brokers refuse it (KIP-890's verification). Older ones accept it until they know the new epoch.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

import pytest

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import LedgerRefused, ProducerFenced, TransactionAborted
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.ledger.verdicts import Skip, Write
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.tools.operators.open_transactions import oldest_open
from spark_kafka_eos.transaction.commit import commit_batch
from tests.batches import BY_DRIVER
from tests.coordinating import TransactionCoordinator
from tests.producing import transact

pytestmark = pytest.mark.broker

numbers = itertools.count(1)


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"straggler-{next(numbers)}", 2)


@pytest.fixture
def write(cluster, topic, record_batch):
    """`write(identity, value, partition=0)`: an append task with one record."""

    def write(identity, value, partition=0):
        return append(cluster, identity, [(TopicPartition(topic, partition), 1, record_batch(None, 0, [value]))])

    return write


@pytest.fixture
def seen(consumed, topic):
    """`seen(isolation_level="read_committed")`: the values in both partitions."""
    return lambda isolation_level="read_committed": [
        value for partition in (0, 1) for value in consumed(topic, partition, isolation_level)
    ]


def batch(number):
    return MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}")


def run(transaction, number, write, value):
    """The whole micro-batch `number`."""

    def appended(identity):
        write(identity, value)
        return Appended(partitions=1, records=1, bytes=len(value))

    return commit_batch(transaction, batch(number), appended, max_attempts=2, choice=BY_DRIVER)


def begun(transaction, number):
    assert isinstance(transaction.begin(batch(number)), Write)
    transaction.appending()
    return transaction.identity


def commit(transaction, number):
    """Commit the batch, or abort it as `commit_batch` does before it tries again.

    The ledger's leader may answer before the coordinator. It cannot say who ended the transaction.
    """
    try:
        transaction.commit(batch(number))
    except TransactionAborted:
        transaction.abort()


@pytest.mark.parametrize("partition", [0, 1], ids=["where it appended before", "where nobody appended"])
@pytest.mark.parametrize("committed", [False, True], ids=["before the new epoch's end", "after the new epoch's commit"])
def test_an_append_under_the_given_up_epoch_is_refused(
    owner, write, seen, topic, record_batch, append_elsewhere, partition, committed
):
    transaction = owner()
    old = begun(transaction, 0)
    write(old, b"of the old epoch")
    transaction.abort()
    new = begun(transaction, 0)
    if committed:
        write(new, b"of the new epoch")
        transaction.commit(batch(0))
    sequence = 1 - partition  # it appended one record to partition 0
    refused = append_elsewhere(old, TopicPartition(topic, partition), sequence, [b"late"])
    assert refused["error"] in ("TransactionAborted", "ProducerFenced"), refused
    with pytest.raises((TransactionAborted, ProducerFenced)):  # as an append task does it: TV1 adds the partition first
        write(old, b"later", partition)
    if not committed:
        write(new, b"of the new epoch")
        transaction.commit(batch(0))
    assert seen() == [b"of the new epoch"]
    assert seen("read_uncommitted") == [b"of the old epoch", b"of the new epoch"]


def test_a_driver_that_comes_back_with_records_appended_cannot_commit_them(owner, write, seen):
    zombie = owner()
    write(begun(zombie, 0), b"of the zombie")
    run(owner(), 0, write, b"of its successor")
    with pytest.raises(ProducerFenced) as fenced:
        commit(zombie, 0)
    assert fenced.value.committed == "nothing"
    assert seen() == [b"of its successor"]
    assert seen("read_uncommitted") == [b"of the zombie", b"of its successor"]
    with pytest.raises(ProducerFenced):
        zombie.begin(batch(1))


def test_a_driver_that_comes_back_between_two_batches_cannot_write_the_next_one(owner, write, seen):
    zombie, successor = owner(), owner()
    run(zombie, 0, write, b"0")
    run(successor, 1, write, b"1")
    with pytest.raises(ProducerFenced):
        run(zombie, 1, write, b"1 again")
    run(successor, 2, write, b"2")
    assert seen() == seen("read_uncommitted") == [b"0", b"1", b"2"]


def test_a_driver_that_comes_back_in_the_middle_of_its_appends_cannot_append_the_rest(owner, write, seen):
    zombie, successor = owner(), owner()
    identity = begun(zombie, 0)
    write(identity, b"first of the zombie")
    run(successor, 0, write, b"of its successor")
    with pytest.raises((TransactionAborted, ProducerFenced)):
        write(identity, b"second of the zombie", 1)
    with pytest.raises(ProducerFenced):
        zombie.abort()
    run(successor, 1, write, b"next")
    assert seen() == [b"of its successor", b"next"]


def test_a_driver_that_starts_again_after_its_successor_wrote_the_batch_is_told_by_the_ledger(owner, write, seen):
    run(owner(), 0, write, b"of its successor")
    assert run(owner(), 0, write, b"again").outcome == "skipped"
    assert isinstance(owner().begin(batch(0)), Skip)
    with pytest.raises(LedgerRefused, match="other source offsets"):
        owner().begin(replace(batch(0), digest="another"))
    with pytest.raises(LedgerRefused, match="the checkpoint is at batch 5"):
        owner().begin(batch(5))
    assert seen() == seen("read_uncommitted") == [b"of its successor"]


# Here nobody asks the coordinator whether the producer's transaction is open.
UNVERIFIED = pytest.mark.parametrize("either_kafka", ["kafka35", "kafka_oldest"], indirect=True, ids=["3.5", "oldest"])
PARTITIONS = pytest.mark.parametrize("partition", [0, 1], ids=["where it appended before", "where nobody appended"])


@pytest.fixture
def put(cluster, topic, record_batch):
    """`put(identity, (partition, value), …)`: an append task with these records; both partitions join beforehand."""
    both = [TopicPartition(topic, number) for number in (0, 1)]

    def put(identity, *records, partitions=both):
        blocks = [(both[partition], 1, record_batch(None, 0, [value])) for partition, value in records]
        append(cluster, identity, blocks, partitions=partitions)

    return put


@pytest.fixture
def late(either_kafka, options, topic, record_batch):
    """`late(identity, partition)`: a task of `identity` appends what it has left, the record after the one in
    partition 0. The broker may refuse it."""

    def late(identity, partition):
        sequence = 1 - partition
        block = record_batch(identity, sequence, [b"second"])
        with (
            Cluster(options(either_kafka.bootstrap)) as own,
            Appender(own, identity) as appender,
            contextlib.suppress(TransactionAborted, ProducerFenced),
        ):
            appender.append(TopicPartition(topic, partition), block, 1, sequence)
            appender.flush()

    return late


@UNVERIFIED
@PARTITIONS
def test_a_redo_does_not_commit_what_the_given_up_epoch_appends_before_it(owner, put, late, seen, partition):
    transaction = owner()
    old = begun(transaction, 0)
    put(old, (0, b"first"))
    transaction.abort()
    new = begun(transaction, 0)
    late(old, partition)
    put(new, (0, b"first"), (partition, b"second"))
    transaction.commit(batch(0))
    assert seen() == [b"first", b"second"]


@UNVERIFIED
@PARTITIONS
@pytest.mark.parametrize("before", [True, False], ids=["before its successor is there", "once its successor began"])
def test_a_successor_does_not_commit_what_is_appended_late_where_a_driver_died_after_its_abort(
    owner, cluster, put, late, seen, await_state, partition, before
):
    old = begun(owner(), 0)
    put(old, (0, b"first"))
    TransactionCoordinator(cluster, old.transactional_id, 60_000).end(old, commit=False)  # here it died
    await_state(old.transactional_id, "CompleteAbort")
    if before:
        late(old, partition)
    successor = owner()
    new = begun(successor, 0)
    if not before:
        late(old, partition)
    put(new, (0, b"first"), (partition, b"second"))
    successor.commit(batch(0))
    assert seen() == [b"first", b"second"]


@UNVERIFIED
def test_what_the_given_up_epoch_appends_where_the_redo_does_not_leaves_no_transaction_open(
    owner, cluster, put, late, seen, topic
):
    transaction = owner()
    old = begun(transaction, 0)
    put(old, (0, b"first"))
    transaction.abort()
    new = begun(transaction, 0)
    late(old, 1)
    put(new, (0, b"first"), (0, b"second"), partitions=[TopicPartition(topic, 0)])
    transaction.commit(batch(0))
    assert seen() == [b"first", b"second"]
    assert oldest_open(cluster, [TopicPartition(topic, 1)], now_ms=0) == {}, "readers wait there"


def test_each_transaction_of_the_sink_has_its_own_epoch_and_those_of_librdkafka_all_have_epoch_0(
    either_kafka, cluster, owner, topic, write
):
    def epoch_of(transactional_id):
        facts = describe.transaction(cluster, transactional_id, now_ms=0)
        assert isinstance(facts, TransactionFacts)
        return facts.epoch

    transaction, sinks, librdkafkas = owner(), [], []
    for number in range(3):
        run(transaction, number, write, b"sink")
        sinks.append(epoch_of(f"id-{topic}"))
    producer = transact(
        either_kafka.bootstrap, topic, [b"librdkafka"], "commit", transactional_id=f"{topic}-librdkafka"
    )
    for _ in range(3):
        librdkafkas.append(epoch_of(f"{topic}-librdkafka"))
        producer.begin_transaction()
        producer.produce(topic, b"librdkafka", partition=0)
        producer.commit_transaction(30)
    assert len(set(sinks)) == 3
    assert librdkafkas == [0, 0, 0]
