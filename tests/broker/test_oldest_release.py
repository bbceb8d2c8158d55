"""The oldest supported release: every request of the package exists there, and a batch lives its whole life on it."""

from __future__ import annotations

import itertools

import pytest

from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.broker.open_transactions import oldest_open
from spark_kafka_eos.core.preflight import Severity
from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.model import MicroBatch, TopicPartition
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.writing.append import append
from spark_kafka_eos.writing.commit import commit_batch
from spark_kafka_eos.writing.preflight import examine
from spark_kafka_eos.writing.report import Appended
from tests.reading import ours

pytestmark = [
    pytest.mark.broker,
    pytest.mark.parametrize("either_kafka", ["kafka_oldest"], indirect=True, ids=["oldest"]),
]

numbers = itertools.count(1)


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"oldest-{next(numbers)}", 2)


def test_a_batch_is_committed_redone_and_skipped_and_the_next_one_continues(
    either_kafka, cluster, owner, topic, record_batch, consumed
):
    source = TopicPartition(either_kafka.create_topic(f"{topic}-source"), 0)
    output = [TopicPartition(topic, number) for number in (0, 1)]

    def run(transaction, number, fail=()):
        tries = itertools.count()

        def write(identity):
            blocks = [(tp, 1, record_batch(None, 0, [b"%d" % number])) for tp in output]
            acks = append(cluster, identity, blocks, partitions=output)
            assert set(oldest_open(cluster, output, now_ms=0)) == set(output)
            if next(tries) in fail:
                raise TransactionAborted("as if a task had been tried twice")
            return Appended(partitions=2, records=sum(ack.records for ack in acks), bytes=2)

        start, end = {source: number * 10}, {source: number * 10 + 10}
        batch = MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}", start=start, end=end)
        return commit_batch(transaction, batch, write, max_attempts=2, append_mode="driver")

    first = owner()
    assert run(first, 0, fail=[0]).redone == ("as if a task had been tried twice",)
    assert run(first, 1).outcome == "committed"
    successor = owner()
    assert run(successor, 1).outcome == "skipped"
    assert run(successor, 2).outcome == "committed"

    for tp in output:
        assert consumed(topic, tp.partition) == [b"0", b"1", b"2"]
        assert consumed(topic, tp.partition, "read_uncommitted") == [b"0", b"0", b"1", b"2"]
    values = [(partition, value) for _, partition, _, _, _, value, _ in ours(either_kafka.bootstrap, topic)]
    assert values == [(tp.partition, value) for tp in output for value in (b"0", b"1", b"2")]
    committed = GroupCoordinator(cluster, f"id-{topic}").fetch_offsets([source])[source]
    assert committed is not None and committed.offset == 30
    assert oldest_open(cluster, output, now_ms=0) == {}


def test_the_preflight_finds_everything_it_asks_for(either_kafka, cluster, topic):
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "kafka.transactional.id": f"id-{topic}", "topic": topic}
    findings = examine(cluster, sink_options(given))
    warnings = {finding.subject for finding in findings if finding.severity is not Severity.OK}
    assert warnings == {
        f"topics {topic}, kafka-eos-ledger, __consumer_offsets, __transaction_state",
        "transaction.version",
    }
