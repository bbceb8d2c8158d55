"""Every minor release of Kafka: every request of the package exists there, and a batch lives its whole life on it.

Every run tests those of which other tests have a broker, `make test-slow` the others. What each run tested is a table
at its end; `.ci/tested.py` makes docs/tested.md of it.
"""

from __future__ import annotations

import itertools

import pytest

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.preflight.probe import probe
from spark_kafka_eos.preflight.run import examine
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.read_offsets import group_offsets
from spark_kafka_eos.tools.operators.open_transactions import oldest_open
from spark_kafka_eos.transaction.commit import commit_batch
from tests.batches import BY_DRIVER, reads
from tests.reading import ours

pytestmark = pytest.mark.broker

BETWEEN = ("3.4.1", "3.6.2", "3.7.2", "3.8.1", "4.0.1", "4.1.1", "4.2.0", "4.3.1")

numbers = itertools.count(1)


SHARED = ("kafka_oldest", "kafka35", "kafka39", "kafka")


@pytest.fixture(scope="module", params=[*SHARED, *(pytest.param(v, marks=pytest.mark.slow) for v in BETWEEN)])
def either_kafka(request):
    if request.param in SHARED:
        yield request.getfixturevalue(request.param)
        return
    with EmbeddedKafka(request.param) as broker:
        yield broker


@pytest.fixture
def works(cell, either_kafka):
    """`works(what)`: note it in the table."""
    return lambda what: cell("Kafka releases", what, f"Kafka {either_kafka.version}")


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"oldest-{next(numbers)}", 2)


def test_a_batch_is_committed_redone_and_skipped_and_the_next_one_continues(
    either_kafka, cluster, owner, topic, record_batch, consumed, works
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
        batch = MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}", sources=reads(start, end))
        return commit_batch(transaction, batch, write, max_attempts=2, choice=BY_DRIVER)

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
    group = group_offsets(either_kafka.bootstrap, f"id-{topic}", source.topic, "read_committed")
    assert group[source.partition] == 30
    assert oldest_open(cluster, output, now_ms=0) == {}
    works("KIP-890's protocol" if cluster.transaction_version() >= 2 else "the protocol before KIP-890")
    works("commit, write again, skip, take over; ledger topic; source")


def test_the_preflight_finds_everything_it_asks_for_and_knows_the_release(either_kafka, cluster, topic, works):
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "kafka.transactional.id": f"id-{topic}", "topic": topic}
    options = sink_options(given)
    findings = examine(cluster, options)
    warnings = {finding.subject for finding in findings if finding.severity is not Severity.OK}
    minor = ".".join(either_kafka.version.split(".")[:2])
    single = {f.subject for f in findings if f.found == "replication factor 1"}
    older, bugs = (
        {"transaction.version"} if minor < "4" else set(),
        {"Kafka release"} if "4" <= minor < "4.3" else set(),
    )
    assert warnings - single == older | bugs
    assert [found.found.split(",")[0] for found in findings if found.subject == "Kafka release"] == [minor]
    assert probe(options).severity is Severity.OK
    works("preflight and probe")
