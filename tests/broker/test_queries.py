"""What an operator sees of queries, from real ledgers: whoever wrote them, and whatever became of their topics."""

from __future__ import annotations

import itertools
import time

import pytest

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.core.transactions import TransactionFacts
from spark_kafka_eos.model import Written
from spark_kafka_eos.reading.queries import QueryReader
from tests.broker.conftest import options_of
from tests.copying import Copy
from tests.producing import produce

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
OLD = 1_700_000_000_000  # a record's timestamp


@pytest.fixture
def books(kafka):
    """A ledger topic of this test's own."""
    return kafka.create_topic(f"books-{next(numbers)}", 1, {"cleanup.policy": "compact"})


@pytest.fixture
def cluster(kafka):
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        yield cluster


@pytest.fixture
def copy(kafka, cluster, books, topic):
    """`copy(records, **options)`: a query that is to copy a new topic of so many records in each of two partitions."""

    def make(records=600, **options):
        source = topic("queries-in", 2, {"retention.ms": -1})
        for partition in (0, 1):
            produce(kafka.bootstrap, source, [b"x"] * records, partition=partition, timestamp=OLD + partition)
        target = topic("queries-out", 2)
        return Copy(kafka.bootstrap, cluster, source, target, options={"ledgerTopic": books} | options)

    return make


@pytest.fixture
def reader(cluster, books):
    return lambda **more: QueryReader(cluster, ledger_topics=[books], **more)


def test_a_query_is_found_with_its_last_commit_its_lag_and_its_owner(cluster, copy, reader):
    query = copy()
    report = query.run(0, 0, 100)
    query.run(1, 100, 500)
    (found,) = reader(keep=10).read(times=True)
    assert found.transactional_id == query.options.transactional_id
    assert [commit.entry.batch_id for commit in found.commits] == [0, 1]
    assert found.entry.written == Written(records=800, bytes=0, milliseconds=found.entry.written.milliseconds)
    assert (found.last.producer_id, found.last.epoch) == (report.producer_id, report.epoch + 1)
    assert abs(found.last.at_ms - time.time() * 1e3) < 60_000
    (source,) = found.sources
    assert source.cluster == cluster.cluster_id()
    lags = source.partitions
    assert {tp.partition: (lag.committed, lag.unread, lag.oldest_unread_ms) for tp, lag in lags.items()} == {
        0: (500, 100, OLD),
        1: (500, 100, OLD + 1),
    }
    assert (found.unread, found.held, found.lost, found.late_ms(OLD + 1000)) == (200, 0, 0, 1000)
    assert isinstance(found.owner, TransactionFacts)
    assert found.owner.state in ("PrepareCommit", "CompleteCommit")
