"""A driver that comes back late, on real brokers of both protocols: it ends by itself, and the live one goes on."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import LedgerRefused, ProducerFenced, must_not_restart
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.transaction.commit import commit_batch
from tests.batches import BY_DRIVER, appended_to

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
LATE, LIVE = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"late-{next(numbers)}")


@pytest.fixture
def put(cluster, topic, record_batch):
    """`put(identity, value)`: an attempt with one record."""
    tp = TopicPartition(topic, 0)

    def put(identity, value):
        topics = appended_to(cluster, tp)
        append(cluster, identity, [(tp, 1, record_batch(None, 0, [value]))])
        return Appended(partitions=1, records=1, bytes=3, topics=topics)

    return put


@pytest.fixture
def run(put):
    """`run(transaction, number, run_id)`: the whole micro-batch `number`, whose record says who wrote it."""

    def run(transaction, number, run_id):
        def write(identity):
            return put(identity, f"{number} {run_id[0]}".encode())

        return commit_batch(transaction, batch(number, run_id), write, max_attempts=2, choice=BY_DRIVER)

    return run


def batch(number, run_id):
    return MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}", run_id=run_id)


def owned(cluster, topic):
    """Whose the id is."""
    facts = describe.transaction(cluster, f"id-{topic}", now_ms=0)
    assert isinstance(facts, TransactionFacts)
    return facts.producer_id, facts.epoch


@pytest.mark.parametrize("process", ["the same one", "one for each batch"])
@pytest.mark.parametrize("live", ["has begun", "appends", "has committed this batch", "has committed two batches"])
def test_a_driver_that_comes_back_late_ends_and_the_live_one_does_not_notice(
    owner, cluster, topic, put, run, consumed, process, live
):
    late, newer = owner(), owner()
    run(late, 0, LATE)
    number = {"has committed this batch": 2, "has committed two batches": 3}.get(live, 1)
    for earlier in range(1, number):
        run(newer, earlier, LIVE)
    newer.begin(batch(number, LIVE))
    if live == "appends":
        newer.append(lambda identity: put(identity, f"{number} 2".encode()))
    before = owned(cluster, topic)
    driver = late if process == "the same one" else owner()
    if process == "one for each batch" and live == "has committed this batch":
        assert run(driver, 1, LATE).outcome == "skipped"
        with pytest.raises(ProducerFenced, match="another driver has taken over"):
            run(owner(), 2, LATE)
    else:
        with pytest.raises((ProducerFenced, LedgerRefused)) as ended:
            run(driver, 1, LATE)
        assert must_not_restart(ended.value)
    assert owned(cluster, topic) == before
    if live != "appends":
        newer.append(lambda identity: put(identity, f"{number} 2".encode()))
    newer.commit(batch(number, LIVE))
    run(newer, number + 1, LIVE)
    expected = [b"0 1", *(f"{each} 2".encode() for each in range(1, number + 2))]
    assert consumed(topic) == expected


def test_a_driver_with_the_lost_checkpoint_of_a_query_that_went_on_is_refused_without_taking_the_id(
    owner, cluster, topic, put, run
):
    run(owner(), 0, LATE)
    newer = owner()
    run(newer, 1, LIVE)
    newer.begin(batch(2, LIVE))
    newer.append(lambda identity: put(identity, b"2 2"))
    before = owned(cluster, topic)
    with pytest.raises(LedgerRefused):
        owner().begin(replace(batch(0, LATE), query_id="with a new checkpoint"))
    assert owned(cluster, topic) == before
    newer.commit(batch(2, LIVE))


def test_a_start_does_not_wait_for_the_transaction_that_a_dead_driver_left_open(owner, put, run, consumed, topic):
    dead = owner()
    run(dead, 0, LATE)
    dead.begin(batch(1, LATE))
    dead.append(lambda identity: put(identity, b"never"))
    report = run(owner(), 1, LIVE)
    assert (report.outcome, report.redone) == ("committed", ())
    assert consumed(topic) == [b"0 1", b"1 2"]
