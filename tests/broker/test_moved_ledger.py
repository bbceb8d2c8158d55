"""A ledger that was moved to another topic and back, and pointers that expired or that an operator reset: the last
entry counts, never an older one.
"""

from __future__ import annotations

import itertools
import json

import pytest

from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.broker.conftest import options_of
from tests.coordinating import TransactionCoordinator
from tests.kafka_tools import tool
from tests.releases import OLDER, word
from tests.stepped import COMMITTED, SKIPPED, Query, new

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
FORM_1, RELEASE_0_2, _ = OLDER
GROUPS = "consumer.group.ConsumerGroupCommand"


@pytest.fixture
def query(either_kafka):
    return Query(either_kafka)


@pytest.fixture
def books():
    """Two ledger topics of this test."""
    number = next(numbers)
    return [f"moved-{number}-{each}" for each in "ab"]


def expire(query, *topics):
    """What `offsets.retention.minutes` does to these of the group's pointers."""
    group = f"{query.name}.ledger"
    there = query.offsets(group, *topics)
    for topic in topics:
        if topic in there:
            wanted = ["--delete-offsets", "--group", group, "--topic", topic]
            tool(GROUPS, "--bootstrap-server", query.kafka.bootstrap, *wanted)
    assert query.offsets(group).keys() == there.keys() - {*topics}


@pytest.mark.parametrize("which", [[], [0], [1], [0, 1]], ids=["none", "of the first", "of the second", "both"])
def test_the_last_entry_counts_after_each_move_whichever_pointers_have_expired(query, books, which):
    """As a query with its checkpoint, and as one that has a new checkpoint at each start."""
    first, second = ({"ledgerTopic": topic} for topic in books)
    gone = [books[each] for each in which]

    def starts():
        """Where a new query starts, whichever of the two topics it is told."""
        given = {"sink.kafka.transactional.id": query.name}
        found = new(*(query.starts(**given, **{"sink.ledgerTopic": topic}) for topic in books))
        assert found[0] == found[1]
        return found[0]["starts"][f"{query.source}-0"]

    assert new(query.batch(0, **first), query.batch(1, **first)) == [COMMITTED] * 2
    assert new(query.batch(1, **second), query.batch(2, **second)) == [SKIPPED, COMMITTED]
    expire(query, *gone)
    assert starts() == 30
    assert new(query.batch(2, **first), query.batch(3, **first)) == [SKIPPED, COMMITTED]
    expire(query, *gone)
    assert starts() == 40
    assert new(query.batch(3, **second), query.batch(0, "a new checkpoint", 40, **second)) == [SKIPPED, COMMITTED]
    (refused,) = new(query.batch(0, "an old one", 30, **first))
    assert "does not start where it ended" in refused["refused"]
    assert query.written() == list(range(50))


@pytest.mark.parametrize(
    "own_version",
    [pytest.param("kafka_version", id="TV2"), pytest.param("tv1_version", id="TV1", marks=pytest.mark.slow)],
)
def test_what_an_operator_resets_heals_from_the_record(request, own_version):
    with EmbeddedKafka(request.getfixturevalue(own_version)) as kafka:
        query = Query(kafka)
        group = f"{query.name}.ledger"
        assert FORM_1.run(query.batch(0)) == [COMMITTED]
        assert new(query.batch(1)) == [COMMITTED]
        for number, where in enumerate(["--to-earliest", "--to-latest"], 1):
            wanted = ["--reset-offsets", "--all-groups", "--all-topics", where, "--execute"]
            tool(GROUPS, "--bootstrap-server", kafka.bootstrap, *wanted)
            found = query.offsets(group)
            assert found.keys() == {LEDGER_TOPIC, query.outputs[0]}
            assert {metadata for _, metadata in found.values()} <= {"", None}
            (refused,) = FORM_1.run(query.batch(number))
            assert "is not a ledger entry" in refused["refused"]
            assert new(query.batch(number), query.batch(number + 1)) == [SKIPPED, COMMITTED]
            for _, metadata in query.offsets(group).values():
                assert json.loads(metadata)["v"] == 3
        assert query.committed() == 40
        assert query.written() == list(range(40))


def test_a_pointer_that_was_reset_to_the_end_heals_after_an_aborted_transaction_too(query):
    assert new(query.batch(0)) == [COMMITTED]
    at = TopicPartition(LEDGER_TOPIC, 0)
    with Cluster(options_of(query.kafka.bootstrap)) as cluster:
        end = offsets.latest(cluster, [at], isolation_level="read_uncommitted")[at]
        GroupCoordinator(cluster, f"{query.name}.ledger").commit_offsets({at: OffsetAndMetadata(offset=end)})
        coordinator = TransactionCoordinator(cluster, query.name, 60_000)
        identity = coordinator.init_producer_id()
        LedgerTopic(cluster, LEDGER_TOPIC, query.name).append_entry(identity, b"{}", timestamp_ms=1)
        coordinator.end(identity, commit=False)
    assert new(query.batch(0), query.batch(1)) == [SKIPPED, COMMITTED]
    assert query.written() == list(range(20))


def test_after_a_rollback_by_the_word_the_ledger_goes_on_from_the_topic_that_it_was_moved_to(query, books):
    """Release 0.2.0 numbers its commits from 1 again, below the place that the ledger has left."""
    first, second = ({"ledgerTopic": topic} for topic in books)
    assert new(query.batch(0, **first), query.batch(1, **first), query.batch(2, **second)) == [COMMITTED] * 3
    (refused,) = RELEASE_0_2.run(query.batch(3, **second))
    assert RELEASE_0_2.run(query.batch(3, resolve=word(refused, "write"), **second)) == [COMMITTED]
    (refused,) = new(query.batch(4, **second))
    assert "its entry is not there" in refused["refused"]
    assert new(query.batch(4, resolve=word(refused, "write"), **second)) == [COMMITTED]
    assert new(query.batch(4, **second), query.batch(5, **second)) == [SKIPPED, COMMITTED]
    assert query.written() == list(range(60))


def test_a_topic_that_never_held_a_ledger_whose_group_has_expired_is_begun_by_the_word(query, books):
    first, second = ({"ledgerTopic": topic} for topic in books)
    assert new(query.batch(0, **first), query.batch(1, **first)) == [COMMITTED] * 2
    expire(query, *books)
    (refused,) = new(query.batch(2, **second))
    assert "the ledger has no entry, but the checkpoint is at batch 2" in refused["refused"]
    assert new(query.batch(2, resolve=word(refused, "write"), **second)) == [COMMITTED]
    assert new(query.batch(2, **second), query.batch(3, **second)) == [SKIPPED, COMMITTED]
    assert query.written() == list(range(40))
